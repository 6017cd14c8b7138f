"""Emulated engines as processes of their own, thousands of times faster than the machine they stand for."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from support import REPOSITORY

from farm.engines.sglang.stream import Answer, StreamReader

KEY = "test-key"
SPEED = 4000
BASELINE = ("--moe-runner-backend", "flashinfer_mxfp4", "--enable-fp32-lm-head")
NEXTN = (
    *("--moe-runner-backend", "humming", "--speculative-algorithm", "NEXTN"),
    *("--speculative-draft-model-path", "/nowhere", "--speculative-num-steps", "3"),
    *("--speculative-eagle-topk", "1", "--speculative-num-draft-tokens", "4"),
)
FP8_HEAD = {"SGLANG_ENABLE_FP8_LM_HEAD": "1"}


@dataclass
class Emulated:
    """A started engine and how to talk to it."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def call(self, method: str, path: str, body: Any = None, *, key: str | None = KEY) -> tuple[int, Any]:
        """Status and JSON (or text) of one request."""
        return asyncio.run(self._call(method, path, body, key))

    async def _call(self, method: str, path: str, body: Any, key: str | None) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        async with (
            aiohttp.ClientSession(headers=headers) as session,
            session.request(method, self.url + path, json=body) as response,
        ):
            text = await response.text()
        with contextlib.suppress(ValueError):
            return response.status, json.loads(text)
        return response.status, text

    def lines(self, body: dict[str, Any], *, timeout_s: float = 30) -> list[bytes]:
        """All lines of a streamed generation."""
        return asyncio.run(self._lines(body, timeout_s))

    async def _lines(self, body: dict[str, Any], timeout_s: float) -> list[bytes]:
        async with (
            aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {KEY}"},
                read_bufsize=1 << 22,
                timeout=aiohttp.ClientTimeout(total=timeout_s),
            ) as session,
            session.post(self.url + "/generate", json=body | {"stream": True}) as response,
        ):
            assert response.status == 200, await response.text()
            return [line async for line in response.content]

    def generate(self, ids: list[int], **sampling: Any) -> Answer:
        """One checked generation, as the farm's client reads it."""
        reader = StreamReader()
        for line in self.lines({"input_ids": ids, "sampling_params": sampling}):
            reader.feed(line, 0.0)
        return reader.finish()

    def wait_ready(self) -> Emulated:
        """Return when the engine is healthy."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(aiohttp.ClientError):
                if self.call("GET", "/health", key=None)[0] == 200:
                    return self
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())


class Starter:
    """Starts engines and ends them all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: list[Emulated] = []

    def __call__(
        self,
        *args: str,
        faults: Any = None,
        env: dict[str, str] | None = None,
        speed: float = SPEED,
        ready: bool = True,
    ) -> Emulated:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        log = self._folder / f"engine-{port}.log"
        command = [
            *(sys.executable, "-m", "farm.engines.emulated", "--model-path", "/nowhere", "--port", str(port)),
            *(
                "--api-key",
                KEY,
                "--emulation-speed",
                str(speed),
                "--emulation-start-speed",
                str(SPEED),
                "--incremental-streaming-output",
                "--enable-metrics",
            ),
            *args,
        ]
        settings = {"FARM_EMULATION_FAULTS": json.dumps(faults)} if faults is not None else {}
        with log.open("wb") as output:
            process = subprocess.Popen(
                command, env=os.environ | settings | (env or {}), stdout=output, stderr=output, cwd=REPOSITORY
            )
        engine = Emulated(process, f"http://127.0.0.1:{port}", log)
        self._started.append(engine)
        return engine.wait_ready() if ready else engine

    def stop_all(self) -> None:
        for engine in self._started:
            if engine.process.poll() is None:
                engine.process.send_signal(signal.SIGKILL)
            engine.process.wait()


@pytest.fixture(scope="module")
def emulated_engines(tmp_path_factory: pytest.TempPathFactory) -> Callable[[], AbstractContextManager[Starter]]:
    """What starts engines; a test that uses it bears the marker `engine`."""

    @contextlib.contextmanager
    def starter() -> Iterator[Starter]:
        made = Starter(tmp_path_factory.mktemp("engines"))
        try:
            yield made
        finally:
            made.stop_all()

    return starter


@pytest.fixture
def start(emulated_engines: Callable[[], AbstractContextManager[Starter]]) -> Iterator[Starter]:
    """Starts engines for one test."""
    with emulated_engines() as starter:
        yield starter


@pytest.fixture(scope="module")
def shared(emulated_engines: Callable[[], AbstractContextManager[Starter]]) -> Iterator[Starter]:
    """Starts engines for a whole module."""
    with emulated_engines() as starter:
        yield starter


@pytest.fixture(scope="module")
def plain(shared: Starter) -> Emulated:
    """The baseline."""
    return shared(*BASELINE)


@pytest.fixture(scope="module")
def fast(shared: Starter) -> Emulated:
    """All optimisations."""
    return shared(*NEXTN, env=FP8_HEAD | {"SGLANG_EXPOSE_OWN_ENV_VARS": "1"})
