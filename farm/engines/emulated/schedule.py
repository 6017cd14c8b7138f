"""One request's whole answer on the model's clock: which tokens arrive when, and what the engine counts. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from farm.engines.emulated import draws, model, tokenizer
from farm.engines.emulated.draws import Question
from farm.engines.emulated.model import Setup, Speculation

_FILLER: Final = tokenizer.encode(
    " Let us think step by step. First we need to find what is given and what the question is asking for. "
    "The total must be the number of things at the start, and then we add what was bought and take away what was sold. "
    "So we multiply the price by the amount, and that gives how much it costs in all. Wait, we should check this, "
    "because the problem says that half of them were already used before the end of the week. "
    "If each one takes two hours, then three of them take six hours, and there are five days in which to work. "
    "Now we have both parts, and we only need to put them together to know the answer. "
)


@dataclass(frozen=True)
class Demand:
    """What a request asks for, as far as an answer depends on it.

    Attributes:
        digest: of the prompt's token ids.
        question: the properties that all variants share.
        gold: the right answer, when the engine was given it.
        open_think: the prompt ends inside a think section.
        limit: the most tokens that may be generated.
        ignore_eos: go on to the limit whatever comes.
        sampled: temperature above 0.
    """

    digest: bytes
    question: Question
    prompt_tokens: int
    cached_tokens: int
    predictability: float
    limit: int
    gold: str | None = None
    open_think: bool = False
    ignore_eos: bool = False
    sampled: bool = True
    seed: int | None = None


@dataclass
class Schedule:
    """The answer: `times_s[i]` after the request `tokens[i]` tokens of `ids` have arrived."""

    ids: list[int]
    finish: Literal["stop", "length"]
    times_s: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    accept_histogram: list[int] | None = None  # rounds by number of accepted drafts; null without speculation

    @property
    def ttft_s(self) -> float:
        """Seconds to the first token."""
        return self.times_s[0]

    @property
    def latency_s(self) -> float:
        """Seconds to the last token."""
        return self.times_s[-1]

    @property
    def verify_rounds(self) -> int:
        """Rounds of verification; the first token comes from prefill and belongs to none."""
        return sum(self.accept_histogram or [])

    @property
    def accepted(self) -> int:
        """Drafts that verification accepted, those behind the end of the answer included, as SGLang counts them."""
        return sum(drafts * rounds for drafts, rounds in enumerate(self.accept_histogram or []))


def schedule(demand: Demand, setup: Setup, *, slowdown: float = 1.0, drafts_fail: bool = False) -> Schedule:
    """Draw the answer and lay its tokens out in time.

    Args:
        demand: the request.
        setup: the engine's.
        slowdown: factor on every time; above 1 for a machine in a slow state.
        drafts_fail: the draft layer is not the trained one, so that nothing it says is accepted.
    """
    rng = draws.noise(demand.digest, repr(setup), demand.seed if demand.sampled else None)
    answer = Schedule(*_output(demand, rng, speculative=setup.speculation is not None))
    first_s = model.prefill_s(setup, demand.prompt_tokens - demand.cached_tokens, demand.cached_tokens)
    answer.times_s.append(first_s * slowdown)
    answer.tokens.append(min(1, len(answer.ids)))  # none where a limit of 0 asks for the prefill alone
    if setup.speculation is None:
        _plain(answer, demand, setup, slowdown)
    else:
        _speculative(answer, demand, setup, setup.speculation, slowdown, drafts_fail, rng)
    return answer


def chunk_ends(times_s: Sequence[float], shortest_gap_s: float) -> list[int]:
    """Cut a schedule into chunks that are no closer than a gap: the index of each chunk's last arrival."""
    ends: list[int] = []
    opened = times_s[0]
    for index, time_s in enumerate(times_s[1:], start=1):
        if time_s - opened >= shortest_gap_s:
            ends.append(index - 1)
            opened = time_s
    return [*ends, len(times_s) - 1]


def _plain(answer: Schedule, demand: Demand, setup: Setup, slowdown: float) -> None:
    cost = model.plain_step(setup)
    now = answer.times_s[0]
    for emitted in range(1, len(answer.ids)):
        now += cost.at(demand.prompt_tokens + emitted) * slowdown
        answer.times_s.append(now)
        answer.tokens.append(emitted + 1)


def _speculative(
    answer: Schedule,
    demand: Demand,
    setup: Setup,
    speculation: Speculation,
    slowdown: float,
    drafts_fail: bool,
    rng: random.Random,
) -> None:
    # Drafts that are all wrong take the experts of unrelated tokens, however predictable the text.
    predictability = 0.0 if drafts_fail else demand.predictability
    cost = model.verify_round(setup, speculation, predictability=predictability, sampled=demand.sampled)
    probabilities = draws.accept_probabilities(demand.question, speculation, predictability)
    if drafts_fail:
        probabilities = [0.0] * len(probabilities)
    histogram = [0] * speculation.rows
    now, emitted = answer.times_s[0], 1
    while emitted < len(answer.ids):
        accepted = draws.accepted_drafts(probabilities, rng)
        histogram[accepted] += 1
        now += cost.at(demand.prompt_tokens + emitted) * slowdown
        emitted = min(len(answer.ids), emitted + accepted + 1)
        answer.times_s.append(now)
        answer.tokens.append(emitted)
    while histogram and histogram[-1] == 0:
        histogram.pop()  # SGLang's histogram ends at the highest count that occurred
    answer.accept_histogram = histogram


def _output(demand: Demand, rng: random.Random, *, speculative: bool) -> tuple[list[int], Literal["stop", "length"]]:
    start = demand.digest[0] % len(_FILLER)
    if demand.ignore_eos:
        return _filler(start, demand.limit), "length"
    length = draws.answer_length(demand.question, rng, speculative=speculative)
    right = draws.is_correct(demand.question, rng)
    number = _number(demand, rng, right=right)
    ending = [tokenizer.THINK_END] if demand.open_think else []
    ending += [*tokenizer.encode(f"\n\nThe answer is {number}.\n\n#### {number}"), tokenizer.END]
    ids = _filler(start, max(0, length - len(ending))) + ending
    if len(ids) > demand.limit:
        return ids[: demand.limit], "length"
    return ids, "stop"


def _filler(start: int, length: int) -> list[int]:
    times = (start + length) // len(_FILLER) + 1
    return (_FILLER * times)[start : start + length]


def _number(demand: Demand, rng: random.Random, *, right: bool) -> str:
    if demand.gold is None:
        return str(int.from_bytes(demand.digest[:2]) % 1000)
    if right:
        return demand.gold
    try:
        return str(int(demand.gold.replace(",", "")) + rng.randint(1, 9))
    except ValueError:
        return f"{demand.gold}{rng.randint(1, 9)}"
