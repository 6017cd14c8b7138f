"""Drills run on the session's Ray cluster, each with a FARM_HOME of its own whose MLflow database is still empty."""

import os
import shutil
import sys

import drill
import pytest
from support import HOME, REPOSITORY


@pytest.fixture(scope="session")
def _environment(ray_cluster):
    """Jobs that are started from this process belong to the cluster. Ray reads this when it is imported there."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in ray_cluster.env.items():
            if name.startswith("RAY_"):
                monkeypatch.setenv(name, value)
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(REPOSITORY), *sys.path]))
        monkeypatch.setenv("MLFLOW_TRACKING_URI", "")
        yield


@pytest.fixture
def home(tmp_path, monkeypatch, empty_database, _environment):
    """The drill's FARM_HOME."""
    yield make_home(tmp_path / "home", monkeypatch, empty_database)
    drill.end_jobs()


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory, empty_database, _environment):
    """The records of the drill's sweep when nothing happens."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as monkeypatch:
        make_home(folder / "home", monkeypatch, empty_database)
        outcome = drill.run(drill.write_sweep(folder))
        assert outcome.status == 0, outcome.output
        assert len(outcome.table) == drill.CELLS
        assert (outcome.table["attempts"] == 1).all()
        return outcome.table


def make_home(place, monkeypatch, empty_database):
    place.mkdir()
    shutil.copyfile(empty_database, place / "mlflow.db")
    if (HOME / "envs").exists():
        (place / "envs").symlink_to(HOME / "envs")
    monkeypatch.setenv("FARM_HOME", str(place))
    return place
