"""Is a slower start worth it: extra seconds of start-up against seconds saved in use."""

from __future__ import annotations

import statistics
from typing import Any

from farm.stats.explain import payback


def start_up_costs(workloads: dict[str, Any], engines: list[dict[str, Any]], baseline: str) -> list[dict[str, Any]]:
    """For each contrast: seconds that a start takes longer, and the use after which they are made up for.

    Start-up seconds are medians over the engines that came up, from launch to the first generated token.
    """
    starts = _medians(engines, lambda engine: engine.get("start_s"))
    compiles = _medians(engines, lambda engine: (engine.get("startup") or {}).get("compile_s"))
    out = []
    for name, workload in workloads.items():
        for contrast in workload["contrasts"]:
            variant, against = contrast["variant"], contrast["against"]
            if variant not in starts or against not in starts:
                continue
            extra = starts[variant] - starts[against]
            saved = _saved_per_request(contrast), _saved_per_token(workload["variants"], variant, against)
            if saved[0] is None or saved[1] is None:
                continue
            paid = payback(extra, saved[0], saved[1])
            out.append(
                {
                    "workload": name,
                    "variant": variant,
                    "against": against,
                    "is_baseline": against == baseline,
                    "start_s": [starts[variant], starts[against]],
                    "compile_s": [compiles.get(variant), compiles.get(against)],
                    "extra_start_s": extra,
                    "saved_s_per_request": saved[0],
                    "saved_s_per_1000_tokens": 1000 * saved[1],
                    "requests_to_pay_back": paid.requests,
                    "tokens_to_pay_back": paid.tokens,
                }
            )
    return out


def _medians(engines: list[dict[str, Any]], read: Any) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for engine in engines:
        value = read(engine)
        if value is not None:
            values.setdefault(str(engine.get("variant")), []).append(float(value))
    return {variant: statistics.median(found) for variant, found in values.items()}


def _saved_per_request(contrast: dict[str, Any]) -> float | None:
    parts = contrast["latency_parts_s"]
    return None if parts is None else -float(parts["total"])


def _saved_per_token(figures: dict[str, Any], variant: str, against: str) -> float | None:
    one, two = figures[variant]["tpot_ms"]["value"], figures[against]["tpot_ms"]["value"]
    return None if one is None or two is None else float(two - one) / 1000
