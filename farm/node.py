"""One engine slot at work: starts the engine of a stint, asks it cell by cell, and turns answers into records.

The load is generated here, beside the engine and over loopback, so that no network enters a latency. Nothing in this
module knows Ray: `farm.cluster` puts it into an actor, and the tests run it as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

from farm.doctor import problems, quick_checks
from farm.engine.running import RunningEngine
from farm.engine.stream import Answer
from farm.errors import (
    EngineError,
    EngineGone,
    EngineStartError,
    FarmError,
    InputError,
    RequestRefused,
    StreamBroken,
    VariantNotActive,
)
from farm.events import Answered, Assignment, Event, StintFailed
from farm.figures import graded, measured
from farm.launch import Launched, Launcher
from farm.prompts import Prompts
from farm.records import CellKey, Record
from farm.workloads.items import Item, request_seed


@dataclass
class _Current:
    """The engine that runs now, and what was asked of it."""

    launched: Launched
    sequence: int = 0
    flushing: asyncio.Task[None] | None = None  # of the prefix cache, for the next request

    @property
    def engine(self) -> RunningEngine:
        return self.launched.engine


@dataclass
class EngineSlot:
    """One place for an engine, and the engine that is in it.

    Attributes:
        name: the slot's name, which records carry as their node.
        where: the machine, in words for messages.
    """

    name: str
    where: str
    assignment: Assignment
    _current: _Current | None = None
    _expected: tuple[CellKey, ...] = ()
    _waiting: deque[CellKey] = field(default_factory=deque)
    _tried: dict[CellKey, int] = field(default_factory=dict)  # attempts of cells without a record
    _suspects: deque[CellKey] = field(default_factory=deque)  # to be asked alone: engine or node failed amid them
    _fed: asyncio.Event = field(default_factory=asyncio.Event)
    _finishing: bool = False
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._prompts = Prompts(self.assignment.items)
        self._launcher = Launcher(self.name, self.assignment)

    def check(self) -> None:
        """Find what is missing on this node before anything expensive starts.

        Raises:
            InputError: names what is missing and what to do.
        """
        found = problems(quick_checks(self.assignment.sweep))
        if found:
            raise InputError(f"on {self.where}: " + "; ".join(found))

    async def run(
        self,
        variant: str,
        expected: Sequence[CellKey],
        cells: Sequence[CellKey],
        tried: Mapping[CellKey, int] = MappingProxyType({}),
    ) -> AsyncIterator[Event]:
        """Answer cells of one variant until `finish`; yields each record as it is complete, and reports of the engines.

        Cells that were fed and are not yielded when it ends have no answer; a `StintFailed` says why.

        Args:
            variant: what to run.
            expected: cells that will probably be fed; their prompts are made before anything is measured.
            cells: the first of them.
            tried: earlier attempts of these cells, here or elsewhere, that ended with their engine or its node.
        """
        self._finishing = False
        self._expected = tuple(expected)
        self._waiting = deque(cells)
        self._suspects = deque()
        self._tried = dict(tried)
        failure: FarmError | None = None
        try:
            await self._engine(variant)
            for report in self._launcher.take_reports():
                yield report
            async for answered in self._answer_all():
                for report in self._launcher.take_reports():
                    yield report
                yield answered
        except FarmError as error:
            failure = error
        finally:
            await self.close()
        for report in self._launcher.take_reports():
            yield report
        if failure is not None:
            hopeless = isinstance(failure, VariantNotActive | InputError)
            yield StintFailed(variant, str(failure), hopeless, self._tried)

    def feed(self, cells: Sequence[CellKey], tried: Mapping[CellKey, int] = MappingProxyType({})) -> None:
        """More cells for the variant that runs, and their earlier attempts as in `run`."""
        self._waiting.extend(cells)
        self._tried.update(tried)
        self._fed.set()

    def finish(self) -> None:
        """End the stint once the cells that were fed are answered."""
        self._finishing = True
        self._fed.set()

    async def engine_metrics(self) -> str:
        """The running engine's `/metrics`; empty when no engine runs, or it has none."""
        try:
            return await self._current.engine.client.metrics() if self._current else ""
        except EngineError:
            return ""  # a dead engine is found by the next request, which knows what to do

    async def close(self) -> None:
        """Stop the engine, if there is one."""
        current, self._current = self._current, None
        if current is not None:
            if current.flushing is not None:
                current.flushing.cancel()
                await asyncio.gather(current.flushing, return_exceptions=True)
            await self._launcher.stop(current.launched, requests=current.sequence)

    async def _answer_all(self) -> AsyncIterator[Answered]:
        """Keep `concurrency` cells in the engine. At 1, the next request waits until the record has been taken over,
        so that no work of the farm's runs beside a measured request.

        A cell whose engine or node failed beside others is asked again alone: a poison item then takes no other cell
        with it, and is charged its own attempts only.
        """
        running: set[asyncio.Task[Answered | None]] = set()
        limit = self.assignment.sweep.engine.concurrency
        try:
            while True:
                self._fed.clear()
                while len(running) < limit and self._waiting and not self._suspects:
                    cell = self._waiting.popleft()
                    if limit > 1 and self._tried.get(cell):
                        self._suspects.append(cell)
                    else:
                        running.add(asyncio.create_task(self._answer(cell)))
                alone = bool(self._suspects) and not running
                if alone:
                    running.add(asyncio.create_task(self._answer(self._suspects.popleft())))
                if not running and self._finishing:
                    return
                if alone or len(running) == limit:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                else:
                    done, running = await self._wait_with_room(running)
                # What was answered comes before what failed: the failure ends this.
                for task in sorted(done, key=lambda task: task.exception() is not None):
                    if (answered := task.result()) is not None:
                        yield answered
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _wait_with_room(
        self, running: set[asyncio.Task[Answered | None]]
    ) -> tuple[set[asyncio.Task[Answered | None]], set[asyncio.Task[Answered | None]]]:
        """Wait for an answer or for more cells, whichever comes first."""
        fed = asyncio.create_task(self._fed.wait())
        try:
            done, _ = await asyncio.wait({*running, fed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            fed.cancel()
        return {task for task in running if task in done}, {task for task in running if task not in done}

    async def _answer(self, cell: CellKey) -> Answered | None:
        """One cell, on a fresh engine if the first one fails it; what no engine answers becomes an error record.
        None where it is to be asked again alone."""
        limit = self.assignment.sweep.engine.attempts
        for attempt in itertools.count(self._tried.get(cell, 0) + 1):
            current = await self._engine(cell.variant)
            started_at = datetime.now(UTC)
            sequence = current.sequence
            current.sequence += 1
            begun = time.perf_counter()
            outcome: dict[str, Any]
            try:
                if attempt > limit:
                    raise RequestRefused(f"{limit} engines or nodes were lost while they answered it (engine.attempts)")
                self._tried[cell] = attempt
                # Nearly always done before; a cell that came from another slot is not.
                await self._prompts.prepare(current.engine.client, [cell])
                answer = await self._ask(current, cell)
            except RequestRefused as error:
                # The engine lives and said no: it would say no again. Or it is spared what others did not survive.
                outcome = {"error": str(error)}
            except (EngineGone, StreamBroken) as error:
                outcome = {"error": await current.engine.why(error)}
                # Whatever state the engine is in, the next request gets a fresh one.
                await self._discard(current)
                if attempt < limit and self.assignment.sweep.engine.concurrency > 1:
                    self._suspects.append(cell)
                    return None
                if attempt < limit:
                    continue
            else:
                ended_s = time.perf_counter()
                # The engine has nothing to do while the record is made and handed over: its cache is emptied meanwhile.
                if self._waiting and self._flushes(self._waiting[0]):
                    current.flushing = asyncio.create_task(current.engine.client.flush_cache())
                item = self._item(cell)
                outcome = {
                    **measured(answer, ends_by_itself=not item.sampling.get("ignore_eos", False)),
                    **graded(answer, item, prompt_opens_think=self._prompts.opens_think(cell.workload)),
                }
                if current.launched.telemetry is not None:
                    sent_s = ended_s - answer.latency_s
                    outcome |= await asyncio.to_thread(current.launched.telemetry.between, sent_s, ended_s)
            self._tried.pop(cell, None)
            common = self._common(cell, current, started_at, sequence, min(attempt, limit))
            return Answered(Record(**common, **outcome), time.perf_counter() - begun)
        raise AssertionError

    async def _ask(self, current: _Current, cell: CellKey) -> Answer:
        item = self._item(cell)
        workload = self.assignment.sweep.workloads[cell.workload]
        if self._flushes(cell):
            flushing, current.flushing = current.flushing, None
            await (flushing or current.engine.client.flush_cache())
        sampling = item.sampling | {"sampling_seed": request_seed(workload.seed, cell.item_id, cell.repeat)}
        return await current.engine.client.generate(self._prompts.of(cell).ids.tolist(), sampling)

    def _flushes(self, cell: CellKey) -> bool:
        workload = self.assignment.sweep.workloads[cell.workload]
        return workload.prefix_cache == "flush" and self.assignment.sweep.engine.concurrency == 1

    async def _engine(self, variant: str) -> _Current:
        """The engine that runs, else a fresh one; cells that wait at the same time share its start."""
        async with self._changing:
            if self._current is None:
                self._current = _Current(await self._launcher.start(variant))
                client = self._current.engine.client
                try:
                    for cell in self._expected:
                        # What is refused here is refused when it is asked, and recorded then.
                        with contextlib.suppress(RequestRefused):
                            await self._prompts.prepare(client, [cell])
                    await self._prompts.warm_up(client, self._expected, self.assignment.sweep.warmup_requests)
                except (EngineGone, StreamBroken) as error:
                    why = await self._current.engine.why(error)
                    raise EngineStartError(f"the engine started and failed its warm-up: {why}") from error
            return self._current

    async def _discard(self, failed: _Current) -> None:
        """Stop a failed engine, unless another cell that saw it fail has done so."""
        async with self._changing:
            if self._current is failed:
                await self.close()

    def _item(self, cell: CellKey) -> Item:
        return self.assignment.items[cell.workload][cell.item_id]

    def _common(
        self, cell: CellKey, current: _Current, started_at: datetime, sequence: int, attempts: int
    ) -> dict[str, Any]:
        sweep = self.assignment.sweep
        return {
            **cell._asdict(),
            "sweep_id": self.assignment.sweep_id,
            "node": self.name,
            "engine_id": current.launched.engine_id,
            "engine_kind": sweep.engine.kind,
            "label": sweep.label,
            "started_at": started_at,
            "sequence": sequence,
            "attempts": attempts,
            "prompt_sha256": self._prompts.sha256_of(cell),
            "seed": request_seed(sweep.workloads[cell.workload].seed, cell.item_id, cell.repeat),
            "gold": self._item(cell).gold,
        }
