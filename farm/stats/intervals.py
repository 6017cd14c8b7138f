"""95 % intervals by bootstrap over items, for any figure that is a function of column sums.

All figures of a workload (a ratio of sums, a mean, a ratio of ratios) are functions of sums over its items, so one set
of resampled sums serves every variant and every contrast: the resampling is shared, and pairs stay pairs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

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


class EngineSpread(NamedTuple):
    """Scatter of a log figure that engine starts add to that of the items."""

    starts: int
    deviation: float  # standard deviation that it adds to the figure as a whole

    @property
    def freedom(self) -> int:
        """Degrees of freedom: one less than the starts, but two for two starts.

        The Student factor for one degree of freedom, 12.7, would make most intervals of a farm of two nodes useless
        where nothing scatters; with 4.3 they cover too little, 84 %, where starts do scatter, and a warning says so.
        """
        return max(self.starts - 1, 2)


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


def ratio_interval(
    sample: Resampled, statistic: Statistic, items: int, engines: EngineSpread | None = None
) -> Interval:
    """The interval of a positive figure: each end the farther one of two bounds.

    One is the percentile bootstrap, the other a Student t interval of the logarithm with the jackknife error. With
    skewed lengths the percentile interval alone falls short for few items and BCa falls shorter; this pair holds
    ratios of paired variants 93 to 97 times in 100 from 8 items on, and means of skewed lengths from about 200 on
    (90 times at 8 to 30). tests/benchmarks/interval_coverage.py prints the measured table.
    """
    value = point(sample, statistic)
    low, high = percentile_interval(sample, statistic, items, engines)
    t_low, t_high = log_t_interval(sample, statistic, items, engines)
    return Interval(value, _farther(min, low, t_low), _farther(max, high, t_high))


def _farther(pick: Callable[[list[float]], float], *ends: float) -> float:
    known = [end for end in ends if math.isfinite(end)]
    return pick(known) if known else math.nan


def percentile_interval(
    sample: Resampled, statistic: Statistic, items: int, engines: EngineSpread | None = None
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
    if engines is not None and engines.deviation > 0:
        rng = np.random.default_rng(len(values))
        logs += engines.deviation * rng.standard_t(engines.freedom, size=len(values))
    low, high = np.exp(np.quantile(logs, [tail, 1 - tail]))
    return float(low), float(high)


def log_t_interval(
    sample: Resampled, statistic: Statistic, items: int, engines: EngineSpread | None = None
) -> tuple[float, float]:
    """Student t interval of the logarithm, with the jackknife error. Efron & Tibshirani (1993), ch. 11 and 12."""
    value = point(sample, statistic)
    if not value > 0 or items < 2:
        return math.nan, math.nan
    half = _t(items - 1) * jackknife_error(sample, lambda sums: np.log(statistic(sums)))
    if engines is not None:
        half = math.hypot(half, _t(engines.freedom) * engines.deviation)
    with np.errstate(over="ignore"):  # two very unlike items: the upper end is beyond any number
        return value * float(np.exp(-half)), value * float(np.exp(half))


def _t(freedom: int) -> float:
    return float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom))


def log_p_value(sample: Resampled, statistic: Statistic, items: int, engines: EngineSpread | None = None) -> float:
    """Two-sided p-value of "the ratio is 1", by the Student t test that `log_t_interval` inverts."""
    value = point(sample, statistic)
    if not value > 0 or items < 2:
        return math.nan
    error = jackknife_error(sample, lambda sums: np.log(statistic(sums)))
    if engines is not None:
        error = math.hypot(error, engines.deviation * _t(engines.freedom) / _t(items - 1))
    if error == 0:
        return 1.0 if value == 1 else 0.0
    return float(2 * stats.t.sf(abs(math.log(value)) / error, items - 1))


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


def engine_spread(logs: FloatArray, variances: FloatArray, shares: FloatArray) -> EngineSpread | None:
    """How far whole engine starts scatter beyond what their items explain; None with fewer than two of them.

    `logs` holds one log figure for each engine (for each pair of engines in a contrast), `variances` its variance over
    items, `shares` its weight in the figure. The excess variance is the moment estimate of DerSimonian & Laird (1986),
    "Meta-analysis in clinical trials", Controlled Clinical Trials 7. It becomes the second level of the bootstrap as in
    Carpenter, Goldstein & Rasbash (2003), "A novel bootstrap procedure for assessing the relationship between class
    size and achievement", JRSS C 52(4): item-level draws plus a start-level deviate, Student t for few starts.
    """
    usable = np.isfinite(logs) & (variances > 0)
    logs, variances, shares = logs[usable], variances[usable], shares[usable]
    count = len(logs)
    if count < 2:
        return None
    weights = 1 / variances
    centre = np.sum(weights * logs) / weights.sum()
    excess = np.sum(weights * (logs - centre) ** 2) - (count - 1)
    spread = max(0.0, float(excess / (weights.sum() - np.sum(weights**2) / weights.sum())))
    return EngineSpread(starts=count, deviation=math.sqrt(spread * float(np.sum((shares / shares.sum()) ** 2))))
