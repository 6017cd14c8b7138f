"""Which engine slot answers which cells, in which order. Pure: the same input gives the same plan.

A slot is one place for an engine: a node, or one GPU of a node with several. In the `crossover` design every slot
answers its own share of the items under every variant, so that the two answers that make a pair come from one machine,
and the order of variants is rotated from slot to slot, so that drift does not favour one of them. In `dedicated` each
slot keeps to one variant: fewer engine starts, and node differences enter the comparison.

A plan is made anew while the sweep runs, with what the cells so far have taught about cost. Until an item's first cell
is taken its share is free and evens out the predictions that were wrong. Once every item has its slot, only a cell that
brings the end of the sweep forward enough leaves its pair's slot, and its record says so.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Set
from dataclasses import dataclass
from typing import Literal

from farm.driver.costs import Costs
from farm.types import CellGrid, CellKey

ItemKey = tuple[str, str]  # workload and item id
Design = Literal["crossover", "dedicated"]


@dataclass(frozen=True)
class EngineSession:
    """What one engine start is for: one variant on one slot, and the cells it answers in this order."""

    variant: str
    cells: tuple[CellKey, ...]


@dataclass(frozen=True)
class Position:
    """Where a slot stands when the plan is made.

    Attributes:
        index: its number in the rotation of variants; slots that come later get later numbers.
        variant: of the engine that runs there now; null when none does.
        left: variants whose engine it has given up; another start would be needed.
        busy_s: predicted seconds of what it has begun: an engine's start, and the cells that it holds.
        away: it is lost and expected back: it keeps what it began, and gets nothing more.
    """

    index: int
    variant: str | None = None
    left: frozenset[str] = frozenset()
    busy_s: float = 0.0
    away: bool = False


@dataclass(frozen=True)
class Plan:
    """For each slot with work its engine sessions in order, and the predicted seconds until each slot is done.

    `settled` when every item has been begun on some slot: from then on shares change only by breaking pairs.
    """

    sessions: Mapping[str, tuple[EngineSession, ...]]
    ends_s: Mapping[str, float]
    settled: bool = False

    @property
    def end_s(self) -> float:
        """Predicted seconds until the last slot is done."""
        return max(self.ends_s.values(), default=0.0)

    @property
    def starts(self) -> int:
        """Engine starts, where no engine runs yet."""
        return sum(map(len, self.sessions.values()))


def make_plan(
    grid: CellGrid,
    slots: Mapping[str, Position],
    *,
    design: Design = "crossover",
    taken: Mapping[CellKey, str] | None = None,
    excluded: Set[tuple[str, str]] = frozenset(),
    costs: Costs | None = None,
    min_gain_s: float = 0.0,
) -> Plan:
    """Assign the cells that nobody has taken.

    Args:
        grid: what the sweep asks.
        slots: the engine slots that are there.
        design: crossover or dedicated, see the module.
        taken: cells that are answered, given up or handed out, and the slot of each. Their partners stay on that slot
            while it is there.
        excluded: (slot, variant) that cannot run; those cells go to other slots, or nowhere when there is none.
        costs: predicted seconds; without them all cells cost the same.
        min_gain_s: seconds by which the sweep must end earlier for cells to leave their pairs' slot.
    """
    return _Assigner(grid, slots, design, taken or {}, excluded, costs or Costs()).plan(min_gain_s)


class _Assigner:
    """One making of a plan: the open cells, and the slots' growing loads."""

    def __init__(
        self,
        grid: CellGrid,
        slots: Mapping[str, Position],
        design: Design,
        taken: Mapping[CellKey, str],
        excluded: Set[tuple[str, str]],
        costs: Costs,
    ) -> None:
        self.grid, self.slots, self.design, self.excluded = grid, slots, design, excluded
        self.order = sorted(slots, key=lambda slot: (slots[slot].index, slot))
        self.there = [slot for slot in self.order if not slots[slot].away]
        self.taken = taken
        self.slow = {slot: costs.slowness(slot) for slot in slots}
        self.open = {v: [cell for cell in grid.cells_of(v) if cell not in taken] for v in grid.variants}
        self.start = {variant: costs.start_s(variant) for variant in grid.variants}
        self.price = {cell: costs.cell_s(cell) for cells in self.open.values() for cell in cells}
        self.slot_of: dict[CellKey, str] = {}
        self.ends = {slot: slots[slot].busy_s for slot in self.order}
        # A variant that a slot will start for cells of other slots alone.
        self.started_last: dict[str, str | None] = dict.fromkeys(self.order)
        # Variants whose engine the load of a slot accounts for: the one that runs, and those it will start.
        self.counted: dict[str, set[str]] = {
            slot: {variant} if (variant := slots[slot].variant) else set() for slot in self.order
        }

    def plan(self, min_gain_s: float) -> Plan:
        if not self.there:
            return Plan({}, {})
        if self.design == "crossover":
            free = self._assign_items()
        else:
            free = False
            self._assign_variants()
        lists = self._lists()
        if not free:
            self._even_out(lists, min_gain_s)
        sessions = {
            slot: tuple(
                EngineSession(variant, tuple(cells)) for variant, cells in self._in_order(slot, lists[slot]) if cells
            )
            for slot in self.order
        }
        ends = {slot: self.ends[slot] if sessions[slot] else self.slots[slot].busy_s for slot in self.order}
        return Plan({slot: each for slot, each in sessions.items() if each}, ends, settled=not free)

    def _give(self, cell: CellKey, slot: str) -> None:
        self.slot_of[cell] = slot
        self.ends[slot] += self.price[cell] * self.slow[slot]
        if cell.variant not in self.counted[slot]:
            self.counted[slot].add(cell.variant)
            self.ends[slot] += self.start[cell.variant]

    def _able(self, variant: str) -> list[str]:
        return [slot for slot in self.there if (slot, variant) not in self.excluded]

    def _assign_items(self) -> bool:
        """Items that a slot has begun stay there; the others go, dearest first, to the slot that ends first.

        Returns whether there were such others.
        """
        homes: dict[ItemKey, str] = {}
        for cell, slot in self.taken.items():
            if slot in self.slots:
                homes.setdefault((cell.workload, cell.item_id), slot)
        unowned: dict[ItemKey, list[CellKey]] = {}
        unassigned: list[CellKey] = []
        for cells in self.open.values():
            for cell in cells:
                home = homes.get((cell.workload, cell.item_id))
                if home is None:
                    unowned.setdefault((cell.workload, cell.item_id), []).append(cell)
                elif (home, cell.variant) in self.excluded:
                    unassigned.append(cell)
                else:
                    self._give(cell, home)
        if unowned:
            self._assign_unowned(unowned, unassigned)
        for cell in unassigned:
            if able := self._able(cell.variant):
                self._give(cell, min(able, key=lambda slot: (self.ends[slot], self.slots[slot].index)))
        return bool(unowned)

    def _assign_unowned(self, unowned: dict[ItemKey, list[CellKey]], unassigned: list[CellKey]) -> None:
        wanted = {cell.variant for cells in unowned.values() for cell in cells}
        # A slot that has given up a variant would need another start for it.
        ready = [slot for slot in self.there if not self.slots[slot].left & wanted] or self.there
        for slot in ready:
            for variant in sorted(wanted - self.counted[slot]):
                if (slot, variant) not in self.excluded:
                    self.counted[slot].add(variant)
                    self.ends[slot] += self.start[variant]
        heap = [(self.ends[slot], self.slots[slot].index, slot) for slot in ready]
        heapq.heapify(heap)
        dearest = sorted(unowned.values(), key=lambda cells: -sum(self.price[cell] for cell in cells))
        for cells in dearest:
            _, index, slot = heapq.heappop(heap)
            for cell in cells:
                if (slot, cell.variant) in self.excluded:
                    unassigned.append(cell)
                else:
                    self._give(cell, slot)
            heapq.heappush(heap, (self.ends[slot], index, slot))

    def _assign_variants(self) -> None:
        """Every variant has slots of its own, and every slot is used; with too few slots they take turns."""
        variants, order = self.grid.variants, self.there
        for number, variant in enumerate(variants):
            own = [slot for slot in order if self.slots[slot].index % len(variants) == number]
            own = own or [order[number % len(order)]]
            able = [slot for slot in own if (slot, variant) not in self.excluded] or self._able(variant)
            if able:
                for cell in sorted(self.open[variant], key=lambda cell: -self.price[cell]):
                    self._give(cell, min(able, key=lambda slot: (self.ends[slot], self.slots[slot].index)))

    def _lists(self) -> dict[str, dict[str, list[CellKey]]]:
        """Each slot's cells by variant, in the order of the grid."""
        lists: dict[str, dict[str, list[CellKey]]] = {slot: defaultdict(list) for slot in self.order}
        for variant, cells in self.open.items():
            for cell in cells:
                if cell in self.slot_of:
                    lists[self.slot_of[cell]][variant].append(cell)
        return lists

    def _in_order(self, slot: str, lists: dict[str, list[CellKey]]) -> list[tuple[str, list[CellKey]]]:
        """A slot's variants: the one whose engine runs, then from the slot's place in the rotation on, and at the end
        the one that it takes over from others."""
        by = self.slots[slot].index % len(self.grid.variants)
        rotated = self.grid.variants[by:] + self.grid.variants[:by]
        running = self.slots[slot].variant
        last = self.started_last[slot]
        return [(v, lists[v]) for v in sorted(rotated, key=lambda v: (v == last, v != running)) if lists.get(v)]

    def _even_out(self, lists: dict[str, dict[str, list[CellKey]]], min_gain_s: float) -> None:
        """Move cells from the slot that ends last to one that ends early, to the end of what it does there.

        Only a move that takes a real share off the time still needed is made: it breaks pairs.
        """
        for _ in range(2 * len(self.there)):
            last = max(self.there, key=lambda slot: self.ends[slot])
            moves = [
                move for slot in self.there if slot != last and (move := self._move(last, slot, lists, min_gain_s))
            ]
            if not moves:
                return
            _, slot, variant, count, start_s = max(moves, key=lambda move: move[0])
            own = lists[last][variant]
            moved = own[len(own) - count :]
            del own[len(own) - count :]
            if not lists[slot].get(variant) and variant != self.slots[slot].variant:
                self.started_last[slot] = variant
            lists[slot][variant].extend(moved)
            cost_s = sum(self.price[cell] for cell in moved)
            self.ends[last] -= cost_s * self.slow[last]
            self.ends[slot] += cost_s * self.slow[slot] + start_s

    def _move(
        self, last: str, slot: str, lists: dict[str, dict[str, list[CellKey]]], min_gain_s: float
    ) -> tuple[float, str, str, int, float] | None:
        """The best move from the slot that ends last to another: gain, slot, variant, number of cells, start."""
        best: tuple[float, str, str, int, float] | None = None
        there = self._in_order(slot, lists[slot])
        running = self.slots[slot].variant
        at_end = there[-1][0] if there else running
        # Only what the slot would do last: should the next plan decide otherwise, it has left no variant too early.
        for variant, own in self._in_order(last, lists[last])[-1:]:
            if (slot, variant) in self.excluded:
                continue
            if variant != at_end and (variant == running or lists[slot].get(variant)):
                continue  # it comes earlier there: these cells would not be its last
            if variant != at_end and self.started_last[slot]:
                continue
            start_s = 0.0 if variant == at_end else self.start[variant]
            here, other = self.ends[last], self.ends[slot] + start_s
            count = 0
            for cell in reversed(own):
                after = here - self.price[cell] * self.slow[last], other + self.price[cell] * self.slow[slot]
                if max(after) >= max(here, other):
                    break
                (here, other), count = after, count + 1
            gain = self.ends[last] - max(here, other)
            if count and gain > min_gain_s and (best is None or gain > best[0]):
                best = gain, slot, variant, count, start_s
        return best
