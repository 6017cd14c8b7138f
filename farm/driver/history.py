"""What is known of a sweep's cost before it runs: its own settings, and earlier sweeps that asked the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow.parquet as pq

from farm.driver.costs import Costs, Place
from farm.engines.registry import engine_of, label_of
from farm.spec.models import Sweep
from farm.types import CellKey, Item
from farm.workloads.items import digest

# The published figures of one DGX Spark: a start takes 480 s, and prefill of 32,768 tokens about 10 s at the rate that
# the mean TTFT implies.
SPARK_START_S: Final = 480.0
SPARK_TPOT_S: Final = 0.0277
SPARK_PREFILL_TOKENS_PER_S: Final = 3300.0
_EARLIER_SWEEPS: Final = 8
_EARLIER_RECORDS: Final = 50_000
_COLUMNS: Final = ["variant", "workload", "item_id", "repeat", "completion_tokens", "latency_s"]


def first_costs(sweep: Sweep, items: Mapping[str, Sequence[Item]], results: Path) -> Costs:
    """Costs as far as they are known before the first answer.

    Args:
        sweep: what is asked.
        items: its items by workload.
        results: the folder that holds one folder for each sweep.
    """
    tokens: dict[Place, float] = {}
    lengths: dict[Place, float] = {}
    for name, entries in items.items():
        for item in entries:
            lengths[name, item.item_id] = float(len(item.shown_prompt))
            if item.sampling.get("ignore_eos"):
                tokens[name, item.item_id] = float(item.sampling["max_new_tokens"])
    # Costs are seconds on the driver's clock, where an emulated minute passes faster.
    speed = engine_of(sweep).speed(sweep.engine)
    prior_s = {name: seconds / speed for name, seconds in _prior_cell_s(sweep, items).items()}
    start_s = SPARK_START_S / speed if sweep.engine.device == "cuda" else None
    costs = Costs(tokens, lengths, prior_s, start_s)
    for folder, described in _earlier(sweep, items, results):
        _learn(costs, folder, described, sweep, items)
    return costs


def _prior_cell_s(sweep: Sweep, items: Mapping[str, Sequence[Item]]) -> dict[str, float]:
    """Seconds of a cell of each workload at the published baseline's speed."""
    return {
        name: sum(_prior_item_s(item, workload.published_answer_s) for item in items[name]) / len(items[name])
        for name, workload in sweep.workloads.items()
    }


def _prior_item_s(item: Item, published_s: float | None) -> float:
    limit = int(item.sampling["max_new_tokens"])
    if item.sampling.get("ignore_eos"):
        return (item.exact_tokens or 0) / SPARK_PREFILL_TOKENS_PER_S + limit * SPARK_TPOT_S
    # Of unknown answers, half their limit is as good a guess as any.
    return limit / 2 * SPARK_TPOT_S if published_s is None else published_s


def _earlier(sweep: Sweep, items: Mapping[str, Sequence[Item]], results: Path) -> list[tuple[Path, dict[str, Any]]]:
    """The newest sweeps that served the same model and share a workload with this one, oldest first."""
    asked = {digest(entries) for entries in items.values()}
    found: list[tuple[Path, dict[str, Any]]] = []
    folders = sorted(results.glob("*/requests.parquet"), key=lambda path: path.stat().st_mtime, reverse=True)
    for table in folders:
        try:
            described = json.loads((table.parent / "sweep.json").read_text(encoding="utf-8"))
            digests = {entry["digest"] for entry in described["workloads"].values()}
            same = described["model"] == sweep.model.path and described["label"] == label_of(sweep)
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not a sweep of ours: nothing to learn there
        if same and digests & asked:
            found.append((table.parent, described))
        if len(found) == _EARLIER_SWEEPS:
            break
    return found[::-1]


def _learn(
    costs: Costs, folder: Path, described: Mapping[str, Any], sweep: Sweep, items: Mapping[str, Sequence[Item]]
) -> None:
    names = {entry["digest"]: name for name, entry in described["workloads"].items()}
    here = {names[key]: name for name, entries in items.items() if (key := digest(entries)) in names}
    try:
        batches = pq.ParquetFile(folder / "requests.parquet").iter_batches(_EARLIER_RECORDS, columns=_COLUMNS)
        # The first batch of any sweep says enough, and a table of millions would fill the driver's memory.
        rows = next(batches).to_pylist()
    except (OSError, ValueError, StopIteration):
        return
    for row in rows:
        if row["workload"] in here and row["latency_s"] is not None:
            cell = CellKey(row["variant"], here[row["workload"]], row["item_id"], row["repeat"])
            costs.learn_earlier(cell, row["completion_tokens"], row["latency_s"] / engine_of(sweep).speed(sweep.engine))
    _learn_starts(costs, folder, sweep)


def _learn_starts(costs: Costs, folder: Path, sweep: Sweep) -> None:
    try:
        engines = json.loads((folder / "engines.json").read_text(encoding="utf-8"))
        # An emulated start's own seconds are its model's; the others are those until the first measured request.
        name = "start_s" if engine_of(sweep).own_clock else "ready_s"
        starts = [(str(one["variant"]), float(one[name])) for one in engines if one.get(name) is not None]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return
    for variant, took_s in starts:
        costs.learn_earlier_start(variant, took_s / engine_of(sweep).speed(sweep.engine))
