"""One engine slot at work: starts the engine of a stint, asks it cell by cell, and turns answers into records.

The load is generated here, beside the engine and over loopback, so that no network enters a latency. Nothing in this
module knows Ray: `farm.cluster` puts it into an actor, and the tests run it as it is.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import shutil
import socket
from array import array
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import farm
from farm.engine.command import EngineCommand, default_python, engine_command
from farm.engine.emulated.answers import write_answers
from farm.engine.running import RunningEngine, launch
from farm.engine.stream import Answer
from farm.errors import EngineGone, EngineStartError, FarmError, InputError, RequestRefused, StreamBroken
from farm.models import builtin_model
from farm.paths import expand, farm_home
from farm.plan import Stint
from farm.records import CellKey, Record
from farm.spec import Sweep, SyntheticWorkload
from farm.workloads import synthetic
from farm.workloads.grading import grade
from farm.workloads.items import Item, request_seed

_WARMUP_SEED: Final = 2**31 - 1
_WARMUP_TOKENS: Final = 32
_LOG_PART_BYTES: Final = 256 * 1024


@dataclass(frozen=True)
class EngineReport:
    """What is known of one engine: a JSON-ready dictionary, kept in the journal under its id."""

    engine_id: str
    values: dict[str, Any]
    log: str | None = None  # the engine's log, once it has ended


@dataclass(frozen=True)
class StintFailed:
    """Why the rest of a stint's cells have no answer."""

    variant: str
    reason: str


@dataclass(frozen=True)
class Assignment:
    """What a slot must know of the sweep."""

    sweep_id: str
    sweep: Sweep
    items: Mapping[str, Mapping[str, Item]]  # workload -> item id -> item


@dataclass(frozen=True)
class _Prompt:
    ids: array[int]
    sha256: str


@dataclass
class _Current:
    """The engine that runs now."""

    engine_id: str
    engine: RunningEngine
    report: dict[str, Any]
    sequence: int = 0


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
    _prompts: dict[tuple[str, str], _Prompt] = field(default_factory=dict)
    _opens_think: dict[str, bool] = field(default_factory=dict)
    _launches: int = 0
    _stopping: bool = False
    _changing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _reports: list[EngineReport] = field(default_factory=list)

    def check(self) -> None:
        """Find what is missing on this node before anything expensive starts.

        Raises:
            InputError: names what is missing and what to do.
        """
        engine = self.assignment.sweep.engine
        python = self._python()
        if shutil.which(python) is None:
            build = (
                "; build the CPU engine with: bash infra/cpu-engine/build.sh"
                if engine.device == "cpu"
                else "; install it with: pip install '.[engine]' in an environment of its own"
            )
            raise InputError(f"engine.python: there is no interpreter {python} on {self.where}{build}")
        model = self.assignment.sweep.model
        if model.is_local and not (Path(expand(model.path)) / "config.json").is_file():
            raise InputError(
                f"model.path: {expand(model.path)} on {self.where} is not a folder with a model (no config.json)"
            )

    async def run(self, stint: Stint) -> AsyncIterator[Record | EngineReport | StintFailed]:
        """Answer a stint's cells; yields each record as it is complete, and reports of the engines started for it.

        Cells that are not yielded when it ends have no answer; a `StintFailed` says why.
        """
        self._stopping = False
        failure: FarmError | None = None
        try:
            await self._engine(stint.variant)
            yield self._reports.pop(0)
            await self._prepare(stint)
            async for record in self._answer_all(stint):
                while self._reports:
                    yield self._reports.pop(0)
                yield record
        except FarmError as error:
            failure = error
        finally:
            await self.close()
        while self._reports:
            yield self._reports.pop(0)
        if failure is not None:
            yield StintFailed(stint.variant, str(failure))

    def wind_down(self) -> None:
        """Start no further cell; the running ones are finished."""
        self._stopping = True

    async def close(self) -> None:
        """Stop the engine, if there is one."""
        current, self._current = self._current, None
        if current is not None:
            alive = current.engine.process.alive
            await current.engine.stop()
            values = current.report | {"status": "stopped" if alive else "died", "requests": current.sequence}
            if not alive:
                values["reason"] = current.engine.process.explain()
            self._reports.append(EngineReport(current.engine_id, values, _log_text(current.engine.process.log)))

    async def _answer_all(self, stint: Stint) -> AsyncIterator[Record]:
        """Keep `concurrency` cells in the engine. At 1, the next request waits until the record has been taken over,
        so that no work of the farm's runs beside a measured request."""
        waiting = iter(stint.cells)
        running: set[asyncio.Task[Record]] = set()
        limit = self.assignment.sweep.engine.concurrency
        try:
            while True:
                while len(running) < limit and not self._stopping:
                    cell = next(waiting, None)
                    if cell is None:
                        break
                    running.add(asyncio.create_task(self._answer(cell)))
                if not running:
                    return
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    yield task.result()
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _answer(self, cell: CellKey) -> Record:
        """One cell, on a fresh engine if the first one fails it; what no engine answers becomes an error record."""
        attempts = self.assignment.sweep.engine.attempts
        for attempt in itertools.count(1):
            current = await self._engine(cell.variant)
            started_at = datetime.now(UTC)
            sequence = current.sequence
            current.sequence += 1
            common = self._common(cell, current, started_at, sequence, attempt)
            try:
                answer = await self._ask(current, cell)
            except RequestRefused as error:
                # The engine lives and said no: it would say no again.
                return Record(**common, error=str(error))
            except (EngineGone, StreamBroken) as error:
                died = not current.engine.process.alive
                reason = f"the engine died: {current.engine.process.explain()}" if died else str(error)
                # Whatever state the engine is in, the next request gets a fresh one.
                await self._discard(current)
                if attempt == attempts:
                    return Record(**common, error=reason)
            else:
                item = self._item(cell)
                return Record(
                    **common,
                    **measured(answer, ends_by_itself=not item.sampling.get("ignore_eos", False)),
                    **graded(answer, item, prompt_opens_think=self._opens_think[cell.workload]),
                )
        raise AssertionError

    async def _ask(self, current: _Current, cell: CellKey) -> Answer:
        item = self._item(cell)
        workload = self.assignment.sweep.workloads[cell.workload]
        if workload.prefix_cache == "flush" and self.assignment.sweep.engine.concurrency == 1:
            await current.engine.client.flush_cache()
        sampling = item.sampling | {"sampling_seed": request_seed(workload.seed, cell.item_id, cell.repeat)}
        return await current.engine.client.generate(self._prompts[cell.workload, cell.item_id].ids.tolist(), sampling)

    # ---- engines

    async def _engine(self, variant: str) -> _Current:
        """The engine that runs, else a fresh one; cells that wait at the same time share its start."""
        async with self._changing:
            if self._current is None:
                await self._start(variant)
            assert self._current is not None
            return self._current

    async def _discard(self, failed: _Current) -> None:
        """Stop a failed engine, unless another cell that saw it fail has done so."""
        async with self._changing:
            if self._current is failed:
                await self.close()

    async def _start(self, variant_name: str) -> None:
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
            "argv": list(command.argv),
            "log": str(log),
            "hostname": socket.gethostname(),
            "started_at": datetime.now(UTC).isoformat(),
        }
        try:
            engine = await launch(
                command,
                log,
                start_timeout_s=sweep.engine.start_timeout_s,
                request_timeout_s=sweep.engine.request_timeout_s,
            )
            version = engine.server_info.get("version")
            if sweep.engine.version and version != sweep.engine.version:
                await engine.stop()
                raise EngineStartError(
                    f"the engine is SGLang {version} and the sweep is pinned to {sweep.engine.version} (engine.version)"
                )
        except FarmError as error:
            failed = report | {"status": "failed", "reason": str(error)}
            self._reports.append(EngineReport(engine_id, failed, _log_text(log)))
            raise
        report |= {
            "status": "started",
            "start_s": engine.start_s,
            "startup": engine.server_info.get("startup_time"),
            "version": version,
            "server_info": engine.server_info,
        }
        self._reports.append(EngineReport(engine_id, report))
        self._current = _Current(engine_id, engine, report)

    def _command(self, variant_name: str) -> EngineCommand:
        sweep = self.assignment.sweep
        model_path = sweep.model.path
        if model_path.startswith("builtin:"):
            model_path = str(builtin_model(model_path.removeprefix("builtin:")))
        elif sweep.model.is_local:
            model_path = expand(model_path)
        command = engine_command(sweep, sweep.variant(variant_name), model_path=model_path, python=self._python())
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

    def _python(self) -> str:
        named = self.assignment.sweep.engine.python
        return expand(named) if named else default_python()

    # ---- prompts

    def _item(self, cell: CellKey) -> Item:
        return self.assignment.items[cell.workload][cell.item_id]

    async def _prepare(self, stint: Stint) -> None:
        """Tokenize what is not tokenized yet, and warm the engine up with prompts of the same lengths."""
        assert self._current is not None
        client = self._current.engine.client
        for cell in stint.cells:
            place = (cell.workload, cell.item_id)
            if place not in self._prompts:
                ids = await self._tokenize(self._item(cell))
                self._prompts[place] = _Prompt(array("i", ids), hashlib.sha256(array("i", ids).tobytes()).hexdigest())
            if cell.workload not in self._opens_think:
                tail = await client.text_of(self._prompts[place].ids[-16:].tolist())
                self._opens_think[cell.workload] = "<think>" in tail and "</think>" not in tail
        firsts = {cell.workload: cell for cell in reversed(stint.cells)}
        for number, (workload, cell) in enumerate(sorted(firsts.items())):
            await self._warm_up(len(self._prompts[workload, cell.item_id].ids), self._item(cell).sampling, number)

    async def _tokenize(self, item: Item) -> list[int]:
        assert self._current is not None
        client = self._current.engine.client
        if item.messages is not None:
            return await client.tokenize_chat(item.messages, item.template_kwargs)
        ids = await client.tokenize_text(item.text or "")
        if item.exact_tokens is None:
            return ids
        if len(ids) < item.exact_tokens:
            raise EngineStartError(
                f"item {item.item_id}: its text gives {len(ids)} tokens with this model's tokenizer and "
                f"{item.exact_tokens} were asked for"
            )
        return ids[: item.exact_tokens]

    async def _warm_up(self, length: int, sampling: Mapping[str, Any], number: int) -> None:
        """Requests of a measured one's length and settings, from text that no measured prompt begins with."""
        assert self._current is not None
        count = self.assignment.sweep.warmup_requests
        if count == 0:
            return
        text = SyntheticWorkload(
            kind="synthetic",
            requests=count,
            input_tokens=max(8, length),
            output_tokens=_WARMUP_TOKENS,
            text="varied",
            seed=_WARMUP_SEED - number,
        )
        limits = {"max_new_tokens": min(_WARMUP_TOKENS, int(sampling["max_new_tokens"])), "ignore_eos": True}
        for item in synthetic.items(text):
            ids = await self._current.engine.client.tokenize_text(item.text or "")
            await self._current.engine.client.generate(ids[:length], dict(sampling) | limits)

    # ---- records

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
            "prompt_sha256": self._prompts[cell.workload, cell.item_id].sha256,
            "seed": request_seed(sweep.workloads[cell.workload].seed, cell.item_id, cell.repeat),
            "gold": self._item(cell).gold,
        }


def measured(answer: Answer, *, ends_by_itself: bool) -> dict[str, Any]:
    """The figures of an answer, as fields of a `Record`."""
    meta = answer.meta
    times, tokens, ttft_s, latency_s = answer.chunk_times_s, answer.chunk_tokens, answer.ttft_s, answer.latency_s
    if "emulation_latency_s" in meta:
        # An emulated engine may run faster than real time; its model's times are the ones to keep.
        times, tokens = meta["emulation_chunk_times_s"], meta["emulation_chunk_tokens"]
        ttft_s, latency_s = meta["emulation_ttft_s"], meta["emulation_latency_s"]
    reason = meta["finish_reason"]["type"]
    return {
        "prompt_tokens": meta["prompt_tokens"],
        "completion_tokens": answer.completion_tokens,
        "cached_tokens": meta["cached_tokens"],
        "reasoning_tokens": meta.get("reasoning_tokens") or 0,
        "ttft_s": ttft_s,
        "latency_s": latency_s,
        "decode_s": latency_s - ttft_s,
        "finish_reason": reason,
        "truncated": reason == "length" and ends_by_itself,
        "verify_rounds": meta.get("spec_verify_ct"),
        "draft_tokens_proposed": meta.get("spec_num_proposed_drafts"),
        "draft_tokens_accepted": meta.get("spec_num_correct_drafts"),
        "accept_histogram": meta.get("spec_correct_drafts_histogram"),
        "engine_latency_s": meta.get("e2e_latency"),
        "engine_ttft_s": meta.get("first_token_latency"),
        "output_text": answer.text,
        "chunk_times_s": times,
        "chunk_tokens": tokens,
    }


def graded(answer: Answer, item: Item, *, prompt_opens_think: bool) -> dict[str, Any]:
    """Answer and correctness, as fields of a `Record`; an answer cut short by the token limit is no answer."""
    if item.gold is None:
        return {}
    if answer.meta["finish_reason"]["type"] == "length":
        return {"answer": None, "correct": False}
    grade_ = grade(answer.text, item.gold, thinking=prompt_opens_think)
    return {"answer": grade_.answer, "correct": grade_.correct}


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
    return "".join(char if char.isalnum() or char in "+-_" else "-" for char in text)[:60]
