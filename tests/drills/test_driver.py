"""The driver ends before its sweep: what was answered is kept, and the sweep submitted again asks only the rest."""

import json
import os
import shutil
import signal
import subprocess

import drill
from support import RAY, REPOSITORY


def go_on(sweep, undisturbed, at_least):
    """Submit again; the kept records are not asked again, and nothing of the engines before is left."""
    drill.wait_until_nothing_runs()
    kept = drill.records()
    assert at_least <= len(kept) < drill.CELLS
    outcome = drill.run(sweep)
    table = outcome.complete_like(undisturbed)
    assert f"{len(kept)} already answered" in outcome.output
    after = table.set_index(drill.CELL)["engine_id"]
    assert all(after[cell] == engine_id for cell, engine_id in kept.items())
    return outcome


def test_killed(home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path)
    job = drill.start(sweep)
    seen = drill.wait_for_records(5)
    job.signal(signal.SIGKILL)
    assert job.wait().status == -signal.SIGKILL
    go_on(sweep, undisturbed, seen)


def test_interrupted(home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path)
    job = drill.start(sweep)
    seen = drill.wait_for_records(5)
    job.signal(signal.SIGINT)
    outcome = job.wait()
    assert outcome.status == 3, outcome.output
    assert "submit the same sweep again" in outcome.output
    assert "Traceback" not in outcome.output
    assert len(outcome.table) >= seen
    assert drill.running_runs(home) == []
    go_on(sweep, undisturbed, seen)


def test_ended_by_sigterm_with_a_ray_of_its_own(home, undisturbed, tmp_path):
    """Ray installs a handler of its own when it starts on this machine."""
    sweep = drill.write_sweep(tmp_path, {"engine": {"args": {"emulation-speed": 20}}})
    job = drill.start(sweep, "--nodes", "1", env={"RAY_ADDRESS": "local"})
    seen = drill.wait_for_records(5)
    job.signal(signal.SIGTERM)
    outcome = job.wait()
    assert outcome.status == 3, outcome.output
    assert "submit the same sweep again" in outcome.output
    assert len(outcome.table) >= seen
    go_on(sweep, undisturbed, seen)


def test_stopped_by_ray(ray_cluster, home, undisturbed, tmp_path):
    # Slowly, for `ray job stop` needs seconds itself.
    sweep = drill.write_sweep(tmp_path, {"engine": {"args": {"emulation-speed": 10}}})
    runtime = json.dumps({"env_vars": {"FARM_HOME": str(home), "MLFLOW_TRACKING_URI": ""}})
    place = ["--address", ray_cluster.dashboard]
    job = f"drill-{os.getpid()}"
    command = ["python", str(REPOSITORY / "jobs" / "sweep.py"), str(sweep)]
    submit = [RAY, "job", "submit", *place, "--no-wait", "--submission-id", job, "--runtime-env-json", runtime]
    env = ray_cluster.env | {"PATH": f"{os.path.dirname(RAY)}:{os.environ['PATH']}"}
    subprocess.run([*submit, "--", *command], env=env, check=True, capture_output=True)
    seen = drill.wait_for_records(5)
    stopped = subprocess.run([RAY, "job", "stop", *place, job], env=env, capture_output=True, text=True)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    go_on(sweep, undisturbed, seen)
    assert drill.running_runs(home) == []


def test_two_drivers_do_not_share_a_sweep(home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path)
    first = drill.start(sweep)
    drill.wait_for_records(1)
    second = drill.run(sweep)
    assert second.status == 1
    assert f"another driver works on this sweep: process {first.process.pid} on" in second.output
    assert "Traceback" not in second.output
    first.wait().complete_like(undisturbed)


def test_a_torn_journal_loses_the_batch_that_was_being_written_and_says_so(home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path)
    job = drill.start(sweep)
    seen = drill.wait_for_records(6)
    job.signal(signal.SIGKILL)
    job.wait()
    log = drill.results_folder() / "journal.sqlite-wal"
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 100)
    outcome = go_on(sweep, undisturbed, seen - 3)
    assert "was ended while it wrote" in outcome.output


def test_fresh_starts_anew_and_deletes_nothing(home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path)
    job = drill.start(sweep)
    drill.wait_for_records(3)
    job.signal(signal.SIGKILL)
    earlier = job.wait().folder
    kept = drill.records()
    drill.wait_until_nothing_runs()
    outcome = drill.run(sweep, "--fresh", "--nodes", "1")
    assert outcome.folder != earlier
    outcome.complete_like(undisturbed)
    assert drill.records(earlier) == kept
    # A number that was given is never given again, and the newest run is the one that goes on.
    shutil.move(earlier, tmp_path / "kept")
    assert drill.run(sweep, "--fresh", "--nodes", "1").folder.name == f"{earlier.name}.2"
    again = drill.run(sweep, "--nodes", "1")
    assert again.folder.name == f"{earlier.name}.2"
    assert f"{drill.CELLS} already answered" in again.output
