"""Which engine slot answers which cells, in which order. Pure: the same input gives the same plan.

A slot is one place for an engine: a node, or one GPU of a node with several. In the `crossover` design every slot
answers its own share of the items under every variant, so that the two answers that make a pair come from one machine,
and the order of variants is rotated from slot to slot, so that drift does not favour one of them. In `dedicated` each
slot keeps to one variant: fewer engine starts, and node differences enter the comparison.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from farm.records import CellKey


@dataclass(frozen=True)
class Stint:
    """What one engine start is for: one variant on one slot, and the cells it answers in this order."""

    variant: str
    cells: tuple[CellKey, ...]


@dataclass(frozen=True)
class Ask:
    """All that a sweep asks, by name alone: variants, and each workload's item ids and repeats, in order."""

    variants: tuple[str, ...]
    items: Mapping[str, tuple[str, ...]]
    repeats: Mapping[str, int]

    def cells(self) -> Iterator[CellKey]:
        """Every cell of the sweep."""
        for variant in self.variants:
            yield from self.cells_of(variant)

    def cells_of(self, variant: str) -> Iterator[CellKey]:
        """The cells of one variant, in the order they are asked: a whole pass over the items before the next repeat."""
        for workload, item_ids in self.items.items():
            for repeat in range(self.repeats[workload]):
                for item_id in item_ids:
                    yield CellKey(variant, workload, item_id, repeat)


Plan = dict[str, list[Stint]]


def make_plan(
    ask: Ask,
    slots: Sequence[str],
    *,
    design: Literal["crossover", "dedicated"] = "crossover",
    done: Mapping[CellKey, str] | None = None,
    barred: Set[tuple[str, str]] = frozenset(),
) -> Plan:
    """Deal the missing cells of a sweep to slots.

    Args:
        ask: what the sweep asks.
        slots: names of the engine slots, in a stable order.
        design: crossover or dedicated, see the module.
        done: answered cells and the slot that answered each. Their partners stay on that slot while it is there.
        barred: (slot, variant) that cannot run; those cells go to other slots, or nowhere when there is none.

    Returns:
        For each slot its stints in order; slots without work are left out.
    """
    done = done or {}
    order = sorted(slots)
    if not order:
        return {}
    if design == "dedicated":
        slots_of = _dedicate(ask.variants, order)
        variants_of: dict[str, list[str]] = {slot: [] for slot in order}
        for variant, names in slots_of.items():
            for name in names:
                variants_of[name].append(variant)
    else:
        slots_of = dict.fromkeys(ask.variants, order)
        variants_of = {slot: _rotated(list(ask.variants), place) for place, slot in enumerate(order)}

    cells: dict[tuple[str, str], list[CellKey]] = defaultdict(list)
    for variant in ask.variants:
        owner = _deal(ask, slots_of[variant], done if design == "crossover" else {})
        able = [slot for slot in order if (slot, variant) not in barred]
        for place, cell in enumerate(cell for cell in ask.cells_of(variant) if cell not in done):
            slot = owner[cell.workload, cell.item_id]
            if slot in able:
                cells[slot, variant].append(cell)
            elif able:
                cells[able[place % len(able)], variant].append(cell)
    for slot, variant in cells:
        if variant not in variants_of[slot]:
            variants_of[slot].append(variant)
    plan = {
        slot: [Stint(variant, tuple(cells[slot, variant])) for variant in variants_of[slot] if cells[slot, variant]]
        for slot in order
    }
    return {slot: stints for slot, stints in plan.items() if stints}


def _rotated(variants: list[str], by: int) -> list[str]:
    by %= len(variants)
    return variants[by:] + variants[:by]


def _dedicate(variants: Sequence[str], slots: list[str]) -> dict[str, list[str]]:
    """Slots of each variant: every variant has at least one, every slot is used."""
    if len(slots) < len(variants):
        return {variant: [slots[place % len(slots)]] for place, variant in enumerate(variants)}
    return {variant: slots[place :: len(variants)] for place, variant in enumerate(variants)}


def _deal(ask: Ask, slots: list[str], done: Mapping[CellKey, str]) -> dict[tuple[str, str], str]:
    """The slot of every item: where some of its cells were answered before, else the next slot in turn.

    Dealing goes on from workload to workload, so that the remainders of a division do not all fall to the first slot.
    """
    present = set(slots)
    owner = {(cell.workload, cell.item_id): slot for cell, slot in done.items() if slot in present}
    load = dict.fromkeys(slots, 0)
    for slot in owner.values():
        load[slot] += 1
    turn = 0
    for workload, item_ids in ask.items.items():
        for item_id in item_ids:
            if (workload, item_id) not in owner:
                # The least loaded slot; among equals the next in turn.
                slot = min(slots, key=lambda name: (load[name], (slots.index(name) - turn) % len(slots)))
                owner[workload, item_id] = slot
                load[slot] += 1
                turn = (slots.index(slot) + 1) % len(slots)
    return owner
