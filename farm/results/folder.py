"""A sweep's results folder: the files that comparisons, reports and MLflow are made from. All but the journal can be
made again at any time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import farm
from farm.errors import JournalError
from farm.redaction import masked
from farm.results.journal import Journal
from farm.spec.models import Sweep
from farm.types import CellGrid, Item, Label
from farm.workloads.items import digest


def ask_of(sweep: Sweep, items: Mapping[str, Sequence[Item]]) -> CellGrid:
    """What the sweep asks, by names."""
    return CellGrid(
        variants=tuple(variant.name for variant in sweep.variants),
        items={name: tuple(item.item_id for item in items[name]) for name in sweep.workloads},
        repeats={name: workload.repeats for name, workload in sweep.workloads.items()},
    )


def describe(
    sweep: Sweep,
    sweep_id: str,
    items: Mapping[str, Sequence[Item]],
    commands: Mapping[str, Sequence[str]],
    label: Label | None,
) -> dict[str, Any]:
    """The content of `sweep.json`, apart from what the run adds to it; `commands` are the engines' by
    variant, `label` marks their results."""
    return {
        "sweep_id": sweep_id,
        "name": sweep.name,
        "about": sweep.about,
        "created_at": datetime.now(UTC).isoformat(),
        "farm_version": farm.__version__,
        "model": sweep.model.path,
        "label": label,
        "engine_kind": sweep.engine.kind,
        "device": sweep.engine.device,
        "baseline": sweep.baseline_name,
        "margin_pp": sweep.margin_pp,
        "variants": [variant.name for variant in sweep.variants],
        "workloads": {
            name: {
                "kind": workload.kind,
                "title": workload.title,
                "sampling": items[name][0].sampling,
                "items": len(items[name]),
                "repeats": workload.repeats,
                "digest": digest(items[name]),
                "source": workload.source_name,
            }
            for name, workload in sweep.workloads.items()
        },
        "planned_cells": sum(1 for _ in ask_of(sweep, items).cells()),
        "failed_variants": {},
        "resolved": _resolved(sweep),
        "commands": {name: list(argv) for name, argv in commands.items()},
    }


def _resolved(sweep: Sweep) -> dict[str, Any]:
    """The whole sweep without secrets; workloads keep their names, whatever these look like."""
    asked = sweep.model_dump(mode="json")
    workloads = {name: masked(workload) for name, workload in asked.pop("workloads").items()}
    resolved: dict[str, Any] = masked(asked) | {"workloads": workloads}
    return resolved


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON file at once."""
    write_file(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def write_file(path: Path, content: bytes) -> None:
    """Replace a file at once, its folder made if need be.

    Raises:
        JournalError: it cannot be written.
    """
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(exist_ok=True)
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> JournalError:
    return JournalError(f"{path}: {error.strerror or error}; free the disk or make the folder writable")


def write_items(path: Path, items: Mapping[str, Sequence[Item]]) -> None:
    """Write `items.parquet`: what was asked, as a reader of the report sees it."""
    rows = [
        {"workload": name, "item_id": item.item_id, "prompt": item.shown_prompt, "gold": item.gold}
        for name, entries in items.items()
        for item in entries
    ]
    columns = ("workload", "item_id", "prompt", "gold")
    try:
        pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema([(name, pa.string()) for name in columns])), path)
    except OSError as error:
        raise _unwritable(path, error) from error


def export(folder: Path, journal: Journal, summary: Mapping[str, Any]) -> None:
    """Bring all derived files up to the journal."""
    journal.write_parquet(folder / "requests.parquet")
    write_json(folder / "engines.json", journal.engines())
    write_json(folder / "sweep.json", dict(summary))
