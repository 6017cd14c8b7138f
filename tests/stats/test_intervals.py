"""Bootstrap intervals against scipy's, against normal theory, and their invariances."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from farm.stats.intervals import (
    MAX_ROWS,
    group_sums,
    jackknife_error,
    log_p_value,
    log_t_interval,
    percentile_interval,
    random_groups,
    ratio_interval,
    resample,
)


def ratio(sums: np.ndarray) -> np.ndarray:
    return sums[..., 0] / sums[..., 1]


def rows(count: int = 400, seed: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    size = np.exp(rng.standard_normal(count))
    return np.column_stack([size * np.exp(0.3 * rng.standard_normal(count)), size])


def test_agrees_with_scipy():
    data = rows()
    sample = resample(data, draws=6000)
    ours = percentile_interval(sample, ratio, len(data))
    theirs = stats.bootstrap(
        (data[:, 0], data[:, 1]),
        lambda top, bottom, axis: top.sum(axis) / bottom.sum(axis),
        paired=True,
        vectorized=True,
        n_resamples=6000,
        method="percentile",
        rng=np.random.default_rng(1),
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours == pytest.approx((theirs.low, theirs.high), abs=0.06 * width)


def test_the_mean_of_few_normal_values_gets_its_student_t_interval():
    values = 50 + np.random.default_rng(0).standard_normal(15)
    sample = resample(np.column_stack([values, np.ones(15)]), draws=50_000)
    expected = stats.t.interval(0.95, 14, loc=values.mean(), scale=stats.sem(values))
    width = expected[1] - expected[0]
    assert percentile_interval(sample, ratio, 15) == pytest.approx(expected, abs=0.06 * width)
    assert log_t_interval(sample, ratio, 15) == pytest.approx(expected, abs=0.06 * width)


def test_jackknife_error_of_a_mean_is_its_standard_error():
    values = np.random.default_rng(2).gamma(2.0, size=50)
    sample = resample(np.column_stack([values, np.ones(50)]), draws=10)
    assert jackknife_error(sample, ratio) == pytest.approx(stats.sem(values))


def test_inverting_the_figure_inverts_the_interval():
    data = rows()
    one = ratio_interval(resample(data), ratio, len(data))
    two = ratio_interval(resample(data), lambda sums: 1 / ratio(sums), len(data))
    assert two == pytest.approx((1 / one.value, 1 / one.high, 1 / one.low))


def test_interval_narrows_with_the_root_of_the_items():
    few, many = (ratio_interval(resample(rows(n)), ratio, n) for n in (200, 3200))
    assert (few.high - few.low) / (many.high - many.low) == pytest.approx(4, rel=0.35)


def test_one_item_has_a_figure_and_no_interval():
    value, low, high = ratio_interval(resample(rows(1)), ratio, 1)
    assert value > 0
    assert np.isnan([low, high]).all()


def test_p_value_and_interval_agree_on_whether_one_is_excluded():
    for shift in (0.9, 0.97, 1.0, 1.03, 1.1):
        data = rows() * np.array([shift, 1.0])
        data[:, 0] /= ratio(rows().sum(axis=0))
        sample = resample(data)
        low, high = log_t_interval(sample, ratio, len(data))
        assert (log_p_value(sample, ratio, len(data)) < 0.05) == (not low <= 1 <= high)


def test_random_groups_keep_sums_and_error():
    data = rows(4 * MAX_ROWS)
    grouped = group_sums(data, random_groups(len(data)))
    assert len(grouped) == MAX_ROWS
    assert grouped.sum(axis=0) == pytest.approx(data.sum(axis=0))
    whole, less = (jackknife_error(resample(part, draws=2), ratio) for part in (data, grouped))
    assert less == pytest.approx(whole, rel=0.05)


def test_two_items_that_are_worlds_apart_have_an_open_interval():
    value, low, high = ratio_interval(resample(np.array([[1.0, 1e-200], [1e-200, 1.0]])), ratio, 2)
    assert value == pytest.approx(1.0)
    assert low < 1e-100
    assert high > 1e100
