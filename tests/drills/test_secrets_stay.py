"""Secrets of a sweep reach its engines, and stand in no file, log, table or run that it leaves."""

import json
import sqlite3
import sys

import drill
import psutil
from mlflow import MlflowClient

from farm.engines import process
from farm.engines.base import EngineCommand

SECRETS = {
    "env": "env-s3cr3t-of-the-hub",
    "args": "flag-s3cr3t-of-the-hub",
    "variant": "variant-s3cr3t-of-a-proxy",
    "url": "url-s3cr3t-of-a-mirror",
}
SLEEP = "import time; time.sleep(60)"
CHANGES = {
    "engine": {
        "env": {"HF_TOKEN": SECRETS["env"], "HF_ENDPOINT": f"https://me:{SECRETS['url']}@mirror.example"},
        "args": {"hf-token": SECRETS["args"]},
    },
    "variants": ["baseline", {"name": "own", "parts": ["nextn"], "env": {"PROXY_PASSWORD": SECRETS["variant"]}}],
}


def holders(folder):
    """Files below a folder that hold a secret, in whatever form they keep text."""
    found = []
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            content = path.read_bytes()
            found += [(str(path), name) for name, secret in SECRETS.items() if secret.encode() in content]
    return found


def test_secrets_reach_engines_and_nothing_else(home, tmp_path):
    sweep = drill.write_sweep(tmp_path, CHANGES)
    job = drill.start(sweep, "--nodes", "1")
    drill.wait_for_records(1)
    engine = drill.an_engine()
    assert engine.environ()["HF_TOKEN"] == SECRETS["env"]
    assert SECRETS["args"] in engine.cmdline()
    outcome = job.wait()
    assert outcome.status == 0, outcome.output
    assert holders(outcome.folder) == []
    assert holders(home) == []  # mlflow.db, artifacts and the driver's output are in it
    assert not [name for name, secret in SECRETS.items() if secret in outcome.output]

    sweep_json = json.loads((outcome.folder / "sweep.json").read_text())
    assert sweep_json["resolved"]["engine"]["env"]["HF_TOKEN"] == "***"
    assert "--hf-token" in sweep_json["commands"]["baseline"]
    with sqlite3.connect(outcome.folder / "journal.sqlite") as db:
        text = "".join(body for (body,) in db.execute("SELECT body FROM engine UNION ALL SELECT body FROM record"))
    assert not [name for name, secret in SECRETS.items() if secret in text]

    client = MlflowClient(f"sqlite:///{home / 'mlflow.db'}")
    runs = client.search_runs([client.get_experiment_by_name(drill.SWEEP["name"]).experiment_id])
    assert len(runs) == 5
    shown = "".join(str((run.data.params, run.data.tags, run.info)) for run in runs)
    assert not [name for name, secret in SECRETS.items() if secret in shown]


def test_an_engine_that_fails_with_a_secret_on_its_lips(home, tmp_path):
    changes = {
        "engine": {
            "env": {"HF_TOKEN": SECRETS["env"]},
            # The emulated engine repeats the value in its error, as a real one does of a wrong argument.
            "args": {"moe-runner-backend": SECRETS["env"]},
        },
        "variants": [{"name": "own"}],
    }
    outcome = drill.run(drill.write_sweep(tmp_path, changes), "--nodes", "1")
    assert outcome.status == 1
    assert "--moe-runner-backend ***" in outcome.output
    assert holders(outcome.folder / "engines") == []
    assert SECRETS["env"] not in json.dumps(json.loads((outcome.folder / "engines.json").read_text())[0]["reason"])


def test_a_dry_run_shows_no_secret(home, tmp_path):
    outcome = drill.run(drill.write_sweep(tmp_path, CHANGES), "--dry-run")
    assert outcome.status == 0
    assert "HF_TOKEN='***'" in outcome.output
    assert not [name for name, secret in SECRETS.items() if secret in outcome.output]


def test_the_environment_of_the_node_is_no_engines_business(home, tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS["env"])
    monkeypatch.setenv("HTTPS_PROXY", f"http://me:{SECRETS['url']}@proxy")
    engine = process.start(
        EngineCommand((sys.executable, "-c", SLEEP), {"HF_TOKEN": SECRETS["args"]}), tmp_path / "engine.log"
    )
    try:
        sleeping = drill.until(lambda: [pid for pid in engine.pids() if is_sleep(pid)], "the engine")
        environment = psutil.Process(sleeping[0]).environ()
        assert environment["HF_TOKEN"] == SECRETS["args"]
        assert not {"AWS_SECRET_ACCESS_KEY", "HTTPS_PROXY", "RAY_AUTH_TOKEN"} & set(environment)
    finally:
        engine.stop()


def is_sleep(pid):
    """The engine itself, and not what is about to become it."""
    return SLEEP in psutil.Process(pid).cmdline()
