"""One variant against another, paired item by item, and the factorial effects."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd

from farm.compare.failures import cells_of_both, failures_as_wrong, left_out
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
from farm.compare.model import (
    AcceptLengths,
    AccuracyContrast,
    Contrast,
    EffectEstimate,
    Estimate,
    LatencyContrast,
    LatencyParts,
    SpeedParts,
    ends,
    estimate,
    finite,
)
from farm.compare.sample import WorkloadSample, interval, item_variance, sample_workload
from farm.compare.starts import Assumption, Part, effect_scatter, pair_scatter, per_request_scatter
from farm.stats import accuracy as paired_accuracy
from farm.stats.accuracy import Outcomes, compare_accuracy
from farm.stats.explain import Means, latency_parts, speed_parts
from farm.stats.family import Effect, Pair, holm
from farm.stats.intervals import FloatArray, Interval, Scatter, Statistic, log_p_value, point


def contrast(
    sample: WorkloadSample, pair: Pair, margin_pp: float, min_gain: float = 0.0, questions: int | None = None
) -> Contrast:
    """One contrast, and what explains it.

    Args:
        sample: the workload.
        pair: the two variants.
        margin_pp: the difference in accuracy that does not matter, in percentage points.
        min_gain: the smallest gain in throughput that is worth it, as a share.
        questions: how many the workload's data set has, where that is known.
    """
    data = sample.paired[pair]
    block = sample.pair_block(pair)
    speed = _quotient(TPOT_S, block + 1, block)
    latency = _quotient(LATENCY_S, block, block + 1)
    log_ratio = _mean_log_ratio(sample, pair)
    assumed = sample.assumption.value
    starts = pair_scatter(data, item_variance(sample, speed), assumed)
    alone = per_request_scatter(data, item_variance(sample, log_ratio), assumed)
    # A start is fast or slow per token; latency inherits that, while its own scatter is that of output lengths.
    latency_ratio = interval(sample, latency, data.items, starts and starts.added)
    parts_s, parts = _latency_parts(sample, block)
    cells = cells_of_both(sample.table, pair.variant, pair.against)
    accuracy = _accuracy(data.variant_answers, data.against_answers, margin_pp, questions)
    wrong = None if cells is None else failures_as_wrong(cells)
    return Contrast(
        variant=pair.variant,
        against=pair.against,
        kinds=pair.kinds,
        pairs=data.items,
        answers_paired=data.cells,
        engine_starts=None if starts is None else starts.starts,
        engine_scatter=None if starts is None else starts.deviation,
        scatter_source=None if starts is None else starts.source,
        nodes_bounded=starts is None or starts.nodes_bounded,
        throughput_ratio=estimate(interval(sample, speed, data.items, starts)),
        throughput_p=finite(log_p_value(sample.resampled, speed, data.items, starts)),
        gain_p=finite(_gain_p(sample, speed, data.items, starts, min_gain)),
        mean_latency_change=_change(latency_ratio),
        ttft_change=_change(interval(sample, _quotient(TTFT_S, block, block + 1), data.items)),
        completion_tokens_change=_change(interval(sample, _quotient(COMPLETION_TOKENS, block, block + 1), data.items)),
        per_request_throughput_ratio=estimate(interval(sample, log_ratio, data.items, alone)),
        energy_per_token_ratio=_energy(sample, data, block),
        accept_length=_accept_lengths(sample, block, data.items),
        speed_parts=_speed_parts(sample, block),
        latency_parts_s=parts_s,
        latency_parts=parts,
        mean_completion_tokens=(
            finite(point(sample.resampled, ratio_of(*COMPLETION_TOKENS, block))),
            finite(point(sample.resampled, ratio_of(*COMPLETION_TOKENS, block + 1))),
        ),
        accuracy=accuracy,
        accuracy_with_failures=accuracy if wrong is None else _accuracy(*wrong, margin_pp, questions),
        left_out=None if cells is None else left_out(cells),
    )


def with_twins(sample: WorkloadSample, twins: Sequence[Pair]) -> Assumption:
    """What is assumed of starts, with what the arms of one baseline differ by taken in: their true ratio is 1."""
    assumption = sample.assumption
    for pair in twins:
        block = sample.pair_block(pair)
        speed = _quotient(TPOT_S, block + 1, block)
        ratio, items = point(sample.resampled, speed), item_variance(sample, speed)
        starts = pair_scatter(sample.paired[pair], items, assumption.value)
        if starts is not None and starts.shared_nodes and starts.error is None and ratio > 0:
            variance = (math.log(ratio) ** 2 - items) / starts.leverage
            assumption = Assumption(assumption.value.observed(variance, 1.0), "baseline-arms")
    return assumption


def _gain_p(sample: WorkloadSample, speed: Statistic, items: int, starts: Scatter | None, min_gain: float) -> float:
    """Of "the gain is the minimum or less", so that 5 % is where the 95 % interval ends."""
    least = 1 + min_gain
    p = log_p_value(sample.resampled, speed, items, starts, null=least)
    return p if not math.isfinite(p) or point(sample.resampled, speed) > least else 1.0


def _change(ratio: Interval) -> Estimate:
    return estimate(Interval(*(end - 1 for end in ratio)))


def _quotient(figure: tuple[str, str], top: int, bottom: int) -> Statistic:
    above, below = ratio_of(*figure, top), ratio_of(*figure, bottom)
    return lambda sums: above(sums) / below(sums)


def _energy(sample: WorkloadSample, data: Pairing, block: int) -> Estimate | None:
    """Energy per generated token over the other's; None where one of the two has none."""
    sides = (data.variant_answers, data.against_answers)
    items = min(int(side.loc[side["energy_j"].notna().to_numpy(), "item"].nunique()) for side in sides)
    return estimate(interval(sample, _quotient(ENERGY_PER_TOKEN_J, block, block + 1), items)) if items else None


def _mean_log_ratio(sample: WorkloadSample, pair: Pair) -> Statistic:
    column = sample.log_ratio_column(pair)
    return lambda sums: np.exp(sums[..., column] / sums[..., column + 1])


def _accept_lengths(sample: WorkloadSample, block: int, items: int) -> AcceptLengths:
    """Tokens per verify round of both sides."""
    own, other = (point(sample.resampled, ratio_of(*ACCEPT_LENGTH, side)) for side in (block, block + 1))
    speculates = math.isfinite(own) or math.isfinite(other)
    return AcceptLengths(
        variant=finite(own),
        against=finite(other),
        ratio=estimate(interval(sample, _round_length_ratio(block), items)) if speculates else None,
    )


def _speed_parts(sample: WorkloadSample, block: int) -> SpeedParts | None:
    """Tokens and cost per round; None where one side decoded nothing."""
    variant, against = (_means(sample, side) for side in (block, block + 1))
    if not (variant.tpot_s > 0 and against.tpot_s > 0):
        return None
    lengths = (point(sample.resampled, ratio_of(*ACCEPT_LENGTH, side)) for side in (block, block + 1))
    own, other = (length if math.isfinite(length) else 1.0 for length in lengths)
    return SpeedParts(**speed_parts(variant.tpot_s, own, against.tpot_s, other)._asdict())


def _latency_parts(sample: WorkloadSample, block: int) -> tuple[LatencyParts | None, LatencyParts | None]:
    """The parts of the latency change, in seconds and as shares of the other's mean latency."""
    variant, against = (_means(sample, side) for side in (block, block + 1))
    if not against.latency_s > 0:
        return None, None
    seconds = latency_parts(variant, against)._asdict()
    shares = {name: value / against.latency_s for name, value in seconds.items()}
    return LatencyParts(**seconds), LatencyParts(**shares)


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


def _accuracy(
    own: pd.DataFrame, other: pd.DataFrame, margin_pp: float, questions: int | None
) -> AccuracyContrast | None:
    variant, against, outcomes = _graded(own, other)
    if not len(variant):
        return None
    return _shown(compare_accuracy(variant, against, outcomes, margin_pp / 100, questions), len(variant))


def _graded(own: pd.DataFrame, other: pd.DataFrame) -> tuple[FloatArray, FloatArray, Outcomes]:
    """Share of right answers to each question under both variants, and the counts over pairs of answers."""
    one = own["correct"].to_numpy(dtype=np.float64)
    two = other["correct"].to_numpy(dtype=np.float64)
    known = np.isfinite(one) & np.isfinite(two)
    one, two = one[known], two[known]
    right, wrong = (one > 0, two > 0), (one == 0, two == 0)
    outcomes = Outcomes(
        both=int(np.sum(right[0] & right[1])),
        only_against=int(np.sum(wrong[0] & right[1])),
        only_variant=int(np.sum(right[0] & wrong[1])),
        neither=int(np.sum(wrong[0] & wrong[1])),
    )
    codes = pd.factorize(own["item"].to_numpy()[known])[0]
    count = np.maximum(np.bincount(codes), 1)
    return np.bincount(codes, weights=one) / count, np.bincount(codes, weights=two) / count, outcomes


def _shown(found: paired_accuracy.AccuracyContrast, questions: int) -> AccuracyContrast:
    return AccuracyContrast(
        questions=questions,
        difference_pp=100 * found.difference,
        ci=ends(100 * found.low, 100 * found.high),
        **found.outcomes._asdict(),
        mcnemar_exact_p=found.exact_p,
        mcnemar_mid_p=found.mid_p,
        tost_p=found.tost_p,
        not_worse_p=found.not_worse_p,
        margin_pp=100 * found.margin,
        detectable_pp=100 * found.detectable,
        questions_needed=found.questions_needed,
        repeats_needed=found.repeats_needed,
        verdict=found.verdict,
    )


def effect(sample: WorkloadSample, found: Effect) -> EffectEstimate:
    """A main effect or an interaction, on decode throughput and on mean latency."""
    items = min(int(sample.table.of(name)["item"].nunique()) for name in found.numerators + found.denominators)
    speed, latency = _effect_statistic(sample, found, TPOT_S, -1), _effect_statistic(sample, found, LATENCY_S, 1)
    parts = [Part(sample.table.of(name), -found.exponent) for name in found.numerators]
    parts += [Part(sample.table.of(name), found.exponent) for name in found.denominators]
    starts = effect_scatter(parts, item_variance(sample, speed), sample.assumption.value)
    return EffectEstimate(
        name=found.name,
        kind=found.kind,
        throughput_ratio=estimate(interval(sample, speed, items, starts)),
        throughput_p=finite(log_p_value(sample.resampled, speed, items, starts)),
        mean_latency_change=_change(interval(sample, latency, items, starts and starts.added)),
    )


def _effect_statistic(sample: WorkloadSample, found: Effect, figure: tuple[str, str], sign: int) -> Statistic:
    above = [ratio_of(*figure, sample.block(name)) for name in found.numerators]
    below = [ratio_of(*figure, sample.block(name)) for name in found.denominators]

    def statistic(sums: FloatArray) -> FloatArray:
        logs = sum(np.log(one(sums)) for one in above) - sum(np.log(one(sums)) for one in below)
        return np.asarray(np.exp(sign * found.exponent * logs))

    return statistic


def with_holm(
    contrasts: Sequence[Contrast], effects: Sequence[EffectEstimate]
) -> tuple[tuple[Contrast, ...], tuple[EffectEstimate, ...]]:
    """Correct over the declared family of a workload: all its contrasts and effects, speed and accuracy apart."""
    raw = [one.throughput_p for one in contrasts] + [one.throughput_p for one in effects]
    speed = [finite(p) for p in holm([math.nan if p is None else p for p in raw])]
    graded = holm([_mid_p(one.accuracy) for one in contrasts])
    # A decision looks at the variants against the baseline, and so often.
    tried = ["baseline" in one.kinds for one in contrasts]
    gain = _holm_of([one.gain_p for one in contrasts], tried)
    not_worse = _holm_of([one.accuracy.not_worse_p if one.accuracy else None for one in contrasts], tried)
    wrong = [one.accuracy_with_failures for one in contrasts]
    failing_mid_p = holm([_mid_p(one) for one in wrong])
    failing_not_worse = _holm_of([one.not_worse_p if one else None for one in wrong], tried)
    return (
        tuple(
            one.model_copy(
                update={
                    "throughput_p_holm": p,
                    "gain_p_holm": least,
                    "accuracy": _corrected(one.accuracy, mid_p, not_lost),
                    "accuracy_with_failures": _corrected(one.accuracy_with_failures, *failing),
                }
            )
            for one, p, mid_p, least, not_lost, failing in zip(
                contrasts,
                speed[: len(contrasts)],
                graded,
                gain,
                not_worse,
                zip(failing_mid_p, failing_not_worse, strict=True),
                strict=True,
            )
        ),
        tuple(
            one.model_copy(update={"throughput_p_holm": p})
            for one, p in zip(effects, speed[len(contrasts) :], strict=True)
        ),
    )


def _holm_of(p_values: Sequence[float | None], tried: Sequence[bool]) -> list[float | None]:
    """Corrected over those that were tried; the others have none."""
    family = [math.nan if p is None or not there else p for p, there in zip(p_values, tried, strict=True)]
    return [finite(p) for p in holm(family)]


def _mid_p(accuracy: AccuracyContrast | None) -> float:
    """Undefined p-values take no part in a correction."""
    return math.nan if accuracy is None or accuracy.mcnemar_mid_p is None else accuracy.mcnemar_mid_p


def _corrected(accuracy: AccuracyContrast | None, p: float, not_worse_p: float | None) -> AccuracyContrast | None:
    return accuracy and accuracy.model_copy(update={"mcnemar_mid_p_holm": finite(p), "not_worse_p_holm": not_worse_p})


def head_to_head(sample: WorkloadSample, variant: str, against: str) -> LatencyContrast:
    """Mean latency of two variants over the cells that both answered, also where the family does not pair them."""
    pair = next((own for own in sample.pairs if own[:2] == (variant, against)), Pair(variant, against, ()))
    if pair not in sample.paired:
        sample = sample_workload(sample.table, [], [pair], sample.assumption)
    block = sample.pair_block(pair)
    ratio = interval(sample, _quotient(LATENCY_S, block, block + 1), sample.paired[pair].items)
    return LatencyContrast(variant=variant, against=against, mean_latency_change=_change(ratio))
