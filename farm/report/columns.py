"""The cells of the comparison table, and the header line, the same in every view."""

from __future__ import annotations

from typing import Final, NamedTuple

from farm.compare.model import Accuracy, AccuracyContrast, Comparison, Contrast, VariantFigures, WorkloadComparison
from farm.compare.words import change_parts, number, p_value, points, ratio_parts, signed

COLUMNS: Final = (
    "variant",
    "answers",
    "TPOT ms",
    "tokens/s",
    "TTFT s",
    "mean latency s",
    "accept length",
    "accuracy, pp",
)
ENERGY: Final = "J/token"


def header(comparison: Comparison) -> str:
    """One line: which sweep, its label in capitals, whole or partial."""
    sweep = comparison.sweep
    parts = [f"Sweep {sweep.name or sweep.sweep_id or 'without a name'}"]
    if sweep.name and sweep.sweep_id:
        parts[0] += f" ({sweep.sweep_id})"
    if sweep.label:
        parts.append(sweep.label.upper())
    whole = f"{sweep.cells_answered:,} of {sweep.cells_planned:,} cells"
    parts.append(f"complete, {whole}" if sweep.complete else f"PARTIAL: {whole}")
    parts.append(f"baseline {comparison.baseline}")
    return " | ".join(parts)


def mark(comparison: Comparison) -> str:
    """What every table and plot of a labelled or partial sweep carries; empty for a whole one of a real model."""
    sweep = comparison.sweep
    marks = [sweep.label.upper()] if sweep.label else []
    return " | ".join(marks if sweep.complete else [*marks, "PARTIAL"])


def workload_title(comparison: Comparison, name: str) -> str:
    """Name, what it is, how many items, and the mark."""
    workload, marked = comparison.workloads[name], mark(comparison)
    title = name if workload.title == name else f"{name}: {workload.title}"
    return f"{title}, {workload.items:,} items" + (f" [{marked}]" if marked else "")


def columns(comparison: Comparison, name: str) -> list[str]:
    """Heads of the table of a workload: energy has a column only where some variant's is known."""
    return [*COLUMNS, *([ENERGY] if _has_energy(comparison.workloads[name]) else [])]


def _has_energy(workload: WorkloadComparison) -> bool:
    return any(figures.energy_j_per_token for figures in workload.variants.values())


class Cell(NamedTuple):
    """A figure, what the contrast with the baseline makes of it, and how sure that is."""

    figure: str
    note: str = ""
    sure: str = ""


def rows(comparison: Comparison, name: str) -> list[list[Cell]]:
    """One row for each variant, in the order of `columns`."""
    workload = comparison.workloads[name]
    contrasts = {c.variant: c for c in workload.contrasts if c.against == comparison.baseline}
    with_energy = _has_energy(workload)
    return [
        _row(variant, figures, contrasts.get(variant))
        + ([_energy(figures, contrasts.get(variant))] if with_energy else [])
        for variant, figures in workload.variants.items()
    ]


def _row(variant: str, figures: VariantFigures, contrast: Contrast | None) -> list[Cell]:
    speed, latency = number(figures.decode_tokens_per_s.value), number(figures.latency_s.mean)
    return [
        Cell(variant),
        Cell(f"{figures.requests:,}", sure=_losses(figures)),
        Cell(number(figures.tpot_ms.value)),
        Cell(speed, *ratio_parts(contrast.throughput_ratio if contrast else None)),
        Cell(number(figures.ttft_s.mean, 3)),
        Cell(latency, *change_parts(contrast.mean_latency_change if contrast else None)),
        Cell(number(figures.accept_length)),
        _accuracy(figures.accuracy, contrast.accuracy if contrast else None),
    ]


def _energy(figures: VariantFigures, contrast: Contrast | None) -> Cell:
    energy = figures.energy_j_per_token
    if energy is None:
        return Cell("-")
    return Cell(number(energy.value), *ratio_parts(contrast.energy_per_token_ratio if contrast else None))


def _losses(figures: VariantFigures) -> str:
    losses = (figures.errors, "err"), (figures.truncated, "cut")
    parts = [f"{lost:,} {word}" for lost, word in losses if lost]
    return ", ".join(parts)


def _accuracy(accuracy: Accuracy | None, contrast: AccuracyContrast | None) -> Cell:
    share = "-" if accuracy is None else f"{100 * accuracy.value:.2f} %"
    if contrast is None:
        return Cell(share)
    return Cell(share, signed(contrast.difference_pp, 2), contrast.verdict)


def accuracy_line(contrast: Contrast) -> str:
    """The accuracy contrast in one sentence with all its tests."""
    a = contrast.accuracy
    if a is None:
        return ""
    return (
        f"{contrast.variant} against {contrast.against}: {points(a)}, {a.verdict}; "
        f"both right {a.both:,}, only {contrast.against} {a.only_against:,}, only {contrast.variant} "
        f"{a.only_variant:,}, neither {a.neither:,}; McNemar exact {p_value(a.mcnemar_exact_p)}, mid-"
        f"{p_value(a.mcnemar_mid_p)}; equivalence within {a.margin_pp:g} pp {p_value(a.tost_p)}; "
        f"{a.questions:,} questions can show {number(a.detectable_pp, 1)} pp"
    )


def published_rows(comparison: Comparison) -> list[list[str]]:
    """Published figures beside the measured ones: workload, variant, figure, measured, published."""
    return [
        [row.workload, row.variant, row.figure, f"{row.measured:.4g}", f"{row.published:.4g}"]
        for row in comparison.published or ()
    ]
