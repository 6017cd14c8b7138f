"""A slot's life: what may follow what, and who may join."""

import pytest

from farm.driver.costs import Costs
from farm.driver.schedule import Schedule
from farm.driver.slots import LIVES, Slots, SlotState
from farm.types import CellGrid


def test_a_slot_goes_through_an_engine_and_is_idle_again():
    slots = Slots()
    slots.join("a")
    slot = slots["a"]
    seen = [slot.state]
    for step in (lambda: slot.order("v", 1.0), lambda: slot.become_ready(2.0, 1.0), slot.finish, slot.end):
        step()
        seen.append(slot.state)
    assert seen == [SlotState.IDLE, SlotState.STARTING, SlotState.MEASURING, SlotState.FINISHING, SlotState.IDLE]
    assert slot.left == {"v"}


def test_an_engine_that_never_was_ready_can_be_started_again_for_free():
    slots = Slots()
    slots.join("a")
    slots["a"].order("v", 1.0)
    slots["a"].end()
    assert slots["a"].left == set()


def test_orders_are_for_slots_that_are_there_and_idle():
    slots = Slots()
    for step in (lambda: None, lambda: slots.join("a"), lambda: slots["a"].order("v", 1.0)):
        step()
        if slots["a"].state is not SlotState.IDLE:
            with pytest.raises(AssertionError):
                slots["a"].order("v", 1.0)


def test_a_slot_that_comes_back_keeps_its_place_and_one_that_is_left_out_never_joins():
    slots = Slots()
    for name in "ab":
        slots.join(name)
    slots["a"].lose(None)
    slots.join("c")
    slots.join("a")
    assert {name: slot.index for name, slot in slots.there().items()} == {"a": 0, "b": 1, "c": 2}
    slots["b"].leave_out()
    assert not slots.may_join("b", "machine")
    with pytest.raises(AssertionError):
        slots.join("b")


def test_a_machine_has_so_many_lives_and_one_that_was_started_anew_has_new_ones():
    slots = Slots()
    assert [slots.died("a", "first") for _ in range(LIVES)] == [True] * (LIVES - 1) + [False]
    assert slots.may_join("a", "second")


def test_an_awaited_slot_that_is_late_or_left_out_is_waited_for_no_more():
    made = Schedule(CellGrid(("v",), {"w": ("q0", "q1")}, {"w": 1}), "crossover", Costs(), {})
    for slot in "abc":
        made.joined(slot)
    for slot in "ab":
        made.lost(slot, wait=True, until_s=10.0)
    assert (made.overdue(9.0), made.awaited) == ([], True)
    made.slots["b"].leave_out()
    assert made.overdue(11.0) == ["a"]
    assert not made.awaited
    assert made.present() == ["c"]
