"""Shared ground of the tests: a FARM_HOME of their own, a real Ray cluster, and the sweep job as a user runs it."""

import json
import os
import secrets
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("FARM_HOME") or "~/.farm").expanduser()
CPU_ENGINE = HOME / "envs" / "engine-cpu" / "bin" / "python"
GSM8K = Path(os.environ.get("FARM_TEST_GSM8K") or REPOSITORY.parent / "shared" / "data" / "gsm8k")
RAY = str(Path(sys.executable).with_name("ray"))


@pytest.fixture(scope="session")
def cpu_engine():
    """The interpreter of the CPU engine's environment, which infra/test.sh builds."""
    assert CPU_ENGINE.exists(), "build it with: bash infra/cpu-engine/build.sh"
    return CPU_ENGINE


@pytest.fixture
def farm_home(tmp_path, monkeypatch):
    """An empty FARM_HOME that shares the environments of the real one."""
    home = tmp_path / "home"
    home.mkdir()
    if (HOME / "envs").exists():
        (home / "envs").symlink_to(HOME / "envs")
    monkeypatch.setenv("FARM_HOME", str(home))
    return home


@dataclass
class Cluster:
    """A Ray cluster of several raylets on this machine."""

    env: dict
    address: str
    dashboard: str

    def add_node(self, name, cpus=1):
        """Start one more raylet under its own name; returns its process."""
        return subprocess.Popen(
            [RAY, "start", "--address", self.address, "--node-name", name, "--num-cpus", str(cpus), "--block"],
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def alive(self):
        """Names of the nodes that are alive."""
        code = (
            "import ray, json; ray.init(address='auto', log_to_driver=False, logging_level='error');"
            "print(json.dumps([n['NodeName'] for n in ray.nodes() if n['Alive']]))"
        )
        done = subprocess.run([sys.executable, "-c", code], env=self.env, capture_output=True, text=True)
        return json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else []

    def wait_for(self, names):
        """Wait until exactly these nodes are alive."""
        deadline = time.monotonic() + 120
        while sorted(self.alive()) != sorted(names):
            assert time.monotonic() < deadline, f"the cluster has {self.alive()}, not {names}"
            time.sleep(1)


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory):
    """A head node and a second node, `one` and `two`, with one CPU each, and a job server."""
    assert subprocess.run([RAY, "status"], capture_output=True).returncode != 0, "stop the running Ray first: ray stop"
    port, dashboard = _free_port(), _free_port()
    env = os.environ | {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_ADDRESS": f"127.0.0.1:{port}",
    }
    env.pop("FARM_HOME", None)
    start = [
        RAY, "start", "--head", "--node-ip-address", "127.0.0.1", "--port", str(port), "--node-name", "one",
        "--num-cpus", "1", "--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard),
    ]  # fmt: skip
    subprocess.run(start, env=env, check=True, capture_output=True, cwd=REPOSITORY)
    cluster = Cluster(env, f"127.0.0.1:{port}", f"http://127.0.0.1:{dashboard}")
    second = cluster.add_node("two")
    try:
        cluster.wait_for(["one", "two"])
        yield cluster
    finally:
        second.terminate()
        subprocess.run([RAY, "stop", "--force"], env=env, capture_output=True)


def _free_port():
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def sweep_command(*arguments):
    """The sweep job's command line."""
    return [sys.executable, str(REPOSITORY / "jobs" / "sweep.py"), *map(str, arguments)]


def run_sweep(*arguments, env=None, timeout=300):
    """Run the sweep job as a user would; returns the completed process with its output as text."""
    return subprocess.run(
        sweep_command(*arguments), env=env or os.environ.copy(), capture_output=True, text=True, timeout=timeout
    )
