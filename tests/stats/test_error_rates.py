"""How often intervals hold the truth and tests err: a short form of tests/benchmarks/interval_coverage.py."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from farm.stats.accuracy import margin_bounds, sign_flip_p, single, verdict

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))

SWEEPS = 40


@pytest.fixture(scope="module")
def shares():
    """Share of small sweeps for which each statement of the simulation is true."""
    import interval_coverage

    options = argparse.Namespace(items=100, nodes=1, start_scatter=0.0)
    truth = interval_coverage.true_figures(50_000)
    counts = Counter()
    for seed in range(SWEEPS):
        counts.update(interval_coverage.one_sweep(seed, options, truth))
    return {name: count / SWEEPS for name, count in counts.items()}


def test_intervals_hold_the_truth_as_often_as_they_say(shares):
    """Each within what chance allows around 95 %, all together within 93 to 97 %."""
    covers = {name: share for name, share in shares.items() if name.startswith("covers: ")}
    low, high = stats.binom.ppf([0.0005, 0.9995], SWEEPS, 0.95) / SWEEPS
    assert len(covers) == 11
    assert {name: share for name, share in covers.items() if not low <= share <= high} == {}
    assert 0.93 <= np.mean(list(covers.values())) <= 0.97


def test_twins_are_seldom_told_apart(shares):
    for name in ("errs: verdict better or worse in A/A", "errs: throughput interval excludes 1 in A/A"):
        assert shares.get(name, 0) <= stats.binom.ppf(0.999, SWEEPS, 0.05) / SWEEPS


def test_percentile_intervals_cover_better_than_bca(shares):
    for figure in ("throughput ratio", "latency ratio"):
        assert shares[f"percentile alone: {figure}"] >= shares[f"BCa alone: {figure}"]


def outcomes(questions, losses, gains):
    """Every likely pair of counts of lost and gained questions, with its probability."""
    for lost in range(*_likely(questions, losses)):
        for gained in range(*_likely(questions, gains)):
            weight = stats.multinomial.pmf([lost, gained, questions - lost - gained], questions,
                                           [losses, gains, 1 - losses - gains])  # fmt: skip
            yield lost, gained, weight


def _likely(questions, rate):
    low, high = stats.binom.ppf([1e-5, 1 - 1e-5], questions, rate)
    return int(low), int(high) + 1


def differences(questions, lost, gained):
    return np.repeat([-1.0, 1.0, 0.0], [lost, gained, questions - lost - gained])


@pytest.mark.parametrize(("questions", "discordant"), [(1319, 0.015), (1319, 0.025), (600, 0.02)])
def test_equivalence_errs_at_most_five_times_in_a_hundred_at_the_margin(questions, discordant):
    """Exact: summed over all outcomes of a variant that truly answers worse by the margin."""
    error = sum(
        weight
        for lost, gained, weight in outcomes(questions, (discordant + 0.01) / 2, (discordant - 0.01) / 2)
        if margin_bounds(single(differences(questions, lost, gained)), 0.01).equivalence <= 0.05
    )
    assert 0.01 < error <= 0.05


def test_verdict_errs_at_most_six_times_in_a_hundred_between_twins():
    """Exact: summed over all outcomes of two equal variants, as 2 % of 1,319 questions flip."""
    error = 0.0
    for lost, gained, weight in outcomes(1319, 0.01, 0.01):
        sample = differences(1319, lost, gained)
        found = verdict(gained - lost, sign_flip_p(sample)[1], margin_bounds(single(sample), 0.01).equivalence)
        error += weight * (found in ("better", "worse"))
    assert 0.01 < error <= 0.06
