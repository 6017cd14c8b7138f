from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import tracking_sweeps as sweeps
from mlflow import MlflowClient
from support import MlflowServer
from tracking_sweeps import Complete

from farm.tracking import sync


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
    monkeypatch.setattr("farm.report.html.render", lambda *_: "<!doctype html><title>report</title>")


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
    server = MlflowServer.make(tmp_path_factory.mktemp("server"), empty_database)
    try:
        server.start()
        yield server.url
    finally:
        server.stop()
