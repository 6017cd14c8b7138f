"""One variant against another, paired item by item, and the factorial effects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from farm.compare.metrics import (
    ACCEPT_LENGTH,
    COMPLETION_TOKENS,
    ENERGY_PER_TOKEN_J,
    LATENCY_S,
    TPOT_S,
    TTFT_S,
    Pairing,
    ratio_of,
)
from farm.compare.sample import WorkloadSample, as_json, ends, finite, interval, pair_spread
from farm.stats.accuracy import AccuracyContrast, Outcomes, compare_accuracy
from farm.stats.explain import Means, latency_parts, speed_parts
from farm.stats.family import Effect, Pair, holm
from farm.stats.intervals import FloatArray, Interval, Statistic, log_p_value, point


def contrast(sample: WorkloadSample, pair: Pair, margin_pp: float) -> dict[str, Any]:
    """The contract's entry of one contrast, and what explains it."""
    data = sample.paired[pair]
    block = sample.pair_block(pair)
    speed = _quotient(TPOT_S, block + 1, block)
    latency = _quotient(LATENCY_S, block, block + 1)
    # A start is fast or slow per token; latency inherits that, while its own scatter is that of output lengths.
    starts = pair_spread(data, _quotient(TPOT_S, 1, 0))
    latency_ratio = interval(sample, latency, data.items, starts)
    return {
        "variant": pair.variant,
        "against": pair.against,
        "kinds": list(pair.kinds),
        "pairs": data.items,
        "answers_paired": data.cells,
        "engine_starts": None if starts is None else starts.starts,
        "engine_scatter": None if starts is None else starts.deviation,
        "throughput_ratio": as_json(interval(sample, speed, data.items, starts)),
        "throughput_p": finite(log_p_value(sample.resampled, speed, data.items, starts)),
        "mean_latency_change": as_json(Interval(*(end - 1 for end in latency_ratio))),
        "per_request_throughput_ratio": as_json(interval(sample, _mean_log_ratio(sample, pair), data.items)),
        "energy_per_token_ratio": _energy(sample, data, block),
        **_explanation(sample, block, data.items),
        "accuracy": _accuracy(data, margin_pp),
    }


def _quotient(figure: tuple[str, str], top: int, bottom: int) -> Statistic:
    above, below = ratio_of(*figure, top), ratio_of(*figure, bottom)
    return lambda sums: above(sums) / below(sums)


def _energy(sample: WorkloadSample, data: Pairing, block: int) -> dict[str, Any] | None:
    """Energy per generated token over the other's; None where one of the two has none."""
    sides = (data.variant_answers, data.against_answers)
    items = min(int(side.loc[side["energy_j"].notna().to_numpy(), "item"].nunique()) for side in sides)
    return as_json(interval(sample, _quotient(ENERGY_PER_TOKEN_J, block, block + 1), items)) if items else None


def _mean_log_ratio(sample: WorkloadSample, pair: Pair) -> Statistic:
    place = sample.log_ratio_column(pair)
    return lambda sums: np.exp(sums[..., place] / sums[..., place + 1])


def _explanation(sample: WorkloadSample, block: int, items: int) -> dict[str, Any]:
    """Tokens and cost per round, and the parts of the latency change, in seconds and as shares of mean latency."""
    variant, against = (_means(sample, side) for side in (block, block + 1))
    lengths = [point(sample.resampled, ratio_of(*ACCEPT_LENGTH, side)) for side in (block, block + 1)]
    speculates = any(math.isfinite(length) for length in lengths)
    out: dict[str, Any] = {
        "accept_length": {
            "variant": finite(lengths[0]),
            "against": finite(lengths[1]),
            "ratio": as_json(interval(sample, _round_length_ratio(block), items)) if speculates else None,
        },
        "speed_parts": None,
        "latency_parts_s": None,
        "latency_parts": None,
        "mean_completion_tokens": [
            finite(point(sample.resampled, ratio_of(*COMPLETION_TOKENS, side))) for side in (block, block + 1)
        ],
    }
    if variant.tpot_s > 0 and against.tpot_s > 0:
        plain = [length if math.isfinite(length) else 1.0 for length in lengths]
        out["speed_parts"] = speed_parts(variant.tpot_s, plain[0], against.tpot_s, plain[1])._asdict()
    if against.latency_s > 0:
        parts = latency_parts(variant, against)._asdict()
        out["latency_parts_s"] = parts
        out["latency_parts"] = {name: value / against.latency_s for name, value in parts.items()}
    return out


def _round_length_ratio(block: int) -> Statistic:
    """Tokens per round of the variant over those of the other; a round without speculation is one token."""

    def per_round(sums: FloatArray, side: int) -> FloatArray:
        length = ratio_of(*ACCEPT_LENGTH, side)(sums)
        return np.where(np.isfinite(length), length, 1.0)

    return lambda sums: per_round(sums, block) / per_round(sums, block + 1)


def _means(sample: WorkloadSample, block: int) -> Means:
    names = (LATENCY_S, TTFT_S, ("decode_s", "answers"), ("steps", "answers"))
    values = (point(sample.resampled, ratio_of(*name, block)) for name in names)
    return Means(*(value if math.isfinite(value) else 0.0 for value in values))


def _accuracy(data: Pairing, margin_pp: float) -> dict[str, Any] | None:
    variant, against, outcomes = _graded(data)
    if not len(variant):
        return None
    return _accuracy_json(compare_accuracy(variant, against, outcomes, margin_pp / 100), len(variant))


def _graded(data: Pairing) -> tuple[FloatArray, FloatArray, Outcomes]:
    """Share of right answers to each question under both variants, and the counts over pairs of answers."""
    one = data.variant_answers["correct"].to_numpy(dtype=np.float64)
    two = data.against_answers["correct"].to_numpy(dtype=np.float64)
    known = np.isfinite(one) & np.isfinite(two)
    one, two = one[known], two[known]
    right, wrong = (one > 0, two > 0), (one == 0, two == 0)
    outcomes = Outcomes(
        both=int(np.sum(right[0] & right[1])),
        only_against=int(np.sum(wrong[0] & right[1])),
        only_variant=int(np.sum(right[0] & wrong[1])),
        neither=int(np.sum(wrong[0] & wrong[1])),
    )
    codes = pd.factorize(data.variant_answers["item"].to_numpy()[known])[0]
    count = np.maximum(np.bincount(codes), 1)
    return np.bincount(codes, weights=one) / count, np.bincount(codes, weights=two) / count, outcomes


def _accuracy_json(found: AccuracyContrast, questions: int) -> dict[str, Any]:
    return {
        "questions": questions,
        "difference_pp": 100 * found.difference,
        "ci": ends(100 * found.low, 100 * found.high),
        **found.outcomes._asdict(),
        "mcnemar_exact_p": found.exact_p,
        "mcnemar_mid_p": found.mid_p,
        "tost_p": found.tost_p,
        "not_worse_p": found.not_worse_p,
        "margin_pp": 100 * found.margin,
        "detectable_pp": 100 * found.detectable,
        "verdict": found.verdict,
    }


def effect(sample: WorkloadSample, found: Effect) -> dict[str, Any]:
    """A main effect or an interaction, on decode throughput and on mean latency."""
    items = min(int(sample.table.of(name)["item"].nunique()) for name in found.numerators + found.denominators)
    speed, latency = _effect_statistic(sample, found, TPOT_S, -1), _effect_statistic(sample, found, LATENCY_S, 1)
    latency_ratio = interval(sample, latency, items)
    return {
        "name": found.name,
        "kind": found.kind,
        "throughput_ratio": as_json(interval(sample, speed, items)),
        "throughput_p": finite(log_p_value(sample.resampled, speed, items)),
        "mean_latency_change": as_json(Interval(*(end - 1 for end in latency_ratio))),
    }


def _effect_statistic(sample: WorkloadSample, found: Effect, figure: tuple[str, str], sign: int) -> Statistic:
    above = [ratio_of(*figure, sample.block(name)) for name in found.numerators]
    below = [ratio_of(*figure, sample.block(name)) for name in found.denominators]

    def statistic(sums: FloatArray) -> FloatArray:
        logs = sum(np.log(one(sums)) for one in above) - sum(np.log(one(sums)) for one in below)
        return np.asarray(np.exp(sign * found.exponent * logs))

    return statistic


def add_holm(contrasts: Sequence[dict[str, Any]], effects: Sequence[dict[str, Any]]) -> None:
    """Correct over the declared family of a workload: all its contrasts and effects, speed and accuracy apart."""
    members = [*contrasts, *effects]
    adjusted = holm([math.nan if one["throughput_p"] is None else one["throughput_p"] for one in members])
    for one, p in zip(members, adjusted, strict=True):
        one["throughput_p_holm"] = finite(p)
    graded = [one["accuracy"] for one in contrasts if one["accuracy"] is not None]
    for one, p in zip(graded, holm([one["mcnemar_mid_p"] for one in graded]), strict=True):
        one["mcnemar_mid_p_holm"] = finite(p)


def head_to_head(sample: WorkloadSample, variant: str, against: str) -> dict[str, Any]:
    """Mean latency of two variants that the family does not pair, over their shared items."""
    block, other = sample.block(variant), sample.block(against)
    items = min(int(sample.table.of(name)["item"].nunique()) for name in (variant, against))
    ratio = interval(sample, _quotient(LATENCY_S, block, other), items)
    return {
        "variant": variant,
        "against": against,
        "mean_latency_change": as_json(Interval(*(end - 1 for end in ratio))),
    }
