"""The figures published for Ling-3.0-flash on a DGX Spark."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any


def load() -> dict[str, Any]:
    """The published figures, as they stand in the package's data."""
    source = resources.files("farm.builtin") / "published-figures" / "ling-3.0-flash-dgx-spark.json"
    return dict(json.loads(source.read_text(encoding="utf-8")))


def by_workload() -> dict[str, dict[str, dict[str, float]]]:
    """Workload kind to variant to figure, under the names of `farm.compare.published`."""
    data = load()
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
