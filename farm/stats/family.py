"""Which contrasts a set of variants declares, and the correction for looking at all of them.

What a variant is made of says it: its optimisations, where the sweep tells them, else the words of its name.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import combinations
from typing import Literal, NamedTuple


class Pair(NamedTuple):
    """One variant against another; `kinds` says why they are compared: baseline, rung, or both."""

    variant: str
    against: str
    kinds: tuple[Literal["baseline", "rung"], ...]


class Effect(NamedTuple):
    """A factorial effect: the product of `numerators` over the product of `denominators`, to the power `exponent`."""

    name: str
    kind: Literal["main", "interaction"]
    numerators: tuple[str, ...]
    denominators: tuple[str, ...]
    exponent: float


Features = Mapping[str, frozenset[str]]
"""Of each variant, in order, what it is made of beyond what all are."""


def features(
    variants: Sequence[str], baseline: str, parts: Mapping[str, Collection[str]], own: Collection[str] = ()
) -> Features:
    """What each variant adds to the ground that all stand on.

    Args:
        variants: their names.
        baseline: what the others are compared with.
        parts: the optimisations of those variants of which they are known; of the others the name tells.
        own: variants with settings beside their optimisations: the words of the name that are no part stand for them.
    """
    made_of = [set(parts[name]) for name in variants if parts.get(name)]
    ground = set.intersection(*made_of) if made_of else set()

    def of(name: str) -> frozenset[str]:
        known, words = parts.get(name), set(name.split("+"))
        if known is None:
            return frozenset() if name == baseline else frozenset(words)
        beside = set() if name == baseline or name not in own else words - set(known) or {name}
        return frozenset(set(known) - ground | beside)

    return {name: of(name) for name in variants}


def pairs(made_of: Features, baseline: str) -> list[Pair]:
    """Each variant against the baseline; outside a factorial, each rung of the ladder against the one before it."""
    rungs = {} if effects(made_of) else _rungs(made_of)
    out = []
    for variant in made_of:
        if variant != baseline:
            below = rungs.get(variant)
            out.append(Pair(variant, baseline, ("baseline", "rung") if below == baseline else ("baseline",)))
            if below is not None and below != baseline:
                out.append(Pair(variant, below, ("rung",)))
    return out


def _rungs(made_of: Features) -> dict[str, str]:
    """The rung below each variant: the largest set of features within its own, the latest in order of equals."""
    out = {}
    for variant, own in made_of.items():
        below = [other for other, theirs in made_of.items() if theirs < own]
        if below:
            size = max(len(made_of[other]) for other in below)
            out[variant] = [other for other in below if len(made_of[other]) == size][-1]
    return out


def without(variant: str, feature: str, made_of: Features) -> str | None:
    """The variant that lacks only this feature, where there is one."""
    wanted = made_of[variant] - {feature}
    return next((other for other, theirs in made_of.items() if theirs == wanted and other != variant), None)


def effects(made_of: Features) -> list[Effect]:
    """Main effects and two-way interactions, for a complete factorial of two features or more.

    On the log scale, as contrasts of the cell means: Montgomery, "Design and Analysis of Experiments", ch. 6. A main
    effect is the geometric mean of the ratios with and without the feature; an interaction of 1 means that two features
    multiply.
    """
    cells = {own: variant for variant, own in made_of.items()}
    names = sorted(set().union(*cells), key=lambda name: (_first_use(name, made_of), name))
    if len(names) < 2 or not len(cells) == len(made_of) == 2 ** len(names):
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


def _first_use(feature: str, made_of: Features) -> int:
    return next(index for index, own in enumerate(made_of.values()) if feature in own)


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm (1979), "A simple sequentially rejective multiple test procedure"; undefined p-values take no part.

    By hand, since the one of statsmodels collects garbage at every call, which takes longer than all else here.
    """
    order = sorted((p, index) for index, p in enumerate(p_values) if math.isfinite(p))
    out = [math.nan] * len(p_values)
    highest = 0.0
    for rank, (p, index) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        out[index] = highest
    return out
