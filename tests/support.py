"""What tests share: places, a Ray cluster of several raylets, and the sweep job as a user runs it."""

import json
import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("FARM_HOME") or "~/.farm").expanduser()
CPU_ENGINE = HOME / "envs" / "engine-cpu" / "bin" / "python"
GSM8K = Path(os.environ.get("FARM_TEST_GSM8K") or REPOSITORY.parent / "shared" / "data" / "gsm8k")
RAY = str(Path(sys.executable).with_name("ray"))


@dataclass
class Cluster:
    """A Ray cluster of several raylets on this machine."""

    env: dict
    address: str
    dashboard: str

    def start_head(self, name, port, dashboard):
        """Start the head node, with a job server; returns its process."""
        return self._start(
            "--head", "--node-ip-address", "127.0.0.1", "--port", str(port), "--node-name", name, "--num-cpus", "1",
            "--dashboard-host", "127.0.0.1", "--dashboard-port", str(dashboard),
        )  # fmt: skip

    def add_node(self, name, cpus=1):
        """Start one more raylet under its own name; returns its process."""
        return self._start("--address", self.address, "--node-name", name, "--num-cpus", str(cpus))

    def _start(self, *arguments):
        return subprocess.Popen(
            [RAY, "start", "--block", *arguments],
            env=self.env,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for_jobs(self):
        """Wait until a job can be submitted: the agents that run jobs come up after their nodes."""
        deadline = time.monotonic() + 120
        submit = [RAY, "job", "submit", "--address", self.dashboard, "--", "true"]
        while subprocess.run(submit, env=self.env, capture_output=True).returncode != 0:
            assert time.monotonic() < deadline, "the cluster takes no jobs"
            time.sleep(2)

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


def free_port():
    """A TCP port that is free now."""
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
