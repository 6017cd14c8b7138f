"""What an answer is: how long, whether right, and how many drafts each round accepts. Pure, drawn from seeds.

Two things decide about an answer. What belongs to the question (how long it is to answer, whether it is a hard one, how
well its answer can be guessed ahead) is the same for every variant. Sampling noise is drawn anew for every variant,
seed and repeat. Fitted to the two published GSM8K runs: both length distributions are log-normal as they stand, and
41 and 42 wrong answers of 1,319 with 28 in common are what hard questions give that are answered right one time in
three.
"""

from __future__ import annotations

import hashlib
import math
import random
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

from farm.engines.emulated.model import Speculation

# Output tokens of GSM8K: median, and standard deviation of the logarithm. The published run with speculation answered
# at more length than the one without; whether by chance is unknown, so both are reproduced.
PLAIN_LENGTH: Final = (309.0, 1.105)
SPECULATIVE_LENGTH: Final = (318.0, 1.140)
SAMPLING_SPREAD: Final = 0.15  # the part of that deviation which sampling adds to the same question
SHORTEST: Final = 32

HARD_SHARE: Final = 0.0466
HARD_CORRECT: Final = 0.325

# Probability that a draft is accepted when all before it were, by position.
ACCEPT_PROSE: Final = (0.755, 0.722, 0.692)
ACCEPT_REPETITIVE: Final = (0.985, 0.985, 0.985)
ACCEPT_SPREAD: Final = 0.25  # between questions, of the log-odds

_NORMAL: Final = NormalDist()


@dataclass(frozen=True)
class Question:
    """What belongs to a question whoever answers it.

    Attributes:
        quantile: its place in the distribution of answer lengths, between 0 and 1.
        hard: whether it is answered right only some of the time.
        guessing: log-odds that its drafts are accepted more often than others'.
    """

    quantile: float
    hard: bool
    guessing: float


def question_of(digest: bytes, rank: int | None = None, count: int = 0) -> Question:
    """The properties of a question, from the digest of its prompt.

    With its rank among `count` known questions the properties are spread evenly over those, so that even one pass over
    them has the distribution's own mean; without, they are independent draws.
    """
    rng = random.Random(digest)  # noqa: S311 - reproducible draws, no secret
    guessing = rng.gauss(0.0, ACCEPT_SPREAD)
    if rank is None:
        return Question(rng.uniform(1e-6, 1 - 1e-6), rng.random() < HARD_SHARE, guessing)
    # Hard questions are evenly spaced over the longer half.
    first = rank * 2 * HARD_SHARE
    hard = 2 * rank >= count and math.floor(first + 2 * HARD_SHARE) > math.floor(first)
    return Question((rank + 0.5) / count, hard, guessing)


def noise(digest: bytes, variant: str, seed: int | None) -> random.Random:
    """The source of sampling noise for one answer: equal for an equal question, variant and seed."""
    material = hashlib.sha256(digest + f"/{variant}/{seed}".encode()).digest()
    return random.Random(material)  # noqa: S311 - reproducible draws, no secret


def answer_length(question: Question, rng: random.Random, *, speculative: bool) -> int:
    """Output tokens of an answer that ends by itself."""
    median, deviation = SPECULATIVE_LENGTH if speculative else PLAIN_LENGTH
    own = math.sqrt(deviation**2 - SAMPLING_SPREAD**2) * _NORMAL.inv_cdf(question.quantile)
    return max(SHORTEST, round(median * math.exp(own + rng.gauss(0.0, SAMPLING_SPREAD))))


def is_correct(question: Question, rng: random.Random) -> bool:
    """Whether an answer is right."""
    chance = rng.random()
    return not question.hard or chance < HARD_CORRECT


def accept_probabilities(question: Question, speculation: Speculation, predictability: float) -> list[float]:
    """Probability of acceptance by draft position; a draft counts only when all before it were accepted."""
    probabilities = []
    for position in range(speculation.rows - 1):
        # Beyond the published three positions the last one's probability goes on.
        prose = ACCEPT_PROSE[min(position, len(ACCEPT_PROSE) - 1)]
        repetitive = ACCEPT_REPETITIVE[min(position, len(ACCEPT_REPETITIVE) - 1)]
        odds = math.log(prose / (1 - prose)) + question.guessing
        prose = 1 / (1 + math.exp(-odds))
        probabilities.append(prose + predictability * (repetitive - prose))
    return probabilities


def accepted_drafts(probabilities: list[float], rng: random.Random) -> int:
    """How many drafts one round accepts."""
    for accepted, probability in enumerate(probabilities):
        if rng.random() >= probability:
            return accepted
    return len(probabilities)


def predictability_of(ids: list[int], window: int = 8) -> float:
    """How much a prompt repeats itself: the share of its runs of `window` tokens that occurred before."""
    runs = len(ids) - window + 1
    if runs < 1:
        return 0.0
    return 1.0 - len({tuple(ids[start : start + window]) for start in range(runs)}) / runs
