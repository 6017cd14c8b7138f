"""The one table of figures: what each is called, its unit and definition, how it reads, and where it comes from.

The terminal, Markdown, CSV, the HTML report and MLflow show what stands here. A new figure is a row. What figures are
formed of has its words from `farm.results.measures`, which a running sweep exports to Prometheus.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from farm.compare.model import Accuracy, Contrast, Ends, Estimate, VariantFigures
from farm.compare.words import number
from farm.results.measures import ANSWERS, DECODE_S, DECODE_TOKENS, ENERGY, ERRORS, SLOW_ANSWERS, SM_CLOCK, TTFT

Source = TypeVar("Source")


class Reading(NamedTuple):
    """A figure and its 95 % interval, null where it is not known."""

    value: float | str | None
    ci: Ends | None = None


@dataclass(frozen=True)
class Column(Generic[Source]):
    """One figure of a variant, or of a contrast.

    Attributes:
        key: its name in CSV.
        name: its name for readers, followed by `unit` and `over`, what it is taken over.
        definition: how it is formed, in a line.
        of: where it comes from.
        digits: how many are shown after the point.
        metric: its name in MLflow, `group/name`; null where it is none.
        ranged: its interval is part of CSV and MLflow too.
        telemetry: known only where the GPU was watched, and shown only there.
    """

    key: str
    name: str
    unit: str
    definition: str
    of: Callable[[Source], Reading]
    digits: int = 2
    over: str = ""
    metric: str | None = None
    ranged: bool = False
    telemetry: bool = False

    @property
    def heading(self) -> str:
        """Name, unit, and what it is taken over."""
        named = f"{self.name} {self.unit}".rstrip()
        return f"{named}, {self.over}" if self.over else named

    def text(self, source: Source) -> str:
        """The figure as it is shown; counts are whole."""
        value = self.of(source).value
        if isinstance(value, str):
            return value
        return f"{value:,}" if isinstance(value, int) else number(value, self.digits)

    def range_text(self, source: Source) -> str:
        """Its interval as it is shown, empty where there is none."""
        low, high = self.of(source).ci or (None, None)
        return "" if low is None and high is None else f"[{number(low, self.digits)}, {number(high, self.digits)}]"


def _of(estimate: Estimate | Accuracy | None) -> Reading:
    return Reading(None) if estimate is None else Reading(estimate.value, estimate.ci)


Variant = Column[VariantFigures]
_TPOT: Final = f"{DECODE_S.definition} over {DECODE_TOKENS.definition}"

VARIANT_COLUMNS: Final[tuple[Variant, ...]] = (
    Variant("requests", ANSWERS.name, ANSWERS.unit, ANSWERS.definition, lambda one: Reading(one.requests),
            metric="answers/requests"),
    Variant("errors", ERRORS.name, ERRORS.unit, ERRORS.definition, lambda one: Reading(one.errors),
            metric="answers/errors"),
    Variant("truncated", "truncated", "", "answers cut off at their token limit", lambda one: Reading(one.truncated),
            metric="answers/truncated"),
    Variant("attempted_again", "attempted again", "", "answers, failed or not, that needed more than one attempt",
            lambda one: Reading(one.reliability.attempted_again), metric="answers/attempted_again"),
    Variant("engines_died", "engines died", "", "engines that ended by themselves, in the whole sweep",
            lambda one: Reading(one.reliability.engines_died), metric="engines/died"),
    Variant("engines_lost", "engines lost", "", "engines without an end, their node or driver lost, in the whole sweep",
            lambda one: Reading(one.reliability.engines_lost), metric="engines/lost"),
    Variant("starts_failed", "starts failed", "", "engine starts that came to nothing, in the whole sweep",
            lambda one: Reading(one.reliability.starts_failed), metric="engines/starts_failed"),
    Variant("starts_refused", "starts refused", "", "engines that were not the variant asked for, in the whole sweep",
            lambda one: Reading(one.reliability.starts_refused), metric="engines/starts_refused"),
    Variant("tpot_ms", "TPOT", "ms", f"{_TPOT}, summed over answers before dividing", lambda one: _of(one.tpot_ms),
            over="token-weighted", metric="speed/tpot_ms", ranged=True),
    Variant("tpot_per_request_ms_mean", "TPOT", "ms", f"{_TPOT}, of each answer",
            lambda one: Reading(one.tpot_per_request_ms.mean, one.tpot_per_request_ms.mean_ci),
            over="mean of requests"),
    Variant("tpot_per_request_ms_p50", "TPOT", "ms", f"{_TPOT}, of each answer",
            lambda one: Reading(one.tpot_per_request_ms.p50, one.tpot_per_request_ms.p50_ci),
            over="median of requests"),
    Variant("decode_tokens_per_s", "decode", "tokens/s", "1 / TPOT, token-weighted",
            lambda one: _of(one.decode_tokens_per_s), metric="speed/decode_tokens_per_s", ranged=True),
    Variant("ttft_s_mean", TTFT.name, TTFT.unit, TTFT.definition,
            lambda one: Reading(one.ttft_s.mean, one.ttft_s.mean_ci), digits=3, over="mean",
            metric="speed/ttft_s.mean"),
    Variant("ttft_s_p50", TTFT.name, TTFT.unit, TTFT.definition,
            lambda one: Reading(one.ttft_s.p50, one.ttft_s.p50_ci), digits=3, over="median",
            metric="speed/ttft_s.p50"),
    Variant("ttft_s_p95", TTFT.name, TTFT.unit, TTFT.definition,
            lambda one: Reading(one.ttft_s.p95, one.ttft_s.p95_ci), digits=3, over="p95", metric="speed/ttft_s.p95"),
    Variant("latency_s_mean", "latency", "s", "from sending a request to its last token",
            lambda one: Reading(one.latency_s.mean, one.latency_s.mean_ci), over="mean",
            metric="speed/latency_s.mean"),
    Variant("latency_s_p50", "latency", "s", "from sending a request to its last token",
            lambda one: Reading(one.latency_s.p50, one.latency_s.p50_ci), over="median", metric="speed/latency_s.p50"),
    Variant("latency_s_p95", "latency", "s", "from sending a request to its last token",
            lambda one: Reading(one.latency_s.p95, one.latency_s.p95_ci), over="p95", metric="speed/latency_s.p95"),
    Variant("completion_tokens_mean", "completion tokens", "", "tokens of an answer, counted by the engine",
            lambda one: Reading(one.completion_tokens.mean, one.completion_tokens.mean_ci), digits=0, over="mean",
            metric="answers/completion_tokens.mean"),
    Variant("completion_tokens_p50", "completion tokens", "", "tokens of an answer, counted by the engine",
            lambda one: Reading(one.completion_tokens.p50, one.completion_tokens.p50_ci), digits=0, over="median",
            metric="answers/completion_tokens.p50"),
    Variant("completion_tokens_p95", "completion tokens", "", "tokens of an answer, counted by the engine",
            lambda one: Reading(one.completion_tokens.p95, one.completion_tokens.p95_ci), digits=0, over="p95",
            metric="answers/completion_tokens.p95"),
    Variant("accept_length", "accept length", "", "tokens of verify rounds over rounds, summed over answers",
            lambda one: Reading(one.accept_length, one.accept_length_ci), over="token-weighted",
            metric="speculation/accept_length"),
    Variant("accept_length_engine", "accept length", "", "as the engine counts it: the prefill's token is in it",
            lambda one: Reading(one.accept_length_engine), over="engine's own"),
    Variant("accept_length_per_request", "accept length", "", "tokens per verify round, of each answer",
            lambda one: Reading(one.accept_length_per_request), over="mean of requests"),
    Variant("accept_rate", "accept rate", "", "accepted over proposed draft tokens",
            lambda one: Reading(one.accept_rate, one.accept_rate_ci), digits=3, over="draft-weighted",
            metric="speculation/accept_rate"),
    Variant("accept_rate_per_request", "accept rate", "", "accepted over proposed draft tokens, of each answer",
            lambda one: Reading(one.accept_rate_per_request), digits=3, over="mean of requests"),
    Variant("accuracy", "accuracy", "", "right answers over graded answers", lambda one: _of(one.accuracy), digits=4,
            metric="accuracy/accuracy", ranged=True),
    Variant("correct", "right answers", "", "graded answers that are right",
            lambda one: Reading(one.accuracy.correct if one.accuracy else None), metric="accuracy/correct"),
    Variant("graded", "graded answers", "", "answers that have a reference to be graded by",
            lambda one: Reading(one.accuracy.n if one.accuracy else None), metric="accuracy/n"),
    Variant("energy_j_per_request", ENERGY.name, f"{ENERGY.unit} per answer", f"{ENERGY.definition} over answers",
            lambda one: _of(one.energy_j_per_request), digits=1, metric="energy/energy_j_per_request", ranged=True,
            telemetry=True),
    Variant("energy_j_per_token", ENERGY.name, f"{ENERGY.unit} per generated token", f"{ENERGY.definition} over tokens",
            lambda one: _of(one.energy_j_per_token), digits=3, metric="energy/energy_j_per_token", ranged=True,
            telemetry=True),
    Variant("energy_method", "energy measured by", "", "a counter of the board, or the integral of power readings",
            lambda one: Reading(one.energy_method), telemetry=True),
    Variant("sm_clock_mhz", SM_CLOCK.name, SM_CLOCK.unit, f"{SM_CLOCK.definition}, time-weighted",
            lambda one: Reading(one.sm_clock_mhz), digits=0, metric="energy/sm_clock_mhz", telemetry=True),
    Variant("throttled_s", "throttled", "seconds", "seconds of answers in which the GPU slowed itself down",
            lambda one: Reading(one.throttled_s), digits=1, metric="energy/throttled_s", telemetry=True),
    Variant("slow_answers", SLOW_ANSWERS.name, SLOW_ANSWERS.unit, SLOW_ANSWERS.definition,
            lambda one: Reading(one.slow_answers), metric="energy/slow_answers", telemetry=True),
)  # fmt: skip

Paired = Column[Contrast]

CONTRAST_COLUMNS: Final[tuple[Paired, ...]] = (
    Paired("pairs", "pairs", "", "items that both variants answered", lambda c: Reading(c.pairs)),
    Paired("throughput_ratio", "decode throughput", "", "TPOT of the other over TPOT of the variant, on paired items",
           lambda c: _of(c.throughput_ratio), over="ratio", metric="vs_baseline/throughput_ratio", ranged=True),
    Paired("mean_latency_change", "mean latency", "", "mean latency over that of the other, less 1",
           lambda c: _of(c.mean_latency_change), over="change", metric="vs_baseline/mean_latency_change", ranged=True),
    Paired("completion_tokens_change", "completion tokens", "", "mean tokens of an answer over the other's, less 1",
           lambda c: _of(c.completion_tokens_change), over="change"),
    Paired("ttft_change", "TTFT", "", "mean time to first token over that of the other, less 1",
           lambda c: _of(c.ttft_change), over="change"),
    Paired("gain_p_holm", "minimum gain", "p", "throughput gains no more than the minimum, by Holm over the variants",
           lambda c: Reading(c.gain_p_holm)),
    Paired("accuracy_difference_pp", "accuracy", "pp", "share of right answers less that of the other",
           lambda c: Reading(c.accuracy.difference_pp, c.accuracy.ci) if c.accuracy else Reading(None),
           over="difference", metric="vs_baseline/accuracy_difference_pp", ranged=True),
    Paired("mcnemar_exact_p", "McNemar exact", "p", "exact test of no difference in accuracy",
           lambda c: Reading(c.accuracy.mcnemar_exact_p if c.accuracy else None)),
    Paired("mcnemar_mid_p", "McNemar mid-p", "p", "its mid-p form",
           lambda c: Reading(c.accuracy.mcnemar_mid_p if c.accuracy else None), metric="vs_baseline/mcnemar_mid_p"),
    Paired("tost_p", "equivalence", "p", "two one-sided tests of a difference within the margin",
           lambda c: Reading(c.accuracy.tost_p if c.accuracy else None), metric="vs_baseline/tost_p"),
    Paired("margin_pp", "margin", "pp", "the difference in accuracy that does not matter",
           lambda c: Reading(c.accuracy.margin_pp if c.accuracy else None)),
    Paired("verdict", "verdict", "", "equivalent, better, worse or inconclusive",
           lambda c: Reading(c.accuracy.verdict if c.accuracy else None)),
    Paired("energy_per_token_ratio", "energy per token", "", "energy per generated token over that of the other",
           lambda c: _of(c.energy_per_token_ratio), over="ratio", metric="vs_baseline/energy_per_token_ratio",
           ranged=True, telemetry=True),
)  # fmt: skip
