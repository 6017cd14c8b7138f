"""Starts and stops the engines of one slot, proven active, and reports what is known of each."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from farm.engines.base import Generation, OnPhase
from farm.engines.emulated.answers import write_answers
from farm.engines.emulated.reading import emulated_generation
from farm.engines.sglang.command import EngineCommand, engine_command, model_of, python_of
from farm.engines.sglang.evidence import read_processes
from farm.engines.sglang.gate import evidence_folder, start_proven
from farm.engines.sglang.requirements import check_needs
from farm.engines.sglang.running import RunningEngine
from farm.engines.sglang.stream import Answer, generation_of
from farm.errors import EngineStartError, FarmError, VariantNotActive
from farm.node.messages import Assignment, EngineReport, Event
from farm.node.record import start_times, surroundings
from farm.node.telemetry import Telemetry, visible_gpu
from farm.node.telemetry.table import as_parquet
from farm.paths import farm_home
from farm.redaction import masked
from farm.spec.models import Variant
from farm.spec.optimisations import must_be_seen, part

_LOG_PART_BYTES: Final = 256 * 1024


@dataclass
class Launched:
    """An engine that runs and was proven active."""

    engine_id: str
    engine: RunningEngine
    report: dict[str, Any]
    telemetry: Telemetry | None  # None where the engine has no GPU


@dataclass
class Launcher:
    """Launches a slot's engines one after another, and hands what becomes known of each to `report`."""

    name: str
    assignment: Assignment
    report: Callable[[Event], None]
    _launches: int = 0

    async def start(self, variant_name: str, on_phase: OnPhase) -> Launched:
        """Start an engine and hold it against what its variant declares.

        Raises:
            EngineStartError: this node lacks something, or the engine does not come up.
            VariantNotActive: it came up as something else.
        """
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
            engine, evidence = await start_proven(command, log, sweep.engine, seen, on_phase, self._read())
        except FarmError as error:
            failed = report | {
                "status": "not-active" if isinstance(error, VariantNotActive) else "failed",
                "reason": str(error),
                "evidence": {"source": "processes", "processes": read_processes(evidence_folder(log))},
            }
            self.report(EngineReport(engine_id, failed, _log_text(log)))
            raise
        report |= {
            "status": "started",
            **start_times(engine.server_info, engine.start_s, emulated=sweep.engine.kind == "emulated"),
            **surroundings(evidence),
            "version": engine.server_info.get("version"),
            "server_info": engine.server_info,
            "evidence": evidence,
        }
        self.report(EngineReport(engine_id, report))
        return Launched(engine_id, engine, report, self._telemetry())

    async def stop(self, launched: Launched, *, requests: int) -> None:
        """End an engine and all of its processes, if it has not ended by itself; `requests` were measured on it."""
        engine = launched.engine
        alive = engine.process.alive
        await engine.stop()
        readings = await asyncio.to_thread(launched.telemetry.stop) if launched.telemetry else []
        values = launched.report | {"status": "stopped" if alive else "died", "requests": requests}
        if not alive:
            values["reason"] = engine.process.explain()
        self.report(EngineReport(launched.engine_id, values, _log_text(engine.process.log), as_parquet(readings)))

    def _read(self) -> Callable[[Answer], Generation]:
        return emulated_generation if self.assignment.sweep.engine.kind == "emulated" else generation_of

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
            python=python_of(sweep),
            model_path=model_of(sweep),
            device=sweep.engine.device,
        )
        if missing:
            raise EngineStartError("; ".join(missing))

    def _command(self, variant_name: str) -> EngineCommand:
        sweep = self.assignment.sweep
        command = engine_command(
            sweep, sweep.variant(variant_name), model_path=model_of(sweep), python=python_of(sweep)
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
            "FARM_EMULATION_ANSWERS": str(answers),
            "FARM_EMULATION_NODE": self.name,
            "FARM_EMULATION_LAUNCH": str(self._launches),
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
