"""What driver and slots say to each other: what a slot must know of the sweep, and what happens on it. Plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from farm.engines.base import Phase
from farm.results.record import Record
from farm.spec.models import Sweep
from farm.types import CellKey, Item


@dataclass(frozen=True)
class EngineReport:
    """What is known of one engine: a JSON-ready dictionary, kept in the journal under its id."""

    engine_id: str
    values: dict[str, Any]
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
class StintFailed:
    """Why a stint ended before it was told to; `hopeless` when another try would end in the same way.

    `tried` holds the attempts so far of cells that were asked and have no record.
    """

    variant: str
    reason: str
    hopeless: bool = False
    tried: Mapping[CellKey, int] = field(default_factory=dict)


Event = Answered | EngineReport | EngineStarting | EngineReady | StintFailed


@dataclass(frozen=True)
class Assignment:
    """What a slot must know of the sweep."""

    sweep_id: str
    sweep: Sweep
    items: Mapping[str, Mapping[str, Item]]  # workload -> item id -> item
