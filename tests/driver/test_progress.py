"""What a person reads while a sweep runs, where the output is no terminal."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from farm.driver import progress
from farm.driver.progress import Progress, until
from farm.driver.slots import Slots
from farm.engines.base import Phase


@pytest.fixture
def reported(monkeypatch):
    """The slot "one", progress over four cells that shows its line at every tick, and what it has printed so far."""
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    out, slots = io.StringIO(), Slots()
    slots.join("one")
    with Progress(Console(file=out, width=100), slots, {"baseline": 480.0}.get, 4, 0) as shown:
        yield slots["one"], shown, lambda: out.getvalue().splitlines()


def test_a_start_says_phase_elapsed_and_expected_once_for_each_phase(reported):
    slot, shown, lines = reported
    slot.order("baseline", 0.0)
    for share, now_s in ((None, 3.0), (0.1, 130.0), (0.5, 300.0)):
        slot.enter(Phase("loading weights", share), launched_s=0.0)
        shown.tick(now_s, 0.0)
    slot.enter(Phase("capturing graphs"), launched_s=0.0)
    shown.tick(400.0, 0.0)
    summary = "0 / 4 cells answered, expected end not known yet"
    assert lines() == [
        "one: baseline: loading weights (3 s of about 8 min)",
        f"{summary}, one baseline: loading weights (3 s of about 8 min)",
        f"{summary}, one baseline: loading weights, 10% (2 min of about 8 min)",
        f"{summary}, one baseline: loading weights, 50% (5 min of about 8 min)",
        "one: baseline: capturing graphs (7 min of about 8 min)",
        f"{summary}, one baseline: capturing graphs (7 min of about 8 min)",
    ]


def test_a_slot_is_shown_as_its_life_says(reported):
    slot, shown, lines = reported
    steps = [
        lambda: slot.order("nextn", 0.0),
        lambda: slot.become_ready(20.0, 18.0),
        lambda: slot.enter(Phase("loading weights"), launched_s=25.0),  # its engine died, another takes its place
        lambda: slot.become_ready(50.0, 21.0),
        slot.end,
        lambda: slot.lose(None),
        slot.leave_out,
    ]
    for now_s, step in enumerate(steps, start=30):
        step()
        shown.tick(now_s, 0.0)
    assert [line for line in lines() if line.startswith("one: ")] == [
        "one: nextn: starting",
        "one: nextn: measuring (engine ready after 18 s)",
        "one: nextn: loading weights (7 s)",
        "one: nextn: measuring (engine ready after 21 s)",
        "one: waiting",
        "one: lost",
        "one: left out",
    ]


def test_an_unchanged_line_is_not_printed_again(reported):
    slot, shown, lines = reported
    slot.order("baseline", 0.0)
    slot.become_ready(5.0, 4.0)
    for _ in range(3):
        shown.tick(6.0, 0.0)
    measuring = "one: baseline: measuring (engine ready after 4 s)"
    assert lines() == [measuring, "0 / 4 cells answered, expected end not known yet, one -"]


def test_an_end_is_told_as_a_span_and_by_the_clock():
    evening = datetime(2026, 11, 30, 20, 39, tzinfo=UTC)
    assert until(evening, 24 * 60) == "in 24 min (21:03)"
    assert until(evening, 6 * 3600) == "in 6.0 h (2026-12-01 02:39)"
