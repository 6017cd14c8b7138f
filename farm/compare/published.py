"""Published figures beside the measured ones."""

from __future__ import annotations

from farm.builtin.published import by_workload
from farm.compare.model import Comparison, Contrast, PublishedFigure, VariantFigures


def beside(comparison: Comparison) -> tuple[PublishedFigure, ...]:
    """Measured and published figures of the variants and workloads that both have.

    A workload is matched by its kind, or by its name where the kind is not told; contrasts are with the baseline.
    """
    published = by_workload()
    rows = []
    for name, workload in comparison.workloads.items():
        figures_told = published.get(workload.kind or name, {})
        for variant, figures in workload.variants.items():
            measured = _measured(figures, workload.contrast(variant, comparison.baseline))
            for figure, value in figures_told.get(variant, {}).items():
                own = measured.get(figure)
                if own is not None:
                    row = PublishedFigure(workload=name, variant=variant, figure=figure, measured=own, published=value)
                    rows.append(row)
    return tuple(rows)


def _measured(figures: VariantFigures, contrast: Contrast | None) -> dict[str, float | None]:
    accuracy = figures.accuracy
    out = {
        "tpot_ms": figures.tpot_ms.value,
        "tokens_per_s": figures.decode_tokens_per_s.value,
        "accept_length": figures.accept_length_engine,
        "mean_ttft_s": figures.ttft_s.mean,
        "mean_latency_s": figures.latency_s.mean,
        "accuracy_pct": None if accuracy is None else 100 * accuracy.value,
    }
    if contrast is not None:
        speed, latency = contrast.throughput_ratio.value, contrast.mean_latency_change.value
        out["throughput_gain_pct"] = None if speed is None else 100 * (speed - 1)
        out["mean_latency_change_pct"] = None if latency is None else 100 * latency
    return out
