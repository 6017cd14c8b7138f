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

from farm.engines.base import Phase
from farm.results.record import Record

LINE_EVERY_S: Final = 15.0


@dataclass(frozen=True)
class _Start:
    """An engine on its way."""

    variant: str
    phase: Phase
    begun_s: float  # of its launch, on the monotonic clock
    expected_s: float | None

    def text(self) -> str:
        elapsed = span(time.monotonic() - self.begun_s)
        expected = f" of about {span(self.expected_s)}" if self.expected_s else ""
        return f"{self.variant}: {self.phase} ({elapsed}{expected})"


@dataclass
class _Slot:
    doing: str | _Start = "waiting"
    done: int = 0
    tokens: int = 0
    decode_s: float = 0.0
    rounds: int = 0
    speculated: int = 0

    @property
    def text(self) -> str:
        return self.doing.text() if isinstance(self.doing, _Start) else self.doing


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
    _last_line: str = ""
    _last_line_s: float = field(default_factory=time.monotonic)
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
        self._begin(slot, what, news=self._slots[slot].doing != what)

    def starting(self, slot: str, variant: str, phase: Phase, elapsed_s: float, expected_s: float | None) -> None:
        """An engine that starts is in a phase, `elapsed_s` after its launch."""
        before = self._slots[slot].doing
        start = _Start(variant, phase, time.monotonic() - elapsed_s, expected_s)
        # Of one phase's shares, those at the time of the next line are enough.
        self._begin(slot, start, news=not (isinstance(before, _Start) and before.phase.name == phase.name))

    def _begin(self, slot: str, doing: str | _Start, *, news: bool) -> None:
        state = self._slots[slot]
        state.doing = doing
        if news and self._live is None:
            self.say(f"{slot}: {state.text}")

    def record(self, slot: str, record: Record) -> None:
        """A cell got its record."""
        state = self._slots[slot]
        state.done += 1
        if record.error is None:
            self.done += 1
            self._answered_now += 1
            state.tokens += record.decode_tokens
            state.decode_s += record.decode_s or 0.0
            if record.verify_rounds:
                state.rounds += record.verify_rounds
                state.speculated += record.completion_tokens - 1  # the prefill's token is of no verify round

    def tick(self, end_s: float) -> None:
        """Show the present state, now and then; `end_s` is the expected end on the monotonic clock."""
        self._end_s = end_s
        if self._live is not None:
            self._live.update(self._table())
        elif time.monotonic() - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = time.monotonic()
            if (line := self._line()) != self._last_line:
                self._last_line = line
                self.say(line)

    def _line(self) -> str:
        doing = ", ".join(
            f"{name} {state.text if isinstance(state.doing, _Start) else _rate(state)}"
            for name, state in sorted(self._slots.items())
        )
        return f"{self._summary()}, {doing}" if doing else self._summary()

    def _summary(self) -> str:
        return f"{self.done} / {self.total} cells answered, expected end {self._end()}"

    def _table(self) -> Table:
        table = Table(title=self._summary())
        for column in ("slot", "runs", "answered", "tokens/s", "accept length"):
            table.add_column(column)
        for name, state in sorted(self._slots.items()):
            accept = f"{state.speculated / state.rounds:.2f}" if state.rounds else "-"
            table.add_row(Text(name), Text(state.text), str(state.done), _rate(state), accept)
        return table

    def _end(self) -> str:
        if self._answered_now < 3:
            return "not known yet"
        return until(datetime.now().astimezone(), max(0.0, self._end_s - time.monotonic()))


def _rate(state: _Slot) -> str:
    return f"{state.tokens / state.decode_s:.1f} tokens/s" if state.decode_s else "-"


def span(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def until(now: datetime, seconds: float) -> str:
    """A time to come for people: how long it is until then, and the clock's time, with its date on another day."""
    end = now + timedelta(seconds=seconds)
    return f"in {span(seconds)} ({end:{'%H:%M' if end.date() == now.date() else '%Y-%m-%d %H:%M'}})"
