"""What driver and slots say to each other: what a slot must know of the sweep, and what happens on it. Plain data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import TypeAdapter

from farm.engines.base import Evidence, Facts, Phase
from farm.results.origin import Origin
from farm.results.record import Record
from farm.results.summary import EngineSummary
from farm.spec.models import Sweep
from farm.types import CellKey, Item, Label


@dataclass(frozen=True, kw_only=True)
class EngineDetails:
    """What is known of one engine.

    Attributes:
        label: how its results are marked.
        log: its log, where it was written.
        status: how it goes on: `not-active` is a start that the gate refused, `failed` any other that came to nothing.
        reason: why it is not active, failed or died.
        evidence: of an engine that did not start; that of others is among their facts.
        model_digest: of the model's content on its node.
        ready_s: from its launch to the first measured request.
        requests: measured on it, once it has ended.
    """

    engine_id: str
    variant: str
    node: str
    kind: str
    label: Label | None
    argv: list[str]
    log: str
    hostname: str
    started_at: str
    status: Literal["starting", "started", "stopped", "died", "failed", "not-active"] = "starting"
    reason: str | None = None
    evidence: Evidence | None = None
    facts: Facts | None = None
    model_digest: Mapping[str, str] = field(default_factory=dict)
    ready_s: float | None = None
    requests: int | None = None

    def summary(self) -> EngineSummary:
        """An entry of `engines.json`: without what does not apply yet, and what the engine said among the rest."""
        values = _DETAILS.dump_python(self, mode="json", by_alias=True, exclude_unset=True)
        said = values.pop("facts") or {}
        optional = ("reason", "evidence", "ready_s", "requests")
        known = {name: value for name, value in values.items() if value is not None or name not in optional} | said
        if known.get("evidence", {}).get("probe", 0) is None:
            del known["evidence"]["probe"]
        return EngineSummary.model_validate(known)


_DETAILS: Final = TypeAdapter(EngineDetails)


@dataclass(frozen=True)
class EngineReport:
    """What is known of one engine, kept in the journal under its id; a later report replaces an earlier one."""

    engine_id: str
    values: EngineDetails
    log: str | None = None  # the engine's log, once it has ended
    telemetry: bytes | None = None  # its GPU's readings as a Parquet file, once it has ended


@dataclass(frozen=True)
class EngineStarting:
    """What an engine is doing on its way to the first measured request, `elapsed_s` after its launch."""

    variant: str
    phase: Phase
    elapsed_s: float


@dataclass(frozen=True)
class EngineReady:
    """An engine is proven, warm, and measured from now on; `took_s` counts from its launch."""

    variant: str
    took_s: float


@dataclass(frozen=True)
class Answered:
    """A cell's record, and the wall seconds of its last attempt on the slot."""

    record: Record
    took_s: float


@dataclass(frozen=True)
class SessionFailed:
    """Why an engine session ended before it was asked to; `not_retryable` when another try would end in the same way.

    `attempts` holds the attempts so far of cells that were asked and have no record.
    """

    variant: str
    reason: str
    not_retryable: bool = False
    attempts: Mapping[CellKey, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StillThere:
    """Nothing has happened for a while, and the slot is at it."""


Event = Answered | EngineReport | EngineStarting | EngineReady | SessionFailed | StillThere


@dataclass(frozen=True)
class Assignment:
    """What a slot must know of the sweep."""

    sweep_id: str
    sweep: Sweep
    items: Mapping[str, Mapping[str, Item]]  # workload -> item id -> item
    origins: Sequence[Origin] = ()  # of the records there are: engines must be of one of them; empty allows any
