"""What tests share: places, a Ray cluster of several raylets, and the sweep job as a user runs it."""

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from farm.builtin import demo
from farm.engines.base import EngineCommand
from farm.engines.registry import engine_of
from farm.engines.sglang.evidence import read_processes
from farm.engines.sglang.gate import EVIDENCE_VARIABLE
from farm.engines.sglang.running import RunningServer, launch
from farm.spec.loading import load_sweep

REPOSITORY = Path(__file__).resolve().parents[1]
HOME = Path(os.environ.get("FARM_HOME") or "~/.farm").expanduser()
CPU_ENGINE = HOME / "envs" / "engine-cpu" / "bin" / "python"
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
        # The default ports of a node's agents are taken where another cluster is on this machine.
        names = ("dashboard-agent-listen", "dashboard-agent-grpc", "runtime-env-agent", "metrics-export")
        own_ports = [word for name in names for word in (f"--{name}-port", str(free_port()))]
        return subprocess.Popen(
            [RAY, "start", "--block", *own_ports, *arguments],
            env=self.env,
            cwd=REPOSITORY,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def wait_for_jobs(self):
        """Wait until a job has run: the agents that run jobs come up after their nodes."""
        deadline = time.monotonic() + 120
        status = job = None
        while status != "SUCCEEDED":
            assert time.monotonic() < deadline, "the cluster runs no jobs"
            time.sleep(0.1)
            with contextlib.suppress(OSError):  # the dashboard is not up yet, or has no agent to give the job to
                if status not in ("PENDING", "RUNNING"):
                    job = self._dashboard("/api/jobs/", {"entrypoint": "true"})["submission_id"]
                status = self._dashboard(f"/api/jobs/{job}")["status"]

    def alive(self):
        """Names of the nodes that are alive."""
        try:
            nodes = self._dashboard("/api/v0/nodes")["data"]["result"]["result"]
        except OSError:
            return []  # the dashboard is not up yet
        return [node["node_name"] for node in nodes if node["state"] == "ALIVE"]

    def wait_for(self, names):
        """Wait until exactly these nodes are alive."""
        deadline = time.monotonic() + 120
        while sorted(alive := self.alive()) != sorted(names):
            assert time.monotonic() < deadline, f"the cluster has {alive}, not {names}"
            time.sleep(0.2)

    def _dashboard(self, path, body=None):
        """What the dashboard's HTTP interface says. Ray's commands would say it too, and take seconds to start."""
        headers = {"Authorization": f"Bearer {self.env['RAY_AUTH_TOKEN']}", "Content-Type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.dashboard + path, data, headers)
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)


def free_port():
    """A TCP port that is free now, below those that outgoing connections take meanwhile."""
    while True:
        port = random.randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def sweep_command(*arguments):
    """The sweep job's command line."""
    return [sys.executable, str(REPOSITORY / "jobs" / "sweep.py"), *map(str, arguments)]


def run_sweep(*arguments, env=None, timeout=300):
    """Run the sweep job as a user would; returns the completed process with its output as text."""
    return subprocess.run(
        sweep_command(*arguments), env=env or os.environ.copy(), capture_output=True, text=True, timeout=timeout
    )


@dataclass
class AskedEngine:
    """A running engine, real or emulated, and how to talk to it from a test that knows no asyncio."""

    engine: RunningServer
    processes: list
    loop: asyncio.AbstractEventLoop

    @classmethod
    def start(cls, sweep, variant, python, folder):
        """Start a variant of a sweep over the demo model as the farm does, its own environment variables exposed."""
        model = str(demo.model_path())
        command = engine_of(sweep).command(sweep, sweep.variant(variant), model_path=model, python=str(python))
        env = {EVIDENCE_VARIABLE: str(folder / "evidence"), "SGLANG_EXPOSE_OWN_ENV_VARS": "1"}
        command = EngineCommand(command.argv, command.env | env)
        loop = asyncio.new_event_loop()
        started = launch(command, folder / "engine.log", start_timeout_s=300, request_timeout_s=60)
        engine = loop.run_until_complete(started)
        written = read_processes(folder / "evidence")
        return cls(engine, [one.model_dump(mode="json", by_alias=True, exclude_unset=True) for one in written], loop)

    def stop(self):
        """End the engine, if it still runs."""
        self.loop.run_until_complete(self.engine.stop())
        self.loop.close()

    @property
    def client(self):
        """The farm's own client of this engine."""
        return self.engine.client

    def run(self, work):
        """The result of a coroutine."""
        return self.loop.run_until_complete(asyncio.wait_for(work, 60))

    def chat(self, text, **kwargs):
        """Token ids of a user's message in the engine's chat template."""
        return self.run(self.client.tokenize_chat([{"role": "user", "content": text}], kwargs))

    def generate(self, ids, **sampling):
        """An answer, as the farm reads it."""
        return self.run(self.client.generate(ids, sampling))

    def call(self, method, path, body=None, *, data=None, key=None):
        """Status, content type and content (JSON, or text) of one request."""
        return self.run(self.calling(method, path, body, data=data, key=key))

    def events(self, ids, **sampling):
        """The chunks of a stream as they are on the wire, and what ended it."""
        body = {"input_ids": ids, "sampling_params": sampling, "stream": True}
        status, content_type, text = self.call("POST", "/generate", body)
        assert (status, content_type) == (200, "text/event-stream"), text
        lines = [line for line in text.split("\n") if line]
        assert all(line.startswith("data: ") for line in lines)
        return [json.loads(line[6:]) for line in lines[:-1]], lines[-1][6:]

    async def calling(self, method, path, body=None, *, data=None, key=None):
        """The same as `call`, to be awaited."""
        headers = {"Authorization": f"Bearer {self.engine.process.api_key if key is None else key}"}
        async with (
            aiohttp.ClientSession(headers=headers, trust_env=False) as session,
            session.request(method, self.engine.process.url + path, json=body, data=data) as response,
        ):
            text = await response.text()
            content: Any = json.loads(text) if response.content_type == "application/json" else text
            return response.status, response.content_type, content


def quickstart_sweep(*overrides):
    """The sweep `quickstart`."""
    return load_sweep(REPOSITORY / "jobs" / "sweeps" / "quickstart.yaml", list(overrides))


@dataclass
class MlflowServer:
    """A real tracking server on loopback, which tests may kill and start again."""

    place: Path
    port: int
    process: Any = None

    @classmethod
    def make(cls, place, empty_database):
        """A server over a copy of an empty database, not started."""
        shutil.copyfile(empty_database, place / "server.db")
        return cls(place, free_port())

    @property
    def url(self):
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self):
        """Start it, unless it runs, and wait until it answers."""
        if self.process is None:
            command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(self.port)]
            command += ["--backend-store-uri", f"sqlite:///{self.place / 'server.db'}", "--workers", "1"]
            env = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
            env.pop("MLFLOW_TRACKING_URI", None)
            with (self.place / "server.log").open("ab") as log:
                self.process = subprocess.Popen(
                    command, cwd=self.place, env=env, stdout=log, stderr=log, start_new_session=True
                )
        deadline = time.monotonic() + 300  # on a busy machine it takes minutes
        while True:
            assert self.process.poll() is None, "the tracking server ended"
            assert time.monotonic() < deadline, "the tracking server did not start"
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=1):
                    return
            except OSError:
                time.sleep(0.1)

    def stop(self, number=signal.SIGTERM):
        """End it with its workers."""
        if self.process is not None:
            os.killpg(self.process.pid, number)
            self.process.wait(20)
            self.process = None

    def kill(self):
        """End it without warning."""
        self.stop(signal.SIGKILL)
