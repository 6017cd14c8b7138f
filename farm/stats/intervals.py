"""95 % intervals by bootstrap over items, for any figure that is a function of column sums.

All figures of a workload (a ratio of sums, a mean, a ratio of ratios) are functions of sums over its items, so one set
of resampled sums serves every variant and every contrast: the resampling is shared, and pairs stay pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Statistic = Callable[[FloatArray], FloatArray]
"""Maps sums of shape (..., columns) to figures of shape (...)."""

CONFIDENCE = 0.95
DRAWS = 2000
MAX_ROWS = 5000
"""Above this many items, random groups of items are resampled in place of items: cost stays bounded."""
_CHUNK_CELLS = 100_000  # resampled at a time: what stays in the cache


class Interval(NamedTuple):
    """A figure with its 95 % interval; NaN where it is undefined."""

    value: float
    low: float
    high: float


class Scatter(NamedTuple):
    """What engine starts and nodes add to the error of a log figure; `farm.stats.starts` estimates it."""

    deviation: float  # standard deviation that they add to that of the items
    freedom: float  # degrees of freedom of what it was estimated from
    error: float | None  # of the log figure as a whole, where the starts are many enough to speak for themselves
    starts: int  # of the side that has fewer
    source: Literal["measured", "assumed", "both"]
    leverage: float  # what a variance of 1 of each side's starts adds to the variance of the figure
    shared_nodes: bool
    nodes_bounded: bool  # what a node is cancels, is measured, or a bound for it is given

    @property
    def added(self) -> Scatter:
        """For another figure of the same starts: only what they add, the items being its own."""
        return self._replace(error=None)


@dataclass(frozen=True)
class Resampled:
    """Column sums over the items, over resampled items, and the rows that were resampled."""

    total: FloatArray  # (columns,)
    draws: FloatArray  # (draws, columns)
    rows: FloatArray  # (items or groups, columns)


def resample(rows: FloatArray, *, draws: int = DRAWS, seed: int = 0) -> Resampled:
    """Resample the rows (items) with replacement and sum the columns of each resample.

    Efron (1979), "Bootstrap methods: another look at the jackknife".
    """
    rng = np.random.default_rng(seed)
    count = len(rows)
    used = rows.any(axis=0)
    dense = np.ascontiguousarray(rows[:, used])
    out = np.zeros((draws, rows.shape[1]))
    step = max(1, _CHUNK_CELLS // max(count, 1))
    for start in range(0, draws, step):
        size = min(step, draws - start)
        picks = rng.integers(0, count, size=(size, count), dtype=np.int64)
        picks += np.arange(size, dtype=np.int64)[:, None] * count
        weights = np.bincount(picks.ravel(), minlength=size * count).reshape(size, count)
        out[start : start + size, used] = weights.astype(np.float64) @ dense
    return Resampled(total=rows.sum(axis=0), draws=out, rows=rows)


def random_groups(count: int, seed: int = 0) -> IntArray:
    """The row of each item: its own, or above `MAX_ROWS` items one of that many random groups of equal size.

    Sums over groups then stand for items: Wolter (2007), "Introduction to Variance Estimation", ch. 2, the random group
    method. It bounds the cost and leaves the error of sums as it is.
    """
    if count <= MAX_ROWS:
        return np.arange(count, dtype=np.int64)
    return np.random.default_rng(seed).permutation(count).astype(np.int64) % MAX_ROWS


def group_sums(rows: FloatArray, groups: IntArray) -> FloatArray:
    """Sum the rows of each group."""
    if len(rows) <= MAX_ROWS:
        return rows
    return np.column_stack([np.bincount(groups, weights=column).astype(np.float64) for column in rows.T])


def ratio_interval(sample: Resampled, statistic: Statistic, items: int, scatter: Scatter | None = None) -> Interval:
    """The interval of a positive figure: each end the farther one of two bounds.

    One is the percentile bootstrap, the other a Student t interval of the logarithm with the jackknife error. With
    skewed lengths the percentile interval alone falls short for few items and BCa falls shorter; this pair holds
    ratios of paired variants 93 to 97 times in 100 from 8 items on, and means of skewed lengths from about 200 on
    (90 times at 8 to 30). tests/benchmarks/interval_coverage.py prints the measured table.
    """
    value = point(sample, statistic)
    if scatter is not None and scatter.error is not None:
        return Interval(value, *_around(value, _t(scatter.freedom) * scatter.error))
    low, high = percentile_interval(sample, statistic, items, scatter)
    t_low, t_high = log_t_interval(sample, statistic, items, scatter)
    return Interval(value, _farther(min, low, t_low), _farther(max, high, t_high))


def _farther(pick: Callable[[list[float]], float], *ends: float) -> float:
    known = [end for end in ends if math.isfinite(end)]
    return pick(known) if known else math.nan


def percentile_interval(
    sample: Resampled, statistic: Statistic, items: int, scatter: Scatter | None = None
) -> tuple[float, float]:
    """Bootstrap percentile interval, widened for few items.

    Hesterberg (2015), "What teachers should know about the bootstrap", The American Statistician 69(4), sec. 4.3.3:
    quantile levels moved out so that a mean of normal data gets its Student t interval.
    """
    values = draws_of(sample, statistic)
    if items < 2 or not len(values):
        return math.nan, math.nan
    tail = stats.norm.cdf(-math.sqrt(items / (items - 1)) * _t(items - 1))
    if values.min() <= 0:
        low, high = np.quantile(values, [tail, 1 - tail])
        return float(low), float(high)
    logs = np.log(values)  # quantiles of logarithms: the interval of an inverse is the inverse of the interval
    if scatter is not None and scatter.deviation > 0:
        rng = np.random.default_rng(len(values))
        shifts = scatter.deviation * rng.standard_t(scatter.freedom, size=len(values))
        logs = np.concatenate([logs + shifts, logs - shifts])  # both signs, for the interval of the inverse
    low, high = np.exp(np.quantile(logs, [tail, 1 - tail]))
    return float(low), float(high)


def log_t_interval(
    sample: Resampled, statistic: Statistic, items: int, scatter: Scatter | None = None
) -> tuple[float, float]:
    """Student t interval of the logarithm, with the jackknife error. Efron & Tibshirani (1993), ch. 11 and 12."""
    value = point(sample, statistic)
    if not value > 0 or items < 2:
        return math.nan, math.nan
    half = _t(items - 1) * jackknife_error(sample, lambda sums: np.log(statistic(sums)))
    if scatter is not None:
        half = math.hypot(half, _t(scatter.freedom) * scatter.deviation)
    return _around(value, half)


def _around(value: float, half: float) -> tuple[float, float]:
    if not value > 0:
        return math.nan, math.nan
    with np.errstate(over="ignore"):  # two very unlike items: the upper end is beyond any number
        return value * float(np.exp(-half)), value * float(np.exp(half))


def _t(freedom: float) -> float:
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))


def log_p_value(
    sample: Resampled, statistic: Statistic, items: int, scatter: Scatter | None = None, null: float = 1.0
) -> float:
    """Two-sided p-value of "the ratio is `null`", by the Student t test that `log_t_interval` inverts."""
    value = point(sample, statistic)
    if not value > 0 or items < 2:
        return math.nan
    freedom: float = items - 1
    if scatter is not None and scatter.error is not None:
        error, freedom = scatter.error, scatter.freedom
    else:
        error = jackknife_error(sample, lambda sums: np.log(statistic(sums)))
        if scatter is not None and scatter.deviation > 0:
            doubt = error**4 / freedom + scatter.deviation**4 / scatter.freedom
            error = math.hypot(error, scatter.deviation)
            freedom = error**4 / doubt  # Satterthwaite (1946)
    if error == 0:
        return 1.0 if value == null else 0.0
    return float(2 * stats.t.sf(abs(math.log(value / null)) / error, freedom))


def jackknife_error(sample: Resampled, statistic: Statistic) -> float:
    """Standard error by leaving out one item at a time. Tukey (1958); Efron & Tibshirani (1993), ch. 11."""
    left_out = _leave_one_out(sample, statistic)
    count = len(left_out)
    if count < 2:
        return math.nan
    return float(np.sqrt((count - 1) / count * np.sum((left_out - left_out.mean()) ** 2)))


def _leave_one_out(sample: Resampled, statistic: Statistic) -> FloatArray:
    present = np.any(sample.rows != 0, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(sample.total - sample.rows[present])
    return values[np.isfinite(values)]


def draws_of(sample: Resampled, statistic: Statistic) -> FloatArray:
    """The figure in every resample where it is defined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        values = statistic(sample.draws)
    return values[np.isfinite(values)]


def point(sample: Resampled, statistic: Statistic) -> float:
    """The figure itself, NaN where it is undefined."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(statistic(sample.total))
