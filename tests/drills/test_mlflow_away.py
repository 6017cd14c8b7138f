"""MLflow's server is away at the start, amid the sweep or at its end: the sweep goes on, and MLflow has it later."""

import signal
import subprocess

import drill
import pytest
from mlflow import MlflowClient
from support import MlflowServer

OFTEN = {"farm.driver.dispatch.SHOW_EVERY_S": 0.5}


@pytest.fixture(scope="module")
def server(tmp_path_factory, empty_database):
    """A real tracking server, which drills stop and start again."""
    server = MlflowServer.make(tmp_path_factory.mktemp("server"), empty_database)
    yield server
    server.stop()


@pytest.fixture
def there(server, monkeypatch):
    """The server, up, as the place where jobs log."""
    server.start()
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server.url)
    return server


def check_runs(server, undisturbed):
    """All runs are there, ended, with every figure and file."""
    client = MlflowClient(server.url)
    experiment = client.get_experiment_by_name(drill.SWEEP["name"])
    sweep_id = drill.results_folder().name
    runs = client.search_runs([experiment.experiment_id], f"tags.`farm.sweep_id` = '{sweep_id}'")
    assert sorted(run.data.tags["farm.role"] for run in runs) == ["sweep"] + ["variant"] * 4
    assert {run.info.status for run in runs} == {"FINISHED"}
    for run in runs:
        assert client.list_artifacts(run.info.run_id)
        if run.data.tags["farm.role"] == "variant":
            own = undisturbed[
                (undisturbed["variant"] == run.data.tags["farm.variant"])
                & (undisturbed["workload"] == run.data.tags["farm.workload"])
            ]
            steps = client.get_metric_history(run.info.run_id, "by_item/latency_s")
            assert len({step.step for step in steps}) == len(own)


def test_away_from_start_to_end(there, home, undisturbed, tmp_path):
    there.kill()
    outcome = drill.run(drill.write_sweep(tmp_path))
    outcome.complete_like(undisturbed)
    assert "connection was refused" in outcome.output
    there.start()
    command = outcome.output.split("to log them later: ")[1].splitlines()[0]
    later = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert later.returncode == 0, later.stderr
    check_runs(there, undisturbed)


def test_killed_amid_the_sweep_and_back_before_its_end(there, home, undisturbed, tmp_path):
    # Slowly enough that the server is back in time.
    sweep = drill.write_sweep(tmp_path, {"engine": {"args": {"emulation-speed": 10}}})
    job = drill.start(sweep, "--nodes", "1", settings=OFTEN)
    drill.until(lambda: drill.running_runs(home, there.url), "a run in MLflow")
    there.kill()
    drill.wait_for_records(drill.answered() + 3)
    there.start()
    job.wait().complete_like(undisturbed)
    check_runs(there, undisturbed)


def test_killed_before_the_end_and_complete_after_submitting_again(there, home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path, {"warmup_requests": 1})
    job = drill.start(sweep, "--nodes", "1", settings=OFTEN)
    drill.until(lambda: drill.running_runs(home, there.url), "a run in MLflow")
    there.kill()
    job.wait().complete_like(undisturbed)
    there.start()
    again = drill.run(sweep)
    assert f"{drill.CELLS} already answered" in again.output
    check_runs(there, undisturbed)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_run_goes_on_in_mlflow_when_its_driver_is_gone(there, home, tmp_path, number):
    sweep = drill.write_sweep(tmp_path, {"warmup_requests": int(number)})
    job = drill.start(sweep, "--nodes", "1", settings=OFTEN)
    drill.until(lambda: drill.running_runs(home, there.url), "a run in MLflow")
    job.signal(number)
    job.wait()
    drill.until(lambda: not drill.running_runs(home, there.url), "the runs to end")
    client = MlflowClient(there.url)
    experiment = client.get_experiment_by_name(drill.SWEEP["name"])
    sweep_id = drill.results_folder().name
    runs = client.search_runs([experiment.experiment_id], f"tags.`farm.sweep_id` = '{sweep_id}'")
    answered = sum(run.data.metrics["cells/answered"] for run in runs if run.data.tags["farm.role"] == "sweep")
    assert answered == drill.answered()
    drill.wait_until_nothing_runs()
