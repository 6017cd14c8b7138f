"""The comparison as Markdown, for a note, an issue or a run's description."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from farm.compare.model import Comparison
from farm.report import cells
from farm.text import for_markdown


def render(comparison: Comparison) -> str:
    """Header, tables, what to do, why, accuracy in full, warnings."""
    parts = [f"# {for_markdown(cells.header(comparison))}"]
    for name in comparison.workloads:
        parts.append(f"## {for_markdown(cells.workload_title(comparison, name))}")
        parts.append(
            _table(
                cells.heads(comparison, name), [[_cell(cell) for cell in row] for row in cells.rows(comparison, name)]
            )
        )
        graded = [c for c in comparison.workloads[name].contrasts if c.accuracy]
        if graded:
            parts.append(_list([cells.accuracy_line(c) + "." for c in graded]))
    if comparison.published:
        parts.append("## Published figures beside the measured ones")
        heads = ("workload", "variant", "figure", "measured", "published")
        parts.append(_table(heads, [[for_markdown(cell) for cell in row] for row in cells.published_rows(comparison)]))
    for title, lines in (
        ("What to do", cells.texts(comparison.advice)),
        ("Why", cells.texts(comparison.why)),
        ("Warnings", cells.texts(comparison.warnings)),
    ):
        if lines:
            parts += [f"## {title}", _list(lines)]
    return "\n\n".join(parts) + "\n"


def _cell(cell: cells.Cell) -> str:
    return "<br>".join(for_markdown(text) for text in (f"{cell.figure} {cell.note}".rstrip(), cell.sure) if text)


def _table(heads: Sequence[str], rows: list[list[str]]) -> str:
    lines = [list(heads), ["---"] * len(heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _list(lines: Iterable[str]) -> str:
    return "\n".join(f"- {for_markdown(line)}" for line in lines)
