"""Which contrasts a set of variants declares, and the correction for looking at all of them.

A variant is named by what it adds to the baseline, joined by `+`: that is its set of features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple


class Pair(NamedTuple):
    """One variant against another; `kinds` says why they are compared: baseline, rung, or both."""

    variant: str
    against: str
    kinds: tuple[str, ...]


class Effect(NamedTuple):
    """A factorial effect: the product of `numerators` over the product of `denominators`, to the power `exponent`."""

    name: str
    kind: str  # main | interaction
    numerators: tuple[str, ...]
    denominators: tuple[str, ...]
    exponent: float


def features(variant: str, baseline: str) -> frozenset[str]:
    """What a variant adds to the baseline."""
    return frozenset() if variant == baseline else frozenset(variant.split("+"))


def pairs(variants: Sequence[str], baseline: str) -> list[Pair]:
    """Each variant against the baseline; outside a factorial, each rung of the ladder against the one before it."""
    rungs = {} if effects(variants, baseline) else _rungs(variants, baseline)
    out = []
    for variant in variants:
        if variant != baseline:
            below = rungs.get(variant)
            out.append(Pair(variant, baseline, ("baseline", "rung") if below == baseline else ("baseline",)))
            if below is not None and below != baseline:
                out.append(Pair(variant, below, ("rung",)))
    return out


def _rungs(variants: Sequence[str], baseline: str) -> dict[str, str]:
    """The rung below each variant: the largest set of features within its own, the latest in order of equals."""
    sets = {variant: features(variant, baseline) for variant in variants}
    out = {}
    for variant, own in sets.items():
        below = [other for other, theirs in sets.items() if theirs < own]
        if below:
            size = max(len(sets[other]) for other in below)
            out[variant] = [other for other in below if len(sets[other]) == size][-1]
    return out


def without(variant: str, feature: str, variants: Sequence[str], baseline: str) -> str | None:
    """The variant that lacks only this feature, where there is one."""
    wanted = features(variant, baseline) - {feature}
    return next((other for other in variants if features(other, baseline) == wanted and other != variant), None)


def effects(variants: Sequence[str], baseline: str) -> list[Effect]:
    """Main effects and two-way interactions, for a complete factorial of two features or more.

    On the log scale, as contrasts of the cell means: Montgomery, "Design and Analysis of Experiments", ch. 6. A main
    effect is the geometric mean of the ratios with and without the feature; an interaction of 1 means that two features
    multiply.
    """
    cells = {features(variant, baseline): variant for variant in variants}
    names = sorted(set().union(*cells), key=lambda name: _first_use(name, variants))
    if len(names) < 2 or len(cells) != 2 ** len(names):
        return []
    out = []
    for name in names:
        high = tuple(variant for cell, variant in cells.items() if name in cell)
        low = tuple(variant for cell, variant in cells.items() if name not in cell)
        out.append(Effect(name, "main", high, low, 1 / len(high)))
    for one, two in combinations(names, 2):
        same = tuple(variant for cell, variant in cells.items() if (one in cell) == (two in cell))
        mixed = tuple(variant for cell, variant in cells.items() if (one in cell) != (two in cell))
        out.append(Effect(f"{one} x {two}", "interaction", same, mixed, 2 / len(same)))
    return out


def _first_use(feature: str, variants: Sequence[str]) -> int:
    return next(place for place, variant in enumerate(variants) if feature in variant.split("+"))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm (1979), "A simple sequentially rejective multiple test procedure"; undefined p-values take no part.

    By hand, since the one of statsmodels collects garbage at every call, which takes longer than all else here.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if math.isfinite(p))
    out = [math.nan] * len(p_values)
    highest = 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        out[place] = highest
    return out
