"""Is a slower start worth it: extra seconds of start-up against seconds saved in use."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping

from farm.compare.model import Contrast, StartUpCost, VariantFigures, WorkloadComparison
from farm.results.summary import EngineSummary
from farm.stats.explain import payback


def start_up_costs(
    workloads: Mapping[str, WorkloadComparison], engines: Iterable[EngineSummary], baseline: str
) -> tuple[StartUpCost, ...]:
    """For each contrast: seconds that a start takes longer, and the use after which they are made up for.

    Start-up seconds are medians over the engines that came up, from launch to the first generated token.
    """
    starts = _medians(engines, lambda engine: engine.start_s)
    out = []
    for name, workload in workloads.items():
        for contrast in workload.contrasts:
            variant, against = contrast.variant, contrast.against
            if variant not in starts or against not in starts:
                continue
            extra = starts[variant] - starts[against]
            saved = _saved_per_request(contrast), _saved_per_token(workload.variants, variant, against)
            if saved[0] is None or saved[1] is None:
                continue
            paid = payback(extra, saved[0], saved[1])
            out.append(
                StartUpCost(
                    workload=name,
                    variant=variant,
                    against=against,
                    is_baseline=against == baseline,
                    start_s=(starts[variant], starts[against]),
                    extra_start_s=extra,
                    saved_s_per_request=saved[0],
                    saved_s_per_1000_tokens=1000 * saved[1],
                    requests_to_pay_back=paid.requests,
                    tokens_to_pay_back=paid.tokens,
                )
            )
    return tuple(out)


def _medians(engines: Iterable[EngineSummary], read: Callable[[EngineSummary], float | None]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for engine in engines:
        value = read(engine)
        if value is not None:
            values.setdefault(engine.variant, []).append(value)
    return {variant: statistics.median(found) for variant, found in values.items()}


def _saved_per_request(contrast: Contrast) -> float | None:
    parts = contrast.latency_parts_s
    return None if parts is None else -parts.total


def _saved_per_token(figures: Mapping[str, VariantFigures], variant: str, against: str) -> float | None:
    one, two = figures[variant].tpot_ms.value, figures[against].tpot_ms.value
    return None if one is None or two is None else (two - one) / 1000
