"""A sweep in a real MLflow: the database of a single machine, and a server."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import tracking_sweeps as sweeps
from mlflow import MlflowClient
from tracking_sweeps import Complete

from farm.compare import load
from farm.errors import InputError, TrackingError
from farm.tracking import Synced, sync
from farm.tracking.results import Key

BEST = Key("humming+fp8-head+nextn", "gsm8k")
PLACES = ["database", pytest.param("server", marks=pytest.mark.server)]


def everything(client: MlflowClient, synced: Synced) -> dict[str, Any]:
    """All that MLflow holds of a sweep, without the moments at which figures were logged."""
    found: dict[str, Any] = {}
    for run_id in (synced.parent_run_id, *synced.children.values()):
        run = client.get_run(run_id)
        history = {key: client.get_metric_history(run_id, key) for key in run.data.metrics}
        found[run_id] = {
            "info": (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time),
            "params": run.data.params,
            "tags": run.data.tags,
            "inputs": [(one.dataset.name, one.dataset.digest) for one in run.inputs.dataset_inputs],
            "metrics": {key: [(one.step, one.value) for one in points] for key, points in history.items()},
            "artifacts": sorted(one.path for one in client.list_artifacts(run_id)),
        }
    return found


def doubled(client: MlflowClient, synced: Synced) -> list[Any]:
    """Steps of series that hold more than one point."""
    return [
        (run_id, key, step)
        for run_id in synced.children.values()
        for key in client.get_run(run_id).data.metrics
        if key.startswith("by_item/")
        for step, count in Counter(one.step for one in client.get_metric_history(run_id, key)).items()
        if count > 1
    ]


def test_a_complete_sweep_has_a_parent_and_a_child_for_each_variant_and_workload(complete: Complete):
    local, synced = complete.client, complete.synced
    parent = local.get_run(synced.parent_run_id)
    assert local.get_experiment(synced.experiment_id).name == "ling-flash-ladder"
    assert (parent.info.run_name, parent.info.status) == ("ladder-1", "FINISHED")
    assert len(synced.children) == len(sweeps.VARIANTS) * len(sweeps.WORKLOADS)
    assert "| humming+fp8-head+nextn |" in parent.data.tags["mlflow.note.content"]
    assert "(#/experiments/1/runs?viewStateShareKey=ladder-1)" in parent.data.tags["mlflow.note.content"]
    assert "mlflow.sharedViewState.ladder-1" in local.get_experiment(synced.experiment_id).tags
    assert parent.data.metrics["cells/answered"] == parent.data.metrics["cells/planned"] == 48
    child = local.get_run(synced.children[BEST])
    assert (child.info.run_name, child.info.status) == ("humming+fp8-head+nextn / gsm8k", "FINISHED")
    assert child.data.tags["mlflow.parentRunId"] == synced.parent_run_id
    assert child.data.tags["version.sglang"] == "0.5.23"
    assert child.data.tags["hardware.gpu"] == "NVIDIA GB10"
    assert child.data.tags["farm.nodes"] == "spark-1, spark-2"
    assert child.data.params["arg/speculative-algorithm"] == "NEXTN"
    assert child.data.params["env/SGLANG_ENABLE_FP8_LM_HEAD"] == "1"
    assert "arg/mem-fraction-static" not in child.data.params  # the same for all: not worth a column
    assert child.data.metrics["speculation/accept_length"] > 2
    assert child.data.metrics["vs_baseline/throughput_ratio"] > 2
    baseline = local.get_run(synced.children[Key("baseline", "gsm8k")])
    assert not [name for name in baseline.data.metrics if name.startswith(("vs_baseline", "speculation"))]


def test_the_series_follow_the_items_and_the_running_accuracy_ends_at_the_accuracy(complete: Complete):
    local, run_id = complete.client, complete.synced.children[BEST]
    history = local.get_metric_history(run_id, "by_item/tpot_ms")
    assert [one.step for one in history] == list(range(12))
    records = pd.read_parquet(complete.folder / "requests.parquet")
    own = records[(records.variant == BEST.variant) & (records.workload == BEST.workload)]
    assert [one.value for one in history] == pytest.approx(list(1000 * own.decode_s / (own.completion_tokens - 1)))
    assert local.get_run(run_id).data.metrics["by_item/accuracy_so_far"] == pytest.approx(own.correct.mean())


def test_the_data_set_is_an_input_and_the_answers_are_a_table(complete: Complete, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", complete.synced.tracking_uri)  # `load_table` looks there
    local, synced = complete.client, complete.synced
    run = local.get_run(synced.children[BEST])
    (used,) = run.inputs.dataset_inputs
    assert (used.dataset.name, used.dataset.source_type) == ("gsm8k", "hugging_face")
    assert json.loads(used.dataset.profile)["sha256"].startswith(used.dataset.digest)
    table = local.load_table(synced.experiment_id, "answers.json", [run.info.run_id])
    assert list(table.columns[:6]) == ["item", "question", "output", "gold", "answer", "correct"]
    assert len(table) == 12
    assert table.question[3] == "What is 3 + 0?"
    assert json.loads(run.data.tags["mlflow.loggedArtifacts"]) == [{"path": "answers.json", "type": "table"}]


def test_the_parent_carries_what_a_comparison_elsewhere_needs(
    complete: Complete, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("MLFLOW_HTTP_REQUEST_TIMEOUT", "MLFLOW_HTTP_REQUEST_MAX_RETRIES"):
        monkeypatch.setenv(name, "5")  # set by the download for its process, and here only for this test
    listed = {one.path for one in complete.client.list_artifacts(complete.synced.parent_run_id)}
    assert {"requests.parquet", "items.parquet", "sweep.json", "engines.json"} <= listed
    assert {"report.html", "comparison.json", "comparison.md"} <= listed
    report = Path(complete.client.download_artifacts(complete.synced.parent_run_id, "report.html", str(tmp_path)))
    assert "humming+fp8-head+nextn" in report.read_text(encoding="utf-8")
    assert load.download("ladder-1", complete.synced.tracking_uri, tmp_path) == tmp_path
    assert len(load.load(tmp_path).records) == 48


@pytest.mark.parametrize("place", PLACES)
def test_logging_again_changes_nothing(place: str, request: pytest.FixtureRequest, complete: Complete):
    uri = request.getfixturevalue("server") if place == "server" else complete.synced.tracking_uri
    client = MlflowClient(uri)
    first = sync(complete.folder, uri=uri) if place == "server" else complete.synced
    before = everything(client, first)

    again = sync(complete.folder, uri=uri)

    assert again == first
    assert everything(client, again) == before
    assert len(client.search_runs([first.experiment_id], f"tags.`farm.sweep_id` = '{complete.folder.name}'")) == 7
    assert before[first.children[BEST]]["artifacts"] == ["answers.json", "command.txt", "engines"]


def test_the_store_itself_takes_a_point_once(local: MlflowClient, home: Path):
    """What a pass relies on that was cut short between two batches, and logs some points again."""
    from mlflow.entities import Metric

    run = local.create_run("0")
    points = [Metric("by_item/x", float(step), 1000 + step, step) for step in range(5)]
    local.log_batch(run.info.run_id, metrics=points[:3])
    local.log_batch(run.info.run_id, metrics=points)
    assert len(local.get_metric_history(run.info.run_id, "by_item/x")) == 5


@pytest.mark.parametrize("place", PLACES)
def test_a_sweep_that_goes_on_continues_its_runs(
    place: str, home: Path, request: pytest.FixtureRequest, tmp_path: Path
):
    uri = request.getfixturevalue("server") if place == "server" else f"sqlite:///{home / 'mlflow.db'}"
    client = MlflowClient(uri)
    folder = tmp_path / f"resumed-{place}"

    sweeps.write(folder, keep=lambda one: one.sequence < 3)
    running = sync(folder, uri=uri, running=True)
    child = client.get_run(running.children[BEST])
    assert child.info.status == client.get_run(running.parent_run_id).info.status == "RUNNING"
    assert child.data.tags["farm.state"] == "running"
    assert len(client.get_metric_history(child.info.run_id, "by_item/tpot_ms")) == 3

    sweeps.write(folder, keep=lambda one: one.sequence not in (5, 3))
    partial = sync(folder, uri=uri)
    parent = client.get_run(partial.parent_run_id)
    assert (parent.info.status, parent.data.tags["farm.state"]) == ("FAILED", "partial")
    assert "PARTIAL" in parent.data.tags["mlflow.note.content"]
    assert "9 of 48 cells have no answer" in parent.data.tags["farm.reason"]
    assert len(client.get_metric_history(child.info.run_id, "by_item/accuracy_so_far")) == 3

    sweeps.write(folder)
    complete = sync(folder, uri=uri)
    assert complete == running == partial
    parent, child = client.get_run(complete.parent_run_id), client.get_run(complete.children[BEST])
    assert parent.info.status == child.info.status == "FINISHED"
    assert parent.data.tags["farm.state"] == child.data.tags["farm.state"] == "complete"
    assert "farm.reason" not in parent.data.tags
    assert "PARTIAL" not in parent.data.tags["mlflow.note.content"]
    assert child.data.metrics["answers/requests"] == 12
    assert doubled(client, complete) == []

    if place == "server":
        anew = sync(folder, uri=f"sqlite:///{home / 'mlflow.db'}")
        made_again = MlflowClient(anew.tracking_uri).get_run(anew.children[BEST])
        assert made_again.data.metrics == child.data.metrics  # the journal is the truth


def test_a_killed_driver_leaves_runs_that_a_later_sync_ends(home: Path, local: MlflowClient, tmp_path: Path):
    folder = sweeps.write(tmp_path / "killed", keep=lambda one: one.sequence < 2)
    sync(folder, running=True)

    synced = sync(folder)

    states = [local.get_run(run_id).info.status for run_id in (synced.parent_run_id, *synced.children.values())]
    assert set(states) == {"FAILED"}


def test_a_variant_that_never_started_is_failed_with_its_reason(home: Path, local: MlflowClient, tmp_path: Path):
    reason = f"no evidence of humming: api_key={sweeps.SECRET}"
    folder = sweeps.write(tmp_path / "gate", failed={"humming": reason})

    synced = sync(folder)

    failed = local.get_run(synced.children[Key("humming", "gsm8k")])
    assert (failed.info.status, failed.data.tags["farm.state"]) == ("FAILED", "failed")
    assert "no evidence of humming" in failed.data.tags["farm.reason"]
    assert "FAILED" in failed.data.tags["mlflow.note.content"]
    assert not [name for name in failed.data.metrics if name.startswith(("speed", "by_item"))]
    assert local.get_run(synced.children[BEST]).info.status == "FINISHED"
    parent = local.get_run(synced.parent_run_id)
    assert (parent.info.status, parent.data.tags["farm.state"]) == ("FAILED", "partial")


def test_a_sweep_without_any_answer_is_logged_too(home: Path, local: MlflowClient, tmp_path: Path):
    reasons = dict.fromkeys(sweeps.VARIANTS, "out of memory")

    synced = sync(sweeps.write(tmp_path / "nothing", failed=reasons))

    parent = local.get_run(synced.parent_run_id)
    assert (parent.info.status, parent.data.tags["farm.state"]) == ("FAILED", "failed")
    assert "out of memory" in parent.data.tags["mlflow.note.content"]


def test_a_sweep_of_one_variant_has_figures_though_nothing_to_compare(home: Path, local: MlflowClient, tmp_path: Path):
    folder = sweeps.write(
        tmp_path / "single", keep=lambda one: one.variant == "baseline", change={"variants": ["baseline"]}
    )

    synced = sync(folder)

    run = local.get_run(synced.children[Key("baseline", "gsm8k")])
    assert run.info.status == "FINISHED"
    assert run.data.metrics["speed/tpot_ms"] == pytest.approx(41.6, rel=0.03)
    assert "No comparison" in local.get_run(synced.parent_run_id).data.tags["mlflow.note.content"]


def test_a_label_cannot_be_missed(home: Path, local: MlflowClient, tmp_path: Path):
    synced = sync(sweeps.write(tmp_path / "dummy", label="dummy-weights"))

    for run_id in (synced.parent_run_id, *synced.children.values()):
        run = local.get_run(run_id)
        assert run.info.run_name.endswith(" [dummy-weights]")
        assert run.data.tags["farm.label"] == "dummy-weights"
        assert run.data.tags["mlflow.note.content"].startswith("> **DUMMY-WEIGHTS**")


def test_secrets_and_machine_details_stay_out(complete: Complete):
    with sqlite3.connect(complete.home / "mlflow.db") as database:
        dump = "\n".join(database.iterdump())
    assert sweeps.SECRET not in dump
    assert "mlflow.user" not in dump
    assert "mlflow.source.git" not in dump
    files = [path for path in (complete.home / "mlartifacts").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if sweeps.SECRET.encode() in path.read_bytes()]


def test_the_callers_own_mlflow_is_left_alone(
    home: Path, local: MlflowClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import os

    import mlflow

    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    mine = f"sqlite:///{home / 'mlflow.db'}"
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(mine)
    try:
        with mlflow.start_run() as run:
            before = dict(os.environ)
            sync(sweeps.write(tmp_path / "guest"))
            assert mlflow.active_run().info.run_id == run.info.run_id
            assert mlflow.get_tracking_uri() == mine
            assert dict(os.environ) == before
        assert local.get_run(run.info.run_id).data.metrics == {}
    finally:
        mlflow.set_tracking_uri(None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["guest", "home"]


def test_a_deleted_experiment_is_explained(home: Path, local: MlflowClient, tmp_path: Path):
    folder = sweeps.write(tmp_path / "deleted")
    local.delete_experiment(local.create_experiment("ling-flash-ladder"))

    with pytest.raises(TrackingError, match="mlflow experiments restore"):
        sync(folder)


def test_a_folder_without_results_is_bad_input(home: Path, tmp_path: Path):
    with pytest.raises(InputError, match="sweep.json is missing"):
        sync(tmp_path)
