"""The comparison on one screen of a terminal, within 100 columns."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from farm.compare.model import Comparison
from farm.report import cells
from farm.text import one_line

WIDTH: Final = 100


def text(comparison: Comparison, *, styled: bool) -> str:
    """Rendered to a string, with or without terminal colours."""
    out = io.StringIO()
    console = Console(file=out, width=WIDTH, force_terminal=styled, no_color=not styled, highlight=False)
    render(comparison, console)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def render(comparison: Comparison, console: Console) -> None:
    """Print the comparison; names and messages are shown as plain text, never as markup."""
    whole = comparison.sweep.complete and not comparison.sweep.label
    console.print(_text(cells.header(comparison), "bold" if whole else "bold reverse"))
    for name in comparison.workloads:
        console.print()
        console.print(_table(comparison, name))
    if comparison.published:
        console.print()
        console.print(_published(comparison))
    for title, lines in (("What to do", cells.texts(comparison.advice)), ("Why", cells.texts(comparison.why))):
        _section(console, title, lines, "bold" if title == "What to do" else "")
    _section(console, "Warnings", cells.texts(comparison.warnings), "")


def _text(content: str, style: str = "") -> Text:
    return Text(one_line(content), style=style)


def _table(comparison: Comparison, name: str) -> Table:
    table = Table(
        title=_text(cells.workload_title(comparison, name), "bold"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=0,
        show_edge=False,
    )
    table.add_column(Text("variant"), overflow="fold")
    for column in cells.shown(comparison, name):
        table.add_column(Text(column.narrow), justify="left" if column.is_words else "right", overflow="fold")
    for row in cells.rows(comparison, name):
        table.add_row(*(_cell(cell) for cell in row))
    return table


def _cell(cell: cells.Cell) -> RenderableType:
    top = _text(f"{cell.figure} {cell.note}".rstrip())
    return Group(top, _text(cell.sure, "dim")) if cell.sure else top


def _published(comparison: Comparison) -> Table:
    table = Table(title=Text("Published figures beside the measured ones", "bold"), title_justify="left",
                  box=box.SIMPLE_HEAD, show_edge=False)  # fmt: skip
    for index, head in enumerate(("workload", "variant", "figure", "measured", "published")):
        table.add_column(head, justify="right" if index > 2 else "left", overflow="fold")
    for row in cells.published_rows(comparison):
        table.add_row(*(_text(cell) for cell in row))
    return table


def _section(console: Console, title: str, lines: Sequence[str], style: str) -> None:
    if not lines:
        return
    console.print()
    console.print(Text(title, "bold underline"))
    for line in lines:
        console.print(Padding(_text(f"- {line}", style), (0, 0, 0, 1)))
