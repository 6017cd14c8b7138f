"""The doctor as a user runs it, on a healthy machine and on broken set-ups: each is named, with what to do."""

import json
import os
import subprocess
import sys

import pytest
from support import REPOSITORY

from farm.engines.nvml import open_gpu
from farm.node.preflight import problems, quick_checks

NEEDS_A_GPU = {"GPU", "architecture", "sgl_kernel", "torch", "kernel caches", "Ray's memory monitor", "bandwidth"}


def doctor(*arguments, env):
    """Run the command on the cluster of this environment."""
    command = [sys.executable, str(REPOSITORY / "jobs" / "doctor.py"), *map(str, arguments)]
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)


def test_a_healthy_node_can_run_and_what_needs_a_gpu_does_not_pass(ray_cluster, farm_home, cpu_engine):
    # The cluster's nodes are those of the whole session, whose FARM_HOME is the user's.
    setting = f"engine.python={cpu_engine}"
    done = doctor("quickstart", "--json", "--set", setting, env=ray_cluster.env | {"FARM_HOME": str(farm_home)})
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["can_run"]
    node, _ = report["nodes"]
    assert node["to_do"] == []
    statuses = {check["name"]: check["status"] for check in node["checks"]}
    assert {statuses[name] for name in NEEDS_A_GPU} == {"not applicable"}
    for name in ("engine interpreter", "engine packages", "SGLang plug-in", "weights", "disk", "port", "clock offset"):
        assert statuses[name] == "pass", name
    found = {check["name"]: check["found"] for check in node["checks"]}
    assert "sglang 0.5.23" in found["engine packages"]
    assert "ms against the driver" in found["clock offset"]


def test_broken_nodes_cannot_run_and_the_report_of_the_job_says_what_to_do(ray_cluster, cpu_engine, sharded_model):
    (sharded_model / "model-00002-of-00002.safetensors").unlink()
    settings = (f"engine.python={cpu_engine}", f"model.path={sharded_model}", "engine.version=0.5.22")
    done = doctor("quickstart", *(word for one in settings for word in ("--set", one)), env=ray_cluster.env)
    assert done.returncode == 1, done.stdout + done.stderr
    for node in ("one", "two"):
        assert f"{node}: CANNOT RUN" in done.stdout
    assert "1 of 2 weight files are missing" in done.stdout
    assert "sglang 0.5.23 and the sweep is pinned to 0.5.22" in done.stdout
    assert "to do, weights: fetch or copy the model again" in done.stdout
    assert "0 of 2 can run it" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "reported"),
    [
        (["no-such-sweep"], "no-such-sweep"),
        (["quickstart", "--set", "engine.devic=cpu"], "engine.devic"),
        (["quickstart", "--nodes", "0"], "--nodes"),
    ],
)
def test_bad_input(arguments, reported):
    done = doctor(*arguments, env=os.environ | {"RAY_ADDRESS": "local"})
    assert done.returncode == 2
    assert reported in done.stderr
    assert done.stdout == ""


def test_a_sound_set_up_has_no_problems(quickstart, sharded_model):
    assert problems(quick_checks(quickstart(f"model.path={sharded_model}"))) == []


def test_a_missing_interpreter_is_named(quickstart):
    (problem,) = problems(quick_checks(quickstart("engine.python=/nowhere/bin/python")))
    assert "there is no interpreter /nowhere/bin/python" in problem
    assert "infra/cpu-engine/build.sh" in problem


def test_an_interpreter_without_sglang_is_named(quickstart):
    (problem,) = problems(quick_checks(quickstart(f"engine.python={sys.executable}")))
    assert "has no sglang" in problem


def test_a_wrong_version_is_named_with_both(quickstart):
    (problem,) = problems(quick_checks(quickstart("engine.version=0.5.22")))
    assert "sglang 0.5.23" in problem
    assert "pinned to 0.5.22" in problem


def test_a_missing_weight_file_is_named(quickstart, sharded_model):
    (sharded_model / "model-00001-of-00002.safetensors").unlink()
    (problem,) = problems(quick_checks(quickstart(f"model.path={sharded_model}")))
    assert "model-00001-of-00002.safetensors" in problem


def test_a_file_that_was_cut_off_is_named_with_its_sizes(quickstart, sharded_model):
    shard = sharded_model / "model-00002-of-00002.safetensors"
    whole = shard.stat().st_size
    with shard.open("r+b") as handle:
        handle.truncate(whole - 1000)
    (problem,) = problems(quick_checks(quickstart(f"model.path={sharded_model}")))
    assert f"model-00002-of-00002.safetensors ({whole - 1000:,} bytes) is cut off" in problem


def test_a_file_cut_off_in_its_header_is_named(quickstart, sharded_model):
    shard = sharded_model / "model-00002-of-00002.safetensors"
    with shard.open("r+b") as handle:
        handle.truncate(100)
    (problem,) = problems(quick_checks(quickstart(f"model.path={sharded_model}")))
    assert "model-00002-of-00002.safetensors (100 bytes) is cut off" in problem
    assert "header" in problem


def test_a_shard_of_another_model_is_named(quickstart, sharded_model):
    one, two = (sharded_model / f"model-0000{index}-of-00002.safetensors" for index in (1, 2))
    two.write_bytes(one.read_bytes())
    (problem,) = problems(quick_checks(quickstart(f"model.path={sharded_model}")))
    assert "lacks" in problem
    assert two.name in problem


def test_a_folder_without_a_model_is_named(quickstart, tmp_path):
    (problem,) = problems(quick_checks(quickstart(f"model.path={tmp_path}")))
    assert "no config.json" in problem


def test_a_model_that_cannot_draft_is_named(quickstart, sharded_model):
    config = json.loads((sharded_model / "config.json").read_text())
    for name in ("num_nextn_predict_layers", "mtp_num_hidden_layers", "num_mtp_layers"):
        config.pop(name, None)
    (sharded_model / "config.json").write_text(json.dumps(config))
    (problem,) = problems(quick_checks(quickstart(f"model.path={sharded_model}")))
    assert "'nextn' needs a model" in problem


def test_a_hub_model_that_was_not_fetched_is_named(quickstart, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (problem,) = problems(quick_checks(quickstart("model.path=someone/some-model")))
    assert "hf download someone/some-model" in problem


def test_a_hub_model_is_found_in_the_cache(quickstart, monkeypatch, tmp_path, sharded_model):
    snapshot = tmp_path / "hub" / "models--someone--some-model" / "snapshots" / "abc123"
    snapshot.parent.mkdir(parents=True)
    sharded_model.rename(snapshot)
    references = snapshot.parents[1] / "refs"
    references.mkdir()
    (references / "main").write_text("abc123")
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    sweep = quickstart("model.path=someone/some-model")
    assert problems(quick_checks(sweep)) == []
    (snapshot / "model-00001-of-00002.safetensors").unlink()
    assert "1 of 2 weight files are missing" in problems(quick_checks(sweep))[0]


@pytest.mark.skipif(open_gpu(0) is not None, reason="this machine has a GPU")
def test_a_gpu_sweep_finds_no_node_here(ray_cluster, farm_home):
    done = doctor("ling-flash-ladder", "--set", "workloads.gsm8k.source=/nowhere", "--json", env=ray_cluster.env)
    assert done.returncode == 1
    report = json.loads(done.stdout)
    assert not report["can_run"]
    assert "none of the cluster's 2 nodes has a GPU" in report["without_slot"][0]
    assert "/nowhere" in report["data_problem"]
