"""The figures published for Ling-3.0-flash on a DGX Spark, beside the measured ones."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def load() -> dict[str, Any]:
    """The published figures, as they stand in the package's data."""
    source = resources.files("farm.builtin") / "published-figures" / "ling-3.0-flash-dgx-spark.json"
    return dict(json.loads(source.read_text(encoding="utf-8")))


def beside(comparison: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of measured and published figures for the variants and workloads that both have.

    A workload is matched by its kind, or by its name where the kind is not told; contrasts are with the baseline.
    """
    published = _by_workload(load())
    rows = []
    for name, workload in comparison["workloads"].items():
        told = published.get(workload["kind"] or name, {})
        for variant, figures in workload["variants"].items():
            measured = _measured(figures, _contrast(workload, variant, comparison["baseline"]))
            for figure, value in told.get(variant, {}).items():
                if measured.get(figure) is not None:
                    row = {"workload": name, "variant": variant, "figure": figure}
                    rows.append(row | {"measured": measured[figure], "published": value})
    return rows


def _contrast(workload: dict[str, Any], variant: str, baseline: str) -> dict[str, Any] | None:
    return next((c for c in workload["contrasts"] if (c["variant"], c["against"]) == (variant, baseline)), None)


def _measured(figures: dict[str, Any], contrast: dict[str, Any] | None) -> dict[str, Any]:
    accuracy = figures["accuracy"]
    out = {
        "tpot_ms": figures["tpot_ms"]["value"],
        "tokens_per_s": figures["decode_tokens_per_s"]["value"],
        "accept_length": figures["accept_length"],
        "mean_ttft_s": figures["ttft_s"]["mean"],
        "mean_latency_s": figures["latency_s"]["mean"],
        "accuracy_pct": None if accuracy is None else 100 * accuracy["value"],
    }
    if contrast is not None:
        speed, latency = contrast["throughput_ratio"]["value"], contrast["mean_latency_change"]["value"]
        out["throughput_gain_pct"] = None if speed is None else 100 * (speed - 1)
        out["mean_latency_change_pct"] = None if latency is None else 100 * latency
    return out


def _by_workload(data: dict[str, Any]) -> dict[str, dict[str, dict[str, float]]]:
    """Workload kind to variant to figure, under the names of `_measured`."""
    names = ("tpot_ms", "tokens_per_s", "accept_length", "mean_ttft_s", "mean_latency_s", "accuracy_pct")
    gsm8k, optimized = data["gsm8k"], "humming+fp8-head+nextn"
    answered = {name: {k: gsm8k[name][k] for k in names if k in gsm8k[name]} for name in ("baseline", optimized)}
    headline = data["gsm8k"]["headline"]
    answered[optimized]["throughput_gain_pct"] = headline["decode_throughput_gain_pct"]
    answered[optimized]["mean_latency_change_pct"] = headline["mean_latency_change_pct"]
    synthetic = {}
    for rung in data["synthetic"]["ladder"]:
        synthetic[rung["variant"]] = {name: rung[name] for name in names if name in rung}
        if "gain_pct" in rung:
            synthetic[rung["variant"]]["throughput_gain_pct"] = rung["gain_pct"]
    return {"gsm8k": answered, "synthetic": synthetic}
