"""When a worker is given up: no order may stay unanswered for ever, whatever became of who got it. Pure: no clock.

A worker says something at least `sign_every_s` apart while it carries out an order, if only that it is still there, so
a long answer is no silence. What it may take to start an engine, to answer and to stop has limits of its own, which the
worker keeps; the driver allows twice as much and a little more, and then acts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from farm.driver.slots import SlotLife, SlotState
from farm.spec.models import EngineSettings

_FACTOR: Final = 2.0
_MARGIN_S: Final = 10.0
# An engine that does not end when told is killed before that; its log and readings are small.
_STOP_LIMIT_S: Final = 60.0


def sign_every_s(engine: EngineSettings) -> float:
    """How often a worker says at least that it is still there."""
    return engine.stall_timeout_s / 2


@dataclass
class Deadlines:
    """Of each slot, when its worker was last heard of, and when it last got on with its order, in the run's seconds."""

    engine: EngineSettings
    _heard_s: dict[str, float] = field(default_factory=dict)
    _got_on_s: dict[str, float] = field(default_factory=dict)

    def got_on(self, slot: str, now_s: float) -> None:
        """It got an order, or something came of one."""
        self._heard_s[slot] = self._got_on_s[slot] = now_s

    def heard(self, slot: str, now_s: float) -> None:
        """It is there."""
        self._heard_s[slot] = now_s

    def overdue(self, slots: Mapping[str, SlotLife], now_s: float) -> dict[str, str]:
        """The slots whose workers are past their time, each with what it owes and the setting that bounds it."""
        found = {}
        for name, slot in slots.items():
            if not slot.has_engine:
                continue  # it has no order
            for what, since_s, limit_s in self._limits(slot, self._heard_s[name], self._got_on_s[name]):
                if now_s - since_s > _FACTOR * limit_s + _MARGIN_S:
                    found[name] = f"{what} for {now_s - since_s:.0f} s"
                    break
        return found

    def _limits(self, slot: SlotLife, heard_s: float, got_on_s: float) -> Iterator[tuple[str, float, float]]:
        """What bounds a slot's order: words for it, since when it counts, and the worker's own limit."""
        engine = self.engine
        silence = f"its worker has said nothing (engine.stall_timeout_s: {engine.stall_timeout_s:g})"
        yield silence, heard_s, engine.stall_timeout_s
        if slot.state is SlotState.STARTING or slot.phase is not None:
            start = f"its engine's start has not got on (engine.start_timeout_s: {engine.start_timeout_s:g})"
            yield start, got_on_s, engine.start_timeout_s
        elif slot.held:
            answer = f"no answer has come (engine.request_timeout_s: {engine.request_timeout_s:g})"
            yield answer, got_on_s, engine.request_timeout_s
        elif slot.state is SlotState.FINISHING:
            yield "its engine has not stopped", got_on_s, _STOP_LIMIT_S
