"""One workload, resampled once: every figure and contrast of it is read from the same resampled sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd

from farm.compare.metrics import SUMS, Pairing, WorkloadTable, answer_columns, item_sums, paired, ratio_of
from farm.stats.family import Pair
from farm.stats.intervals import (
    EngineSpread,
    FloatArray,
    Interval,
    Resampled,
    Statistic,
    engine_spread,
    group_sums,
    jackknife_error,
    random_groups,
    ratio_interval,
    resample,
)

MIN_ITEMS_OF_START: Final = 20
"""An engine start with fewer items says too little about itself to judge how starts scatter."""


@dataclass(frozen=True)
class WorkloadSample:
    """Resampled sums: one block of columns for each variant, then two for each contrast and its per-item log ratio."""

    table: WorkloadTable
    variants: list[str]
    pairs: list[Pair]
    paired: dict[Pair, Pairing]
    resampled: Resampled

    def block(self, variant: str) -> int:
        """Which block of columns belongs to the variant."""
        return self.variants.index(variant)

    def pair_block(self, pair: Pair) -> int:
        """The block of the contrast's variant; the block after it is that of the variant it is compared with."""
        return len(self.variants) + 2 * self.pairs.index(pair)

    def log_ratio_column(self, pair: Pair) -> int:
        """The column of per-item log speed ratios of the contrast; the column after it counts the items."""
        return (len(self.variants) + 2 * len(self.pairs)) * len(SUMS) + 2 * self.pairs.index(pair)


def sample_workload(table: WorkloadTable, variants: list[str], pairs: list[Pair]) -> WorkloadSample:
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
    return WorkloadSample(table, variants, pairs, of_pairs, resample(np.column_stack([*blocks, *logs])))


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


def variant_spread(answers: pd.DataFrame, statistic: Statistic) -> EngineSpread | None:
    """Scatter of a variant's figure over its engine starts; the statistic reads one block of columns."""
    return _spread(answers, [answers], statistic)


def pair_spread(pair: Pairing, statistic: Statistic) -> EngineSpread | None:
    """Scatter of a contrast over pairs of engine starts; the statistic reads two blocks of columns."""
    return _spread(pair.variant_answers, [pair.variant_answers, pair.against_answers], statistic)


def _spread(answers: pd.DataFrame, sides: list[pd.DataFrame], statistic: Statistic) -> EngineSpread | None:
    names = [side["engine_id"] for side in sides]
    if any(name.isna().any() for name in names) or all(name.nunique() < 2 for name in names):
        return None
    starts = sum((pd.factorize(name)[0].astype(np.int64) << (20 * position) for position, name in enumerate(names)), 0)
    columns = np.column_stack([column for side in sides for column in answer_columns(side)])
    items = answers["item"].to_numpy(dtype=np.int64)
    logs, variances, shares = [], [], []
    for start in np.unique(starts):
        own = starts == start
        _, codes = np.unique(items[own], return_inverse=True)
        if codes.max() + 1 < MIN_ITEMS_OF_START:
            continue
        sums = [np.bincount(codes, weights=column).astype(np.float64) for column in columns[own].T]
        rows: FloatArray = np.column_stack(sums)
        alone = Resampled(rows.sum(axis=0), rows[:0], rows)
        with np.errstate(divide="ignore", invalid="ignore"):
            logs.append(float(np.log(statistic(alone.total))))
        variances.append(jackknife_error(alone, lambda sums: np.log(statistic(sums))) ** 2)
        shares.append(float(rows[:, SUMS.index("completion_tokens")].sum()))
    return engine_spread(np.array(logs), np.array(variances), np.array(shares)) if logs else None


def interval(sample: WorkloadSample, statistic: Statistic, items: int, engines: EngineSpread | None = None) -> Interval:
    """The figure with its interval."""
    return ratio_interval(sample.resampled, statistic, items, engines)
