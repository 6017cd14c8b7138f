"""Accuracy statistics against published examples, scipy, statsmodels and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.proportion import proportion_confint

from farm.stats.accuracy import (
    Outcomes,
    Paired,
    compare_accuracy,
    difference_interval,
    margin_bounds,
    questions_needed,
    repeats_needed,
    sign_flip_p,
    single,
    verdict,
    wilson,
)

tables = st.tuples(*(st.integers(0, 60) for _ in range(4))).filter(lambda t: sum(t) >= 2)


def answers(both: int, only_against: int, only_variant: int, neither: int) -> tuple[np.ndarray, np.ndarray]:
    variant = np.repeat([1.0, 0.0, 1.0, 0.0], [both, only_against, only_variant, neither])
    against = np.repeat([1.0, 1.0, 0.0, 0.0], [both, only_against, only_variant, neither])
    return variant, against


def difference(*table: int) -> np.ndarray:
    variant, against = answers(*table)
    return variant - against


def once(*table: int) -> Paired:
    return single(difference(*table))


@given(tables)
def test_exact_p_is_that_of_statsmodels(table):
    exact, _ = sign_flip_p(difference(*table))
    both, only_against, only_variant, neither = table
    expected = mcnemar([[both, only_against], [only_variant, neither]], exact=True).pvalue
    assert exact == pytest.approx(expected, abs=1e-12)


@given(tables)
def test_mid_p_takes_half_of_the_observed_outcome(table):
    exact, mid = sign_flip_p(difference(*table))
    _, less, more, _ = table
    if less + more:
        pmf = stats.binom.pmf(min(less, more), less + more, 0.5)
        assert mid == pytest.approx(min(1.0, 2 * stats.binom.cdf(min(less, more), less + more, 0.5) - pmf))
    assert 0 < mid <= exact <= 1


@given(st.lists(st.sampled_from([-1.0, -2 / 3, -1 / 3, 0.0, 1 / 3, 2 / 3, 1.0]), min_size=1, max_size=9))
def test_repeats_are_tested_as_all_sign_flips_of_the_item_means(values):
    difference = np.array(values)
    exact, mid = sign_flip_p(difference)
    observed = abs(difference.sum())
    sums = np.array([abs(np.dot(signs, difference)) for signs in itertools.product((-1, 1), repeat=len(values))])
    at_least, equal = np.mean(sums >= observed - 1e-9), np.mean(np.abs(sums - observed) < 1e-9)
    assert exact == pytest.approx(at_least)
    assert mid == pytest.approx(at_least - equal / 2 if observed > 1e-9 else 1.0)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_is_that_of_statsmodels(counts):
    assert wilson(*counts) == pytest.approx(proportion_confint(*counts, method="wilson"))


def test_published_example_of_paired_proportions():
    """Airway hyper-responsiveness before and after transplantation: Fagerland, Lydersen & Laake (2014), table 1."""
    sample = difference(1, 7, 1, 12)
    exact, mid = sign_flip_p(sample)
    assert exact == pytest.approx(0.0703, abs=5e-5)
    assert mid == pytest.approx(0.0391, abs=5e-5)
    assert difference_interval(single(sample)) == pytest.approx((-0.517, -0.026), abs=1e-3)  # Tango's score interval


def test_wald_is_used_where_enough_pairs_are_discordant():
    sample = once(1264, 14, 13, 28)
    error = np.sqrt(27 - 1 / 1319) / 1319
    assert difference_interval(sample) == pytest.approx((-1 / 1319 - 1.959964 * error, -1 / 1319 + 1.959964 * error))
    assert margin_bounds(sample, 0.01).equivalence == pytest.approx(stats.norm.sf((0.01 - 1 / 1319) / error))


@pytest.mark.parametrize("counts", [(70, 0, 3, 7), (70, 0, 4, 6), (300, 2, 3, 15), (60, 5, 1, 4)])
def test_with_few_discordant_pairs_test_and_interval_agree(counts):
    sample = once(*counts)
    low, high = difference_interval(sample)
    assert margin_bounds(sample, -low).not_worse == pytest.approx(0.025, abs=1e-6)
    assert margin_bounds(sample, high).not_better == pytest.approx(0.025, abs=1e-6)


@pytest.mark.parametrize("count", [2, 10, 100])
def test_a_few_questions_with_no_flip_are_no_proof_of_equivalence(count):
    assert margin_bounds(single(np.zeros(count)), 0.01).equivalence > 0.05
    low, high = difference_interval(single(np.zeros(count)))
    assert low < -0.01
    assert high > 0.01


def test_score_test_overrules_wald_where_wald_alone_rejects():
    sample = difference(1280, 18, 8, 13)
    error = np.sqrt(np.sum((sample - sample.mean()) ** 2)) / len(sample)
    margin = -sample.mean() + 1.66 * error
    wald = stats.norm.sf((sample.mean() + margin) / error)
    assert wald < 0.05 < margin_bounds(single(sample), margin).equivalence


@settings(deadline=None)
@given(tables, st.floats(0.001, 0.2))
def test_swapping_the_variants_mirrors_everything(table, margin):
    variant, against = answers(*table)
    outcomes = Outcomes(*table)
    one = compare_accuracy(variant, against, outcomes, margin)
    two = compare_accuracy(against, variant, outcomes, margin)
    assert two.difference == pytest.approx(-one.difference)
    assert (two.low, two.high) == pytest.approx((-one.high, -one.low), abs=1e-6)
    assert (two.exact_p, two.mid_p, two.tost_p) == pytest.approx((one.exact_p, one.mid_p, one.tost_p))
    mirror = {"better": "worse", "worse": "better"}
    assert two.verdict == mirror.get(one.verdict, one.verdict)


@given(tables)
def test_interval_holds_the_difference_and_stays_on_the_scale_when_few_flip(table):
    sample = difference(*table)
    low, high = difference_interval(single(sample))
    assert low <= sample.mean() <= high
    if table[1] + table[2] < 10:
        assert low >= -1
        assert high <= 1


@pytest.mark.parametrize(
    ("difference", "mid_p", "tost_p", "expected"),
    [
        (-0.001, 0.01, 0.01, "equivalent"),
        (0.02, 0.01, 0.4, "better"),
        (-0.02, 0.01, 0.4, "worse"),
        (-0.02, 0.05, 0.4, "inconclusive"),
    ],
)
def test_verdict(difference, mid_p, tost_p, expected):
    assert verdict(difference, mid_p, tost_p) == expected


def test_repeats_that_always_agree_are_worth_one_answer():
    table = (1264, 14, 13, 28)
    same = Paired(difference(*table), 8 * 1319, 8 * 27)
    assert same.design_effect == pytest.approx(8)
    assert margin_bounds(same, 0.01) == pytest.approx(margin_bounds(once(*table), 0.01))
    assert difference_interval(same) == pytest.approx(difference_interval(once(*table)))


def test_repeats_that_do_not_agree_are_worth_more():
    """300 questions, 8 times: the interval is that of question means and not of whole flips."""
    rng = np.random.default_rng(3)
    rate = np.where(np.arange(300) < 150, 0.5, 1.0)[:, None]
    variant, against = (rng.random((300, 8)) < rate for _ in range(2))
    table = [int(np.sum(one & two)) for one in (variant, ~variant) for two in (against, ~against)]
    outcomes = Outcomes(both=table[0], only_variant=table[1], only_against=table[2], neither=table[3])
    found = compare_accuracy(variant.mean(1), against.mean(1), outcomes, 0.01, available=1319)
    # The variance of a difference of two means of 8 is 2/32 on 150 of 300 questions.
    assert found.high - found.low == pytest.approx(2 * 1.96 * np.sqrt(150 * 2 / 32) / 300, rel=0.15)
    assert found.mid_p > 0.05


def test_questions_and_repeats_needed():
    published = once(1264, 14, 13, 28)
    assert questions_needed(published, 0.01) == pytest.approx(1754, abs=1)
    assert questions_needed(published, 0.005) == pytest.approx(4 * 1754, abs=4)
    assert repeats_needed(published, 0.01, 1319) == 2
    assert repeats_needed(published, 0.005, 1319) == 6
    assert questions_needed(once(97, 0, 0, 3), 0.01) == pytest.approx(8.5638 * 3 / 100 / 0.01**2, abs=1)
    # Where the questions differ as wholes, repeats do not help.
    assert repeats_needed(Paired(difference(1264, 14, 13, 28), 8 * 1319, 8 * 27), 0.01, 1319) is None
