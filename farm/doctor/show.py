"""The doctor's report, for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from farm.doctor.verdict import Verdict
from farm.node.preflight.check import FAIL, WARN
from farm.text import one_line

_STYLES: Final = {FAIL: "bold red", WARN: "yellow", "pass": "green"}


def show(verdicts: Sequence[Verdict], console: Console) -> None:
    """One table for each node on a terminal, plain lines elsewhere; then what to do."""
    for verdict in verdicts:
        head = f"{one_line(verdict.node)}: {'can run' if verdict.can_run else 'CANNOT RUN'}"
        _say(console, head, "bold" if verdict.can_run else "bold red")
        if console.is_terminal:
            table = Table("check", "status", "found", box=box.SIMPLE_HEAD, show_edge=False)
            for check in verdict.checks:
                style = _STYLES.get(check.status, "dim")
                table.add_row(check.name, Text(check.status, style), Text(one_line(check.found)))
            console.print(table)
        else:
            for check in verdict.checks:
                _say(console, f"  {check.status:14}  {check.name}: {one_line(check.found)}")
        for check in verdict.checks:
            if check.do:
                _say(console, f"  to do, {check.name}: {one_line(check.do)}", _STYLES[check.status])


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(Text(text, style), soft_wrap=True)
