"""The comparison as CSV: one row for each variant and each contrast it takes part in."""

from __future__ import annotations

import csv
import io
from typing import Any

from farm.text import for_csv

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


def render(comparison: dict[str, Any]) -> str:
    """Comma-separated, text cells safe to open in a spreadsheet."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=_COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    sweep = comparison["sweep"]
    head = {"sweep_id": sweep["sweep_id"], "label": sweep["label"], "complete": sweep["complete"]}
    for name, workload in comparison["workloads"].items():
        for variant, figures in workload["variants"].items():
            row = head | {"workload": name, "variant": variant} | _figures(figures)
            own = [_contrast(c) for c in workload["contrasts"] if c["variant"] == variant]
            for contrast in own or [{}]:
                writer.writerow({key: _safe(value) for key, value in (row | contrast).items()})
    return out.getvalue()


def _safe(value: Any) -> Any:
    return for_csv(value) if isinstance(value, str) else "" if value is None else value


def _ranged(name: str, value: Any, ci: list[float | None] | None) -> dict[str, Any]:
    low, high = ci or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _estimate(name: str, estimate: dict[str, Any] | None) -> dict[str, Any]:
    return {} if estimate is None else _ranged(name, estimate["value"], estimate["ci"])


def _figures(figures: dict[str, Any]) -> dict[str, Any]:
    out = {name: figures[name] for name in ("requests", "errors", "truncated", "accept_length", "accept_rate")}
    for name in ("tpot_ms", "decode_tokens_per_s"):
        out |= _ranged(name, figures[name]["value"], figures[name]["ci"])
    for name in ("ttft_s", "latency_s", "completion_tokens"):
        out |= {f"{name}_{part}": figures[name][part] for part in ("mean", "p50", "p95")}
    for name in ("energy_j_per_request", "energy_j_per_token"):
        out |= _estimate(name, figures[name])
    out |= {name: figures[name] for name in ("energy_method", "sm_clock_mhz", "throttled_s", "slow_answers")}
    accuracy = figures["accuracy"]
    if accuracy is not None:
        out |= _ranged("accuracy", accuracy["value"], accuracy["ci"])
        out |= {"correct": accuracy["correct"], "graded": accuracy["n"]}
    return out


def _contrast(contrast: dict[str, Any]) -> dict[str, Any]:
    out = {"against": contrast["against"], "pairs": contrast["pairs"]}
    for name in ("throughput_ratio", "mean_latency_change"):
        out |= _ranged(name, contrast[name]["value"], contrast[name]["ci"])
    out |= _estimate("energy_per_token_ratio", contrast["energy_per_token_ratio"])
    accuracy = contrast["accuracy"]
    if accuracy is not None:
        out |= _ranged("accuracy_difference_pp", accuracy["difference_pp"], accuracy["ci"])
        out |= {name: accuracy[name] for name in ("mcnemar_exact_p", "mcnemar_mid_p", "tost_p", "margin_pp", "verdict")}
    return out
