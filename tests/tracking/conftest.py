from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import tracking_sweeps as sweeps
from mlflow import MlflowClient
from support import free_port
from tracking_sweeps import Complete

from farm.tracking import sync
from farm.tracking.store import connected


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """MLflow's tables, made once: that takes it some ten seconds."""
    file = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    with connected(f"sqlite:///{file}"):
        pass
    return file


@pytest.fixture(scope="module")
def complete(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Complete:
    """A complete sweep in a local database, for tests that only look."""
    place = tmp_path_factory.mktemp("complete")
    shutil.copyfile(empty_database, place / "mlflow.db")
    folder = sweeps.write(place / "ladder-1")
    uri = f"sqlite:///{place / 'mlflow.db'}"
    return Complete(place, folder, sync(folder, uri=uri), MlflowClient(uri))


@pytest.fixture(autouse=True)
def _plain_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plots take seconds, and have tests of their own; `complete` is made with the real report."""
    monkeypatch.setattr("farm.views.report.render", lambda *_: "<!doctype html><title>report</title>")


@pytest.fixture
def home(tmp_path: Path, empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `FARM_HOME` whose MLflow database is still empty."""
    place = tmp_path / "home"
    place.mkdir()
    shutil.copyfile(empty_database, place / "mlflow.db")
    monkeypatch.setenv("FARM_HOME", str(place))
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return place


@pytest.fixture
def local(home: Path) -> MlflowClient:
    """A client of the database that is used when nothing else is asked for."""
    return MlflowClient(f"sqlite:///{home / 'mlflow.db'}")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Iterator[str]:
    """A real tracking server on loopback."""
    place = tmp_path_factory.mktemp("server")
    shutil.copyfile(empty_database, place / "server.db")
    port = free_port()
    command = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{place / 'server.db'}"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    env = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    with (place / "server.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=place, env=env, stdout=log, stderr=log, start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait(url, process)
        yield url
    finally:
        # The server has workers of its own: the whole group ends.
        os.killpg(process.pid, 15)
        process.wait(20)


def _wait(url: str, process: subprocess.Popen[bytes]) -> None:
    for _ in range(1500):  # on a busy machine it takes minutes
        assert process.poll() is None, "the tracking server ended"
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=1):
                return
        except OSError:
            time.sleep(0.2)
    raise AssertionError("the tracking server did not start")
