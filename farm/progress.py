"""Progress that a person can follow: a live table on a terminal, plain lines elsewhere (as in `ray job logs`)."""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from farm.records import Record

LINE_EVERY_S: Final = 15.0


@dataclass
class _Slot:
    doing: str = "waiting"
    done: int = 0
    tokens: int = 0
    decode_s: float = 0.0
    rounds: int = 0
    speculated: int = 0


@dataclass
class Progress:
    """Counts what happens in a sweep and shows it. Use it as a context manager.

    Attributes:
        total: cells of the sweep.
        done: cells answered, those of earlier submissions included.
    """

    console: Console
    total: int
    done: int
    _slots: dict[str, _Slot] = field(default_factory=lambda: defaultdict(_Slot))
    _answered_now: int = 0
    _end_s: float = 0.0
    _last_line: float = field(default_factory=time.monotonic)
    _live: Live | None = None

    def __enter__(self) -> Progress:
        if self.console.is_terminal:
            self._live = Live(self._table(), console=self.console, refresh_per_second=2, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, message: str) -> None:
        """One line of its own, above the live display."""
        self.console.print(Text(message), highlight=False, soft_wrap=True)

    def doing(self, slot: str, what: str) -> None:
        """A slot began something else."""
        state = self._slots[slot]
        if state.doing != what:
            state.doing = what
            if self._live is None:
                self.say(f"{slot}: {what}")

    def record(self, slot: str, record: Record) -> None:
        """A cell got its record."""
        state = self._slots[slot]
        state.done += 1
        if record.error is None:
            self.done += 1
            self._answered_now += 1
            state.tokens += max(0, record.completion_tokens - 1)
            state.decode_s += record.decode_s or 0.0
            if record.verify_rounds:
                state.rounds += record.verify_rounds
                state.speculated += record.completion_tokens

    def tick(self, end_s: float) -> None:
        """Show the present state, now and then; `end_s` is the expected end on the monotonic clock."""
        self._end_s = end_s
        if self._live is not None:
            self._live.update(self._table())
        elif time.monotonic() - self._last_line >= LINE_EVERY_S:
            self._last_line = time.monotonic()
            self.say(self._line())

    def _line(self) -> str:
        rates = ", ".join(f"{name} {_rate(state)}" for name, state in sorted(self._slots.items()))
        return f"{self.done} / {self.total} cells answered, {rates}, expected end {self._end()}"

    def _table(self) -> Table:
        table = Table(title=f"{self.done} / {self.total} cells answered, expected end {self._end()}")
        for column in ("slot", "runs", "answered", "tokens/s", "accept length"):
            table.add_column(column)
        for name, state in sorted(self._slots.items()):
            accept = f"{state.speculated / state.rounds:.2f}" if state.rounds else "-"
            table.add_row(Text(name), Text(state.doing), str(state.done), _rate(state), accept)
        return table

    def _end(self) -> str:
        if self._answered_now < 3:
            return "not known yet"
        end = datetime.now().astimezone() + timedelta(seconds=max(0.0, self._end_s - time.monotonic()))
        return f"{end:%Y-%m-%d %H:%M:%S}"


def _rate(state: _Slot) -> str:
    return f"{state.tokens / state.decode_s:.1f} tokens/s" if state.decode_s else "-"


def span(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
