"""Every file that another program reads passes that program's own check, or the schema that it publishes."""

import json
import shutil
import subprocess
import sys

import kubernetes_validate
import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config
from support import REPOSITORY

INFRA = REPOSITORY / "infra"
# The fields of KubeRay's API, https://ray-project.github.io/kuberay/reference/api/, as far as they concern a sweep.
RAY_JOB = {
    *("activeDeadlineSeconds", "backoffLimit", "rayClusterSpec", "submitterPodTemplate", "metadata", "entrypoint"),
    *("runtimeEnvYAML", "submissionMode", "shutdownAfterJobFinishes", "ttlSecondsAfterFinished", "suspend"),
}
RAY_CLUSTER = {"rayVersion", "authOptions", "headGroupSpec", "workerGroupSpecs", "enableInTreeAutoscaling"}
HEAD_GROUP = {"rayStartParams", "template", "serviceType"}
WORKER_GROUP = {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}


def read(path):
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", sorted(INFRA.glob("*/compose.yaml")), ids=lambda path: path.parent.name)
def test_compose_files_follow_the_compose_specification(path):
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec", str(path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("path", sorted(INFRA.glob("*/compose.yaml")), ids=lambda path: path.parent.name)
def test_compose_files_publish_nothing_beyond_loopback_and_hold_no_secret(path):
    for name, service in read(path)["services"].items():
        for port in service.get("ports", ()):
            assert port.startswith(("127.0.0.1:", "${FARM_MLFLOW_LISTEN:-127.0.0.1}:")), f"{name} publishes {port}"
        for key, value in service.get("environment", {}).items():
            if "PASSWORD" in key or "SECRET" in key or "ACCESS_KEY" in key:
                assert value.startswith("${"), f"{name} has {key} in the file"
        image = service.get("image")
        assert image is None or not image.endswith(":latest"), f"{name}: {image} is not pinned"
        assert image is None or ":" in image, f"{name}: {image} is not pinned"


def test_the_ray_cluster_file_is_one_that_ray_up_takes():
    config = prepare_config(read(INFRA / "spark" / "ray-cluster.yaml"))
    validate_config(config)
    (node_type,) = config["available_node_types"].values()
    # All Sparks from the start, and for good.
    assert node_type["min_workers"] == node_type["max_workers"] == len(config["provider"]["worker_ips"])


def test_the_ray_job_holds_valid_pods_and_only_fields_of_kuberay():
    job = read(INFRA / "container" / "rayjob.yaml")
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    spec = job["spec"]
    cluster = spec["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    assert set(spec) <= RAY_JOB
    assert set(cluster) <= RAY_CLUSTER
    assert set(groups[0]) <= HEAD_GROUP
    for group in groups[1:]:
        assert set(group) <= WORKER_GROUP
    for template in [spec["submitterPodTemplate"], *(group["template"] for group in groups)]:
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template}
        kubernetes_validate.validate(pod, "1.32", strict=True)
    for parameters in (group["rayStartParams"] for group in groups):
        assert all(isinstance(value, str) for value in parameters.values())


def test_versions_are_the_ones_that_are_locked():
    lock = (INFRA / "requirements.lock").read_text(encoding="utf-8")
    ray = next(line.split("==")[1].split()[0] for line in lock.splitlines() if line.startswith("ray=="))
    assert read(INFRA / "container" / "rayjob.yaml")["spec"]["rayClusterSpec"]["rayVersion"] == ray
    pins = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
    for line in (INFRA / "spark" / "engine.in").read_text(encoding="utf-8").splitlines():
        assert line.startswith("#") or f'"{line}"' in pins, f"{line} is not what pyproject.toml's extra `engine` says"
        package = line.partition("[")[0].partition("=")[0]
        version = line.rpartition("==")[2]
        assert line.startswith("#") or f"\n{package}=={version} " in (INFRA / "spark" / "engine.lock").read_text()


@pytest.fixture(scope="module")
def systemd_analyze():
    found = shutil.which("systemd-analyze")
    assert found, "apt-get install systemd"
    return found


@pytest.mark.parametrize("path", sorted(INFRA.glob("*/*.service")), ids=lambda path: path.stem)
def test_units_pass_systemds_own_check(path, systemd_analyze):
    done = subprocess.run([systemd_analyze, "verify", str(path)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_units_start_ray_as_a_shell_would(tmp_path):
    """Systemd and then the shell expand the command: both are played here, with `ray` replaced by an echo."""
    ray = tmp_path / "envs" / "farm" / "bin" / "ray"
    ray.parent.mkdir(parents=True)
    ray.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    ray.chmod(0o755)
    environment = {"FARM_HOME": str(tmp_path), "FARM_OBJECT_STORE_BYTES": "1", "PATH": "/usr/bin:/bin"}
    for unit, given, wanted in [
        ("farm-ray-head", {}, ["--head", "--block"]),
        ("farm-ray-head", {"FARM_NODE_ADDRESS": "10.0.0.1"}, ["--node-ip-address", "10.0.0.1"]),
        ("farm-ray-worker", {"FARM_HEAD": "spark-1:6379"}, ["--address", "spark-1:6379"]),
    ]:
        text = (INFRA / "spark" / f"{unit}.service").read_text(encoding="utf-8").replace("\\\n", " ")
        command = next(line for line in text.splitlines() if line.startswith("ExecStart="))
        command = command.removeprefix("ExecStart=/bin/sh -c ").replace("$$", "$").strip("'")
        done = subprocess.run(["/bin/sh", "-c", command], env=environment | given, capture_output=True, text=True)
        words = done.stdout.split("\n")
        place = words.index(wanted[0])
        assert words[place : place + len(wanted)] == wanted, done
        assert ("--node-ip-address" in words) == ("FARM_NODE_ADDRESS" in given)


@pytest.mark.parametrize("path", sorted(INFRA.glob("**/Containerfile")), ids=lambda path: path.parent.name)
def test_containers_are_pinned(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("FROM")] == ["FROM ${BASE}"]
    installs = [line for line in lines if "pip install" in line]
    text = path.read_text(encoding="utf-8")
    assert installs
    assert text.count("--require-hashes") == len(installs)


def test_the_dashboard_is_whole():
    dashboard = json.loads((INFRA / "monitoring" / "dashboard.json").read_text(encoding="utf-8"))
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    (row,) = [panel for panel in dashboard["panels"] if panel.get("repeat")]
    assert row["repeat"] == "node"
    names = {variable["name"] for variable in dashboard["templating"]["list"]}
    assert names == {"datasource", "sweep", "node", "span"}
    for panel in dashboard["panels"]:
        if panel["type"] != "row":
            assert panel["targets"], panel["title"]
