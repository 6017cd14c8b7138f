"""Who does what next: the state of a running sweep, and the orders that follow from it. Pure: no Ray and no clock.

The dispatcher tells it what happened (`joined`, `record`, `failed`, `lost`) and asks for each slot's next order. Cells
are handed out a few at a time, so that the plan can be corrected until shortly before one is asked; a slot always holds
enough of them to have no pause between two requests.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice, takewhile
from typing import Final

from farm.driver.costs import Costs
from farm.driver.plan import Design, Plan, Position, make_plan
from farm.driver.slots import SlotLife, Slots, SlotState
from farm.engines.base import Phase
from farm.types import CellGrid, CellKey

# Seconds of work that a slot holds beside the cells that run.
LOOKAHEAD_S: Final = 5.0
# The plan is made anew after this share of the answered and of the open cells, and when a slot comes, goes or fails.
_REPLAN_SHARE: Final = 0.005
_REPLAN_SHARE_OPEN: Final = 0.0005
_REPLAN_CELLS: Final = 8
# A pair is broken only if it brings the sweep's end forward by this share of its whole length, and by these seconds.
_MIN_GAIN: Final = 0.005
MIN_GAIN_S: Final = 60.0
# A start that fails may be bad luck once. A slot where starts go on failing that succeed elsewhere is not.
_START_TRIES: Final = 2
_STRIKES: Final = 3


@dataclass(frozen=True)
class Start:
    """Start an engine for a variant; `expected` are the cells that it will probably be asked.

    `attempts` holds the earlier attempts of those cells that were asked and got no record.
    """

    variant: str
    expected: tuple[CellKey, ...]
    cells: tuple[CellKey, ...]
    attempts: Mapping[CellKey, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Feed:
    """Cells for the engine that runs, with their earlier attempts as in `Start`."""

    cells: tuple[CellKey, ...]
    attempts: Mapping[CellKey, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Finish:
    """No more cells for the engine that runs: stop it."""


Order = Start | Feed | Finish


@dataclass
class Schedule:
    """The cells of a sweep and the slots that answer them.

    Attributes:
        answered: cells with an answer, and the slot that gave it.
        slots: where each slot stands.
        given_up: cells whose record is an error.
        concurrency: cells that one engine answers at a time.
        min_gain_s: seconds by which the sweep must end earlier for a pair to be broken.
    """

    grid: CellGrid
    design: Design
    costs: Costs
    answered: dict[CellKey, str]
    concurrency: int = 1
    min_gain_s: float = MIN_GAIN_S
    slots: Slots = field(default_factory=Slots)
    given_up: set[CellKey] = field(default_factory=set)
    _excluded: set[tuple[str, str]] = field(default_factory=set)
    _failures: dict[tuple[str, str], int] = field(default_factory=lambda: defaultdict(int))
    _works: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    _attempts: dict[CellKey, int] = field(default_factory=dict)  # attempts that ended with their engine or its slot
    _plan: Plan = field(default_factory=lambda: Plan({}, {}))
    _queues: dict[tuple[str, str], list[CellKey]] = field(default_factory=dict)
    _stale: bool = True
    _since_plan: int = 0
    _open: int = 0
    _length_s: float = 0.0
    _now_s: float = 0.0

    # What happened.

    def joined(self, slot: str) -> None:
        """A slot is there, for the first time or again."""
        self.slots.join(slot)
        self._stale = True

    def starting(self, slot: str, phase: Phase, elapsed_s: float) -> None:
        """The engine on its way is in a phase of its start, so many seconds after its launch."""
        self.slots[slot].enter(phase, self._now_s - elapsed_s)

    def started(self, slot: str, took_s: float) -> None:
        """The engine that was ordered is ready, or one that took its place when it died."""
        state = self.slots[slot]
        if state.become_ready(self._now_s, took_s) and state.variant is not None:
            self.costs.learn_start(state.variant, took_s)

    def record(self, slot: str, cell: CellKey, *, tokens: int, took_s: float, failed: bool) -> None:
        """A cell has its record. It may come from a slot that has been lost since."""
        if failed:
            self.given_up.add(cell)
        else:
            self.given_up.discard(cell)
            self.answered[cell] = slot
            self.costs.learn(cell, slot, tokens, took_s)
        state = self.slots[slot]
        if state.there:
            state.held.pop(cell, None)
            state.since_s = self._now_s
            state.records += 1
            # Only a record shows that a start was good: an engine that is up may still fail its warm-up.
            self._works[cell.variant].add(slot)
            self._failures.pop((slot, cell.variant), None)
        self._attempts.pop(cell, None)
        self._since_plan += 1

    def failed(self, slot: str, *, not_retryable: bool, attempts: Mapping[CellKey, int] | None = None) -> None:
        """The engine session failed and will end; `not_retryable` when another try would fail in the same way, and
        `attempts` the attempts so far of cells that were asked and have no record."""
        self._attempts.update(attempts or {})
        state = self.slots[slot]
        if state.variant is None:
            return
        if state.records == 0:
            self._failures[slot, state.variant] += _START_TRIES if not_retryable else 1
            if self._failures[slot, state.variant] >= _START_TRIES:
                self._excluded.add((slot, state.variant))
        self._stale = True

    def unfit(self) -> dict[str, str]:
        """Slots where starts keep failing that succeed elsewhere, each with what failed; the last slot is never one."""
        strikes: dict[str, int] = defaultdict(int)
        failed: dict[str, list[str]] = defaultdict(list)
        for (slot, variant), count in self._failures.items():
            if self.slots[slot].there and self._works[variant] - {slot}:
                strikes[slot] += count
                failed[slot].append(variant)
        named = [slot for slot, count in strikes.items() if count >= _STRIKES][: max(0, len(self.present()) - 1)]
        return {slot: f"{' and '.join(sorted(failed[slot]))} failed there and run elsewhere" for slot in named}

    def ended(self, slot: str) -> None:
        """The slot's engine is stopped; cells that it still held are open again."""
        if self.slots[slot].end():
            self._stale = True

    def lost(self, slot: str, *, wait: bool = False, until_s: float = math.inf) -> int:
        """A slot is gone; returns the number of cells it held. With `wait`, its share stays its own until it comes
        back, or until that time (see `overdue`)."""
        state = self.slots[slot]
        if not state.there:
            return 0
        measured = state.ready
        return self._freed(state.lose(until_s if wait else None), measured=measured)

    def quarantine(self, slot: str) -> None:
        """Use a slot no longer in this run."""
        state = self.slots[slot]
        measured = state.ready
        self._freed(state.leave_out(), measured=measured)

    def reconsider(self) -> None:
        """Slots were left out before they could join: nobody waits for them any more."""
        self._stale = True

    def overdue(self, now_s: float) -> list[str]:
        """The slots that did not come back in time; their cells go to others from now on."""
        late = [name for name, slot in self.slots.sharing().items() if slot.away and now_s > slot.back_by_s]
        for name in late:
            self.slots[name].lose(None)
            self._stale = True
        return late

    @property
    def awaited(self) -> bool:
        """Whether a lost slot's share waits for its return."""
        return any(slot.away for slot in self.slots.sharing().values())

    def _freed(self, held: Mapping[CellKey, None], *, measured: bool) -> int:
        if measured:
            # What was tried before is asked alone, once those before it are answered.
            fresh = takewhile(lambda cell: cell not in self._attempts, held)
            for cell in list(islice(fresh, self.concurrency)) or list(held)[:1]:
                self._attempts[cell] = self._attempts.get(cell, 0) + 1
        self._stale = True
        return len(held)

    # What follows.

    def present(self) -> list[str]:
        """Slots that can be given orders."""
        return list(self.slots.there())

    def refresh(self, now_s: float) -> None:
        """Make the plan anew if what happened asks for it.

        Args:
            now_s: seconds since the sweep began, on any clock that does not jump.
        """
        self._now_s = now_s
        due = max(_REPLAN_CELLS, _REPLAN_SHARE * len(self.answered), _REPLAN_SHARE_OPEN * self._open)
        if self._stale or self._since_plan >= due:
            self._replan(now_s)

    def order(self, slot: str, now_s: float, horizon_s: float = LOOKAHEAD_S) -> Order | None:
        """What a slot should do now, if anything; the cells it names count as handed out.

        Args:
            slot: a slot that is present.
            now_s: as in `refresh`.
            horizon_s: seconds of work that the slot should hold.
        """
        state = self.slots[slot]
        if state.state is SlotState.FINISHING:
            return None
        if not state.has_engine:
            return self._start(slot, state, now_s, horizon_s)
        cells = self._hand_out(slot, state, horizon_s)
        if cells:
            return Feed(cells, self._attempts_of(cells))
        if not state.held and self._must_move_on(slot, state, now_s):
            state.finish()
            return Finish()
        return None

    @property
    def expected_length_s(self) -> float:
        """Predicted seconds from the sweep's begin to its end, by the last plan."""
        return self._length_s

    @property
    def unanswered(self) -> bool:
        """Whether there are cells without a record, whether a slot could still answer them or not."""
        return any(cell not in self.answered and cell not in self.given_up for cell in self.grid.cells())

    @property
    def done(self) -> bool:
        """Whether nothing is left that a slot could still do, by the last plan."""
        return not any(slot.held for slot in self.slots.there().values()) and not any(self._queues.values())

    def _replan(self, now_s: float) -> None:
        taken: dict[CellKey, str] = dict(self.answered)
        sharing = self.slots.sharing()
        for name, slot in sharing.items():
            taken.update(dict.fromkeys(slot.held, name))
        taken.update(dict.fromkeys(self.given_up, ""))
        self.costs.under_way(
            (next(iter(slot.held)), now_s - slot.since_s) for slot in sharing.values() if slot.ready and slot.held
        )
        positions: Mapping[str, Position] = {
            name: Position(slot.index, slot.variant, frozenset(slot.left), self._busy_s(name, slot, now_s), slot.away)
            for name, slot in sharing.items()
        }
        self._plan = make_plan(
            self.grid,
            positions,
            design=self.design,
            taken=taken,
            excluded=self._excluded,
            costs=self.costs,
            min_gain_s=max(self.min_gain_s, _MIN_GAIN * self._length_s),
        )
        self._length_s = now_s + self._plan.end_s
        # Reversed, so that the next cell is the last of its list.
        self._queues = {
            (slot, session.variant): list(reversed(session.cells))
            for slot, sessions in self._plan.sessions.items()
            for session in sessions
        }
        self._stale = False
        self._since_plan = 0
        self._open = sum(map(len, self._queues.values()))

    def _busy_s(self, name: str, state: SlotLife, now_s: float) -> float:
        """Seconds of what a slot has begun: the rest of an engine's start, and the cells that it holds."""
        starting_s = 0.0
        if state.variant is not None and not state.ready:
            starting_s = max(0.0, self.costs.start_s(state.variant) - (now_s - state.ordered_s))
        return starting_s + self._held_s(name, state)

    def _held_s(self, name: str, state: SlotLife) -> float:
        """Predicted seconds of the cells that a slot holds, by what is known now."""
        return sum(map(self.costs.cell_s, state.held)) * self.costs.slowness(name)

    def _start(self, slot: str, state: SlotLife, now_s: float, horizon_s: float) -> Start | None:
        variant = self._next_variant(slot)
        if variant is None:
            return None
        expected = tuple(reversed(self._queues[slot, variant]))
        state.order(variant, now_s)
        cells = self._hand_out(slot, state, horizon_s)
        return Start(variant, expected, cells, self._attempts_of(cells))

    def _attempts_of(self, cells: tuple[CellKey, ...]) -> dict[CellKey, int]:
        return {cell: self._attempts[cell] for cell in cells if cell in self._attempts}

    def _next_variant(self, slot: str, but: str | None = None) -> str | None:
        sessions = self._plan.sessions.get(slot, ())
        return next((s.variant for s in sessions if s.variant != but and self._queues.get((slot, s.variant))), None)

    def _hand_out(self, slot: str, state: SlotLife, horizon_s: float) -> tuple[CellKey, ...]:
        assert state.variant is not None
        queue = self._queues.get((slot, state.variant), [])
        held_s = self._held_s(slot, state)
        handed: list[CellKey] = []
        while queue and (len(state.held) <= self.concurrency or held_s < horizon_s):
            cell = queue.pop()
            state.held[cell] = None
            held_s += self.costs.cell_s(cell) * self.costs.slowness(slot)
            handed.append(cell)
        return tuple(handed)

    def _must_move_on(self, slot: str, state: SlotLife, now_s: float) -> bool:
        """Whether an engine that holds nothing is in the way of another variant, by a plan of this moment."""
        if self._next_variant(slot, but=state.variant) is None:
            return False
        if self._since_plan and not self._plan.settled:
            # The last chance to give this engine more of its variant's items before it is stopped.
            self._replan(now_s)
            return not self._queues.get((slot, state.variant or ""))
        return True
