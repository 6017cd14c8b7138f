"""What a person reads while a sweep runs, where the output is no terminal."""

import io
from datetime import UTC, datetime

import pytest
from rich.console import Console

from farm.driver import progress
from farm.driver.progress import Progress, until
from farm.engines.base import Phase


@pytest.fixture
def reported(monkeypatch):
    """Progress over four cells that shows its line at every tick, and what it has printed so far."""
    monkeypatch.setattr(progress, "LINE_EVERY_S", 0.0)
    out = io.StringIO()
    with Progress(Console(file=out, width=100), 4, 0) as shown:
        yield shown, lambda: out.getvalue().splitlines()


def test_a_start_says_phase_elapsed_and_expected_once_for_each_phase(reported):
    shown, lines = reported
    for share, elapsed_s in ((None, 3), (0.1, 130), (0.5, 300)):
        shown.starting("one", "baseline", Phase("loading weights", share), elapsed_s, 480)
    shown.starting("one", "baseline", Phase("capturing graphs"), 400, 480)
    assert lines() == [
        "one: baseline: loading weights (3 s of about 8 min)",
        "one: baseline: capturing graphs (7 min of about 8 min)",
    ]
    shown.starting("one", "baseline", Phase("warming up", 0.5), 450, None)
    shown.tick(0.0)
    assert lines()[-1] == "0 / 4 cells answered, expected end not known yet, one baseline: warming up, 50% (8 min)"


def test_an_unchanged_line_is_not_printed_again(reported):
    shown, lines = reported
    shown.doing("one", "baseline: measuring")
    for _ in range(3):
        shown.doing("one", "baseline: measuring")
        shown.tick(0.0)
    assert lines() == ["one: baseline: measuring", "0 / 4 cells answered, expected end not known yet, one -"]


def test_an_end_is_told_as_a_span_and_by_the_clock():
    evening = datetime(2026, 11, 30, 20, 39, tzinfo=UTC)
    assert until(evening, 24 * 60) == "in 24 min (21:03)"
    assert until(evening, 6 * 3600) == "in 6.0 h (2026-12-01 02:39)"
