"""Is the accuracy of two variants different, or shown to be the same? All on paired outcomes of the same questions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, stats
from statsmodels.stats.proportion import proportion_confint

FloatArray = NDArray[np.float64]

ALPHA = 0.05
POWER = 0.80
FEW_DISCORDANT = 10
"""Below this many discordant questions the normal approximation of Wald is not used."""
MANY_REPEATS = 100
"""Nobody asks a question more often."""


class Outcomes(NamedTuple):
    """Paired answers: how many both got right, one alone, the other alone, neither."""

    both: int
    only_against: int
    only_variant: int
    neither: int


@dataclass(frozen=True)
class AccuracyContrast:
    """Accuracy of a variant against another on the same questions; differences are fractions, not points."""

    outcomes: Outcomes
    difference: float
    low: float
    high: float
    exact_p: float
    mid_p: float
    tost_p: float
    not_worse_p: float  # one-sided: worse by the margin or more
    margin: float
    detectable: float
    questions_needed: float  # for the equivalence test, with as many repeats
    repeats_needed: int | None  # of `available` questions, for the same; None where repeats do not do it
    verdict: str


def wilson(correct: float, count: int) -> tuple[float, float]:
    """95 % interval of a proportion. Wilson (1927); Brown, Cai & DasGupta (2001), Statistical Science 16(2)."""
    if count == 0:
        return math.nan, math.nan
    low, high = proportion_confint(correct, count, alpha=ALPHA, method="wilson")
    return float(low), float(high)


@dataclass(frozen=True)
class Paired:
    """Differences in the share of right answers, question by question, and what repeats are worth."""

    difference: FloatArray
    answers: float  # pairs of answers: questions times repeats
    discordant: float  # of them, those that differ

    @property
    def repeats(self) -> float:
        """Answers to a question, on average."""
        return self.answers / len(self.difference)

    @property
    def design_effect(self) -> float:
        """Pairs of answers that carry as much as one pair on a question of its own: 1 where repeats are independent.

        Rao & Scott (1992), "A simple method for the analysis of clustered binary data", Biometrics 48. Where too few
        questions differ to tell, a repeat counts as no new answer.
        """
        if self.answers <= len(self.difference):
            return 1.0
        if _discordant(self.difference) < FEW_DISCORDANT:
            return self.repeats
        mean = float(self.difference.mean())
        independent = (self.discordant - self.answers * mean**2) / self.answers**2
        return min(max(_wald_error(self.difference) ** 2 / independent, 1.0), self.repeats) if independent > 0 else 1.0


def single(difference: FloatArray) -> Paired:
    """One answer to each question."""
    return Paired(difference, len(difference), float(np.abs(difference).sum()))


def compare_accuracy(
    variant: FloatArray, against: FloatArray, outcomes: Outcomes, margin: float, available: int | None = None
) -> AccuracyContrast:
    """Contrast the accuracy of two variants, question by question.

    Args:
        variant: the share of right answers to each question: 0 or 1, or a mean over repeats.
        against: the same of the other variant.
        outcomes: counts over pairs of answers.
        margin: the difference that does not matter.
        available: how many questions there are to ask.
    """
    difference = variant - against
    paired = Paired(difference, sum(outcomes), outcomes.only_against + outcomes.only_variant)
    exact_p, mid_p = sign_flip_p(difference)
    bounds = margin_bounds(paired, margin)
    low, high = difference_interval(paired)
    return AccuracyContrast(
        outcomes=outcomes,
        difference=float(difference.mean()),
        low=low,
        high=high,
        exact_p=exact_p,
        mid_p=mid_p,
        tost_p=bounds.equivalence,
        not_worse_p=bounds.not_worse,
        margin=margin,
        detectable=detectable_difference(difference),
        questions_needed=questions_needed(paired, margin),
        repeats_needed=None if available is None else repeats_needed(paired, margin, available),
        verdict=verdict(float(difference.mean()), mid_p, bounds.equivalence),
    )


def sign_flip_p(difference: FloatArray) -> tuple[float, float]:
    """Exact and mid-p two-sided p-value of "no difference", conditional on the sizes of the differences.

    With one answer to a question this is McNemar's exact test and its mid-p form: Fagerland, Lydersen & Laake (2013),
    "The McNemar test for binary matched-pairs data", BMC Med. Res. Methodol. 13:91. With repeats averaged within
    questions it is the sign-flip permutation test (Fisher 1935), of which McNemar's is the special case.
    """
    sizes, shift = _integer_sizes(difference)
    total = int(sizes.sum())
    if total == 0:
        return 1.0, 1.0
    # Distribution of the sum of the sizes whose sign came out positive: a product of binomials, one for each size.
    positive = np.ones(1)
    for size in np.unique(sizes[sizes > 0]):
        count = int(np.sum(sizes == size))
        spaced = np.zeros(count * int(size) + 1)
        spaced[:: int(size)] = stats.binom.pmf(np.arange(count + 1), count, 0.5)
        positive = np.convolve(positive, spaced)
    smaller = min((total + shift) // 2, (total - shift) // 2)
    tail = float(positive[: smaller + 1].sum())
    return min(1.0, 2 * tail), min(1.0, 2 * tail - float(positive[smaller]))


def _integer_sizes(difference: FloatArray) -> tuple[NDArray[np.int64], int]:
    """Differences as whole numbers of their common unit: their sizes, and their signed sum."""
    unit = next((n for n in range(1, 1000) if np.allclose(difference * n, np.round(difference * n), atol=1e-9)), 1000)
    whole = np.round(difference * unit).astype(np.int64)
    return np.abs(whole), int(whole.sum())


def difference_interval(paired: Paired) -> tuple[float, float]:
    """95 % interval of a paired difference: Wald's, or the score interval where few pairs are discordant.

    Wald: Fagerland, Lydersen & Laake (2014), "Recommended tests and confidence intervals for paired binomial
    proportions", Statistics in Medicine 33(16). Score: Tango (1998), Statistics in Medicine 17(8). With repeats the
    error of Wald is that of the means of questions.
    """
    difference = paired.difference
    if len(difference) < 2:
        return math.nan, math.nan
    if _discordant(difference) >= FEW_DISCORDANT:
        half = float(stats.norm.ppf(1 - ALPHA / 2)) * _wald_error(difference)
        return float(difference.mean()) - half, float(difference.mean()) + half
    z = float(stats.norm.ppf(1 - ALPHA / 2))
    mean = float(difference.mean())
    edge = 1 - 1e-9
    low = _root(lambda delta: _score_z(paired, delta) - z, -edge, min(mean, edge))
    high = _root(lambda delta: _score_z(paired, delta) + z, max(mean, -edge), edge)
    return low, high


def _root(function: object, low: float, high: float) -> float:
    try:
        return float(optimize.brentq(function, low, high))
    except ValueError:  # no crossing: the interval reaches the end of the scale
        return low if abs(low) > abs(high) else high


class Bounds(NamedTuple):
    """One-sided p-values of "it is worse by the margin or more" and "it is better by the margin or more"."""

    not_worse: float
    not_better: float

    @property
    def equivalence(self) -> float:
        """Two one-sided tests: both must reject, so the larger p-value counts. Schuirmann (1987)."""
        return max(self)


def margin_bounds(paired: Paired, margin: float) -> Bounds:
    """Test the paired difference against both ends of the margin.

    The Wald statistic, as the published figures use it. With few discordant pairs it rejects too often (6 % in place
    of 5 % at 1,319 questions), so where it alone rejects, the score test of Tango (1998), which keeps its level,
    overrules it. With very few the score test stands alone, as it does for the interval.
    """
    difference = paired.difference
    if len(difference) < 2:
        return Bounds(1.0, 1.0)
    if _discordant(difference) < FEW_DISCORDANT:
        scores = _score_z(paired, -margin), -_score_z(paired, margin)
        return Bounds(*(float(stats.norm.sf(score)) for score in scores))
    error, mean = _wald_error(difference), float(difference.mean())
    return Bounds(
        _overruled(error and (mean + margin) / error, _score_z(paired, -margin)),
        _overruled(error and (margin - mean) / error, -_score_z(paired, margin)),
    )


def _overruled(wald_z: float, score_z: float) -> float:
    wald, score = float(stats.norm.sf(wald_z)), float(stats.norm.sf(score_z))
    return score if wald <= ALPHA < score or wald_z == 0 else wald


def _wald_error(difference: FloatArray) -> float:
    return float(np.sqrt(np.sum((difference - difference.mean()) ** 2)) / len(difference))


def _discordant(difference: FloatArray) -> int:
    return int(np.count_nonzero(difference))


def _score_z(paired: Paired, delta: float) -> float:
    """Tango's statistic of "the true difference is delta", on counts divided by the design effect of repeats."""
    effect = paired.design_effect
    count, net = paired.answers / effect, float(paired.difference.mean()) * paired.answers / effect
    changed = max(paired.discordant / effect, abs(net))
    gains, losses = (changed + net) / 2, (changed - net) / 2
    linear = -gains - losses + (2 * count - gains + losses) * delta
    constant = -losses * delta * (1 - delta)
    loss_rate = (math.sqrt(max(linear**2 - 8 * count * constant, 0.0)) - linear) / (4 * count)
    variance = count * (2 * loss_rate + delta * (1 - delta))
    distance = gains - losses - count * delta
    if variance <= 0:
        return 0.0 if distance == 0 else math.copysign(math.inf, distance)
    return distance / math.sqrt(variance)


def detectable_difference(difference: FloatArray) -> float:
    """Smallest true difference that this many questions show at 5 % with 80 % power.

    Connor (1987), "Sample size for testing differences in proportions for the paired-sample design", Biometrics 43,
    with the observed rate of discordant pairs; three when fewer were seen, the upper bound for none.
    """
    count = len(difference)
    if count == 0:
        return math.nan
    reach = float(stats.norm.ppf(1 - ALPHA / 2) + stats.norm.ppf(POWER))
    return min(1.0, reach * math.sqrt(max(float(np.sum(difference**2)), 3.0)) / count)


def questions_needed(paired: Paired, margin: float) -> float:
    """Questions, each with as many repeats, for an equivalence test with 80 % power when the true difference is none.

    Two one-sided tests: (z(0.95) + z(0.90))^2 x variance of a question's difference / margin^2. Chow, Shao & Wang
    (2008), "Sample Size Calculations in Clinical Research", ch. 3. Three discordant answers where fewer were seen.
    """
    return float(math.ceil(_answers_needed(paired, margin) * paired.design_effect / paired.repeats))


def repeats_needed(paired: Paired, margin: float, available: int) -> int | None:
    """Repeats of all the questions there are, for the same; None where even many do not do it.

    Answers to one question are alike by the intraclass correlation that the design effect shows; with one answer to
    each, none is known.
    """
    answers, repeats = _answers_needed(paired, margin), paired.repeats
    alike = (paired.design_effect - 1) / (repeats - 1) if repeats > 1 else 0.0
    # answers x (1 + (n - 1) x alike) / n <= available
    left = available - answers * alike
    needed = answers * (1 - alike) / left if left > 0 else math.inf
    return max(1, math.ceil(needed)) if needed <= MANY_REPEATS else None


def _answers_needed(paired: Paired, margin: float) -> float:
    """Pairs of answers, were they all independent."""
    reach = float(stats.norm.ppf(0.95) + stats.norm.ppf(0.90))
    return reach**2 * max(paired.discordant, 3.0) / max(paired.answers, 1.0) / margin**2


def verdict(difference: float, mid_p: float, tost_p: float) -> str:
    """In words: equivalent, better, worse or inconclusive, in this order of precedence."""
    if tost_p <= ALPHA:
        return "equivalent"
    if mid_p < ALPHA:
        return "better" if difference > 0 else "worse"
    return "inconclusive"
