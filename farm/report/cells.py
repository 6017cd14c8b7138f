"""The cells of the comparison table, and the header line, the same in every view."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from farm.compare.model import Comparison, Contrast, Note, VariantFigures
from farm.compare.words import change_parts, number, p_value, points, ratio_parts, signed
from farm.report.columns import VARIANT_COLUMNS


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


def texts(notes: Iterable[Note]) -> list[str]:
    """The sentences of advice, reasons or warnings."""
    return [note.text for note in notes]


def workload_title(comparison: Comparison, name: str) -> str:
    """Name, what it is, how many items, and the mark."""
    workload, marked = comparison.workloads[name], mark(comparison)
    title = name if workload.title == name else f"{name}: {workload.title}"
    return f"{title}, {workload.items:,} items" + (f" [{marked}]" if marked else "")


class Cell(NamedTuple):
    """A figure, what the contrast with the baseline makes of it, and how sure that is."""

    figure: str
    note: str = ""
    sure: str = ""


class Shown(NamedTuple):
    """A column of the table that every view begins with; `narrow` is its head where width is dear."""

    head: str
    narrow: str
    cell: Callable[[VariantFigures, Contrast | None], Cell]
    is_words: bool = False


def _plain(key: str) -> Callable[[VariantFigures, Contrast | None], Cell]:
    column = _BY_KEY[key]
    return lambda figures, _: Cell(column.text(figures))


def _noted(
    key: str, note: Callable[[Contrast], tuple[str, str]], digits: int = 2
) -> Callable[[VariantFigures, Contrast | None], Cell]:
    column = replace(_BY_KEY[key], digits=digits)
    return lambda figures, contrast: Cell(column.text(figures), *(note(contrast) if contrast else ()))


def _answers(figures: VariantFigures, _: Contrast | None) -> Cell:
    losses = (figures.errors, "err"), (figures.truncated, "cut"), (figures.reliability.attempted_again, "again")
    return Cell(_BY_KEY["requests"].text(figures), sure=", ".join(f"{lost:,} {word}" for lost, word in losses if lost))


def _accuracy(figures: VariantFigures, contrast: Contrast | None) -> Cell:
    share = "-" if figures.accuracy is None else f"{100 * figures.accuracy.value:.2f} %"
    if contrast is None or contrast.accuracy is None:
        return Cell(share)
    return Cell(share, signed(contrast.accuracy.difference_pp, 2), contrast.accuracy.verdict)


_BY_KEY: Final = {column.key: column for column in VARIANT_COLUMNS}
_SHOWN: Final = (
    Shown("answers", "answers", _answers),
    Shown("TPOT ms", "TPOT\nms", _plain("tpot_ms")),
    Shown("tokens/s", "tokens/s\nratio [95 %]",
          _noted("decode_tokens_per_s", lambda c: ratio_parts(c.throughput_ratio))),
    Shown("TTFT s", "TTFT\ns", _plain("ttft_s_mean")),
    Shown("mean latency s", "mean latency s\nchange [95 %]",
          _noted("latency_s_mean", lambda c: change_parts(c.mean_latency_change))),
    Shown("accept length", "accept\nlength", _plain("accept_length")),
    Shown("accuracy, pp", "accuracy\nchange, pp", _accuracy, is_words=True),
)  # fmt: skip
_ENERGY: Final = Shown(
    "J/token", "energy\nJ/token", _noted("energy_j_per_token", lambda c: ratio_parts(c.energy_per_token_ratio))
)


def shown(comparison: Comparison, name: str) -> list[Shown]:
    """The columns beside the variant's name: energy has one only where some variant's is known."""
    figures = comparison.workloads[name].variants.values()
    return [*_SHOWN, *([_ENERGY] if any(one.energy_j_per_token for one in figures) else [])]


def heads(comparison: Comparison, name: str) -> list[str]:
    """Heads of the table of a workload."""
    return ["variant", *(column.head for column in shown(comparison, name))]


def rows(comparison: Comparison, name: str) -> list[list[Cell]]:
    """One row for each variant, in the order of `heads`."""
    workload, columns = comparison.workloads[name], shown(comparison, name)
    against = {variant: workload.contrast(variant, comparison.baseline) for variant in workload.variants}
    return [
        [Cell(variant), *(column.cell(figures, against[variant]) for column in columns)]
        for variant, figures in workload.variants.items()
    ]


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
