"""An engine from another package: registered by its entry point alone, it goes the whole way of a sweep."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import mlflow
import pandas as pd
import pytest
import yaml
from support import run_sweep

PARROT = Path(__file__).with_name("parrot.py")
SWEEP = {
    "name": "birds",
    "model": {"path": "any/bird"},
    "engine": {"kind": "parrot", "device": "cpu"},
    "variants": [{"name": "slow", "args": {"pace": "slow"}}, {"name": "quick", "args": {"pace": "quick"}}],
    "workloads": {"s": {"kind": "synthetic", "requests": 8, "input_tokens": 32, "output_tokens": 16}},
}


@pytest.fixture
def environment(tmp_path, farm_home):
    """What an installed package is to Python: a module, and a folder of metadata with its entry point."""
    installed = tmp_path / "site"
    metadata = installed / "parrot-1.0.dist-info"
    metadata.mkdir(parents=True)
    shutil.copy(PARROT, installed)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: parrot\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[farm.engines]\nparrot = parrot:PARROT\n")
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as folder:
        yield os.environ | {
            "PYTHONPATH": str(installed),
            "RAY_ADDRESS": "local",
            "RAY_TMPDIR": folder,
            "RAY_USAGE_STATS_ENABLED": "0",
            "MLFLOW_TRACKING_URI": "",
        }


def run(tmp_path, environment, **changes):
    path = tmp_path / "birds.yaml"
    path.write_text(yaml.safe_dump(SWEEP | changes))
    return run_sweep(path, "--nodes", "1", env=environment)


def test_a_whole_sweep_on_an_engine_of_another_package(tmp_path, farm_home, environment):
    done = run(tmp_path, environment)
    assert done.returncode == 0, done.stdout + done.stderr
    [folder] = (farm_home / "results").iterdir()
    table = pd.read_parquet(folder / "requests.parquet")
    assert len(table) == 16
    assert table["error"].isna().all()
    assert set(table["engine_kind"]) == {"parrot"}
    assert set(table["label"]) == {"emulated"}
    assert table.groupby("item_id")["prompt_sha256"].nunique().eq(1).all()
    engines = json.loads((folder / "engines.json").read_text())
    assert {(one["variant"], one["status"]) for one in engines} == {("slow", "stopped"), ("quick", "stopped")}
    assert {one["evidence"]["processes"][0]["pace"] for one in engines} == {"slow", "quick"}
    # The comparison at the end of the job, and what stands in MLflow.
    assert "2.00" in done.stdout
    client = mlflow.MlflowClient(f"sqlite:///{farm_home / 'mlflow.db'}")
    runs = client.search_runs([one.experiment_id for one in client.search_experiments()])
    throughput = {
        one.data.params["variant"]: one.data.metrics["speed/decode_tokens_per_s"]
        for one in runs
        if "speed/decode_tokens_per_s" in one.data.metrics
    }
    assert {one.data.params["engine_kind"] for one in runs} == {"parrot"}
    assert throughput["quick"] == pytest.approx(2 * throughput["slow"])


def test_a_variant_that_it_does_not_run_as_asked_has_no_record(tmp_path, farm_home, environment):
    fast = {"name": "fast", "args": {"pace": "fast"}}
    done = run(tmp_path, environment, variants=[*SWEEP["variants"], fast])
    assert done.returncode == 3, done.stdout + done.stderr
    assert "the parrot is slow" in done.stdout
    [folder] = (farm_home / "results").iterdir()
    assert set(pd.read_parquet(folder / "requests.parquet")["variant"]) == {"slow", "quick"}
    reports = json.loads((folder / "engines.json").read_text())
    assert "not-active" in {one["status"] for one in reports if one["variant"] == "fast"}


def test_without_its_package_the_sweep_is_refused_before_anything_starts(tmp_path, farm_home, environment):
    done = run(tmp_path, environment | {"PYTHONPATH": ""})
    assert done.returncode == 2
    assert "engine.kind: no engine is named 'parrot'" in done.stdout
    assert "emulated, sglang" in done.stdout
    assert not (farm_home / "results").exists()
