"""A sweep's results folder, read for MLflow."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from farm.errors import InputError
from farm.redaction import masked
from farm.results.folder import SHARED, SWEEP, ResultsFolder
from farm.results.summary import EngineSummary, ResolvedWorkload, SweepSummary


class Key(NamedTuple):
    """A child run: one variant on one workload."""

    variant: str
    workload: str


@dataclass(frozen=True)
class Results:
    """The content of the folder, without its secrets."""

    folder: Path
    sweep: SweepSummary
    engines: Sequence[EngineSummary]
    records: pd.DataFrame
    items: pd.DataFrame

    @property
    def sweep_id(self) -> str:
        """The sweep's identity."""
        return str(self.sweep.sweep_id)

    @property
    def label(self) -> str | None:
        """Set when these are not results of a real model on a real engine."""
        return self.sweep.label

    @property
    def keys(self) -> list[Key]:
        """The children, in the sweep's own order."""
        return [Key(variant, workload) for workload in self.sweep.workloads for variant in self.sweep.variants]

    @cached_property
    def answered(self) -> pd.DataFrame:
        """The records that hold an answer."""
        error = self.records["error"]
        return self.records[(error.isna() | (error == "")).to_numpy(dtype=bool)]

    def of(self, key: Key) -> pd.DataFrame:
        """The answers of one child."""
        return _own(self.answered, key)

    def errors_of(self, key: Key) -> list[str]:
        """Why cells of one child have no answer, most frequent first."""
        own = _own(self.records, key)
        error = own["error"].dropna()
        return [str(text) for text in error[error != ""].value_counts().index]

    def planned(self, key: Key) -> int:
        """How many cells one child has."""
        return self.sweep.workloads[key.workload].items * self.repeats(key.workload)

    def repeats(self, workload: str) -> int:
        """How often each item of a workload is asked."""
        return self.sweep.workloads[workload].repeats or self.resolved(workload).repeats or 1

    def resolved(self, workload: str) -> ResolvedWorkload:
        """The settings of a workload in the resolved sweep, null where they are not there."""
        return self.sweep.resolved.workloads.get(workload) or ResolvedWorkload()

    def engines_of(self, variant: str) -> list[EngineSummary]:
        """The engine reports of one variant."""
        return [engine for engine in self.engines if engine.variant == variant]

    def item_order(self, workload: str) -> dict[str, int]:
        """Place of each item in its workload."""
        own = self.items.loc[(self.items["workload"] == workload).to_numpy(dtype=bool), "item_id"]
        return {str(item_id): node for node, item_id in enumerate(own)}

    @property
    def started_ms(self) -> int:
        """When the sweep was first submitted."""
        moment = datetime.fromisoformat(str(self.sweep.created_at))
        return milliseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))

    def ended_ms(self, records: pd.DataFrame) -> int:
        """When the last of these records was complete; the sweep's start when there is none."""
        rows: Iterable[Any] = records[["started_at", "latency_s"]].itertuples(index=False)
        ends = (
            milliseconds(row.started_at) + (0 if math.isnan(row.latency_s) else round(1000 * row.latency_s))
            for row in rows
        )
        return max([self.started_ms, *ends])


def milliseconds(moment: datetime) -> int:
    """A moment as MLflow counts time."""
    return round(moment.timestamp() * 1000)


def read(folder: Path) -> Results:
    """Read a results folder.

    Raises:
        InputError: a file is missing or cannot be read.
    """
    sweep, results = read_sweep(folder), ResultsFolder(folder)
    results.require(*SHARED)
    records = results.records().to_pandas()
    items = results.items()
    assert items is not None
    engines = (
        EngineSummary.model_validate(masked(one.model_dump(exclude_unset=True))) for one in results.engines() or ()
    )
    return Results(
        folder=folder,
        sweep=_redacted(sweep),
        engines=list(engines),
        records=records.assign(latency_s=records["latency_s"].astype(float)),
        items=items.to_pandas(),
    )


def read_sweep(folder: Path) -> SweepSummary:
    """The content of `sweep.json`.

    Raises:
        InputError: it is missing, or no sweep's.
    """
    results = ResultsFolder(folder)
    results.require(SWEEP)
    sweep = results.sweep() or SweepSummary()
    missing = [
        name
        for name in ("sweep_id", "name", "created_at", "variants", "workloads")
        if name not in sweep.model_fields_set
    ]
    if missing:
        raise InputError(f"{folder / SWEEP}: lacks {', '.join(missing)}; it is not a sweep of this farm")
    return sweep


def _redacted(sweep: SweepSummary) -> SweepSummary:
    """The sweep without secrets; names of variants and workloads are kept whatever they look like."""
    rest = sweep.model_dump(mode="json")
    fields = ("workloads", "commands", "environments", "failed_variants")
    named = {field: {name: masked(value) for name, value in (rest.pop(field) or {}).items()} for field in fields}
    return SweepSummary.model_validate(masked(rest) | named)


def _own(records: pd.DataFrame, key: Key) -> pd.DataFrame:
    return records[((records["variant"] == key.variant) & (records["workload"] == key.workload)).to_numpy(dtype=bool)]
