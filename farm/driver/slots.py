"""A slot's life on the driver, as one state machine. Pure: no Ray and no clock.

    gone --join--> idle --order--> starting --become_ready--> measuring --finish--> finishing --end--> idle

An engine may end in any of its three states: the slot is idle again. Its worker may be lost in any state: the slot is
gone, or away while its cells wait for its return; from there it joins again or, too late, is gone. Whatever it does,
it may be left out for the rest of the run.

The worker pool asks it who may join, the schedule who is there and what runs there; the progress display shows it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from farm.engines.base import Phase
from farm.types import CellKey

# A slot whose worker dies this often on one machine is not used again in the same run.
LIVES: Final = 5


class SlotState(Enum):
    """Where a slot stands."""

    GONE = "gone"  # not there, and nothing is kept for it
    AWAY = "away"  # lost; its cells wait for its return
    OUT = "out"  # unfit, or quarantined
    IDLE = "idle"  # there, without an engine
    STARTING = "starting"
    MEASURING = "measuring"
    FINISHING = "finishing"  # answers what it holds, then stops its engine


_ENGINE: Final = frozenset({SlotState.STARTING, SlotState.MEASURING, SlotState.FINISHING})
_THERE: Final = _ENGINE | {SlotState.IDLE}
_NEXT: Final = {
    SlotState.GONE: {SlotState.IDLE, SlotState.OUT},
    SlotState.AWAY: {SlotState.IDLE, SlotState.GONE, SlotState.OUT},
    SlotState.OUT: {SlotState.OUT},
    SlotState.IDLE: {SlotState.STARTING, SlotState.GONE, SlotState.AWAY, SlotState.OUT},
    SlotState.STARTING: {SlotState.MEASURING, SlotState.FINISHING, SlotState.IDLE, SlotState.GONE, SlotState.AWAY,
                         SlotState.OUT},
    SlotState.MEASURING: {SlotState.FINISHING, SlotState.IDLE, SlotState.GONE, SlotState.AWAY, SlotState.OUT},
    SlotState.FINISHING: {SlotState.IDLE, SlotState.GONE, SlotState.AWAY, SlotState.OUT},
}  # fmt: skip


@dataclass
class SlotLife:
    """One slot: its state, and what belongs to it.

    Attributes:
        index: its number in the rotation of variants; -1 before it first joined.
        variant: of the engine that starts or runs.
        ordered_s: when that engine was ordered.
        phase: of an engine on its way, which may be one that takes the place of an engine that died.
        launched_s: when that one was launched.
        took_s: the start of the engine that runs.
        ready: that engine has been ready.
        since_s: when it became ready, or gave its last record.
        records: of that engine.
        held: cells handed out, in this order.
        left: variants whose engine it has given up since it joined.
        back_by_s: until when its share waits, while it is away.
    """

    index: int = -1
    state: SlotState = SlotState.GONE
    variant: str | None = None
    ordered_s: float = 0.0
    phase: Phase | None = None
    launched_s: float = 0.0
    took_s: float = 0.0
    ready: bool = False
    since_s: float = 0.0
    records: int = 0
    held: dict[CellKey, None] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    back_by_s: float = math.inf

    @property
    def there(self) -> bool:
        """It can be given orders."""
        return self.state in _THERE

    @property
    def away(self) -> bool:
        """It is lost, and its cells wait for it."""
        return self.state is SlotState.AWAY

    @property
    def has_engine(self) -> bool:
        """An engine starts or runs."""
        return self.state in _ENGINE

    def join(self) -> None:
        """It is there, for the first time or again."""
        self._go(SlotState.IDLE)
        self._forget()
        self.left = set()

    def order(self, variant: str, now_s: float) -> None:
        """An engine is started for a variant."""
        self._go(SlotState.STARTING)
        self.variant, self.ordered_s = variant, now_s

    def enter(self, phase: Phase, launched_s: float) -> None:
        """The engine on its way is in a phase of its start."""
        if self.has_engine:
            self.phase, self.launched_s = phase, launched_s

    def become_ready(self, now_s: float, took_s: float) -> bool:
        """Its engine is ready; returns whether that is news: one may take the place of an engine that died."""
        if not self.has_engine:
            return False
        self.phase, self.took_s = None, took_s
        if self.ready:
            return False
        if self.state is SlotState.STARTING:
            self._go(SlotState.MEASURING)
        self.ready, self.since_s = True, now_s
        return True

    def finish(self) -> None:
        """It gets no more cells for the engine that runs."""
        self._go(SlotState.FINISHING)

    def end(self) -> dict[CellKey, None]:
        """Its engine is stopped; returns the cells that it still held."""
        if self.has_engine:
            if self.variant is not None and self.ready:
                self.left.add(self.variant)
            self._go(SlotState.IDLE)
        return self._forget()

    def lose(self, back_by_s: float | None) -> dict[CellKey, None]:
        """Its worker is gone; with a time, its cells wait until then. Returns the cells that it held."""
        self._go(SlotState.GONE if back_by_s is None else SlotState.AWAY)
        self.back_by_s = math.inf if back_by_s is None else back_by_s
        self.left = set()
        return self._forget()

    def leave_out(self) -> dict[CellKey, None]:
        """It is not used again in this run. Returns the cells that it held."""
        self._go(SlotState.OUT)
        return self._forget()

    def _forget(self) -> dict[CellKey, None]:
        held, self.held = self.held, {}
        self.variant, self.phase, self.ready, self.records = None, None, False, 0
        self.ordered_s = self.launched_s = self.took_s = self.since_s = 0.0
        return held

    def _go(self, state: SlotState) -> None:
        if state not in _NEXT[self.state]:
            raise AssertionError(f"a slot cannot go from {self.state.value} to {state.value}")
        self.state = state


@dataclass
class Slots:
    """All slots that a run has known, by name."""

    _lives: dict[str, SlotLife] = field(default_factory=dict)
    _deaths: Counter[str] = field(default_factory=Counter)  # by machine: one that was started anew has a new life

    def __getitem__(self, name: str) -> SlotLife:
        return self._lives.setdefault(name, SlotLife())

    def join(self, name: str) -> None:
        """A slot is there; the first time it gets the next place in the rotation."""
        slot = self[name]
        if slot.index < 0:
            slot.index = sum(other.index >= 0 for other in self._lives.values())
        slot.join()

    def known(self) -> dict[str, SlotLife]:
        """All that ever joined, by name."""
        return {name: slot for name, slot in sorted(self._lives.items()) if slot.index >= 0}

    def there(self) -> dict[str, SlotLife]:
        """Those that can be given orders, in the order of their places."""
        return {name: slot for name, slot in self._sharing() if slot.there}

    def sharing(self) -> dict[str, SlotLife]:
        """Those that have a share of the cells: who is there, and who is awaited."""
        return dict(self._sharing())

    def died(self, name: str, machine: str) -> bool:
        """A slot's worker died on a machine; returns whether it may be used there again."""
        self._deaths[machine] += 1
        return self.may_join(name, machine)

    def may_join(self, name: str, machine: str) -> bool:
        """Whether a slot on a machine may be used."""
        return self[name].state is not SlotState.OUT and self._deaths[machine] < LIVES

    def _sharing(self) -> Iterator[tuple[str, SlotLife]]:
        known = sorted(self._lives.items(), key=lambda entry: entry[1].index)
        return ((name, slot) for name, slot in known if slot.there or slot.away)
