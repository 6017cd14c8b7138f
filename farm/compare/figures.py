"""The figures of one variant on one workload."""

from __future__ import annotations

import numpy as np
import pandas as pd

from farm.compare.metrics import (
    ACCEPT_LENGTH,
    ACCEPT_LENGTH_ENGINE,
    ACCEPT_RATE,
    ENERGY_PER_REQUEST_J,
    ENERGY_PER_TOKEN_J,
    TPOT_S,
    accept_histogram,
    distribution,
    ratio_of,
)
from farm.compare.model import (
    Accuracy,
    Distribution,
    Estimate,
    PerRequest,
    Reliability,
    VariantFigures,
    ends,
    estimate,
    finite,
)
from farm.compare.sample import WorkloadSample, interval, item_variance
from farm.compare.starts import variant_scatter
from farm.stats.accuracy import wilson
from farm.stats.intervals import Interval


def variant_figures(
    sample: WorkloadSample, variant: str, records: pd.DataFrame, reliability: Reliability
) -> VariantFigures:
    """The figures of one variant, with the per-request views beside the token-weighted ones."""
    answers = sample.table.of(variant)
    items = int(answers["item"].nunique())
    tpot = _tpot(sample, variant, answers, items)
    block = sample.block(variant)
    speculating = int(answers.loc[(answers["verify_rounds"] > 0).to_numpy(), "item"].nunique())
    powered = answers[answers["energy_j"].notna().to_numpy()]
    powered_items = int(powered["item"].nunique())

    def speculation(figure: tuple[str, str]) -> Estimate:
        return estimate(interval(sample, ratio_of(*figure, block), speculating))

    def energy(figure: tuple[str, str]) -> Estimate | None:
        return estimate(interval(sample, ratio_of(*figure, block), powered_items)) if powered_items else None

    def spread(name: str) -> Distribution:
        return _distribution(sample, variant, answers, name, items)

    length, rate = speculation(ACCEPT_LENGTH), speculation(ACCEPT_RATE)
    return VariantFigures(
        requests=len(answers),
        items=items,
        errors=reliability.errors,
        truncated=int(answers["truncated"].sum()),
        tpot_ms=estimate(Interval(*(1000 * end for end in tpot))),
        decode_tokens_per_s=estimate(_inverse(tpot)),
        tpot_per_request_ms=_per_request_tpot(sample, variant, answers, items),
        ttft_s=spread("ttft_s"),
        latency_s=spread("latency_s"),
        completion_tokens=spread("completion_tokens"),
        accept_length=length.value,
        accept_length_ci=length.ci,
        accept_length_engine=speculation(ACCEPT_LENGTH_ENGINE).value,
        accept_rate=rate.value,
        accept_rate_ci=rate.ci,
        accept_length_per_request=speculation(("request_accept_length", "spec_answers")).value,
        accept_rate_per_request=speculation(("request_accept_rate", "drafting_answers")).value,
        accept_histogram=accept_histogram(answers, records) if speculating else None,
        energy_j_per_request=energy(ENERGY_PER_REQUEST_J),
        energy_j_per_token=energy(ENERGY_PER_TOKEN_J),
        energy_answers=len(powered),
        energy_method=", ".join(sorted(powered["energy_method"].dropna().astype(str).unique())) or None,
        sm_clock_mhz=_mean_clock(answers),
        throttled_s=_throttled(answers),
        slow_answers=int(answers["slow_state"].sum()),
        accuracy=_accuracy(answers),
        reliability=reliability,
        label=next(iter(sorted(answers["label"].dropna().astype(str).unique())), None),
    )


def _tpot(sample: WorkloadSample, variant: str, answers: pd.DataFrame, items: int) -> Interval:
    statistic = ratio_of(*TPOT_S, sample.block(variant))
    scatter = variant_scatter(answers, item_variance(sample, statistic), sample.assumption.value)
    return interval(sample, statistic, items, scatter)


def _inverse(tpot: Interval) -> Interval:
    if not tpot.value > 0:
        return Interval(np.nan, np.nan, np.nan)
    low, high = (1 / end if end > 0 else np.nan for end in (tpot.high, tpot.low))
    return Interval(1 / tpot.value, low, high)


def _per_request_tpot(sample: WorkloadSample, variant: str, answers: pd.DataFrame, items: int) -> PerRequest:
    mean = interval(sample, ratio_of("request_tpot_s", "request_tpot_answers", sample.block(variant)), items)
    many = answers[(answers["steps"] > 0).to_numpy()]
    times = (1000 * many["decode_s"] / many["steps"]).to_numpy(dtype=np.float64)
    summary = distribution(times, many["item"].to_numpy(dtype=np.int64))
    return PerRequest(
        mean=finite(1000 * mean.value),
        mean_ci=ends(1000 * mean.low, 1000 * mean.high),
        p50=finite(summary.p50),
        p50_ci=ends(*summary.p50_ci),
    )


def _distribution(sample: WorkloadSample, variant: str, answers: pd.DataFrame, name: str, items: int) -> Distribution:
    mean = interval(sample, ratio_of(name, "answers", sample.block(variant)), items)
    summary = distribution(answers[name].to_numpy(dtype=np.float64), answers["item"].to_numpy(dtype=np.int64))
    return Distribution(
        mean=finite(mean.value),
        p50=finite(summary.p50),
        p95=finite(summary.p95),
        mean_ci=ends(mean.low, mean.high),
        p50_ci=ends(*summary.p50_ci),
        p95_ci=ends(*summary.p95_ci),
    )


def _mean_clock(answers: pd.DataFrame) -> float | None:
    """Weighted by how long each answer took; null where none has it."""
    clocked = answers[answers["sm_clock_mhz"].notna().to_numpy()]
    if not clocked["latency_s"].sum() > 0:
        return None
    return float(np.average(clocked["sm_clock_mhz"], weights=clocked["latency_s"]))


def _throttled(answers: pd.DataFrame) -> float | None:
    throttled = answers["throttled_s"].dropna()
    return float(throttled.sum()) if len(throttled) else None


def _accuracy(answers: pd.DataFrame) -> Accuracy | None:
    """Share of right answers. With repeats the interval counts questions, not answers, so it is not too narrow."""
    graded = answers[answers["correct"].notna().to_numpy()]
    if graded.empty:
        return None
    correct = graded["correct"].to_numpy(dtype=np.float64)
    items = int(graded["item"].nunique())
    share = float(correct.mean())
    return Accuracy(value=share, ci=ends(*wilson(share * items, items)), correct=int(correct.sum()), n=len(graded))
