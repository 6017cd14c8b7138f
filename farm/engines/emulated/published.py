"""The published table beside the modelled one: `python -m farm.engines.emulated.published`."""

from __future__ import annotations

import hashlib
import statistics
from dataclasses import dataclass
from typing import Final

from farm.builtin.published import load
from farm.engines.emulated import draws, tokenizer
from farm.engines.emulated.draws import Question
from farm.engines.emulated.model import Setup, Speculation
from farm.engines.emulated.schedule import Demand, Schedule, schedule

QUESTIONS: Final = 1319
# What the farm's own GSM8K prompt comes to in the emulated tokenizer: five examples, the instruction, the question.
GSM8K_PROMPT_TOKENS: Final = 710
GSM8K_PREDICTABILITY: Final = 0.016
GOLD: Final = "1"
SYNTHETIC_TOKENS: Final = (32_768, 2_048)

BASELINE: Final = Setup()
HUMMING: Final = Setup(experts="humming")
HUMMING_FP8: Final = Setup(experts="humming", fp8_head=True)
OPTIMISED: Final = Setup(experts="humming", fp8_head=True, speculation=Speculation())


@dataclass(frozen=True)
class Row:
    """One figure, published and modelled."""

    name: str
    published: float
    modelled: float

    @property
    def error_pct(self) -> float:
        """How far the model is off."""
        return 100 * (self.modelled / self.published - 1)


def gsm8k(setup: Setup, *, seed: int = 42, sampled: bool = True, limit: int = 32_768) -> list[Schedule]:
    """All questions of GSM8K, answered once."""
    return [
        schedule(
            Demand(
                digest=digest,
                question=question,
                prompt_tokens=GSM8K_PROMPT_TOKENS,
                cached_tokens=0,
                predictability=GSM8K_PREDICTABILITY,
                limit=limit,
                gold=GOLD,
                open_think=True,
                sampled=sampled,
                seed=seed,
            ),
            setup,
        )
        for digest, question in _questions()
    ]


def synthetic(setup: Setup, *, requests: int = 8, drafts_fail: bool = False) -> list[Schedule]:
    """Long repetitive prompts, greedy."""
    return [
        schedule(
            Demand(
                digest=_digest(index),
                question=draws.question_of(_digest(index)),
                prompt_tokens=SYNTHETIC_TOKENS[0],
                cached_tokens=0,
                predictability=1.0,
                limit=SYNTHETIC_TOKENS[1],
                ignore_eos=True,
                sampled=False,
            ),
            setup,
            drafts_fail=drafts_fail,
        )
        for index in range(requests)
    ]


def tpot_s(answers: list[Schedule]) -> float:
    """Token-weighted seconds per output token."""
    return sum(a.latency_s - a.ttft_s for a in answers) / sum(len(a.ids) - 1 for a in answers)


def accept_length(answers: list[Schedule]) -> float:
    """Tokens per verify round, token-weighted."""
    return sum(len(a.ids) for a in answers) / sum(a.verify_rounds for a in answers)


def rows() -> list[Row]:
    """The whole table."""
    figures = load()
    setups = (BASELINE, HUMMING, HUMMING_FP8, OPTIMISED)
    table = [
        Row(f"synthetic TPOT ms, {rung['variant']}", rung["tpot_ms"], 1e3 * tpot_s(synthetic(setup)))
        for rung, setup in zip(figures["synthetic"]["ladder"], setups, strict=True)
    ]
    fallen, fallback = synthetic(OPTIMISED, drafts_fail=True), figures["silent_fallback"]
    rung = figures["synthetic"]["ladder"][-1]
    table += [
        Row("synthetic accept length", rung["accept_length"], accept_length(synthetic(OPTIMISED))),
        Row("silent fallback tokens/s", fallback["tokens_per_s"], 1 / tpot_s(fallen)),
        Row("silent fallback accept length", fallback["accept_length"], accept_length(fallen)),
    ]
    plain, fast = gsm8k(BASELINE), gsm8k(OPTIMISED)
    figures_of = figures["gsm8k"]
    table += _gsm8k_rows("baseline", plain, figures_of["baseline"])
    table += _gsm8k_rows("optimised", fast, figures_of[rung["variant"]])
    table.append(Row("GSM8K accept length", figures_of[rung["variant"]]["accept_length"], accept_length(fast)))
    short = figures["other_workloads"]
    gain, drafted = short["greedy_max_tokens_512_gain_pct"], short["greedy_max_tokens_512_accept_length"]
    plain_512, fast_512 = (gsm8k(setup, sampled=False, limit=512) for setup in (BASELINE, OPTIMISED))
    table += [
        Row("GSM8K greedy, 512 tokens, throughput ratio", 1 + gain / 100, tpot_s(plain_512) / tpot_s(fast_512)),
        Row("GSM8K greedy, 512 tokens, accept length", drafted, accept_length(fast_512)),
    ]
    return [*table, *_paired_rows(plain, fast, figures_of["paired"])]


def _gsm8k_rows(name: str, answers: list[Schedule], figures_of: dict[str, float]) -> list[Row]:
    tokens = [len(answer.ids) for answer in answers]
    figures = {
        "TPOT ms": (figures_of["tpot_ms"], 1e3 * tpot_s(answers)),
        "tokens/s": (figures_of["tokens_per_s"], 1 / tpot_s(answers)),
        "mean latency s": (figures_of["mean_latency_s"], statistics.fmean(a.latency_s for a in answers)),
        "mean TTFT s": (figures_of["mean_ttft_s"], statistics.fmean(a.ttft_s for a in answers)),
        "mean tokens": (figures_of["completion_tokens"] / QUESTIONS, statistics.fmean(tokens)),
        "p50 tokens": (figures_of["p50_completion_tokens"], statistics.median(tokens)),
        "p95 tokens": (figures_of["p95_completion_tokens"], statistics.quantiles(tokens, n=20)[-1]),
        "accuracy %": (figures_of["accuracy_pct"], 100 * sum(map(_is_right, answers)) / QUESTIONS),
    }
    return [Row(f"GSM8K {figure}, {name}", *values) for figure, values in figures.items()]


def _paired_rows(plain: list[Schedule], fast: list[Schedule], figures_of: dict[str, int]) -> list[Row]:
    pairs = [(_is_right(a), _is_right(b)) for a, b in zip(plain, fast, strict=True)]
    disagreements = figures_of["baseline_only"] + figures_of["optimized_only"]
    return [
        Row("GSM8K right in one of two", disagreements, sum(a != b for a, b in pairs)),
        Row("GSM8K wrong in both", figures_of["neither"], sum(not a and not b for a, b in pairs)),
    ]


def _is_right(answer: Schedule) -> bool:
    return tokenizer.decode(answer.ids, skip_special=True).endswith(f"#### {GOLD}")


def _digest(index: int) -> bytes:
    return hashlib.sha256(f"question {index}".encode()).digest()


def _questions() -> list[tuple[bytes, Question]]:
    digests = sorted(_digest(index) for index in range(QUESTIONS))
    return [(digest, draws.question_of(digest, rank, QUESTIONS)) for rank, digest in enumerate(digests)]


def main() -> None:
    """Print the table."""
    print(f"{'':44}{'published':>12}{'modelled':>12}{'error %':>9}")
    for row in rows():
        print(f"{row.name:44}{row.published:12.4g}{row.modelled:12.4g}{row.error_pct:9.2f}")


if __name__ == "__main__":
    main()
