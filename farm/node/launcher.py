"""Starts and stops the engines of one slot, proven active, and reports what is known of each."""

from __future__ import annotations

import asyncio
import hashlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from farm.engines.base import Engine, Launch, OnPhase, RunningEngine, model_of, python_of
from farm.engines.registry import engine_of, label_of
from farm.errors import EngineStartError, FarmError, InputError, VariantNotActive
from farm.node.content import model_content
from farm.node.messages import Assignment, EngineDetails, EngineReport, Event
from farm.node.telemetry import Telemetry, visible_gpu
from farm.node.telemetry.table import as_parquet
from farm.paths import farm_home
from farm.redaction import masked
from farm.results.origin import differences
from farm.types import Item

_LOG_PART_BYTES: Final = 256 * 1024


@dataclass
class Launched:
    """An engine that runs and was proven active."""

    engine_id: str
    engine: RunningEngine
    details: EngineDetails
    telemetry: Telemetry | None  # None where the engine has no GPU


@dataclass
class Launcher:
    """Launches a slot's engines one after another, and hands what becomes known of each to `report`."""

    name: str
    assignment: Assignment
    report: Callable[[Event], None]
    _launches: int = 0

    async def start(self, variant_name: str, on_phase: OnPhase) -> Launched:
        """Start an engine and compare it with what its variant declares.

        Raises:
            InputError: its answers would be mixed with those of other origin.
            EngineStartError: this node lacks something, or the engine does not come up.
            VariantNotActive: it came up as something else.
        """
        sweep = self.assignment.sweep
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{self._launches}"
        engine_id = f"{_file_name(self.name)}.{_file_name(variant_name)}.{stamp}"
        log = farm_home() / "engines" / self.assignment.sweep_id / f"{engine_id}.log"
        kind, variant = engine_of(sweep), sweep.variant(variant_name)
        command = kind.command(sweep, variant, model_path=model_of(sweep), python=python_of(sweep))
        details = EngineDetails(
            engine_id=engine_id,
            variant=variant_name,
            node=self.name,
            kind=kind.name,
            label=label_of(sweep),
            argv=masked(list(command.argv)),
            log=str(log),
            hostname=socket.gethostname(),
            started_at=datetime.now(UTC).isoformat(),
        )
        launch = Launch(sweep, variant, log, self.name, self._launches, self._items())
        self._launches += 1
        try:
            if missing := await asyncio.to_thread(kind.missing, sweep, variant):
                raise EngineStartError("; ".join(missing))
            engine = await kind.start(launch, on_phase)
        except FarmError as error:
            failed = replace(
                details,
                status="not-active" if isinstance(error, VariantNotActive) else "failed",
                reason=str(error),
                evidence=kind.evidence_of(log),
            )
            self.report(EngineReport(engine_id, failed, _log_text(log)))
            raise
        details = replace(
            details, status="started", facts=engine.facts, model_digest=await asyncio.to_thread(model_content, sweep)
        )
        if mixed := self._mixed(details):
            await engine.stop()
            failed = replace(details, status="failed", reason=mixed)
            self.report(EngineReport(engine_id, failed, _log_text(log)))
            raise InputError(mixed)
        self.report(EngineReport(engine_id, details))
        return Launched(engine_id, engine, details, self._telemetry(kind))

    async def stop(self, launched: Launched, *, requests: int) -> None:
        """End an engine and all of its processes, if it has not ended by itself; `requests` were measured on it."""
        engine = launched.engine
        alive = engine.alive
        await engine.stop()
        readings = await asyncio.to_thread(launched.telemetry.stop) if launched.telemetry else []
        details = replace(launched.details, status="stopped" if alive else "died", requests=requests)
        if not alive:
            details = replace(details, reason=engine.explain())
        self.report(EngineReport(launched.engine_id, details, _log_text(Path(details.log)), as_parquet(readings)))

    def _mixed(self, details: EngineDetails) -> str | None:
        """How an engine differs from all that the sweep's records came from."""
        now = details.summary().origin
        found = differences(self.assignment.origins, now) if now else []
        if not found:
            return None
        return f"{self.name} differs from what the records came from: {'; '.join(found)}; --mix takes it nevertheless"

    def _telemetry(self, kind: Engine) -> Telemetry | None:
        """Readings of this slot's GPU; an engine that needs none gives its own, or has none."""
        settings = self.assignment.sweep.engine
        if not kind.needs_gpu(settings):
            return None
        return Telemetry.start(visible_gpu(), shared=settings.concurrency > 1)

    def _items(self) -> Iterator[Item]:
        return (item for items in self.assignment.items.values() for item in items.values())


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
