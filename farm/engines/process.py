"""The engine's process tree: started under a guard on a free loopback port, ended whole, explained when it fails."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from farm.engines import guard
from farm.engines.base import EngineCommand
from farm.errors import EngineStartError
from farm.redaction import is_secret, masked_text, secret_values

# An engine is idle when it is stopped, and SGLang alone takes 5 to 20 s to notice SIGTERM.
GRACE_S: Final = 3.0
# The engine's environment is its own: paths that lead into the farm's would mix two sets of packages.
NOT_INHERITED: Final = frozenset({"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"})
_LOG_TAIL_BYTES: Final = 64 * 1024
# What names the cause in an SGLang log, the last such line winning.
_CAUSE: Final = re.compile(r"^(?:\[[^\]]*\]\s*)?([A-Za-z_.]*(?:Error|Exception|Interrupt)\b:?.*|.*\berror: .*)$")
# SGLang complains of this at every start, and goes on.
_NO_CAUSE: Final = "freeze_gc"


@dataclass
class EngineProcess:
    """A started engine.

    Attributes:
        api_key: of this launch alone, and passed on the command line of no other process.
        secrets: values that must not be shown, the key among them.
    """

    guard: subprocess.Popen[bytes]
    port: int
    api_key: str
    log: Path
    secrets: frozenset[str] = frozenset()
    started_s: float = field(default_factory=time.monotonic)

    @property
    def url(self) -> str:
        """Base address of the engine."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def alive(self) -> bool:
        """Whether the engine's first process still runs."""
        return self.guard.poll() is None

    def pids(self) -> list[int]:
        """All processes of the engine, the guard not counted."""
        return guard.descendants(self.guard.pid)

    def stop(self) -> None:
        """End the whole tree and return when nothing of it is left."""
        with contextlib.suppress(OSError):
            assert self.guard.stdin is not None
            self.guard.stdin.close()
        try:
            self.guard.wait(GRACE_S + 20)
        except subprocess.TimeoutExpired:
            for pid in [*self.pids(), self.guard.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self.guard.wait()
        # A guard that was killed has ended nothing.
        guard.end_orphans()

    def explain(self) -> str:
        """Why it failed: the signal that ended it, if one did, and the words of its own log.

        SGLang kills itself after an error that its log tells; a kill from outside, by the kernel for memory, is told
        by the signal alone.
        """
        said = masked_text(explain_log(self.log), self.secrets)
        status = self.guard.poll() or 0
        if status - 128 in (signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGTERM):
            return f"it was ended by {signal.Signals(status - 128).name}; its log says last: {said}"
        return said


def start(command: EngineCommand, log: Path, *, extra_env: Mapping[str, str] | None = None) -> EngineProcess:
    """Launch an engine; it is not ready yet. What is left of engines whose guard was killed is ended first.

    Args:
        command: what to run, without port and key.
        log: file that receives the output of the whole tree.
        extra_env: environment of this node, laid over the farm's own and under the command's.

    Raises:
        EngineStartError: its log cannot be written, or there is no such program.
    """
    guard.end_orphans()
    port = _free_port()
    # Hexadecimal: a key that began with a dash would read as an option.
    api_key = secrets.token_hex(24)
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in NOT_INHERITED and not is_secret(name) and masked_text(value) == value
    }
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [
                    sys.executable,
                    guard.__file__,
                    str(GRACE_S),
                    *command.argv,
                    "--port",
                    str(port),
                    "--api-key",
                    api_key,
                ],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=inherited | dict(extra_env or {}) | command.env,
                cwd="/",
                start_new_session=True,
            )
    except OSError as error:
        raise EngineStartError(
            f"{log}: {error.strerror or error}; free this node's disk, or make the folder writable"
        ) from error
    known = secret_values(list(command.argv)) | secret_values(command.env)
    return EngineProcess(process, port, api_key, log, frozenset(known | {api_key}))


def explain_log(log: Path) -> str:
    """The log's own error: its last line that names one, else its last lines."""
    try:
        with log.open("rb") as handle:
            handle.seek(max(0, log.stat().st_size - _LOG_TAIL_BYTES))
            lines = handle.read().decode(errors="replace").splitlines()
    except OSError as error:
        return f"its log cannot be read: {error}"
    written = [line.strip() for line in lines if line.strip()]
    for line in reversed(written):
        if (match := _CAUSE.match(line)) and not line.startswith("KeyboardInterrupt") and _NO_CAUSE not in line:
            return match[1][:500]
    return " | ".join(written[-3:])[:500] or "its log is empty"


def _free_port() -> int:
    """A port that is free now; a fresh one for each launch, since an old one may still answer for a dead engine."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
