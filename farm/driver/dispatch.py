"""The driver's loop: gives the schedule's orders to the workers, makes what comes back durable, follows the cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Final

import ray

from farm.driver.deadlines import Deadlines
from farm.driver.progress import Progress
from farm.driver.prometheus import Meters
from farm.driver.schedule import LOOKAHEAD_S, Feed, Finish, Schedule, Start
from farm.driver.workers import WorkerPool
from farm.engines.base import Phase
from farm.errors import first_line
from farm.node.messages import Answered, EngineReady, EngineReport, EngineStarting, Event, SessionFailed, StillThere
from farm.results.folder import ResultsFolder
from farm.results.journal import Journal
from farm.results.record import Record

SHOW_EVERY_S: Final = 900.0
# While results are shown elsewhere nobody feeds the workers; of a very large sweep it takes minutes.
_SHOW_LOOKAHEAD_S: Final = 120.0
_SHOW_SHARE: Final = 0.05
_WAIT_S: Final = 0.5
_BATCH: Final = 512
# With no slot left, how long one may take to come back before the sweep ends incomplete.
_NOBODY_S: Final = 60.0


@dataclass
class Dispatcher:
    """Runs a sweep's missing cells on a pool of workers.

    Attributes:
        wait_s: how long the cells of a lost slot wait for its return.
        show: called now and then between records, to make the present results visible elsewhere.
        problems: what went wrong, one sentence each, in the order it happened.
        failed: variants that could not be run on some slot, with the last reason.
    """

    schedule: Schedule
    pool: WorkerPool
    journal: Journal
    progress: Progress
    folder: ResultsFolder
    wait_s: float
    show: Callable[[], None]
    meters: Meters
    deadlines: Deadlines
    problems: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    _streams: dict[Any, str] = field(default_factory=dict)
    _began: float = field(default_factory=time.monotonic)
    _shown: float = field(default_factory=time.monotonic)
    _show_took_s: float = 0.0
    _somebody_s: float = 0.0

    def run(self) -> None:
        """Return when every cell has a record, or no worker is left that could give one."""
        for slot in self.pool.workers:
            self.schedule.joined(slot)
        while True:
            self._follow_cluster()
            if self.schedule.present():
                self._somebody_s = self._now_s()
            self.schedule.refresh(self._now_s())
            self._give_orders(LOOKAHEAD_S)
            if self.schedule.done and not self._somebody_missing():
                break
            self._take(self._drain())
            self._give_up_overdue()
            self.progress.tick(self._now_s(), self.schedule.expected_length_s)
            self._show_now_and_then()
        self._release()

    def _now_s(self) -> float:
        return time.monotonic() - self._began

    def _somebody_missing(self) -> bool:
        """Whether cells are left, and a slot that could answer them may still come."""
        if self.schedule.present():
            return False
        may_come = self.schedule.awaited or self._now_s() - self._somebody_s < _NOBODY_S
        return may_come and self.schedule.unanswered

    def _follow_cluster(self) -> None:
        for slot in self.schedule.overdue(self._now_s()):
            self._say(f"{slot} did not come back; its cells go to others")
        came, unfit = self.pool.newcomers()
        for slot in came:
            self.schedule.joined(slot)
            self._say(f"{slot} joined")
        for slot, reason in unfit.items():
            self._say(f"{slot} was left out: {reason}")
            self.schedule.reconsider()
        for slot, reason in self.schedule.unfit().items():
            self._note(f"{slot} is quarantined for the rest of this run: {reason}")
            self.pool.stop_worker(slot)
            self.meters.lost(slot, self.schedule.slots[slot].variant)
            self.schedule.quarantine(slot)

    def _give_orders(self, horizon_s: float) -> None:
        busy = set(self._streams.values())
        for slot in self.schedule.present():
            order = self.schedule.order(slot, self._now_s(), horizon_s)
            worker = self.pool.workers[slot]
            match order:
                case Start(variant, expected, cells, attempts):
                    assert slot not in busy
                    stream = worker.run.options(num_returns="streaming").remote(variant, expected, cells, attempts)
                    self._streams[stream] = slot
                    self.deadlines.got_on(slot, self._now_s())
                    self.meters.starting(slot, variant)
                    phase = Phase(f"starting the engine for about {len(expected)} cells")
                    self.schedule.starting(slot, phase, 0.0)
                case Feed(cells, attempts):
                    self.deadlines.got_on(slot, self._now_s())
                    worker.feed.remote(cells, attempts)
                case Finish():
                    self.deadlines.got_on(slot, self._now_s())
                    worker.finish.remote()

    def _drain(self) -> list[tuple[str, Event]]:
        """Wait for something to happen, then take all that is there, up to a batch."""
        events: list[tuple[str, Event]] = []
        timeout_s = _WAIT_S
        if not self._streams:
            time.sleep(_WAIT_S)
        while self._streams and len(events) < _BATCH:
            ready, _ = ray.wait(list(self._streams), num_returns=1, timeout=timeout_s)
            if not ready:
                break
            timeout_s = 0.0
            slot = self._streams[ready[0]]
            try:
                events.append((slot, ray.get(next(ready[0]))))
            except StopIteration:
                del self._streams[ready[0]]
                # What it sent counts before its end does.
                self._take(events)
                events = []
                self.schedule.ended(slot)
            except (ray.exceptions.RayError, ray.exceptions.RayTaskError) as error:
                del self._streams[ready[0]]
                self._take(events)
                events = []
                # Ray's own first line names the actor alone.
                cause = getattr(error, "cause", None)
                self._lose(slot, f"{type(cause).__name__}: {first_line(cause)}" if cause else first_line(error))
        return events

    def _give_up_overdue(self) -> None:
        """Lose the workers that are past their time; Ray kills them, stopped ones too, and their engines end so."""
        for slot, why in self.deadlines.overdue(self.schedule.slots.there(), self._now_s()).items():
            streams = [stream for stream, of in self._streams.items() if of == slot]
            # What it said while this process was busy elsewhere is not taken yet.
            if not ray.wait(streams, timeout=0)[0]:
                for stream in streams:
                    del self._streams[stream]
                self._lose(slot, why)

    def _take(self, events: list[tuple[str, Event]]) -> None:
        """Make records durable, then count them."""
        answers = [
            (slot, self._placed(slot, event.record), event.took_s)
            for slot, event in events
            if isinstance(event, Answered)
        ]
        if answers:
            self.journal.add(record for _, record, _ in answers)
        for slot, record, took_s in answers:
            failed = record.error is not None
            if failed:
                self.problems.append(f"{record.key}: {record.error}")
            self.schedule.record(slot, record.key, tokens=record.completion_tokens, took_s=took_s, failed=failed)
            self.progress.record(slot, record)
            self.meters.record(slot, record)
        for slot, event in events:
            if isinstance(event, StillThere):
                self.deadlines.heard(slot, self._now_s())
            else:
                self.deadlines.got_on(slot, self._now_s())
            match event:
                case EngineReport():
                    self._note_engine(slot, event)
                case EngineStarting(_, phase, elapsed_s):
                    self.schedule.starting(slot, phase, elapsed_s)
                case EngineReady(_, took_s):
                    self.schedule.started(slot, took_s)
                case SessionFailed():
                    self._fail(slot, event)

    def _placed(self, slot: str, record: Record) -> Record:
        """The record, marked if a partner cell was answered elsewhere: such a pair holds a node difference too."""
        if self.schedule.design != "crossover":
            return record
        answered = self.schedule.answered
        partners = (record.key._replace(variant=variant) for variant in self.schedule.grid.variants)
        return replace(record, moved=True) if any(answered.get(each, slot) != slot for each in partners) else record

    def _note_engine(self, slot: str, report: EngineReport) -> None:
        kept = self.folder.write_engine(report.engine_id, log=report.log, telemetry=report.telemetry)
        summary = report.values.summary().model_copy(update=kept)
        self.journal.note_engine(report.engine_id, summary)
        self.meters.engine(summary)

    def _fail(self, slot: str, failure: SessionFailed) -> None:
        self.problems.append(f"{failure.variant} on {slot}: {failure.reason}")
        self.progress.say(f"{slot}: {failure.variant} failed: {failure.reason}")
        self.failed[failure.variant] = failure.reason
        self.schedule.failed(slot, not_retryable=failure.not_retryable, attempts=failure.attempts)

    def _lose(self, slot: str, why: str) -> None:
        if slot not in self.pool.workers:
            return  # it was given up before its stream ended
        may_return = self.pool.lose(slot)
        wait = may_return and self.wait_s > 0
        self.meters.lost(slot, self.schedule.slots[slot].variant)
        held = self.schedule.lost(slot, wait=wait, until_s=self._now_s() + self.wait_s)
        self._note(f"{slot} was lost with {held} cells under way: {why}")
        if wait:
            self._say(f"its cells wait {self.wait_s:.0f} s for its return (engine.lost_node_wait_s)")

    def _release(self) -> None:
        """End the engine sessions that wait for more cells, and take their engines' last reports."""
        for slot in self.schedule.present():
            self.deadlines.got_on(slot, self._now_s())
            self.pool.workers[slot].finish.remote()
        while self._streams:
            self._take(self._drain())
            self._give_up_overdue()

    def _show_now_and_then(self) -> None:
        began = time.monotonic()
        if began - self._shown >= max(SHOW_EVERY_S, self._show_took_s / _SHOW_SHARE):
            self._give_orders(max(_SHOW_LOOKAHEAD_S, 2 * self._show_took_s))
            self.show()
            self._shown = time.monotonic()
            self._show_took_s = self._shown - began

    def _note(self, message: str) -> None:
        self.problems.append(message)
        self._say(message)

    def _say(self, message: str) -> None:
        self.progress.say(message)
