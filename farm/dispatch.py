"""The driver's loop: hands stints to the workers, makes what comes back durable, deals lost work again."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal

import ray

from farm.cluster import Event
from farm.errors import first_line
from farm.journal import Journal
from farm.node import EngineReport, StintFailed
from farm.plan import Ask, Stint, make_plan
from farm.progress import Progress
from farm.records import CellKey, Record

SHOW_EVERY_S: Final = 900.0
_WAIT_S: Final = 1.0
_BATCH: Final = 512


@dataclass
class Dispatcher:
    """Runs a sweep's missing cells on a set of workers.

    Attributes:
        workers: the NodeWorker actors by slot name.
        show: called now and then between records, to make the present results visible elsewhere.
        problems: what went wrong, one sentence each, in the order it happened.
        failed: variants that could not be run on some slot, with the last reason.
    """

    ask: Ask
    workers: dict[str, Any]
    journal: Journal
    progress: Progress
    folder: Path
    design: Literal["crossover", "dedicated"]
    show: Callable[[], None]
    problems: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    _answered: dict[CellKey, str] = field(default_factory=dict)
    _errors: set[CellKey] = field(default_factory=set)
    _barred: set[tuple[str, str]] = field(default_factory=set)
    _queues: dict[str, deque[Stint]] = field(default_factory=dict)
    _active: dict[Any, tuple[str, Stint]] = field(default_factory=dict)
    _yielded: dict[str, int] = field(default_factory=dict)
    _shown: float = field(default_factory=time.monotonic)

    def run(self) -> None:
        """Return when every cell has a record, or no worker is left that could give one."""
        self._answered = self.journal.answered()
        while self._deal():
            while self._queues or self._active:
                self._start_idle()
                self._take(self._drain())
                self.progress.tick()
                self._show_now_and_then()

    def _deal(self) -> bool:
        """Plan what is missing over the slots that are left; false when there is nothing to do or nobody to do it."""
        settled = self._answered | dict.fromkeys(self._errors, "")
        plan = make_plan(self.ask, list(self.workers), design=self.design, done=settled, barred=self._barred)
        self._queues = {slot: deque(stints) for slot, stints in plan.items()}
        return bool(plan)

    def _show_now_and_then(self) -> None:
        # Workers go on meanwhile: their records wait in Ray until they are taken.
        if time.monotonic() - self._shown >= SHOW_EVERY_S:
            self.show()
            self._shown = time.monotonic()

    def _start_idle(self) -> None:
        busy = {slot for slot, _ in self._active.values()}
        for slot in [slot for slot in self._queues if slot not in busy]:
            stint = self._queues[slot].popleft()
            if not self._queues[slot]:
                del self._queues[slot]
            if (slot, stint.variant) in self._barred:
                continue
            stream = self.workers[slot].run.options(num_returns="streaming").remote(stint)
            self._active[stream] = (slot, stint)
            self._yielded[slot] = 0
            self.progress.doing(slot, f"{stint.variant}: starting the engine for {len(stint.cells)} cells")

    def _drain(self) -> list[tuple[str, Event]]:
        """Wait for something to happen, then take all that is there, up to a batch."""
        events: list[tuple[str, Event]] = []
        timeout_s = _WAIT_S
        while self._active and len(events) < _BATCH:
            ready, _ = ray.wait(list(self._active), num_returns=1, timeout=timeout_s)
            if not ready:
                break
            timeout_s = 0.0
            slot, stint = self._active[ready[0]]
            try:
                events.append((slot, ray.get(next(ready[0]))))
            except StopIteration:
                del self._active[ready[0]]
                self.progress.doing(slot, "waiting")
            except (ray.exceptions.RayError, ray.exceptions.RayTaskError) as error:
                del self._active[ready[0]]
                self._lose(slot, stint, error)
        return events

    def _take(self, events: list[tuple[str, Event]]) -> None:
        """Make records durable, then count them."""
        records = [(slot, self._placed(slot, event)) for slot, event in events if isinstance(event, Record)]
        if records:
            self.journal.add(record for _, record in records)
        for slot, record in records:
            self._yielded[slot] += 1
            if record.error is None:
                self._answered[record.key] = slot
            else:
                self._errors.add(record.key)
                self.problems.append(f"{record.key}: {record.error}")
            self.progress.record(slot, record)
        for slot, event in events:
            if isinstance(event, EngineReport):
                self._note_engine(slot, event)
            elif isinstance(event, StintFailed):
                self._fail(slot, event)

    def _placed(self, slot: str, record: Record) -> Record:
        """The record, marked if a partner cell was answered elsewhere: such a pair holds a node difference too."""
        partners = (record.key._replace(variant=variant) for variant in self.ask.variants)
        elsewhere = any(self._answered.get(partner, slot) != slot for partner in partners)
        return replace(record, moved=True) if elsewhere and self.design == "crossover" else record

    def _note_engine(self, slot: str, report: EngineReport) -> None:
        values = dict(report.values)
        if report.log is not None:
            place = self.folder / "engines" / f"{report.engine_id}.log"
            place.parent.mkdir(exist_ok=True)
            place.write_text(report.log, encoding="utf-8")
            values["log"] = str(place.relative_to(self.folder))
        self.journal.note_engine(report.engine_id, values)
        if values["status"] == "started":
            self.progress.doing(slot, f"{values['variant']}: measuring (engine ready after {values['start_s']:.0f} s)")

    def _fail(self, slot: str, failure: StintFailed) -> None:
        """A variant that gave no record at all on a slot is not tried there again; else it gets another engine."""
        self.problems.append(f"{failure.variant} on {slot}: {failure.reason}")
        self.progress.say(f"{slot}: {failure.variant} failed: {failure.reason}")
        self.failed[failure.variant] = failure.reason
        if self._yielded[slot] == 0:
            self._barred.add((slot, failure.variant))

    def _lose(self, slot: str, stint: Stint, error: Exception) -> None:
        message = f"slot {slot} was lost while it ran {stint.variant}: {first_line(error)}"
        self.problems.append(message)
        self.progress.say(message)
        self.workers.pop(slot, None)
        self._queues.pop(slot, None)


def stop_workers(workers: Mapping[str, Any]) -> None:
    """End all workers; each one's engine ends with it."""
    for worker in workers.values():
        ray.kill(worker)
