"""The descriptions of runs: what a reader of the MLflow UI sees before any chart."""

from __future__ import annotations

from typing import Final

from farm.tracking.entries import MAX_TAG_CHARACTERS, PARTIAL, RUNNING, State
from farm.tracking.results import Key, Results

LABEL_MEANINGS: Final = {
    "emulated": "an emulated engine answered, no model did; every figure here is made up",
    "dummy-weights": "the weights are random: speed says something, accuracy and accept length say nothing",
    "demo-model": "a tiny demonstration model answered; nothing here is a figure of the real model",
}


def run_name(results: Results, key: Key | None = None) -> str:
    """The name of a child, or of the parent; a label is part of it, so that no chart's legend is without it."""
    name = results.sweep_id if key is None else f"{key.variant} / {key.workload}"
    return f"{name} [{results.label}]" if results.label else name


def describe_sweep(results: Results, state: State, table: str, variants: str) -> str:
    """The parent's description in markdown: warnings, then the comparison; `variants` links to the runs table."""
    parts = [*_banners(results, state), f"[All variants side by side]({variants})"]
    if about := (results.sweep.about or "").strip():
        parts.append(about)
    # The table's own heading says what the run's name says already, and takes all that the UI shows unopened.
    parts.append(table.strip().removeprefix("# "))
    files = "`report.html` is the report, `comparison.md` this table, `requests.parquet` all records"
    ending = f"Artifacts: {files}." if state.name != RUNNING else "The report is added when the sweep ends."
    return _fitted("\n\n".join(parts), ending)


def describe_child(results: Results, key: Key, state: State) -> str:
    """A child's description in markdown."""
    requested = results.sweep.workloads[key.workload]
    parts = _banners(results, state)
    parts.append(f"Variant **{key.variant}** on **{key.workload}** ({requested.title or requested.kind}).")
    ending = "Artifacts: `answers.json` is the table of answers, `command.txt` how the engine was started, "
    ending += "`engines/` what each engine said of itself." if state.name != RUNNING else "added when the sweep ends."
    return _fitted("\n\n".join(parts), ending)


def _banners(results: Results, state: State) -> list[str]:
    found: list[str] = []
    if results.label:
        found.append(f"> **{results.label.upper()}**: {LABEL_MEANINGS.get(results.label, 'not a real result')}")
    if state.name == RUNNING:
        found.append(f"> **RUNNING**: {state.answered} of {state.planned} cells are answered")
    elif state.reason:
        word = "PARTIAL" if state.name == PARTIAL else "FAILED"
        found.append(f"> **{word}**: {' '.join(state.reason.split())}")
    return found


def _fitted(text: str, ending: str) -> str:
    """Within what a tag holds, cut between lines: half a table row would break the table."""
    room = MAX_TAG_CHARACTERS - len(ending) - 2
    if len(text) > room:
        more = "\n\n… (the whole of it is in `comparison.md`)"
        text = text[: room - len(more)].rpartition("\n")[0] + more
    return f"{text}\n\n{ending}"
