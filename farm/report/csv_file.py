"""The comparison as CSV: one row for each variant and each contrast it takes part in."""

from __future__ import annotations

import csv
import io

from farm.compare.model import Comparison, Contrast, Distribution, Ends, Estimate, VariantFigures
from farm.text import for_csv

Cell = str | float | None
Row = dict[str, Cell]

_COLUMNS = (
    "sweep_id", "label", "complete", "workload", "variant", "requests", "errors", "truncated",
    "tpot_ms", "tpot_ms_low", "tpot_ms_high", "decode_tokens_per_s", "decode_tokens_per_s_low",
    "decode_tokens_per_s_high", "ttft_s_mean", "ttft_s_p50", "ttft_s_p95", "latency_s_mean", "latency_s_p50",
    "latency_s_p95", "completion_tokens_mean", "completion_tokens_p50", "completion_tokens_p95", "accept_length",
    "accept_rate", "accuracy", "accuracy_low", "accuracy_high", "correct", "graded",
    "against", "pairs", "throughput_ratio", "throughput_ratio_low", "throughput_ratio_high", "mean_latency_change",
    "mean_latency_change_low", "mean_latency_change_high", "accuracy_difference_pp", "accuracy_difference_pp_low",
    "accuracy_difference_pp_high", "mcnemar_exact_p", "mcnemar_mid_p", "tost_p", "margin_pp", "verdict",
    "energy_j_per_request", "energy_j_per_request_low", "energy_j_per_request_high", "energy_j_per_token",
    "energy_j_per_token_low", "energy_j_per_token_high", "energy_method", "sm_clock_mhz", "throttled_s", "slow_answers",
    "energy_per_token_ratio", "energy_per_token_ratio_low", "energy_per_token_ratio_high",
)  # fmt: skip


def render(comparison: Comparison) -> str:
    """Comma-separated, text cells safe to open in a spreadsheet."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=_COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    sweep = comparison.sweep
    head: Row = {"sweep_id": sweep.sweep_id, "label": sweep.label, "complete": sweep.complete}
    for name, workload in comparison.workloads.items():
        for variant, figures in workload.variants.items():
            row = head | {"workload": name, "variant": variant} | _figures(figures)
            own = [_contrast(c) for c in workload.contrasts if c.variant == variant]
            for contrast in own or [Row()]:
                writer.writerow({key: _safe(value) for key, value in (row | contrast).items()})
    return out.getvalue()


def _safe(value: Cell) -> Cell:
    return for_csv(value) if isinstance(value, str) else "" if value is None else value


def _ranged(name: str, value: float | None, ci: Ends | None) -> Row:
    low, high = ci or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _estimate(name: str, estimate: Estimate | None) -> Row:
    return {} if estimate is None else _ranged(name, estimate.value, estimate.ci)


def _spread(name: str, spread: Distribution) -> Row:
    return {f"{name}_mean": spread.mean, f"{name}_p50": spread.p50, f"{name}_p95": spread.p95}


def _figures(one: VariantFigures) -> Row:
    out: Row = {"requests": one.requests, "errors": one.errors, "truncated": one.truncated}
    out |= {"accept_length": one.accept_length, "accept_rate": one.accept_rate}
    out |= _estimate("tpot_ms", one.tpot_ms) | _estimate("decode_tokens_per_s", one.decode_tokens_per_s)
    out |= _spread("ttft_s", one.ttft_s) | _spread("latency_s", one.latency_s)
    out |= _spread("completion_tokens", one.completion_tokens)
    out |= _estimate("energy_j_per_request", one.energy_j_per_request)
    out |= _estimate("energy_j_per_token", one.energy_j_per_token)
    out |= {"energy_method": one.energy_method, "sm_clock_mhz": one.sm_clock_mhz, "throttled_s": one.throttled_s}
    out["slow_answers"] = one.slow_answers
    if one.accuracy is not None:
        out |= _ranged("accuracy", one.accuracy.value, one.accuracy.ci)
        out |= {"correct": one.accuracy.correct, "graded": one.accuracy.n}
    return out


def _contrast(contrast: Contrast) -> Row:
    out: Row = {"against": contrast.against, "pairs": contrast.pairs}
    out |= _estimate("throughput_ratio", contrast.throughput_ratio)
    out |= _estimate("mean_latency_change", contrast.mean_latency_change)
    out |= _estimate("energy_per_token_ratio", contrast.energy_per_token_ratio)
    if (found := contrast.accuracy) is not None:
        out |= _ranged("accuracy_difference_pp", found.difference_pp, found.ci)
        out |= {"mcnemar_exact_p": found.mcnemar_exact_p, "mcnemar_mid_p": found.mcnemar_mid_p}
        out |= {"tost_p": found.tost_p, "margin_pp": found.margin_pp, "verdict": found.verdict}
    return out
