"""Progress that a person can follow: a live table on a terminal, plain lines elsewhere (as in `ray job logs`)."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from farm.driver.slots import SlotLife, Slots, SlotState
from farm.results.record import Record

LINE_EVERY_S: Final = 15.0


_AWAY_FROM_WORK: Final = {
    SlotState.GONE: "lost",
    SlotState.AWAY: "lost",
    SlotState.OUT: "left out",
    SlotState.IDLE: "waiting",
}


@dataclass
class _Figures:
    """What a slot's records add up to."""

    done: int = 0
    tokens: int = 0
    decode_s: float = 0.0
    rounds: int = 0
    speculated: int = 0

    @property
    def rate(self) -> str:
        return f"{self.tokens / self.decode_s:.1f} tokens/s" if self.decode_s else "-"


@dataclass
class Progress:
    """Shows where the slots stand, and counts what they answer. Use it as a context manager.

    Attributes:
        slots: where each slot stands.
        expected_start_s: how long an engine of a variant is expected to start, null where nothing is known.
        total: cells of the sweep.
        done: cells answered, those of earlier submissions included.
    """

    console: Console
    slots: Slots
    expected_start_s: Callable[[str], float | None]
    total: int
    done: int
    _figures: dict[str, _Figures] = field(default_factory=lambda: defaultdict(_Figures))
    _said: dict[str, str] = field(default_factory=dict)
    _answered_now: int = 0
    _now_s: float = 0.0
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

    def record(self, slot: str, record: Record) -> None:
        """A cell got its record."""
        figures = self._figures[slot]
        figures.done += 1
        if record.error is None:
            self.done += 1
            self._answered_now += 1
            figures.tokens += record.decode_tokens
            figures.decode_s += record.decode_s or 0.0
            figures.rounds += record.verify_rounds or 0
            figures.speculated += record.round_tokens or 0

    def tick(self, now_s: float, end_s: float) -> None:
        """Show what changed, and now and then all of it.

        Args:
            now_s: seconds since the sweep began, on the clock of the slots.
            end_s: its expected end, on the same clock.
        """
        self._now_s, self._end_s = now_s, end_s
        if self._live is not None:
            self._live.update(self._table())
            return
        for name, slot in self.slots.known().items():
            self._say_news(name, slot)
        if time.monotonic() - self._last_line_s >= LINE_EVERY_S:
            self._last_line_s = time.monotonic()
            if (line := self._line()) != self._last_line:
                self._last_line = line
                self.say(line)

    def _say_news(self, name: str, slot: SlotLife) -> None:
        # Of one phase's shares, those at the time of the next line are enough; that a slot waits is none at first.
        news = f"{slot.variant}: {slot.phase.name}" if slot.phase else self._text(slot)
        if news != self._said.get(name, _AWAY_FROM_WORK[SlotState.IDLE]):
            self.say(f"{name}: {self._text(slot)}")
        self._said[name] = news

    def _text(self, slot: SlotLife) -> str:
        if slot.variant is None:
            return _AWAY_FROM_WORK[slot.state]
        if slot.phase is None:
            if not slot.ready:
                return f"{slot.variant}: starting"
            return f"{slot.variant}: measuring (engine ready after {span(slot.took_s)})"
        expected_s = self.expected_start_s(slot.variant)
        expected = f" of about {span(expected_s)}" if expected_s else ""
        return f"{slot.variant}: {slot.phase} ({span(max(0.0, self._now_s - slot.launched_s))}{expected})"

    def _line(self) -> str:
        doing = ", ".join(
            f"{name} {self._text(slot) if slot.phase else self._figures[name].rate}"
            for name, slot in self.slots.known().items()
        )
        return f"{self._summary()}, {doing}" if doing else self._summary()

    def _summary(self) -> str:
        return f"{self.done} / {self.total} cells answered, expected end {self._end()}"

    def _table(self) -> Table:
        table = Table(title=self._summary())
        for column in ("slot", "runs", "answered", "tokens/s", "accept length"):
            table.add_column(column)
        for name, slot in self.slots.known().items():
            own = self._figures[name]
            accept = f"{own.speculated / own.rounds:.2f}" if own.rounds else "-"
            table.add_row(Text(name), Text(self._text(slot)), str(own.done), own.rate, accept)
        return table

    def _end(self) -> str:
        if self._answered_now < 3:
            return "not known yet"
        return until(datetime.now().astimezone(), max(0.0, self._end_s - self._now_s))


def span(seconds: float) -> str:
    """A length of time for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def until(now: datetime, seconds: float) -> str:
    """A time to come for people: how long it is until then, and the clock's time, with its date on another day."""
    end = now + timedelta(seconds=seconds)
    return f"in {span(seconds)} ({end:{'%H:%M' if end.date() == now.date() else '%Y-%m-%d %H:%M'}})"
