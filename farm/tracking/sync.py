"""Bring MLflow up to a sweep's results folder. Doing it again adds nothing twice."""

from __future__ import annotations

import json
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from farm.errors import JournalDamaged, SweepHeld, TrackingError
from farm.redaction import masked_text
from farm.results.folder import RECORDS, ResultsFolder
from farm.results.journal import damage
from farm.results.recovery import open_journal
from farm.tracking import artifacts, entries
from farm.tracking.describe import describe_child, describe_sweep, run_name
from farm.tracking.entries import Point, State
from farm.tracking.mlflow_internals import view_link, view_tag
from farm.tracking.results import Key, Results, read, read_sweep
from farm.tracking.store import Store, connected, shown_uri, tracking_uri
from farm.tracking.views import Views, make_views
from farm.tracking.watch import unwatch, watch

# Killed is left for runs that a person ends by hand.
_STATUS: Final = {entries.COMPLETE: "FINISHED", entries.PARTIAL: "FAILED", entries.FAILED: "FAILED"}
# Without it the UI asks what kind of experiment this is, and hides the runs behind traces.
_EXPERIMENT_TAGS: Final = {"mlflow.experimentKind": "custom_model_development"}
_MAX_DIGEST_CHARACTERS: Final = 36


@dataclass(frozen=True)
class Synced:
    """Where the results are in MLflow.

    Attributes:
        ui: the address of the sweep, or the command that opens the UI of a local store.
        notes: what the results folder needed first, as sentences.
    """

    experiment_id: str
    parent_run_id: str
    children: dict[Key, str]
    tracking_uri: str
    ui: str
    notes: tuple[str, ...] = ()


def resync(folder: Path, *, uri: str | None = None) -> Synced:
    """Log a sweep from its journal, whatever became of its driver; one that still runs is shown as running.

    Raises:
        InputError: the folder does not hold a sweep's results.
        JournalError: its journal cannot be read.
        TrackingError: MLflow did not take them; the message says how to do it later.
    """
    results = ResultsFolder(folder)
    notes: list[str] = []
    # Results that came from another machine may have no journal.
    if results.has_journal:
        try:
            described = read_sweep(folder)
            if broken := damage(folder):
                raise JournalDamaged(broken)
            with open_journal(results) as (journal, notes):
                results.export(journal, described)
        except SweepHeld:
            return _sync(folder, tracking_uri(uri), uri, running=True)
        except JournalDamaged as error:
            if not results.has_records:
                raise
            notes = [f"the journal is damaged ({error}): logged from {RECORDS} as it is, and both are kept"]
    return replace(sync(folder, uri=uri), notes=tuple(notes))


def sync(folder: Path, *, uri: str | None = None, running: bool = False) -> Synced:
    """Log a sweep: a parent run, and a child for each variant and workload.

    Args:
        folder: the sweep's results folder.
        uri: a tracking URI; default: `MLFLOW_TRACKING_URI`, else a database under `FARM_HOME`.
        running: this process goes on with the sweep: runs stay running, and files are left for the end. Should it die
            before it logs that end, another process does so.

    Raises:
        InputError: the folder does not hold a sweep's results.
        TrackingError: MLflow did not take them; the message says how to do it later.
    """
    where = tracking_uri(uri)
    if running:
        # Before anything is logged: the driver may die in the middle of it.
        watch(folder, where)
    synced = _sync(folder, where, uri, running=running)
    if not running:
        unwatch(folder)
    return synced


def _sync(folder: Path, where: str, uri: str | None, *, running: bool) -> Synced:
    results = read(folder)
    views = make_views(results, with_report=not running)
    try:
        with connected(where) as store:
            return _Sync(results, store, where, views, running).all()
    except TrackingError as error:
        later = f"{shlex.quote(sys.executable)} -m farm.tracking sync {shlex.quote(str(folder))}"
        if uri:
            later += f" --tracking-uri {shlex.quote(shown_uri(uri))}"
        raise TrackingError(f"{error}. The results are safe in {folder}; to log them later: {later}") from error


@dataclass(frozen=True)
class _Sync:
    """One pass over the runs of a sweep."""

    results: Results
    store: Store
    uri: str
    views: Views
    running: bool

    def all(self) -> Synced:
        """Children first and the parent last: a pass that is cut short leaves the parent running."""
        results = self.results
        states = {key: entries.state_of(results, key, running=self.running) for key in results.keys}
        state = entries.state_of_sweep(results, states, running=self.running)
        tags = _EXPERIMENT_TAGS | view_tag(results.sweep_id)
        experiment_id = self.store.experiment(str(results.sweep.name), tags)
        known = self.store.runs(experiment_id, "farm.sweep_id", results.sweep_id)
        parent = self._parent(experiment_id, known)
        self.store.reopen(parent)
        children = {
            key: self._child(experiment_id, parent.info.run_id, known, key, index)
            for index, key in enumerate(results.keys)
        }
        for key, run in children.items():
            self._log_child(run, key, states[key])
        self._log_parent(parent, state, view_link(experiment_id, results.sweep_id))
        return Synced(
            experiment_id=experiment_id,
            parent_run_id=parent.info.run_id,
            children={key: run.info.run_id for key, run in children.items()},
            tracking_uri=shown_uri(self.uri),
            ui=_ui(self.uri, experiment_id, parent.info.run_id),
        )

    def _parent(self, experiment_id: str, known: list[Any]) -> Any:
        for run in known:
            if run.data.tags.get("farm.role") == "sweep":
                return run
        tags = {"farm.role": "sweep", "farm.sweep_id": self.results.sweep_id}
        return self.store.create_run(experiment_id, run_name(self.results), self.results.started_ms, tags)

    def _child(self, experiment_id: str, parent_id: str, known: list[Any], key: Key, index: int) -> Any:
        identity = {
            "farm.role": "variant",
            "farm.sweep_id": self.results.sweep_id,
            "farm.variant": key.variant,
            "farm.workload": key.workload,
            "mlflow.parentRunId": parent_id,
        }
        for run in known:
            if identity.items() <= run.data.tags.items():
                return run
        # The UI shows the youngest first: a millisecond apart, the children stand in the sweep's own order.
        started_ms = self.results.started_ms + len(self.results.keys) - index
        return self.store.create_run(experiment_id, run_name(self.results, key), started_ms, identity)

    def _log_child(self, run: Any, key: Key, state: State) -> None:
        results = self.results
        if state.name == entries.RUNNING:
            self.store.reopen(run)
        tags = entries.tags_common(results, state) | entries.tags_of_engines(results.engines_of(key.variant))
        tags |= {
            "farm.role": "variant",
            "farm.variant": key.variant,
            "farm.workload": key.workload,
            "mlflow.note.content": describe_child(results, key, state),
        }
        if verdict := entries.verdict_of(self.views.figures, key):
            tags["farm.accuracy_vs_baseline"] = verdict
        if not self.running and state.answered:
            tags["mlflow.loggedArtifacts"] = json.dumps([{"path": artifacts.ANSWERS, "type": "table"}])
        points = self._new_figures(run, entries.figures_of(self.views.figures, key))
        points += self.store.missing(run, entries.series_of(results, key))
        self.store.log(run, tags, entries.params_of(results, key), points)
        self.store.log_datasets(run, [_dataset(results, key.workload)])
        if not self.running:
            with tempfile.TemporaryDirectory(prefix="farm-tracking-") as folder:
                artifacts.write_child(Path(folder), results, key)
                self.store.log_files(run, Path(folder))
        if state.name != entries.RUNNING:
            self.store.end(run, _STATUS[state.name], results.ended_ms(results.of(key)))

    def _log_parent(self, run: Any, state: State, variants: str) -> None:
        results = self.results
        tags = entries.tags_common(results, state) | entries.tags_of_engines(results.engines)
        note = describe_sweep(results, state, self.views.table, variants)
        tags |= {"farm.role": "sweep", "mlflow.note.content": note}
        points = self._new_figures(run, entries.figures_of_sweep(state, results))
        self.store.log(run, tags, entries.params_of_sweep(results), points)
        self.store.log_datasets(run, [_dataset(results, workload) for workload in results.sweep.workloads])
        if self.running:
            return
        with tempfile.TemporaryDirectory(prefix="farm-tracking-") as folder:
            artifacts.write_sweep(Path(folder), results, self.views)
            self.store.log_files(run, Path(folder))
        self.store.end(run, _STATUS[state.name], results.ended_ms(results.records))

    def _new_figures(self, run: Any, figures: Mapping[str, float]) -> list[Point]:
        """Figures that differ from what the run says. All are at step 0, so that the UI draws bars; the newest
        timestamp is the one that counts."""
        has = run.data.metrics
        now = time.time_ns() // 1_000_000
        return [Point(name, value, now, 0) for name, value in figures.items() if has.get(name) != value]


def _dataset(results: Results, workload: str) -> dict[str, str]:
    """A workload as MLflow's data set. Its digest field is short, so the whole digest stands in the profile."""
    requested = results.sweep.workloads[workload]
    digest = requested.digest
    source = masked_text(requested.source or workload)
    hub = requested.kind == "gsm8k" and not source.startswith(("/", "builtin:"))
    profile = {"num_rows": requested.items, "sha256": digest, "title": requested.title}
    return {
        "name": workload,
        "digest": digest[:_MAX_DIGEST_CHARACTERS],
        "source_type": "hugging_face" if hub else "local",
        "source": json.dumps({"path": source} if hub else {"uri": source}),
        "profile": json.dumps(profile),
    }


def _ui(uri: str, experiment_id: str, run_id: str) -> str:
    if uri.startswith(("http://", "https://")):
        return f"{shown_uri(uri).rstrip('/')}/#/experiments/{experiment_id}/runs/{run_id}"
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", shown_uri(uri), "--host", "127.0.0.1"]
    return shlex.join([*command, "--port", "5000", "--workers", "1"])
