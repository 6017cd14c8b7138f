"""What is known of a sweep's cost before it runs: its own settings, and earlier sweeps that asked the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import mean
from typing import Final

from farm.driver.costs import Costs, ItemKey
from farm.engines.registry import engine_of, label_of
from farm.errors import InputError
from farm.node.tokens import WARMUP_TOKENS
from farm.results.folder import ResultsFolder, tables_in
from farm.results.summary import EngineSummary, SweepSummary
from farm.spec.models import Sweep
from farm.types import CellKey, Item
from farm.workloads.items import digest

# The published figures of one DGX Spark: a start takes 480 s, and prefill of 32,768 tokens about 10 s at the rate that
# the mean TTFT implies.
SPARK_START_S: Final = 480.0
SPARK_TPOT_S: Final = 0.0277
SPARK_PREFILL_TOKENS_PER_S: Final = 3300.0
_CHARACTERS_PER_TOKEN: Final = 4
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
    tokens: dict[ItemKey, float] = {}
    lengths: dict[ItemKey, float] = {}
    for name, entries in items.items():
        for item in entries:
            lengths[name, item.item_id] = float(len(item.shown_prompt))
            if item.sampling.get("ignore_eos"):
                tokens[name, item.item_id] = float(item.sampling["max_new_tokens"])
    # Costs are seconds on the driver's clock, where an emulated minute passes faster.
    speed = engine_of(sweep).speed(sweep.engine)
    prior_s = {name: seconds / speed for name, seconds in _prior_cell_s(sweep, items).items()}
    warm_up_s = _warm_up_s(sweep, items) / speed if sweep.engine.device == "cuda" else 0.0
    start_s = SPARK_START_S / speed + warm_up_s if sweep.engine.device == "cuda" else None
    costs = Costs(tokens, lengths, prior_s, start_s)
    for folder, names in _earlier(sweep, items, results):
        _learn(costs, folder, names, sweep, items, warm_up_s)
    return costs


def _prior_cell_s(sweep: Sweep, items: Mapping[str, Sequence[Item]]) -> dict[str, float]:
    """Seconds of a cell of each workload at the published baseline's speed."""
    return {
        name: mean(_prior_item_s(item, workload.published_answer_s) for item in items[name])
        for name, workload in sweep.workloads.items()
    }


def _warm_up_s(sweep: Sweep, items: Mapping[str, Sequence[Item]]) -> float:
    """Published seconds of one engine's warm-up: its requests have the length of each workload's longest prompt."""
    total = 0.0
    for entries in items.values():
        prompt = max(item.exact_tokens or len(item.shown_prompt) / _CHARACTERS_PER_TOKEN for item in entries)
        answer = min(WARMUP_TOKENS, max(int(item.sampling["max_new_tokens"]) for item in entries))
        total += prompt / SPARK_PREFILL_TOKENS_PER_S + answer * SPARK_TPOT_S
    return sweep.warmup_requests * total


def _prior_item_s(item: Item, published_s: float | None) -> float:
    limit = int(item.sampling["max_new_tokens"])
    if item.sampling.get("ignore_eos"):
        return (item.exact_tokens or 0) / SPARK_PREFILL_TOKENS_PER_S + limit * SPARK_TPOT_S
    # Of unknown answers, half their limit is as good a guess as any.
    return limit / 2 * SPARK_TPOT_S if published_s is None else published_s


def _earlier(
    sweep: Sweep, items: Mapping[str, Sequence[Item]], results: Path
) -> list[tuple[ResultsFolder, Mapping[str, str]]]:
    """The newest sweeps that served the same model and share a workload with this one, oldest first, each with its
    names of the workloads by digest."""
    requested = {digest(entries) for entries in items.values()}
    found: list[tuple[ResultsFolder, Mapping[str, str]]] = []
    for folder in reversed(tables_in(results)):
        try:
            described = folder.sweep() or SweepSummary()
        except InputError:
            continue  # not a sweep of ours: nothing to learn there
        names = {entry.digest: name for name, entry in described.workloads.items()}
        same = described.model == sweep.model.path and described.label == label_of(sweep)
        if same and names.keys() & requested:
            found.append((folder, names))
        if len(found) == _EARLIER_SWEEPS:
            break
    return found[::-1]


def _learn(
    costs: Costs,
    folder: ResultsFolder,
    names: Mapping[str, str],
    sweep: Sweep,
    items: Mapping[str, Sequence[Item]],
    warm_up_s: float,
) -> None:
    here = {names[key]: name for name, entries in items.items() if (key := digest(entries)) in names}
    speed = engine_of(sweep).speed(sweep.engine)
    with suppress(InputError):
        # The first records of any sweep say enough.
        first = folder.first_records(_COLUMNS, _EARLIER_RECORDS)
        for row in first.to_pylist() if first else ():
            if row["workload"] in here and row["latency_s"] is not None:
                cell = CellKey(row["variant"], here[row["workload"]], row["item_id"], row["repeat"])
                costs.learn_earlier(cell, row["completion_tokens"], row["latency_s"] / speed)
        _learn_starts(costs, folder.engines() or [], sweep, warm_up_s)


def _learn_starts(costs: Costs, engines: Sequence[EngineSummary], sweep: Sweep, warm_up_s: float) -> None:
    engine = engine_of(sweep)
    # The own seconds of an engine with a clock of its own count there, without its warm-up; else those until the first
    # measured request.
    for one in engines:
        took_s, beside_s = (one.start_s, warm_up_s) if engine.own_clock else (one.ready_s, 0.0)
        if took_s is not None:
            costs.learn_earlier_start(one.variant, took_s / engine.speed(sweep.engine) + beside_s)
