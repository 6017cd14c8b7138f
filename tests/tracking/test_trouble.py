"""MLflow is away, slow, locked or broken: bounded waiting, and a sentence that says what to do."""

from __future__ import annotations

import logging
import socket
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import tracking_sweeps as sweeps
from sqlalchemy import text
from support import free_port

from farm.errors import TrackingError
from farm.tracking import store, sync


def test_a_server_that_is_down_is_said_within_seconds(home: Path, tmp_path: Path):
    folder = sweeps.write(tmp_path / "down")
    started = time.monotonic()

    with pytest.raises(TrackingError) as caught:
        sync(folder, uri=f"http://someone:{sweeps.SECRET}@127.0.0.1:{free_port()}")

    assert time.monotonic() - started < 60
    message = str(caught.value)
    assert "connection was refused" in message
    assert f"-m farm.tracking sync {folder}" in message
    assert sweeps.SECRET not in message


def test_a_server_that_never_answers_is_given_up(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(store._FIRST_CALL_LIMITS, "MLFLOW_HTTP_REQUEST_TIMEOUT", "2")
    folder = sweeps.write(tmp_path / "silent")
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        started = time.monotonic()
        with pytest.raises(TrackingError, match="did not answer in time"):
            sync(folder, uri=f"http://127.0.0.1:{listener.getsockname()[1]}")
    assert time.monotonic() - started < 60


def test_a_locked_database_is_waited_for(home: Path, tmp_path: Path):
    folder = sweeps.write(tmp_path / "busy")
    writer = sqlite3.connect(home / "mlflow.db", isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    release = threading.Timer(1.5, writer.close)
    release.start()
    sync(folder)
    release.join()


def test_a_database_that_stays_locked_is_given_up(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = sweeps.write(tmp_path / "locked")
    monkeypatch.setattr(store, "_LOCKED_S", 1.0)
    # MLflow waits 20 s for a lock; a test need not.
    hasty = SimpleNamespace(text=lambda statement: text(statement.replace("20000", "300")))
    monkeypatch.setattr("mlflow.store.db.utils.sql", hasty)
    writer = sqlite3.connect(home / "mlflow.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    started = time.monotonic()
    try:
        with pytest.raises(TrackingError, match="locked by another writer"):
            sync(folder)
    finally:
        writer.close()
    assert time.monotonic() - started < 20


def test_a_broken_database_is_not_tried_for_an_hour(home: Path, tmp_path: Path):
    folder = sweeps.write(tmp_path / "broken")
    (home / "mlflow.db").write_bytes(b"no database" * 1000)
    started = time.monotonic()

    with pytest.raises(TrackingError, match="not a database"):
        sync(folder)

    assert time.monotonic() - started < 10


def test_artifacts_that_cannot_be_written_are_a_tracking_error(home: Path, tmp_path: Path):
    folder = sweeps.write(tmp_path / "blocked")
    (home / "mlartifacts").write_text("a file where a folder should be")

    with pytest.raises(TrackingError, match="did not take the results"):
        sync(folder)


def test_log_levels_come_back(home: Path, tmp_path: Path):
    logging.getLogger("alembic").setLevel(logging.INFO)
    with store.connected(f"sqlite:///{home / 'mlflow.db'}"):
        assert logging.getLogger("alembic").level == logging.CRITICAL
    assert logging.getLogger("alembic").level == logging.INFO
