"""What drills share: a small sweep, the job in this process, a fault in the middle of it, and the judgement afterwards.

A drill injects one fault and holds the journal that is there in the end against that of the same sweep undisturbed: the
same cells, each once, with the same answers, for emulated engines and greedy real ones are deterministic.
"""

import contextlib
import json
import multiprocessing
import os
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import psutil
import yaml
from driver import job
from mlflow import MlflowClient

from farm.engines import guard

CELL = ["variant", "workload", "item_id", "repeat"]
SWEEP = {
    # Of this process alone: another one may run the same drill beside it, and engines are known by their sweep.
    "name": f"drill{os.getpid()}",
    "model": {"path": "inclusionAI/Ling-3.0-flash-fp4"},
    # A request takes some tenths of a second, a start little more than that of its process.
    "engine": {
        "kind": "emulated",
        "args": {"emulation-speed": 60, "emulation-start-speed": 5000},
        "stall_timeout_s": 3,
        "start_timeout_s": 60,
    },
    "variants": ["baseline", "humming+fp8-head+nextn"],
    "workloads": {
        "gsm8k": {"kind": "gsm8k", "source": "builtin:gsm-mini", "questions": 8, "shots": 0, "seed": 7},
        "synthetic": {"kind": "synthetic", "requests": 2, "input_tokens": 64, "output_tokens": 128},
    },
    "warmup_requests": 0,
}
CELLS = 2 * 10
FAST = {"engine": {"args": {"emulation-speed": 1000}}}
"""For drills whose fault needs nobody to strike amid the sweep."""
_started = []  # ended by the fixture when a drill fails


def merged(base, changes):
    """A copy of a sweep with nested changes."""
    return base | {
        key: merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
        for key, value in changes.items()
    }


@dataclass
class Job:
    """A job that runs."""

    process: multiprocessing.process.BaseProcess
    printed: Path

    def signal(self, number):
        """Send the driver a signal."""
        os.kill(self.process.pid, number)

    def wait(self, timeout_s=240, results=None):
        """How it ended. `results` is the folder of results, if it is not that of FARM_HOME."""
        self.process.join(timeout_s)
        printed = self.printed.read_text() if self.printed.exists() else ""
        assert self.process.exitcode is not None, f"the job did not end:\n{printed}"
        return Outcome(self.process.exitcode, printed, results_folder(results))


@dataclass
class Outcome:
    """How a job ended: its exit status (negative for a signal), what it printed, and its results folder."""

    status: int
    output: str
    folder: Path

    @property
    def table(self):
        return pd.read_parquet(self.folder / "requests.parquet")

    def complete_like(self, undisturbed):
        """Check the answers against the undisturbed run; returns them."""
        assert self.status == 0, self.output
        table = self.table
        assert table["error"].isna().all()
        hold(table, undisturbed)
        return table


def hold(table, undisturbed):
    """The same cells, each once, with the same answers."""
    assert not table.duplicated(CELL).any()
    columns = ["prompt_sha256", "completion_tokens", "output_text", "answer"]
    got, wanted = (one.set_index(CELL)[columns].sort_index() for one in (table, undisturbed))
    pd.testing.assert_frame_equal(got, wanted)


def write_sweep(folder, changes=None):
    """A sweep file with changes to the drill's sweep."""
    path = folder / "drill.yaml"
    path.write_text(yaml.safe_dump(merged(SWEEP, changes or {})))
    return path


def start(sweep, *arguments, env=None, settings=None):
    """The sweep job as a process of its own, forked from one that has its imports already: they take seconds."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["driver"])
    printed = Path(os.environ["FARM_HOME"]) / f"job-{time.monotonic_ns()}.txt"
    argv, environment = [str(sweep), *map(str, arguments)], dict(os.environ) | (env or {})
    process = context.Process(target=job, args=(argv, environment, printed, settings or {}))
    process.start()
    _started.append(process)
    return Job(process, printed)


def run(sweep, *arguments, results=None, **options):
    """The sweep job from its start to its end."""
    return start(sweep, *arguments, **options).wait(results=results)


def results_folder(results=None):
    """The newest sweep's results; None before there are any."""
    root = results or Path(os.environ["FARM_HOME"]) / "results"
    found = sorted(root.glob("*/journal.sqlite"), key=os.path.getmtime)
    return found[-1].parent if found else None


def answered(results=None):
    """How many records the running sweep's journal holds."""
    folder = results_folder(results)
    if folder is None:
        return 0
    try:
        with contextlib.closing(sqlite3.connect(f"file:{folder / 'journal.sqlite'}?mode=ro", uri=True)) as db:
            return db.execute("SELECT count(*) FROM record").fetchone()[0]
    except sqlite3.Error:  # not made yet
        return 0


def records(folder=None):
    """The engine that answered each cell, from the journal alone."""
    journal = (folder or results_folder()) / "journal.sqlite"
    # To read only: the last writer of a journal would tidy up what a drill has left for the next driver.
    with contextlib.closing(sqlite3.connect(f"file:{journal}?mode=ro", uri=True)) as db:
        rows = [json.loads(body) for (body,) in db.execute("SELECT body FROM record WHERE NOT failed")]
    return {tuple(row[name] for name in CELL): row["engine_id"] for row in rows}


def running_runs(home, uri=None):
    """Names of the newest sweep's MLflow runs that are still said to run."""
    folder = results_folder()
    if folder is None:
        return []
    client = MlflowClient(uri or f"sqlite:///{home / 'mlflow.db'}")
    places = [experiment.experiment_id for experiment in client.search_experiments()]
    wanted = f"attributes.status = 'RUNNING' AND tags.`farm.sweep_id` = '{folder.name}'"
    return [run.info.run_name for run in client.search_runs(places, wanted)]


def wait_for_records(at_least, results=None, timeout_s=90):
    """Wait until the sweep that runs now has some records; returns how many."""
    return until(lambda: (count := answered(results)) >= at_least and count, f"{at_least} records", timeout_s)


def engines(results=None):
    """The first processes of the engines of the sweep that runs now."""
    folder = results_folder(results)
    if folder is None:
        return []
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            command = process.cmdline()
            is_engine = command[1:2] == ["-m"] and command[2] in ("farm.engines.emulated", "sglang.launch_server")
            if is_engine and f"/{folder.name}/" in process.environ().get("FARM_EVIDENCE_DIR", ""):
                found.append(process)
    return found


def an_engine():
    """An engine of the sweep that runs now, amid its work."""
    return until(lambda: next(iter(engines()), None), "an engine")


def until(found, what, timeout_s=90):
    """What a function gives, once it gives something."""
    deadline = time.monotonic() + timeout_s
    while not (value := found()):
        assert time.monotonic() < deadline, f"waited for {what}"
        time.sleep(0.02)
    return value


def workers():
    """The processes of the Ray actors that own the engines of the sweep that runs now."""
    return [engine.parent().parent() for engine in engines()]


def wait_until_nothing_runs(results=None, timeout_s=60):
    """Nothing of the sweep's engines is left."""
    deadline = time.monotonic() + timeout_s
    while left := engines(results) or guard.orphan_processes():
        assert time.monotonic() < deadline, left
        time.sleep(0.1)


def end_jobs():
    """End the jobs that a failed drill has left."""
    while _started:
        process = _started.pop()
        process.kill()
        process.join()
