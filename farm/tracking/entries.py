"""What MLflow is told about a run: parameters, tags, figures and series. Pure, and the same for the same results.

Names are `group/name`, because the UI sorts by name and draws one section of charts for each group.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import pandas as pd
from pydantic import JsonValue

from farm.compare.model import Comparison, Contrast
from farm.report.columns import CONTRAST_COLUMNS, VARIANT_COLUMNS, Column, Source
from farm.results.record import decode_tokens
from farm.results.summary import EngineSummary
from farm.tracking.results import Key, Results, milliseconds

MAX_PARAM_CHARACTERS: Final = 6000
MAX_TAG_CHARACTERS: Final = 8000
_MAX_NAME_CHARACTERS: Final = 250
_MAX_REASON_CHARACTERS: Final = 1000

COMPLETE: Final = "complete"
RUNNING: Final = "running"
PARTIAL: Final = "partial"
FAILED: Final = "failed"


class Point(NamedTuple):
    """One metric value."""

    key: str
    value: float
    timestamp_ms: int
    step: int


@dataclass(frozen=True)
class State:
    """How far a run is, and why no further."""

    name: str
    answered: int
    planned: int
    reason: str | None = None


def safe_name(text: str) -> str:
    """A name in the characters that MLflow allows, different for different texts.

    Anything else becomes `:XX`, its bytes in hex: `urllib.parse.unquote(name.replace(":", "%"))` gives the text back.
    """
    quoted = quote(text, safe=" ").replace("~", "%7E")
    if not text.strip("."):
        quoted = quoted.replace(".", "%2E")  # `.` and `..` are refused, as names of folders
    return quoted.replace("%", ":")[:_MAX_NAME_CHARACTERS]


def state_of(results: Results, key: Key, *, running: bool) -> State:
    """The state of one child run."""
    answered, planned = len(results.of(key)), results.planned(key)
    failure = results.sweep.failed_variants.get(key.variant)
    if answered >= planned:
        return State(COMPLETE, answered, planned)
    if failure and not answered:
        return State(FAILED, answered, planned, _cut(failure, _MAX_REASON_CHARACTERS))
    if running:
        return State(RUNNING, answered, planned)
    causes = [failure] if failure else results.errors_of(key)[:1]
    reason = f"{planned - answered} of {planned} cells have no answer" + "".join(f": {cause}" for cause in causes)
    return State(PARTIAL, answered, planned, _cut(reason, _MAX_REASON_CHARACTERS))


def state_of_sweep(results: Results, children: Mapping[Key, State], *, running: bool) -> State:
    """The state of the parent run."""
    answered = sum(state.answered for state in children.values())
    planned = sum(state.planned for state in children.values())
    if running:
        return State(RUNNING, answered, planned)
    if answered >= planned:
        return State(COMPLETE, answered, planned)
    failed = results.sweep.failed_variants
    reason = f"{planned - answered} of {planned} cells have no answer"
    reason += "".join(f"; {variant}: {why}" for variant, why in failed.items())
    return State(PARTIAL if answered else FAILED, answered, planned, _cut(reason, _MAX_REASON_CHARACTERS))


# ---- parameters


def params_of_sweep(results: Results) -> dict[str, str]:
    """Parameters of the parent run."""
    sweep = results.sweep
    return _texts(
        {
            "sweep": sweep.sweep_id,
            "model": sweep.model,
            "variants": ", ".join(sweep.variants),
            "workloads": ", ".join(sweep.workloads),
            "baseline": sweep.baseline,
            "margin_pp": sweep.margin_pp,
            "min_gain": sweep.min_gain,
            "engine_kind": sweep.engine_kind,
            "device": sweep.device,
            "design": sweep.resolved.design,
            "concurrency": sweep.resolved.engine.concurrency,
        }
    )


def params_of(results: Results, key: Key) -> dict[str, str]:
    """Parameters of a child: what was asked, and the settings in which the variants differ."""
    sweep, requested = results.sweep, results.sweep.workloads[key.workload]
    spec = results.resolved(key.workload)
    plain = {
        "variant": key.variant,
        "workload": key.workload,
        "kind": requested.kind,
        "model": sweep.model,
        "engine_kind": sweep.engine_kind,
        "device": sweep.device,
        "items": requested.items,
        "repeats": results.repeats(key.workload),
        "seed": spec.seed,
        "shots": spec.shots,
        "thinking": spec.thinking,
        "concurrency": sweep.resolved.engine.concurrency,
    }
    sampling = {f"sampling/{safe_name(name)}": value for name, value in requested.sampling.items()}
    arguments = _differing({name: _arguments(argv) for name, argv in sweep.commands.items()})
    env = _differing({name: env_of(results, name) for name in sweep.variants})
    return _texts(
        plain
        | sampling
        | {f"arg/{safe_name(name)}": value for name, value in arguments.get(key.variant, {}).items()}
        | {f"env/{safe_name(name)}": value for name, value in env.get(key.variant, {}).items()}
    )


def env_of(results: Results, variant: str) -> dict[str, str]:
    """Environment that a variant's engine was given by the sweep; secrets are already out."""
    if results.sweep.environments is not None:
        return results.sweep.environments.get(variant, {})
    # Written by a farm that did not tell yet: what was asked for by name, without what optimisations added.
    requested = results.sweep.resolved
    own = next((one.env for one in requested.variants if one.name == variant), {})
    return requested.engine.env | own


def _arguments(argv: Iterable[str]) -> dict[str, str]:
    """`--name value...` pairs of a command line; a bare flag is `true`."""
    found: dict[str, str] = {}
    name: str | None = None
    for word in argv:
        if word.startswith("--"):
            name, _, value = word[2:].partition("=")
            found[name] = value
        elif name is not None:
            found[name] = f"{found[name]} {word}".strip()
    return {name: value or "true" for name, value in found.items()}


def _differing(settings: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Only those settings that are not the same for all."""
    names = {name for own in settings.values() for name in own}
    different = {name for name in names if len({own.get(name) for own in settings.values()}) > 1}
    return {who: {name: own[name] for name in sorted(own) if name in different} for who, own in settings.items()}


def _texts(values: Mapping[str, JsonValue]) -> dict[str, str]:
    return {name: _cut(_text(value), MAX_PARAM_CHARACTERS) for name, value in values.items() if value is not None}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


# ---- tags


def tags_common(results: Results, state: State) -> dict[str, str]:
    """Tags that every run of a sweep has."""
    tags = {
        "farm.sweep_id": results.sweep_id,
        "farm.state": state.name,
        "farm.answered": f"{state.answered} of {state.planned}",
        "farm.version": str(results.sweep.farm_version),
        "farm.model": str(results.sweep.model),
        # Constant, so that the UI's source column names the farm and not a path of this machine.
        "mlflow.source.name": "farm",
        "mlflow.source.type": "JOB",
    }
    if results.label:
        tags["farm.label"] = results.label
    if state.reason:
        tags["farm.reason"] = state.reason
    return tags


def tags_of_engines(engines: Iterable[EngineSummary]) -> dict[str, str]:
    """Nodes, versions and hardware; values that differ between engines stand side by side."""
    seen: dict[str, dict[str, None]] = {}  # of each tag its values, in order

    def note(tag: str, value: object) -> None:
        if value not in (None, "", [], {}):
            seen.setdefault(tag, {})[_text(value)] = None

    for engine in engines:
        note("farm.nodes", engine.node)
        versions = engine.versions or {"sglang": engine.version}
        for group, values in (("version", versions), ("hardware", engine.hardware)):
            for name, value in values.items():
                note(f"{group}.{safe_name(str(name))}", value)
    return {tag: _cut(", ".join(values), MAX_TAG_CHARACTERS) for tag, values in sorted(seen.items())}


# ---- figures


def figures_of_sweep(state: State, results: Results) -> dict[str, float]:
    """Metrics of the parent run."""
    errors = len(results.records) - len(results.answered)
    return {"cells/answered": state.answered, "cells/planned": state.planned, "cells/errors": errors}


def figures_of(comparison: Comparison, key: Key) -> dict[str, float]:
    """Metrics of a child, from the comparison: its own figures, and those against the baseline."""
    workload = comparison.workloads.get(key.workload)
    own = workload.variants.get(key.variant) if workload else None
    found: dict[str, float | None] = {}
    if own is not None:
        watched = own.sm_clock_mhz is not None
        found |= _metrics((one for one in VARIANT_COLUMNS if watched or one.metric not in _OF_A_WATCHED_GPU), own)
    if contrast := _against_baseline(comparison, key):
        found |= _metrics(CONTRAST_COLUMNS, contrast)
    # A run's page lists metrics in the order in which they were logged: the ends of intervals come last.
    ordered = sorted(found.items(), key=lambda figure: figure[0].startswith("ci95/"))
    return {name: float(value) for name, value in ordered if value is not None}


def verdict_of(comparison: Comparison, key: Key) -> str | None:
    """Whether accuracy moved against the baseline, in the comparison's word."""
    contrast = _against_baseline(comparison, key)
    return contrast.accuracy.verdict if contrast and contrast.accuracy else None


def _against_baseline(comparison: Comparison, key: Key) -> Contrast | None:
    workload = comparison.workloads.get(key.workload)
    return workload.contrast(key.variant, comparison.baseline) if workload else None


_OF_A_WATCHED_GPU: Final = ("energy/throttled_s", "energy/slow_answers")


def _metrics(columns: Iterable[Column[Source]], source: Source) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    for column in columns:
        value, ci = column.of(source)
        if column.metric and not isinstance(value, str):
            found[column.metric] = value
            if column.ranged:
                # The ends have a group of their own: a bar chart of each would bury the figures.
                short = column.metric.rpartition("/")[2]
                found[f"ci95/{short}.low"], found[f"ci95/{short}.high"] = ci or (None, None)
    return found


# ---- series

MOST_STEPS: Final = 1500  # all of GSM8K's test questions


def series_of(results: Results, key: Key) -> list[Point]:
    """Per-item series; the step is the item's place in its workload, so that the lines of variants pair.

    A point never changes once its answer is there. For that, the running accuracy goes no further than the first item
    without an answer: past a gap it would be another number once the sweep has gone on. Of a workload with more than
    `MOST_STEPS` steps, evenly spaced ones are shown and the last: more than a chart can draw, and the calls to MLflow
    do not grow with the requests. All answers are in the table beside it.
    """
    last = results.planned(key) - 1
    every = last // MOST_STEPS + 1
    order = results.item_order(key.workload)
    answers: Iterable[Any] = results.of(key).itertuples(index=False)
    rows = {int(row.repeat) * len(order) + order[str(row.item_id)]: row for row in answers if str(row.item_id) in order}
    shown = [step for step in sorted(rows) if step % every == 0 or step == last]
    points = [point for step in shown for point in _points(rows[step], step)]
    right = graded = 0
    for step in range(results.planned(key)):
        row = rows.get(step)
        if row is None:
            break
        if not pd.isna(row.correct):
            graded += 1
            right += bool(row.correct)
            if step % every == 0 or step == last:
                points.append(Point("by_item/accuracy_so_far", right / graded, milliseconds(row.started_at), step))
    return points


def _points(row: Any, step: int) -> Iterator[Point]:
    speculated = not pd.isna(row.verify_rounds) and row.verify_rounds > 0
    first = getattr(row, "first_chunk_tokens", None)
    steps = decode_tokens(row.completion_tokens, None if first is None or pd.isna(first) else first)
    values = {
        "tpot_ms": 1000 * row.decode_s / steps if steps > 0 and not pd.isna(row.decode_s) else None,
        "accept_length": (row.completion_tokens - 1) / row.verify_rounds if speculated else None,
        "ttft_s": row.ttft_s,
        "latency_s": row.latency_s,
        "completion_tokens": row.completion_tokens,
    }
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield Point(f"by_item/{name}", float(value), milliseconds(row.started_at), step)
