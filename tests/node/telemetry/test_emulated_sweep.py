"""A whole sweep with telemetry: two emulated Sparks, one of them in the hidden slow state of its clock."""

import json
import os
import subprocess
import sys

import pandas as pd
import pytest
import yaml
from support import run_sweep

SLOW_CLOCK = 0.33  # of 2418 MHz: the 799 MHz that were seen on real Sparks

SWEEP = {
    "name": "slow-spark",
    "model": {"path": "inclusionAI/Ling-3.0-flash-fp4"},
    "engine": {
        "kind": "emulated",
        "args": {"emulation-speed": 500},
        "env": {"FARM_EMULATION_FAULTS": json.dumps([{"slow_clock": SLOW_CLOCK, "nodes": ["two"]}])},
    },
    "variants": ["baseline", "humming"],
    "workloads": {"synthetic": {"kind": "synthetic", "requests": 12, "input_tokens": 64, "output_tokens": 64}},
}


@pytest.fixture
def results(ray_cluster, farm_home, tmp_path):
    path = tmp_path / "slow.yaml"
    path.write_text(yaml.safe_dump(SWEEP))
    done = run_sweep(path, env=ray_cluster.env | {"FARM_HOME": str(farm_home), "MLFLOW_TRACKING_URI": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    [folder] = (farm_home / "results").iterdir()
    return folder


def test_a_slow_spark_shows_in_records_warning_and_comparison(results):
    records = pd.read_parquet(results / "requests.parquet")
    slow = records["node"] == "two"
    assert 0 < slow.sum() < len(records)
    assert (records["slow_state"] == slow).all()
    assert set(records.loc[slow, "sm_clock_mhz"]) == {round(2418 * SLOW_CLOCK)}
    assert set(records["energy_method"]) == {"emulated"}
    assert records["energy_j"].to_numpy() == pytest.approx((records["power_w"] * records["latency_s"]).to_numpy())
    # An emulated board has no thermometer and tells no clock-event reasons: null, not zero.
    assert records[["temperature_c", "throttled_s"]].isna().all(axis=None)

    reported = compare(results)
    warned = [note["text"] for note in reported["warnings"] if note["code"] == "slow-state"]
    assert len(warned) == 1
    assert f"{int(slow.sum())} answers" in warned[0]
    figures = reported["workloads"]["synthetic"]["variants"]
    assert figures["humming"]["energy_j_per_token"]["value"] > 0
    without = compare(results, "--slow-records", "exclude")["workloads"]["synthetic"]["variants"]
    assert without["baseline"]["requests"] == 12 - int((slow & (records["variant"] == "baseline")).sum())
    assert without["baseline"]["tpot_ms"]["value"] < figures["baseline"]["tpot_ms"]["value"]
    assert without["baseline"]["sm_clock_mhz"] == pytest.approx(2418)


def compare(folder, *arguments):
    """The JSON that the command prints."""
    command = [sys.executable, "-m", "farm.compare", "--results", str(folder), "--format", "json", *arguments]
    return json.loads(subprocess.run(command, env=os.environ, capture_output=True, check=True, text=True).stdout)
