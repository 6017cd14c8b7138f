"""One workload, resampled once: every figure and contrast of it is read from the same resampled sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from farm.compare.metrics import SUMS, Pairing, WorkloadTable, item_sums, paired, ratio_of
from farm.compare.starts import Assumption
from farm.stats.family import Pair
from farm.stats.intervals import (
    DRAWS,
    FloatArray,
    Interval,
    Resampled,
    Scatter,
    Statistic,
    group_sums,
    jackknife_error,
    random_groups,
    ratio_interval,
    resample,
)


@dataclass(frozen=True)
class WorkloadSample:
    """Resampled sums: one block of columns for each variant, then two for each contrast and its per-item log ratio."""

    table: WorkloadTable
    variants: list[str]
    pairs: list[Pair]
    paired: dict[Pair, Pairing]
    resampled: Resampled
    assumption: Assumption

    def block(self, variant: str) -> int:
        """Which block of columns belongs to the variant."""
        return self.variants.index(variant)

    def pair_block(self, pair: Pair) -> int:
        """The block of the contrast's variant; the block after it is that of the variant it is compared with."""
        return len(self.variants) + 2 * self.pairs.index(pair)

    def log_ratio_column(self, pair: Pair) -> int:
        """The column of per-item log speed ratios of the contrast; the column after it counts the items."""
        return (len(self.variants) + 2 * len(self.pairs)) * len(SUMS) + 2 * self.pairs.index(pair)


def sample_workload(
    table: WorkloadTable,
    variants: list[str],
    pairs: list[Pair],
    assumption: Assumption = Assumption(),  # noqa: B008
    draws: int = DRAWS,
) -> WorkloadSample:
    """Reduce a workload to sums per item and resample its items once, for all variants together."""
    count = len(table.items)
    groups = random_groups(count)
    blocks = [group_sums(item_sums(table.of(variant), count), groups) for variant in variants]
    of_pairs, logs = {}, []
    for pair in pairs:
        sums = paired(table, pair.variant, pair.against)
        blocks += [group_sums(sums.variant, groups), group_sums(sums.against, groups)]
        logs.append(group_sums(_log_ratios(sums.variant, sums.against), groups))
        of_pairs[pair] = sums.pairing
    resampled = resample(np.column_stack([*blocks, *logs]), draws=draws)
    return WorkloadSample(table, variants, pairs, of_pairs, resampled, assumption)


def _log_ratios(variant: FloatArray, against: FloatArray) -> FloatArray:
    """Log speed ratio of each item (repeats averaged) and whether it has one."""
    top, bottom = _request_tpot(against), _request_tpot(variant)
    known = (top > 0) & (bottom > 0)
    logs = np.zeros(len(top))
    logs[known] = np.log(top[known] / bottom[known])
    return np.column_stack([logs, known.astype(np.float64)])


def _request_tpot(sums: FloatArray) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        values = ratio_of("request_tpot_s", "request_tpot_answers")(sums)
    return np.nan_to_num(values, nan=0.0, posinf=0.0)


def item_variance(sample: WorkloadSample, statistic: Statistic) -> float:
    """Variance of the log figure over items."""
    error = jackknife_error(sample.resampled, lambda sums: np.log(statistic(sums)))
    return error**2 if np.isfinite(error) else 0.0


def interval(sample: WorkloadSample, statistic: Statistic, items: int, scatter: Scatter | None = None) -> Interval:
    """The figure with its interval."""
    return ratio_interval(sample.resampled, statistic, items, scatter)
