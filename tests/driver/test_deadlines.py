"""When a worker is given up: twice its own limit and ten seconds after it was last heard of, or last got on."""

import pytest

from farm.driver.deadlines import Deadlines, sign_every_s
from farm.driver.slots import SlotLife
from farm.engines.base import Phase
from farm.spec.models import EngineSettings
from farm.types import CellKey

ENGINE = EngineSettings(device="cpu", stall_timeout_s=5, start_timeout_s=100, request_timeout_s=50)
CELL = CellKey("v", "w", "i", 0)


def life(state, *, held=()):
    """A slot that has come as far as `state`."""
    slot = SlotLife(index=0)
    slot.join()
    if state != "idle":
        slot.order("v", 0.0)
    if state in ("measuring", "restarting", "finishing"):
        slot.become_ready(0.0, 1.0)
    if state == "restarting":
        slot.enter(Phase("loading weights"), 0.0)
    if state == "finishing":
        slot.finish()
    slot.held = dict.fromkeys(held)
    return slot


def given_up(slot, *, heard_s, at_s):
    deadlines = Deadlines(ENGINE)
    deadlines.got_on("one", 0.0)
    deadlines.heard("one", heard_s)
    return deadlines.overdue({"one": slot}, at_s)


@pytest.mark.parametrize("state", ["starting", "measuring", "restarting", "finishing"])
def test_silence_is_bounded_in_every_state_with_an_order(state):
    slot = life(state, held=[CELL])
    assert given_up(slot, heard_s=30.0, at_s=50.0) == {}
    assert "stall_timeout_s" in given_up(slot, heard_s=30.0, at_s=50.1)["one"]
    assert sign_every_s(ENGINE) <= ENGINE.stall_timeout_s / 2, "one sign may be late"


def test_without_an_order_nothing_is_due():
    assert given_up(life("idle"), heard_s=0.0, at_s=1e6) == {}


@pytest.mark.parametrize(
    ("state", "held", "limit_s", "setting"),
    [
        ("starting", [CELL], 210.0, "start_timeout_s"),
        ("restarting", [CELL], 210.0, "start_timeout_s"),
        ("measuring", [CELL], 110.0, "request_timeout_s"),
        ("finishing", [CELL], 110.0, "request_timeout_s"),
        ("finishing", [], 130.0, "not stopped"),
    ],
)
def test_a_worker_that_is_there_and_does_not_get_on_is_given_up_too(state, held, limit_s, setting):
    slot = life(state, held=held)
    assert given_up(slot, heard_s=limit_s, at_s=limit_s) == {}
    assert setting in given_up(slot, heard_s=limit_s, at_s=limit_s + 0.1)["one"]


def test_one_that_waits_for_cells_may_wait_as_long_as_it_is_heard_of():
    assert given_up(life("measuring"), heard_s=1e6, at_s=1e6) == {}
