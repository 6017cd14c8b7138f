"""One engine slot at work: starts an engine, asks it cell by cell, and turns answers into records.

The load is generated here, beside the engine and over loopback, so that no network enters a latency. Nothing in this
module knows Ray: `farm.driver.workers` puts it into an actor, and the tests run it as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from types import MappingProxyType

from farm.engines.base import Generation, OnPhase, Phase, RunningEngine
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
from farm.node.launcher import Launched, Launcher
from farm.node.messages import Answered, Assignment, EngineReady, EngineStarting, Event, SessionFailed
from farm.node.preflight import problems, quick_checks
from farm.node.record import with_answer, with_telemetry
from farm.node.telemetry.samples import NO_TELEMETRY, RequestTelemetry, as_told
from farm.node.tokens import Prompts
from farm.results.record import Record
from farm.types import CellKey, Item
from farm.workloads.items import request_seed


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
    _attempts: dict[CellKey, int] = field(default_factory=dict)  # attempts of cells without a record
    _suspects: deque[CellKey] = field(default_factory=deque)  # to be asked alone: engine or node failed amid them
    _events: deque[Event] = field(default_factory=deque)  # to be yielded, records apart
    _news: asyncio.Event = field(default_factory=asyncio.Event)  # something was fed or is to be yielded
    _finishing: bool = False
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)

    def __post_init__(self) -> None:
        self._prompts = Prompts(self.assignment.items)
        self._launcher = Launcher(self.name, self.assignment, self._report)

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
        attempts: Mapping[CellKey, int] = MappingProxyType({}),
    ) -> AsyncIterator[Event]:
        """Answer cells of one variant until `finish`; yields each record as it is complete, what an engine that starts
        is doing, and reports of the engines.

        Cells that were fed and are not yielded when it ends have no answer; a `StintFailed` says why.

        Args:
            variant: what to run.
            expected: cells that will probably be fed; their prompts are made before anything is measured.
            cells: the first of them.
            attempts: earlier attempts of these cells, here or elsewhere, that ended with their engine or its node.
        """
        self._finishing = False
        self._expected = tuple(expected)
        self._waiting = deque(cells)
        self._suspects = deque()
        self._attempts = dict(attempts)
        failure: FarmError | None = None
        try:
            async for event in self._work(variant):
                yield event
        except FarmError as error:
            failure = error
        finally:
            await self.close()
        while self._events:
            yield self._events.popleft()
        if failure is not None:
            not_retryable = isinstance(failure, VariantNotActive | InputError)
            yield SessionFailed(variant, str(failure), not_retryable, self._attempts)

    def feed(self, cells: Sequence[CellKey], attempts: Mapping[CellKey, int] = MappingProxyType({})) -> None:
        """More cells for the variant that runs, and their earlier attempts as in `run`."""
        self._waiting.extend(cells)
        self._attempts.update(attempts)
        self._news.set()

    def finish(self) -> None:
        """End the engine session once the cells that were fed are answered."""
        self._finishing = True
        self._news.set()

    async def engine_metrics(self) -> str:
        """The running engine's `/metrics`; empty when no engine runs, or it has none."""
        try:
            return await self._current.engine.metrics() if self._current else ""
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

    def _report(self, event: Event) -> None:
        self._events.append(event)
        self._news.set()

    async def _work(self, variant: str) -> AsyncIterator[Event]:
        """Start the engine, then keep `concurrency` cells in it. At 1, the next request waits until the record has been
        taken over, so that no work of the farm's runs beside a measured request.

        A cell whose engine or node failed beside others is asked again alone: a poison item then takes no other cell
        with it, and is charged its own attempts only.
        """
        running: set[asyncio.Task[Answered | None]] = {asyncio.create_task(self._started(variant))}
        limit = self.assignment.sweep.engine.concurrency
        alone = True  # nothing else is begun before what runs has ended
        try:
            while True:
                while not alone and len(running) < limit and self._waiting and not self._suspects:
                    cell = self._waiting.popleft()
                    if limit > 1 and self._attempts.get(cell):
                        self._suspects.append(cell)
                    else:
                        running.add(asyncio.create_task(self._answer(cell)))
                if self._suspects and not running:
                    running.add(asyncio.create_task(self._answer(self._suspects.popleft())))
                    alone = True
                if not running and self._finishing:
                    return
                done, running = await self._wait(running)
                self._news.clear()
                alone = alone and bool(running)
                while self._events:
                    yield self._events.popleft()
                # What was answered comes before what failed: the failure ends this.
                for task in sorted(done, key=lambda task: task.exception() is not None):
                    if (answered := task.result()) is not None:
                        yield answered
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _wait(
        self, running: set[asyncio.Task[Answered | None]]
    ) -> tuple[set[asyncio.Task[Answered | None]], set[asyncio.Task[Answered | None]]]:
        """Wait for an answer or for news, whichever comes first."""
        news = asyncio.create_task(self._news.wait())
        try:
            done, _ = await asyncio.wait({*running, news}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        return {task for task in running if task in done}, {task for task in running if task not in done}

    async def _started(self, variant: str) -> None:
        await self._engine(variant)

    async def _answer(self, cell: CellKey) -> Answered | None:
        """One cell, on a fresh engine if the first one fails it; what no engine answers becomes an error record.
        None where it is to be asked again alone."""
        limit = self.assignment.sweep.engine.attempts
        for attempt in itertools.count(self._attempts.get(cell, 0) + 1):
            current = await self._engine(cell.variant)
            started_at = datetime.now(UTC)
            sequence = current.sequence
            current.sequence += 1
            begun = time.perf_counter()
            answer: Generation | None = None
            refusal: str | None = None
            try:
                if attempt > limit:
                    raise RequestRefused(f"{limit} engines or nodes were lost while they answered it (engine.attempts)")
                self._attempts[cell] = attempt
                # Nearly always done before; a cell that came from another slot is not.
                await self._prompts.prepare(current.engine, [cell])
                answer = await self._ask(current, cell)
            except RequestRefused as error:
                # The engine lives and said no: it would say no again. Or it is spared what others did not survive.
                refusal = str(error)
            except (EngineGone, StreamBroken) as error:
                refusal = await current.engine.why(error)
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
                    current.flushing = asyncio.create_task(current.engine.flush_cache())
            self._attempts.pop(cell, None)
            record = self._record(cell, current, started_at, sequence, min(attempt, limit), refusal)
            if answer is not None:
                opens_think = self._prompts.opens_think(cell.workload)
                record = with_answer(record, answer, self._item(cell), prompt_opens_think=opens_think)
                record = with_telemetry(record, await self._telemetry(current, answer, ended_s))
            return Answered(record, time.perf_counter() - begun)
        raise AssertionError

    async def _telemetry(self, current: _Current, answer: Generation, ended_s: float) -> RequestTelemetry:
        """What the GPU did during a request that ended just now."""
        if answer.gpu is not None:
            return as_told(answer.gpu, answer.latency_s)
        if current.launched.telemetry is None:
            return NO_TELEMETRY
        return await asyncio.to_thread(current.launched.telemetry.between, ended_s - answer.asked_s, ended_s)

    async def _ask(self, current: _Current, cell: CellKey) -> Generation:
        item = self._item(cell)
        workload = self.assignment.sweep.workloads[cell.workload]
        if self._flushes(cell):
            flushing, current.flushing = current.flushing, None
            await (flushing or current.engine.flush_cache())
        sampling = item.sampling | {"sampling_seed": request_seed(workload.seed, cell.item_id, cell.repeat)}
        return await current.engine.generate(self._prompts.of(cell).ids.tolist(), sampling)

    def _flushes(self, cell: CellKey) -> bool:
        workload = self.assignment.sweep.workloads[cell.workload]
        return workload.prefix_cache == "flush" and self.assignment.sweep.engine.concurrency == 1

    async def _engine(self, variant: str) -> _Current:
        """The engine that runs, else a fresh one; cells that wait at the same time share its start."""
        async with self._changing:
            if self._current is None:
                begun = time.monotonic()

                def on_phase(phase: Phase) -> None:
                    self._report(EngineStarting(variant, phase, time.monotonic() - begun))

                self._current = _Current(await self._launcher.start(variant, on_phase))
                try:
                    await self._prepare(self._current, on_phase)
                except (EngineGone, StreamBroken) as error:
                    why = await self._current.engine.why(error)
                    raise EngineStartError(f"the engine started and failed its warm-up: {why}") from error
                ready_s = time.monotonic() - begun
                launched = self._current.launched
                launched.details = replace(launched.details, ready_s=ready_s)
                self._report(EngineReady(variant, ready_s))
            return self._current

    async def _prepare(self, current: _Current, on_phase: OnPhase) -> None:
        """Make the prompts of the cells that are expected, and warm the engine up with their shapes."""
        engine, sweep = current.engine, self.assignment.sweep
        on_phase(Phase("tokenizing prompts"))
        for cell in self._expected:
            # What is refused here is refused when it is asked, and recorded then.
            with contextlib.suppress(RequestRefused):
                await self._prompts.prepare(engine, [cell])
        limit_s = sweep.engine.start_timeout_s
        async with engine.following(on_phase):
            await self._prompts.warm_up(
                engine, self._expected, sweep.warmup_requests, start_timeout_s=limit_s, on_phase=on_phase
            )

    async def _discard(self, failed: _Current) -> None:
        """Stop a failed engine, unless another cell that saw it fail has done so."""
        async with self._changing:
            if self._current is failed:
                await self.close()

    def _item(self, cell: CellKey) -> Item:
        return self.assignment.items[cell.workload][cell.item_id]

    def _record(
        self, cell: CellKey, current: _Current, started_at: datetime, sequence: int, attempts: int, error: str | None
    ) -> Record:
        """The record of a cell, without an answer."""
        sweep = self.assignment.sweep
        return Record(
            sweep_id=self.assignment.sweep_id,
            variant=cell.variant,
            workload=cell.workload,
            item_id=cell.item_id,
            repeat=cell.repeat,
            node=self.name,
            engine_id=current.launched.engine_id,
            engine_kind=current.launched.details.kind,
            label=current.launched.details.label,
            started_at=started_at,
            sequence=sequence,
            attempts=attempts,
            prompt_sha256=self._prompts.sha256_of(cell),
            seed=request_seed(sweep.workloads[cell.workload].seed, cell.item_id, cell.repeat),
            gold=self._item(cell).gold,
            error=error,
        )
