"""What engine starts and nodes add to the error of a figure, beside its items.

A start of an engine is fast or slow as a whole, and so is a node. A log figure is a sum over sides (a variant, or the
variant and what it is compared with), and each side's starts shift it by their share. How far they scatter is a
component of variance of each side, estimated by the method of moments from the sums of influences over its starts:
Henderson (1953), "Estimation of variance and covariance components", Biometrics 9; Searle, Casella & McCulloch (1992),
"Variance Components", ch. 5. Its degrees of freedom are Satterthwaite's (1946), Biometrics Bulletin 2.

With four starts of each side and more they speak for themselves: the error of the figure is what the sums over starts
show, with Student's t for as many starts as there are. Fewer cannot, and an assumed scatter takes part with a stated
number of degrees of freedom: Smyth (2004), "Linear models and empirical Bayes methods", SAGMB 3(1), the moderated t.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from farm.stats.intervals import FloatArray, IntArray, Scatter

MANY = 2.5
"""So many degrees of freedom of each side need no assumption: four starts, of roughly equal shares."""
_CONFOUNDED = 1e-3  # eigenvalues below this share of the largest: sides whose starts cannot be told apart


class Side(NamedTuple):
    """One side of a figure, row by row: a row is an answer, or a pair of answers."""

    exponent: float  # of the side in the figure, a product of powers
    starts: IntArray  # the start or node that a row comes from; -1 where the side has no answer
    shares: FloatArray  # of the rows in the side's figure; they sum to 1


class Assumed(NamedTuple):
    """How far starts, and nodes, of one variant are taken to scatter: standard deviations of the log of a speed."""

    start: float
    node: float | None = None
    freedom: float = 4.0  # how sure: as sure as a measurement with so many degrees of freedom

    def observed(self, variance: float, freedom: float) -> Assumed:
        """The same with a measured variance of starts taken in."""
        total = self.freedom + freedom
        start = math.sqrt((self.freedom * self.start**2 + freedom * max(variance, 0.0)) / total)
        return self._replace(start=start, freedom=total)


class _Moments(NamedTuple):
    """Of each side, in order."""

    freedom: FloatArray  # degrees of freedom of the side's starts: 3 for four of equal share, 0 for one
    leverage: FloatArray  # what a component of variance 1 adds to the variance of the figure
    own: FloatArray  # what the side's starts alone show as variance, beyond items
    alike: FloatArray  # (sides, sides): 1 where the starts of two sides answer the same rows, 0 where they are crossed
    together: float  # all sides' components, beyond items


def scatter(
    items: IntArray,
    influence: FloatArray,
    sides: Sequence[Side],
    item_variance: float,
    *,
    shared_nodes: bool,
    assumed: Assumed,
) -> Scatter:
    """What starts and nodes add to the error of a log figure.

    Args:
        items: the item of each row.
        influence: how much each row moves the log figure; they sum to zero.
        sides: with nodes in place of starts where the sides share no node.
        item_variance: of the log figure, over items.
        shared_nodes: the sides answered on the same nodes, so that what a node is cancels.
        assumed: used where there are fewer than four starts.
    """
    found = _moments(items, influence, sides)
    fewest = float(found.freedom.min())
    starts = min(int(np.unique(side.starts[side.starts >= 0]).size) for side in sides)
    if fewest >= MANY:
        return _measured(found, item_variance, starts, shared_nodes)
    leverage = float(found.leverage.sum())
    if shared_nodes:
        moderated = assumed.observed(found.together / leverage, fewest)
        source: Literal["assumed", "both"] = "both" if fewest else "assumed"
        added = math.sqrt(leverage) * moderated.start
        return Scatter(added, moderated.freedom, None, starts, source, leverage, True, True)
    least = leverage * (assumed.start**2 + (assumed.node or 0.0) ** 2)
    if found.freedom.any():
        measured = _measured(_lent(found), item_variance, starts, False)
        if measured.deviation**2 > least:
            return measured
        return Scatter(math.sqrt(least), measured.freedom, None, starts, "both", leverage, False, True)
    bounded = assumed.node is not None
    return Scatter(math.sqrt(least), assumed.freedom, None, starts, "assumed", leverage, False, bounded)


def _moments(items: IntArray, influence: FloatArray, sides: Sequence[Side]) -> _Moments:
    weights = [np.bincount(side.starts + 1, weights=side.shares)[1:].astype(np.float64) for side in sides]
    squares = np.array([float(np.sum(weight**2)) for weight in weights])
    powers = np.array([side.exponent**2 for side in sides])
    spread = np.array(
        [[_spread(one, two, weight) for two, weight in zip(sides, weights, strict=True)] for one in sides]
    )
    excess = np.array([_excess(items, influence, side, weight) for side, weight in zip(sides, weights, strict=True)])
    leverage = powers * squares
    system = spread * powers
    diagonal = np.diag(spread)
    solved = np.linalg.pinv(system, rcond=_CONFOUNDED) @ excess
    own = np.divide(excess * squares, diagonal, out=np.zeros_like(excess), where=diagonal > 0)
    scale = np.sqrt(np.outer(diagonal, diagonal))
    alike = np.divide(spread, scale, out=np.eye(len(sides)), where=scale > 0)
    freedom = np.array([_freedom(weight) for weight in weights])
    return _Moments(freedom, leverage, own, np.clip(alike, 0.0, 1.0), float(leverage @ solved))


def _freedom(weight: FloatArray) -> float:
    """Degrees of freedom of the sum of squares over starts of these shares, each less the mean. Satterthwaite."""
    weight = weight[weight > 0]
    if len(weight) < 2:
        return 0.0
    form = (np.eye(len(weight)) - weight) * weight[:, None]
    form = form.T @ form
    return float(np.trace(form) ** 2 / np.sum(form**2))


def _spread(one: Side, two: Side, weight: FloatArray) -> float:
    """How much of a component of variance 1 of side two shows in the sums over the starts of side one."""
    there = (one.starts >= 0) & (two.starts >= 0)
    columns = len(weight)
    cells = np.bincount(one.starts[there] * columns + two.starts[there], weights=two.shares[there])
    rows = int(one.starts.max()) + 1
    table: FloatArray = np.zeros((rows, columns))
    table.flat[: len(cells)] = cells
    return float(np.sum((table - table.sum(axis=1, keepdims=True) * weight) ** 2))


def _excess(items: IntArray, influence: FloatArray, side: Side, weight: FloatArray) -> float:
    """Sum of squares over starts less what the scatter of items gives it."""
    there = side.starts >= 0
    starts, moved, of_item = side.starts[there], influence[there], items[there]
    total = np.bincount(starts, weights=moved, minlength=len(weight))
    answered, row = np.unique(of_item * np.int64(len(weight)) + starts, return_inverse=True)
    parts = np.bincount(row, weights=moved)
    item, start = np.divmod(answered, len(weight))
    whole = np.bincount(of_item, weights=moved)
    squares = float(np.sum(parts**2) - 2 * np.sum(weight[start] * parts * whole[item]))
    squares += float(np.sum(weight**2) * np.sum(whole**2))
    count = int(np.count_nonzero(np.bincount(of_item)))
    return float(np.sum((total - weight * total.sum()) ** 2)) - squares * count / max(count - 1, 1)


def _measured(found: _Moments, item_variance: float, starts: int, shared_nodes: bool) -> Scatter:
    """Starts that speak for themselves.

    Two crossed sides can show less together than alone; then three fifths of the larger and two of the smaller count,
    which holds 93 to 97 times in 100 from four starts on where both scatter alike (tests/benchmarks/start_scatter.py).
    """
    alone = np.maximum(item_variance + found.own, 0.0)
    variance = max(item_variance + found.together, 0.6 * float(alone.max()) + 0.4 * float(alone.min()))
    scaled = alone / np.sqrt(found.freedom)
    doubt = float(scaled @ found.alike @ scaled)
    freedom = float(alone.sum()) ** 2 / doubt if doubt > 0 else float(found.freedom.min())
    deviation = math.sqrt(max(variance - item_variance, 0.0))
    leverage = float(found.leverage.sum())
    return Scatter(deviation, freedom, math.sqrt(variance), starts, "measured", leverage, shared_nodes, True)


def _lent(found: _Moments) -> _Moments:
    """A side of one start is taken to scatter as those of more do."""
    known = found.freedom > 0
    component = float(np.sum(found.own[known]) / np.sum(found.leverage[known]))
    own = np.where(known, found.own, component * found.leverage)
    freedom = np.where(known, found.freedom, found.freedom[known].min())
    together = found.together + float(own[~known].sum())
    return found._replace(own=own, freedom=freedom, together=together)
