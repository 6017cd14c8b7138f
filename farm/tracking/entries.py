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

from farm.spec.optimisations import CATALOGUE, compose
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
    failure = (results.sweep.get("failed_variants") or {}).get(key.variant)
    if answered >= planned:
        return State(COMPLETE, answered, planned)
    if failure and not answered:
        return State(FAILED, answered, planned, _cut(str(failure), _MAX_REASON_CHARACTERS))
    if running:
        return State(RUNNING, answered, planned)
    causes = [str(failure)] if failure else results.errors_of(key)[:1]
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
    failed = results.sweep.get("failed_variants") or {}
    reason = f"{planned - answered} of {planned} cells have no answer"
    reason += "".join(f"; {variant}: {why}" for variant, why in failed.items())
    return State(PARTIAL if answered else FAILED, answered, planned, _cut(reason, _MAX_REASON_CHARACTERS))


# ---- parameters


def params_of_sweep(results: Results) -> dict[str, str]:
    """Parameters of the parent run."""
    sweep = results.sweep
    engine = results.resolved("engine")
    return _texts(
        {
            "sweep": sweep["sweep_id"],
            "model": sweep.get("model"),
            "variants": ", ".join(sweep["variants"]),
            "workloads": ", ".join(sweep["workloads"]),
            "baseline": sweep.get("baseline"),
            "margin_pp": sweep.get("margin_pp"),
            "engine_kind": sweep.get("engine_kind"),
            "device": sweep.get("device"),
            "design": results.resolved().get("design"),
            "concurrency": engine.get("concurrency"),
        }
    )


def params_of(results: Results, key: Key) -> dict[str, str]:
    """Parameters of a child: what was asked, and the settings in which the variants differ."""
    sweep, asked = results.sweep, results.sweep["workloads"][key.workload]
    spec = results.resolved("workloads", key.workload)
    plain = {
        "variant": key.variant,
        "workload": key.workload,
        "kind": asked.get("kind"),
        "model": sweep.get("model"),
        "engine_kind": sweep.get("engine_kind"),
        "device": sweep.get("device"),
        "items": asked.get("items"),
        "repeats": results.repeats(key.workload),
        "seed": spec.get("seed"),
        "shots": spec.get("shots"),
        "thinking": spec.get("thinking"),
        "concurrency": results.resolved("engine").get("concurrency"),
    }
    sampling = {f"sampling/{safe_name(name)}": value for name, value in (asked.get("sampling") or {}).items()}
    arguments = _differing({name: _arguments(argv) for name, argv in (sweep.get("commands") or {}).items()})
    env = _differing({name: env_of(results, name) for name in sweep["variants"]})
    return _texts(
        plain
        | sampling
        | {f"arg/{safe_name(name)}": value for name, value in arguments.get(key.variant, {}).items()}
        | {f"env/{safe_name(name)}": value for name, value in env.get(key.variant, {}).items()}
    )


def env_of(results: Results, variant: str) -> dict[str, str]:
    """Environment that a variant's engine was given by the sweep; secrets are already out."""
    asked: list[dict[str, Any]] = results.resolved().get("variants") or []
    spec = next((one for one in asked if one.get("name") == variant), {})
    parts = compose([part for part in spec.get("parts") or [] if part in CATALOGUE])
    return {**(results.resolved("engine").get("env") or {}), **parts.env, **(spec.get("env") or {})}


def _arguments(argv: list[str]) -> dict[str, str]:
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


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: _cut(_text(value), MAX_PARAM_CHARACTERS) for name, value in values.items() if value is not None}


def _text(value: Any) -> str:
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
        "farm.version": str(results.sweep.get("farm_version")),
        "farm.model": str(results.sweep.get("model")),
        # Constant, so that the UI's source column names the farm and not a path of this machine.
        "mlflow.source.name": "farm",
        "mlflow.source.type": "JOB",
    }
    if results.label:
        tags["farm.label"] = results.label
    if state.reason:
        tags["farm.reason"] = state.reason
    return tags


def tags_of_engines(engines: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Nodes, versions and hardware; values that differ between engines stand side by side."""
    seen: dict[str, dict[str, None]] = {}  # of each tag its values, in order

    def note(tag: str, value: Any) -> None:
        if value not in (None, "", [], {}):
            seen.setdefault(tag, {})[_text(value)] = None

    for engine in engines:
        note("farm.nodes", engine.get("node"))
        versions = engine.get("versions") or {"sglang": engine.get("version")}
        for group, values in (("version", versions), ("hardware", engine.get("hardware") or {})):
            for name, value in values.items():
                note(f"{group}.{safe_name(str(name))}", value)
    return {tag: _cut(", ".join(values), MAX_TAG_CHARACTERS) for tag, values in sorted(seen.items())}


# ---- figures


def figures_of_sweep(state: State, results: Results) -> dict[str, float]:
    """Metrics of the parent run."""
    errors = len(results.records) - len(results.answered)
    return {"cells/answered": state.answered, "cells/planned": state.planned, "cells/errors": errors}


def figures_of(comparison: Mapping[str, Any], key: Key) -> dict[str, float]:
    """Metrics of a child, from the comparison: its own figures, and those against the baseline."""
    workload = (comparison.get("workloads") or {}).get(key.workload) or {}
    own = (workload.get("variants") or {}).get(key.variant) or {}
    found: dict[str, Any] = {}
    for group, name in (("speed", "decode_tokens_per_s"), ("speed", "tpot_ms"), ("accuracy", "accuracy")):
        found |= _interval(f"{group}/{name}", own.get(name))
    accuracy = own.get("accuracy") or {}
    found |= {f"accuracy/{name}": accuracy.get(name) for name in ("correct", "n")}
    for group, name in (("speed", "ttft_s"), ("speed", "latency_s"), ("answers", "completion_tokens")):
        for part in ("mean", "p50", "p95"):
            found[f"{group}/{name}.{part}"] = (own.get(name) or {}).get(part)
    found |= {f"speculation/{name}": own.get(name) for name in ("accept_length", "accept_rate")}
    found |= {f"answers/{name}": own.get(name) for name in ("requests", "errors", "truncated")}
    for name in ("energy_j_per_token", "energy_j_per_request"):
        found |= _interval(f"energy/{name}", own.get(name))
    if own.get("sm_clock_mhz") is not None:
        found |= {f"energy/{name}": own.get(name) for name in ("sm_clock_mhz", "throttled_s", "slow_answers")}
    contrast = _against_baseline(comparison, workload, key)
    found |= _interval("vs_baseline/throughput_ratio", contrast.get("throughput_ratio"))
    found |= _interval("vs_baseline/mean_latency_change", contrast.get("mean_latency_change"))
    found |= _interval("vs_baseline/energy_per_token_ratio", contrast.get("energy_per_token_ratio"))
    paired = contrast.get("accuracy") or {}
    if paired:
        difference = {"value": paired.get("difference_pp"), "ci": paired.get("ci")}
        found |= _interval("vs_baseline/accuracy_difference_pp", difference)
        found |= {f"vs_baseline/{name}": paired.get(name) for name in ("mcnemar_mid_p", "tost_p")}
    # A run's page lists metrics in the order in which they were logged: the ends of intervals come last.
    ordered = sorted(found.items(), key=lambda figure: figure[0].startswith("ci95/"))
    return {name: float(value) for name, value in ordered if _is_number(value)}


def verdict_of(comparison: Mapping[str, Any], key: Key) -> str | None:
    """Whether accuracy moved against the baseline, in the comparison's word."""
    workload = (comparison.get("workloads") or {}).get(key.workload) or {}
    verdict = (_against_baseline(comparison, workload, key).get("accuracy") or {}).get("verdict")
    return None if verdict is None else str(verdict)


def _against_baseline(comparison: Mapping[str, Any], workload: Mapping[str, Any], key: Key) -> dict[str, Any]:
    for contrast in workload.get("contrasts") or []:
        if (contrast["variant"], contrast["against"]) == (key.variant, comparison["baseline"]):
            return dict(contrast)
    return {}


def _interval(name: str, figure: Mapping[str, Any] | None) -> dict[str, Any]:
    if not figure:
        return {}
    low, high = figure.get("ci") or (None, None)
    # The ends have a group of their own: a bar chart of each would bury the figures.
    short = name.rpartition("/")[2]
    return {name: figure.get("value"), f"ci95/{short}.low": low, f"ci95/{short}.high": high}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


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
    many, speculated = row.completion_tokens > 1, not pd.isna(row.verify_rounds) and row.verify_rounds > 0
    values = {
        "tpot_ms": 1000 * row.decode_s / (row.completion_tokens - 1) if many and not pd.isna(row.decode_s) else None,
        "accept_length": row.completion_tokens / row.verify_rounds if speculated else None,
        "ttft_s": row.ttft_s,
        "latency_s": row.latency_s,
        "completion_tokens": row.completion_tokens,
    }
    for name, value in values.items():
        if value is not None and math.isfinite(value):
            yield Point(f"by_item/{name}", float(value), milliseconds(row.started_at), step)
