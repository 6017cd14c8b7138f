"""The sweep job as a user runs it, on a real Ray cluster of two nodes, with emulated engines where speed is needed."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path

import pandas as pd
import pytest
import yaml
from support import REPOSITORY, run_sweep, sweep_command

from farm.driver.history import first_costs
from farm.spec.loading import load_sweep
from farm.types import CellKey
from farm.workloads.build import build

SWEEP = {
    "name": f"job{os.getpid()}",  # of this process alone: engines are known by their sweep
    "model": {"path": "inclusionAI/Ling-3.0-flash-fp4"},
    "engine": {"kind": "emulated", "args": {"emulation-speed": 1000}},
    "variants": ["baseline", "humming+fp8-head+nextn"],
    "workloads": {
        "gsm8k": {"kind": "gsm8k", "source": "builtin:gsm-mini", "questions": 30},
        "synthetic": {"kind": "synthetic", "requests": 2, "input_tokens": 512, "output_tokens": 64},
    },
}
CELLS = 2 * 32


@pytest.fixture
def sweep(tmp_path, farm_home):
    path = tmp_path / "drill.yaml"
    path.write_text(yaml.safe_dump(SWEEP))
    return path


def only_result(farm_home):
    [folder] = (farm_home / "results").iterdir()
    return folder


def environment(cluster, farm_home, **extra):
    return cluster.env | {"FARM_HOME": str(farm_home), "MLFLOW_TRACKING_URI": ""} | extra


def engines_left(sweep_id):
    """Process ids of a sweep's engines that still run."""
    listed = subprocess.run(["pgrep", "-f", "farm.engines.emulated|engine/guard.py"], capture_output=True, text=True)
    left = []
    for pid in listed.stdout.split():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            continue
        if f"/engines/{sweep_id}/".encode() in environment:
            left.append(pid)
    return left


def check_complete(folder):
    table = pd.read_parquet(folder / "requests.parquet")
    assert len(table) == CELLS
    assert not table.duplicated(["variant", "workload", "item_id", "repeat"]).any()
    assert table["error"].isna().all()
    assert set(table["label"]) == {"emulated"}
    # The two answers of a pair come from prompts that are the same and from one node.
    pairs = table.groupby(["workload", "item_id", "repeat"])
    assert (pairs["prompt_sha256"].nunique() == 1).all()
    assert (pairs["seed"].nunique() == 1).all()
    return table


def test_two_nodes_share_a_sweep_and_keep_pairs_together(ray_cluster, sweep, farm_home):
    done = run_sweep(sweep, env=environment(ray_cluster, farm_home))
    assert done.returncode == 0, done.stdout + done.stderr
    table = check_complete(only_result(farm_home))
    assert set(table["node"]) == {"one", "two"}
    assert (table.groupby(["workload", "item_id"])["node"].nunique() == 1).all()
    assert table["engine_id"].nunique() == 4
    assert not table["moved"].any()
    nextn = table[table["variant"] == "humming+fp8-head+nextn"]
    assert (nextn["verify_rounds"] > 0).all()
    assert table[table["variant"] == "baseline"]["verify_rounds"].isna().all()
    assert "EMULATED" in done.stdout.upper()
    assert "farm.compare" in done.stdout
    assert engines_left(only_result(farm_home).name) == []
    # What the answers took is known to the next sweep of these questions, whatever else it asks.
    requested = load_sweep(sweep, ["variants=[marlin]"])
    items = build(requested.workloads)
    costs = first_costs(requested, items, farm_home / "results")
    for number in range(6):
        costs.learn(CellKey("marlin", "gsm8k", f"other-{number}", 0), "one", 100, 1.0)
    predicted = [costs.cell_s(CellKey("marlin", "gsm8k", item.item_id, 0)) for item in items["gsm8k"]]
    assert max(predicted) > 2 * min(predicted)
    # Submitted again, nothing is asked twice.
    again = run_sweep(sweep, env=environment(ray_cluster, farm_home))
    assert again.returncode == 0
    assert f"{CELLS} already answered" in again.stdout


def test_a_variant_that_cannot_start_leaves_the_others_whole(ray_cluster, tmp_path, farm_home):
    path = tmp_path / "broken.yaml"
    path.write_text(
        yaml.safe_dump(
            SWEEP
            | {
                "variants": [
                    "baseline",
                    {"name": "broken", "env": {"FARM_EMULATION_FAULTS": json.dumps({"fail_start": True})}},
                ],
            }
        )
    )
    done = run_sweep(path, env=environment(ray_cluster, farm_home))
    assert done.returncode == 3, done.stdout + done.stderr
    assert "broken failed: the engine died while starting" in done.stdout
    table = pd.read_parquet(only_result(farm_home) / "requests.parquet")
    assert Counter(table["variant"]) == {"baseline": 32}
    assert "broken" in json.loads((only_result(farm_home) / "sweep.json").read_text())["failed_variants"]


def test_jobs_go_through_ray_job_submit(ray_cluster, sweep, farm_home):
    """`ray job submit jobs/sweep.py` as written in README.md, and the form that ships the working directory."""
    env = environment(ray_cluster, farm_home) | {"PATH": f"{os.path.dirname(sweep_command()[0])}:{os.environ['PATH']}"}
    runtime = json.dumps({"env_vars": {"FARM_HOME": str(farm_home), "MLFLOW_TRACKING_URI": ""}})
    submit = ["ray", "job", "submit", "--address", ray_cluster.dashboard, "--runtime-env-json", runtime]
    plain = subprocess.run(
        [*submit, "--", "jobs/sweep.py", str(sweep)], env=env, cwd=REPOSITORY, capture_output=True, text=True
    )
    assert plain.returncode == 0, plain.stdout + plain.stderr
    check_complete(only_result(farm_home))
    few = ["--set", "workloads.gsm8k.questions=4"]
    shipped = subprocess.run(
        [*submit, "--working-dir", ".", "--", "python", "jobs/sweep.py", str(sweep), *few],
        env=env,
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
    )
    assert shipped.returncode == 0, shipped.stdout + shipped.stderr
    assert "MLflow UI" in shipped.stdout
    assert len(list((farm_home / "results").iterdir())) == 2


@pytest.mark.parametrize(
    ("arguments", "needles"),
    [
        (["quikstart"], ["quikstart", "did you mean 'quickstart'"]),
        (["/none/such.yaml"], ["/none/such.yaml", "cannot be read"]),
        (["quickstart", "--set", "modle.path=x"], ["quickstart.yaml", "modle", "did you mean 'model'"]),
        (["quickstart", "--set", "engine.concurrency=many"], ["quickstart.yaml", "engine.concurrency", "'many'"]),
        (["quickstart", "--set", "variants=[nextm]"], ["quickstart.yaml", "nextm", "did you mean 'nextn'"]),
        (["quickstart", "--set", "model.path=/none/model"], ["model.path", "/none/model"]),
        (["quickstart", "--set", "engine.python=/none/python"], ["engine.python", "infra/cpu-engine/build.sh"]),
        (["quickstart", "--set", "workloads.gsm-mini.source=/none/data"], ["workloads.gsm-mini", "/none/data"]),
        (["prompts-example", "--set", "workloads.mine.file=/none/p.jsonl"], ["workloads.mine", "/none/p.jsonl"]),
        (["quickstart", "--nodes", "0"], ["--nodes"]),
    ],
)
def test_bad_input_is_one_sentence_and_exit_status_2(farm_home, arguments, needles):
    done = run_sweep(*arguments, env=os.environ | {"RAY_ADDRESS": "local"})
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "Traceback" not in said
    for needle in needles:
        assert needle in said


def test_no_node_that_fits(ray_cluster, sweep, farm_home):
    env = environment(ray_cluster, farm_home)
    gpu = run_sweep("ling-flash-ladder", "--set", "workloads.gsm8k.source=builtin:gsm-mini", env=env)
    assert gpu.returncode == 2
    assert "no node fits" in gpu.stdout
    assert "GPU" in gpu.stdout
    many = run_sweep(sweep, "--nodes", "5", env=env)
    assert many.returncode == 2
    assert "--nodes 5" in many.stdout


def test_dry_run_shows_plan_cost_and_command_lines_and_starts_nothing(farm_home):
    done = run_sweep(
        "ling-flash-ladder", "--dry-run", "--nodes", "4", "--set", "workloads.gsm8k.source=builtin:gsm-mini"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "16 engine starts on 4 nodes" in done.stdout
    assert "node-hours" in done.stdout
    assert "--moe-runner-backend humming" in done.stdout
    assert "--speculative-draft-model-path inclusionAI/Ling-3.0-flash-fp4" in done.stdout
    assert "SGLANG_ENABLE_FP8_LM_HEAD=1" in done.stdout
    assert not (farm_home / "results").exists()
