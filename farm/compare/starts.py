"""From which engine starts and nodes a figure comes, and what that adds to its error."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from farm.compare.metrics import Pairing, answer_columns, cell_codes
from farm.stats.intervals import FloatArray, IntArray, Scatter
from farm.stats.starts import Assumed, Side, scatter

DEFAULT: Assumed = Assumed(start=0.0015)
"""Two starts of one variant differed by up to 0.15 % on H200s: taken as the standard deviation, and not as sure."""
Source = Literal["default", "stated", "baseline-arms"]


class Assumption(NamedTuple):
    """The scatter assumed where starts are too few to show it, and where it comes from."""

    value: Assumed = DEFAULT
    source: Source = "default"


class Part(NamedTuple):
    """The answers of one variant that enter a figure, and how."""

    answers: pd.DataFrame
    exponent: float  # of the variant's time per token in the figure


def variant_scatter(answers: pd.DataFrame, item_variance: float, assumed: Assumed) -> Scatter | None:
    """Of a variant's own time per token. A node's speed is part of such a figure, so several nodes are its starts."""
    return _tpot_scatter([Part(answers, 1.0)], item_variance, assumed, averaged=False)


def pair_scatter(pair: Pairing, item_variance: float, assumed: Assumed) -> Scatter | None:
    """Of the throughput ratio of two variants on their shared cells, repeats averaged."""
    parts = [Part(pair.variant_answers, -1.0), Part(pair.against_answers, 1.0)]
    return _tpot_scatter(parts, item_variance, assumed, averaged=True)


def effect_scatter(parts: Sequence[Part], item_variance: float, assumed: Assumed) -> Scatter | None:
    """Of a factorial effect on throughput, over all answers of its variants."""
    return _tpot_scatter(parts, item_variance, assumed, averaged=False)


def per_request_scatter(pair: Pairing, item_variance: float, assumed: Assumed) -> Scatter | None:
    """Of the mean log ratio of each pair's own times per token."""
    own, other = (answer_columns(side) for side in (pair.variant_answers, pair.against_answers))
    known = (own.request_tpot_s > 0) & (other.request_tpot_s > 0)
    if not known.any():
        return None
    sides = [side[known] for side in (pair.variant_answers, pair.against_answers)]
    items = sides[0]["item"].to_numpy(dtype=np.int64)
    shares = _item_weights(items)
    shares = shares / shares.sum()
    logs = np.log(other.request_tpot_s[known] / own.request_tpot_s[known])
    labels, shared = _labels(sides, [np.arange(len(items))] * 2, len(items))
    return scatter(
        items,
        shares * (logs - shares @ logs),
        [Side(sign, label, shares) for sign, label in zip((-1.0, 1.0), labels, strict=True)],
        item_variance,
        shared_nodes=shared,
        assumed=assumed,
    )


def _tpot_scatter(parts: Sequence[Part], item_variance: float, assumed: Assumed, *, averaged: bool) -> Scatter | None:
    codes = [cell_codes(part.answers) for part in parts]
    if averaged:  # the parts hold the same cells, row by row
        cells, rows = codes[0], [np.arange(len(codes[0]))] * len(parts)
    else:
        cells = np.unique(np.concatenate(codes))
        rows = [np.searchsorted(cells, own) for own in codes]
    items = cells >> 20
    influence, shares = np.zeros(len(cells)), []
    for part, row in zip(parts, rows, strict=True):
        sums = answer_columns(part.answers)
        weights = _item_weights(items) if averaged else np.ones(len(row))
        decode, steps = weights * sums.decode_s, weights * sums.steps
        seconds, tokens = float(decode.sum()), float(steps.sum())
        if not (seconds > 0 and tokens > 0):
            return None
        influence[row] += part.exponent * (decode / seconds - steps / tokens)
        share = np.zeros(len(cells))
        share[row] = decode / seconds
        shares.append(share)
    labels, shared = _labels([part.answers for part in parts], rows, len(cells))
    sides = [Side(part.exponent, label, share) for part, label, share in zip(parts, labels, shares, strict=True)]
    return scatter(items, influence, sides, item_variance, shared_nodes=shared, assumed=assumed)


def _item_weights(items: IntArray) -> FloatArray:
    """Repeats averaged: one over the number of rows of the item."""
    weights: FloatArray = 1.0 / np.bincount(items)[items]
    return weights


def _labels(answers: Sequence[pd.DataFrame], rows: Sequence[IntArray], count: int) -> tuple[list[IntArray], bool]:
    """The start of each row under each side, or its node where the sides do not share nodes; and whether they do.

    A figure of one variant holds the speed of its nodes, so with several nodes these are what scatters.
    """
    nodes = _coded([side["node"] for side in answers], rows, count)
    starts = _coded([side["engine_id"] for side in answers], rows, count)
    if len(answers) == 1:
        return (nodes if nodes[0].max() > 0 else starts), True
    same = total = 0
    for one, two in itertools.pairwise(nodes):
        both = (one >= 0) & (two >= 0)
        same += int(np.sum((one == two) & both))
        total += int(np.sum(both))
    shared = 2 * same >= total
    return [_dense(label) for label in (starts if shared else nodes)], shared


def _coded(columns: Sequence[pd.Series[str]], rows: Sequence[IntArray], count: int) -> list[IntArray]:
    """The same name has the same code on every side; an unknown name is a name too."""
    codes, _ = pd.factorize(pd.concat(columns).astype(object), use_na_sentinel=False)
    out, begin = [], 0
    for column, row in zip(columns, rows, strict=True):
        label = np.full(count, -1, dtype=np.int64)
        label[row] = codes[begin : begin + len(column)]
        out.append(label)
        begin += len(column)
    return out


def _dense(label: IntArray) -> IntArray:
    """Codes without gaps, the absent ones left as they are."""
    there = label >= 0
    out = label.copy()
    out[there] = np.unique(label[there], return_inverse=True)[1]
    return out
