"""One engine slot at work: starts the engine of a stint, asks it cell by cell, and turns answers into records.

The load is generated here, beside the engine and over loopback, so that no network enters a latency. Nothing in this
module knows Ray: `farm.cluster` puts it into an actor, and the tests run it as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import farm
from farm.doctor import problems, quick_checks
from farm.engine.command import EngineCommand, engine_command, model_of, python_of
from farm.engine.emulated.answers import write_answers
from farm.engine.evidence import read_processes
from farm.engine.gate import evidence_folder, start_proven
from farm.engine.needs import check_needs
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
from farm.events import Answered, Assignment, EngineReport, Event, StintFailed
from farm.figures import graded, measured, start_times, surroundings
from farm.paths import farm_home
from farm.prompts import Prompts
from farm.records import CellKey, Record
from farm.secrets import masked
from farm.spec import Variant
from farm.telemetry import Telemetry, visible_gpu
from farm.telemetry.table import as_parquet
from farm.variants import must_be_seen, part
from farm.workloads.items import Item, request_seed

_LOG_PART_BYTES: Final = 256 * 1024


@dataclass
class _Current:
    """The engine that runs now."""

    engine_id: str
    engine: RunningEngine
    report: dict[str, Any]
    telemetry: Telemetry | None  # None where the engine has no GPU
    sequence: int = 0
    flushing: asyncio.Task[None] | None = None  # of the prefix cache, for the next request


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
    _fed: asyncio.Event = field(default_factory=asyncio.Event)
    _finishing: bool = False
    _launches: int = 0
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reports: list[EngineReport] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._prompts = Prompts(self.assignment.items)

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
        self._tried = dict(tried)
        failure: FarmError | None = None
        try:
            await self._engine(variant)
            while self._reports:
                yield self._reports.pop(0)
            async for answered in self._answer_all():
                while self._reports:
                    yield self._reports.pop(0)
                yield answered
        except FarmError as error:
            failure = error
        finally:
            await self.close()
        while self._reports:
            yield self._reports.pop(0)
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
            alive = current.engine.process.alive
            if current.flushing is not None:
                current.flushing.cancel()
                await asyncio.gather(current.flushing, return_exceptions=True)
            await current.engine.stop()
            readings = await asyncio.to_thread(current.telemetry.stop) if current.telemetry else []
            values = current.report | {"status": "stopped" if alive else "died", "requests": current.sequence}
            if not alive:
                values["reason"] = current.engine.process.explain()
            self._reports.append(
                EngineReport(current.engine_id, values, _log_text(current.engine.process.log), as_parquet(readings))
            )

    async def _answer_all(self) -> AsyncIterator[Answered]:
        """Keep `concurrency` cells in the engine. At 1, the next request waits until the record has been taken over,
        so that no work of the farm's runs beside a measured request."""
        running: set[asyncio.Task[Answered]] = set()
        limit = self.assignment.sweep.engine.concurrency
        try:
            while True:
                self._fed.clear()
                while len(running) < limit and self._waiting:
                    running.add(asyncio.create_task(self._answer(self._waiting.popleft())))
                if not running and self._finishing:
                    return
                if len(running) == limit:
                    done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                else:
                    done, running = await self._wait_with_room(running)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _wait_with_room(
        self, running: set[asyncio.Task[Answered]]
    ) -> tuple[set[asyncio.Task[Answered]], set[asyncio.Task[Answered]]]:
        """Wait for an answer or for more cells, whichever comes first."""
        fed = asyncio.create_task(self._fed.wait())
        try:
            done, _ = await asyncio.wait({*running, fed}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            fed.cancel()
        return {task for task in running if task in done}, {task for task in running if task not in done}

    async def _answer(self, cell: CellKey) -> Answered:
        """One cell, on a fresh engine if the first one fails it; what no engine answers becomes an error record."""
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
                if current.telemetry is not None:
                    sent_s = ended_s - answer.latency_s
                    outcome |= await asyncio.to_thread(current.telemetry.between, sent_s, ended_s)
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
                self._current = await self._start(variant)
                client = self._current.engine.client
                await self._prompts.prepare(client, self._expected)
                await self._prompts.warm_up(client, self._expected, self.assignment.sweep.warmup_requests)
            return self._current

    async def _discard(self, failed: _Current) -> None:
        """Stop a failed engine, unless another cell that saw it fail has done so."""
        async with self._changing:
            if self._current is failed:
                await self.close()

    async def _start(self, variant_name: str) -> _Current:
        sweep = self.assignment.sweep
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{self._launches}"
        engine_id = f"{_file_name(self.name)}.{_file_name(variant_name)}.{stamp}"
        command = self._command(variant_name)
        self._launches += 1
        log = farm_home() / "engines" / self.assignment.sweep_id / f"{engine_id}.log"
        report: dict[str, Any] = {
            "engine_id": engine_id,
            "variant": variant_name,
            "node": self.name,
            "kind": sweep.engine.kind,
            "label": sweep.label,
            "argv": masked(list(command.argv)),
            "log": str(log),
            "hostname": socket.gethostname(),
            "started_at": datetime.now(UTC).isoformat(),
        }
        variant = sweep.variant(variant_name)
        seen = must_be_seen(sweep.args_of(variant), sweep.env_of(variant))
        try:
            await self._check_needs(variant)
            engine, evidence = await start_proven(command, log, sweep.engine, seen)
        except FarmError as error:
            failed = report | {
                "status": "not-active" if isinstance(error, VariantNotActive) else "failed",
                "reason": str(error),
                "evidence": {"source": "processes", "processes": read_processes(evidence_folder(log))},
            }
            self._reports.append(EngineReport(engine_id, failed, _log_text(log)))
            raise
        report |= {
            "status": "started",
            **start_times(engine.server_info, engine.start_s, emulated=sweep.engine.kind == "emulated"),
            **surroundings(evidence),
            "version": engine.server_info.get("version"),
            "server_info": engine.server_info,
            "evidence": evidence,
        }
        self._reports.append(EngineReport(engine_id, report))
        return _Current(engine_id, engine, report, self._telemetry())

    def _telemetry(self) -> Telemetry | None:
        """Readings of this slot's GPU; an emulated engine gives its own, and one on the CPU has none."""
        engine = self.assignment.sweep.engine
        if engine.kind == "emulated" or engine.device != "cuda":
            return None
        return Telemetry.start(visible_gpu(), shared=engine.concurrency > 1)

    async def _check_needs(self, variant: Variant) -> None:
        """Refuse a variant that this node cannot run before its engine costs minutes."""
        sweep = self.assignment.sweep
        if sweep.engine.kind == "emulated":
            return
        missing = await asyncio.to_thread(
            check_needs,
            {name: part(name).needs for name in variant.parts},
            sweep.args_of(variant),
            python=python_of(self.assignment.sweep),
            model_path=model_of(self.assignment.sweep),
            device=sweep.engine.device,
        )
        if missing:
            raise EngineStartError("; ".join(missing))

    def _command(self, variant_name: str) -> EngineCommand:
        sweep = self.assignment.sweep
        command = engine_command(
            sweep,
            sweep.variant(variant_name),
            model_path=model_of(sweep),
            python=python_of(sweep),
        )
        if sweep.engine.kind == "emulated":
            command = EngineCommand(command.argv, self._emulation_env() | command.env)
        return command

    def _emulation_env(self) -> dict[str, str]:
        """What an emulated engine is told beside its command line: right answers, its node and number of launch."""
        answers = farm_home() / "engines" / self.assignment.sweep_id / f"{_file_name(self.name)}.answers.jsonl"
        if not answers.exists():
            answers.parent.mkdir(parents=True, exist_ok=True)
            write_answers((item for items in self.assignment.items.values() for item in items.values()), answers)
        return {
            # The emulated engine is part of the farm, which a job may have shipped here instead of installed.
            "PYTHONPATH": str(Path(farm.__file__).parents[1]),
            "FARM_EMULATION_ANSWERS": str(answers),
            "FARM_EMULATION_NODE": self.name,
            "FARM_EMULATION_LAUNCH": str(self._launches),
        }

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
            "engine_id": current.engine_id,
            "engine_kind": sweep.engine.kind,
            "label": sweep.label,
            "started_at": started_at,
            "sequence": sequence,
            "attempts": attempts,
            "prompt_sha256": self._prompts.sha256_of(cell),
            "seed": request_seed(sweep.workloads[cell.workload].seed, cell.item_id, cell.repeat),
            "gold": self._item(cell).gold,
        }


def _log_text(log: Path) -> str | None:
    """A log of any length for the driver to keep: whole, or its beginning and end."""
    try:
        content = log.read_bytes()
    except OSError:
        return None
    if len(content) > 2 * _LOG_PART_BYTES:
        content = content[:_LOG_PART_BYTES] + b"\n[...]\n" + content[-_LOG_PART_BYTES:]
    return content.decode(errors="replace")


def _file_name(text: str) -> str:
    """A name as part of a file's: different names stay different, whatever they hold."""
    name = "".join(char if char.isalnum() or char in "+-_." else "-" for char in text)[:60].lstrip(".")
    return name if name == text else f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
