"""How steady the machines were: what one node differs from another in, and what an engine drifts by. Both are shares of
the time per token, of medians over answers whose variant's own level is taken out, so that they can be compared with
the differences between variants (and against a second arm of the baseline, where the sweep has one)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from farm.compare.decision import MIN_ITEMS
from farm.compare.metrics import WorkloadTable
from farm.compare.model import EngineDrift, NodeShift, Stability
from farm.stats.intervals import FloatArray


@dataclass(frozen=True)
class NodeEffect:
    """The slowest node against the fastest: `share` 0.02 is 2 % longer per token; `p` by Kruskal and Wallis."""

    slow: str
    fast: str
    share: float
    p: float
    apart: bool  # some two variants shared no node


@dataclass(frozen=True)
class Drift:
    """One engine from its first answer to its last: `share` as above; `p` by Spearman."""

    variant: str
    engine_id: str
    share: float
    p: float


def node_effect(table: WorkloadTable) -> NodeEffect | None:
    """The effect of nodes; null with one node, or too few answers on each."""
    speeds = _speeds(table)
    # What a variant's only node is cannot be told from the variant.
    several = speeds.groupby("variant")["node"].transform("nunique") > 1
    where = [set(one["node"].dropna()) for _, one in speeds.groupby("variant")]
    speeds = speeds[several.to_numpy()]
    nodes = {str(name): one["log_speed"].to_numpy() for name, one in speeds.groupby("node") if len(one) >= MIN_ITEMS}
    if len(nodes) < 2:
        return None
    medians = {name: float(np.median(values)) for name, values in nodes.items()}
    slow, fast = max(medians, key=lambda n: medians[n]), min(medians, key=lambda n: medians[n])
    apart = any(not (one & two) for one, two in itertools.combinations(where, 2))
    every = np.concatenate(list(nodes.values()))
    # The test is not defined where all values are the same.
    p = float(stats.kruskal(*nodes.values()).pvalue) if np.ptp(every) else 1.0
    return NodeEffect(slow, fast, float(np.expm1(medians[slow] - medians[fast])), p, apart)


def drifts(table: WorkloadTable) -> list[Drift]:
    """The drift of every engine with enough answers."""
    speeds = _speeds(table)
    speeds = speeds[speeds["sequence"].notna().to_numpy() & speeds["engine_id"].notna().to_numpy()]
    found = []
    for (variant, engine), one in speeds.groupby(["variant", "engine_id"]):
        if len(one) < 3 * MIN_ITEMS:
            continue
        sequence, logs = one["sequence"].to_numpy(dtype=np.float64), one["log_speed"].to_numpy()
        if np.ptp(sequence) == 0 or np.ptp(logs) == 0:
            continue
        shift = float(np.expm1(_slope(sequence, logs) * np.ptp(sequence)))
        found.append(Drift(str(variant), str(engine), shift, float(stats.spearmanr(sequence, logs).pvalue)))
    return found


def stability(effect: NodeEffect | None, drift: list[Drift]) -> Stability:
    """Node effect and largest drift of one workload, in percent."""
    largest = max(drift, key=lambda one: abs(one.share), default=None)
    return Stability(
        node_effect=effect and NodeShift(slow=effect.slow, fast=effect.fast, percent=100 * effect.share, p=effect.p),
        largest_drift=largest
        and EngineDrift(variant=largest.variant, engine_id=largest.engine_id, percent=100 * largest.share, p=largest.p),
    )


def sentence(found: Stability) -> str | None:
    """The same in words, for the reasons under a table."""
    effect, drift = found.node_effect, found.largest_drift
    parts = []
    if effect:
        parts.append(f"node {effect.slow} takes {effect.percent:.2f} % longer per token than {effect.fast}")
    if drift:
        parts.append(f"no engine drifted by more than {abs(drift.percent):.2f} % from its first answer to its last")
    return "; ".join(parts) or None


def _speeds(table: WorkloadTable) -> pd.DataFrame:
    """Answers with the log of their time per token, less their variant's median."""
    many = table.frame["ok"].to_numpy() & (table.frame["steps"] > 0).to_numpy()
    speeds = table.frame[many & (table.frame["decode_s"] > 0).to_numpy()]
    logs = pd.Series(np.log(speeds["decode_s"] / speeds["steps"]))
    centred = logs - logs.groupby(speeds["variant"].to_numpy()).transform("median")
    return speeds.assign(log_speed=centred)


def _slope(sequence: FloatArray, values: FloatArray) -> float:
    """Theil-Sen slope, thinned to bound its cost. Sen (1968), JASA 63(324)."""
    step = max(1, len(sequence) // 500)
    return float(stats.theilslopes(values[::step], sequence[::step]).slope)
