"""The figures of one variant on one workload."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

import numpy as np
import pandas as pd

from farm.compare.metrics import (
    ACCEPT_LENGTH,
    ACCEPT_RATE,
    ENERGY_PER_REQUEST_J,
    ENERGY_PER_TOKEN_J,
    TPOT_S,
    accept_histogram,
    distribution,
    ratio_of,
)
from farm.compare.sample import WorkloadSample, as_json, ends, finite, interval, variant_spread
from farm.stats.accuracy import wilson
from farm.stats.intervals import Interval

_DISTRIBUTIONS: Final = ("ttft_s", "latency_s", "completion_tokens")


def variant_figures(sample: WorkloadSample, variant: str, records: pd.DataFrame) -> dict[str, Any]:
    """The contract's entry of one variant, with the per-request views beside the token-weighted ones."""
    frame = sample.table.frame
    answers = sample.table.of(variant)
    items = int(answers["item"].nunique())
    tpot = _tpot(sample, variant, answers, items)
    out: dict[str, Any] = {
        "requests": len(answers),
        "items": items,
        "errors": int(np.sum((frame["variant"] == variant).to_numpy() & ~frame["ok"].to_numpy())),
        "truncated": int(answers["truncated"].sum()),
        "tpot_ms": as_json(Interval(*(1000 * end for end in tpot))),
        "decode_tokens_per_s": as_json(_inverse(tpot)),
        "tpot_per_request_ms": _per_request_tpot(sample, variant, answers, items),
    }
    for name in _DISTRIBUTIONS:
        out[name] = _distribution(sample, variant, answers, name, items)
    out |= _speculation(sample, variant, answers, records)
    out |= _telemetry(sample, variant, answers)
    out["accuracy"] = _accuracy(answers)
    out["label"] = next(iter(sorted(answers["label"].dropna().astype(str).unique())), None)
    return out


def _tpot(sample: WorkloadSample, variant: str, answers: pd.DataFrame, items: int) -> Interval:
    spread = variant_spread(answers, ratio_of(*TPOT_S))
    return interval(sample, ratio_of(*TPOT_S, sample.block(variant)), items, spread)


def _inverse(tpot: Interval) -> Interval:
    if not tpot.value > 0:
        return Interval(np.nan, np.nan, np.nan)
    low, high = (1 / end if end > 0 else np.nan for end in (tpot.high, tpot.low))
    return Interval(1 / tpot.value, low, high)


def _per_request_tpot(sample: WorkloadSample, variant: str, answers: pd.DataFrame, items: int) -> dict[str, Any]:
    mean = interval(sample, ratio_of("request_tpot_s", "request_tpot_answers", sample.block(variant)), items)
    many = answers[(answers["completion_tokens"] > 1).to_numpy()]
    summary = distribution((1000 * many["decode_s"] / (many["completion_tokens"] - 1)).to_numpy(dtype=np.float64))
    return {
        "mean": finite(1000 * mean.value),
        "mean_ci": ends(1000 * mean.low, 1000 * mean.high),
        "p50": finite(summary.p50),
        "p50_ci": ends(*summary.p50_ci),
    }


def _distribution(sample: WorkloadSample, variant: str, answers: pd.DataFrame, name: str, items: int) -> dict[str, Any]:
    mean = interval(sample, ratio_of(name, "answers", sample.block(variant)), items)
    summary = asdict(distribution(answers[name].to_numpy(dtype=np.float64)))
    return {
        "mean": finite(mean.value),
        "p50": finite(summary["p50"]),
        "p95": finite(summary["p95"]),
        "mean_ci": ends(mean.low, mean.high),
        "p50_ci": ends(*summary["p50_ci"]),
        "p95_ci": ends(*summary["p95_ci"]),
    }


def _speculation(sample: WorkloadSample, variant: str, answers: pd.DataFrame, records: pd.DataFrame) -> dict[str, Any]:
    block = sample.block(variant)
    items = int(answers.loc[(answers["verify_rounds"] > 0).to_numpy(), "item"].nunique())
    length = interval(sample, ratio_of(*ACCEPT_LENGTH, block), items)
    rate = interval(sample, ratio_of(*ACCEPT_RATE, block), items)
    per_request_length = interval(sample, ratio_of("request_accept_length", "spec_answers", block), items)
    per_request_rate = interval(sample, ratio_of("request_accept_rate", "drafting_answers", block), items)
    return {
        "accept_length": finite(length.value),
        "accept_length_ci": ends(length.low, length.high),
        "accept_rate": finite(rate.value),
        "accept_rate_ci": ends(rate.low, rate.high),
        "accept_length_per_request": finite(per_request_length.value),
        "accept_rate_per_request": finite(per_request_rate.value),
        "accept_histogram": accept_histogram(answers, records) if items else None,
    }


def _telemetry(sample: WorkloadSample, variant: str, answers: pd.DataFrame) -> dict[str, Any]:
    """Energy with how it was had, and the state of the GPU; null where no answer has it."""
    block = sample.block(variant)
    powered = answers[answers["energy_j"].notna().to_numpy()]
    items = int(powered["item"].nunique())
    clocked = answers[answers["sm_clock_mhz"].notna().to_numpy()]
    throttled = answers["throttled_s"].dropna()

    def energy(figure: tuple[str, str]) -> dict[str, Any] | None:
        return as_json(interval(sample, ratio_of(*figure, block), items)) if items else None

    return {
        "energy_j_per_request": energy(ENERGY_PER_REQUEST_J),
        "energy_j_per_token": energy(ENERGY_PER_TOKEN_J),
        "energy_answers": len(powered),
        "energy_method": ", ".join(sorted(powered["energy_method"].dropna().astype(str).unique())) or None,
        "sm_clock_mhz": float(np.average(clocked["sm_clock_mhz"], weights=clocked["latency_s"]))
        if clocked["latency_s"].sum() > 0
        else None,
        "throttled_s": float(throttled.sum()) if len(throttled) else None,
        "slow_answers": int(answers["slow_state"].sum()),
    }


def _accuracy(answers: pd.DataFrame) -> dict[str, Any] | None:
    """Share of right answers. With repeats the interval counts questions, not answers, so it is not too narrow."""
    graded = answers[answers["correct"].notna().to_numpy()]
    if graded.empty:
        return None
    correct = graded["correct"].to_numpy(dtype=np.float64)
    items = int(graded["item"].nunique())
    share = float(correct.mean())
    return {
        "value": share,
        "ci": ends(*wilson(share * items, items)),
        "correct": int(correct.sum()),
        "n": len(graded),
    }
