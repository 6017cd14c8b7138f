"""Shared ground of the tests: a FARM_HOME of their own, a real Ray cluster, and the sweep job as a user runs it."""

import os
import secrets
import subprocess

import pytest
from support import CPU_ENGINE, HOME, RAY, REPOSITORY, Cluster, free_port


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


@pytest.fixture(scope="session")
def ray_cluster(tmp_path_factory):
    """A head node and a second node, `one` and `two`, with one CPU each, and a job server."""
    assert subprocess.run([RAY, "status"], capture_output=True).returncode != 0, "stop the running Ray first: ray stop"
    port, dashboard = free_port(), free_port()
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
