"""What a starting engine is doing, as its own log tells it."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from farm.engines.base import OnPhase, Phase

_LOOK_EVERY_S: Final = 0.5

STARTING: Final = Phase("starting")
FIRST_TOKENS: Final = Phase("generating its first tokens")
PROVING: Final = Phase("proving that the variant is active")

# SGLang 0.5.23 with what it loads: the loaders' and the capture's progress bars, and the lines around them. FlashInfer
# and DeepGEMM say what they begin to compile; of Triton's kernels SGLang tells those that took a second or more, once
# it serves. What is compiled while graphs are captured, and all of Humming's, is compiled without a word.
_LINES: Final = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"Load weight begin", "loading weights"),
        (r"^(?:Loading |Multi-thread loading ).*?(?P<percent>\d+)%", "loading weights"),
        (r"Load weight end", "preparing weights and memory"),
        (r"Preparing \S+ MXFP4 experts", "preparing weights and memory"),
        (r"Building JIT module|DeepGEMM JIT|DeepGEMM warmup|Compiling num tokens", "compiling kernels"),
        (r"Triton kernel '\w+' took [\d.]+ s to compile", "compiling kernels"),
        (r"Capturing batches.*?: +(?P<percent>\d+)%", "capturing graphs"),
        (r"Capture .* begin", "capturing graphs"),
        (r"ready to roll", FIRST_TOKENS.name),
    )
)


def phase_of(line: str) -> Phase | None:
    """The phase that a line of an engine's log announces; None for any other line. Pure."""
    for pattern, name in _LINES:
        if match := pattern.search(line):
            percent = match.groupdict().get("percent")
            return Phase(name, None if percent is None else min(int(percent), 100) / 100)
    return None


@dataclass
class LogFollower:
    """Reads a growing log from its beginning, each time what is new."""

    log: Path
    _offset: int = 0
    _rest: str = ""
    _decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")(errors="replace")
    )

    def news(self) -> Phase | None:
        """The last phase that was announced since this was last asked; None if none was."""
        try:
            with self.log.open("rb") as handle:
                handle.seek(self._offset)
                content = handle.read()
        except OSError:
            return None  # not written yet, or not readable: the start itself says what is wrong
        self._offset += len(content)
        # A progress bar rewrites its line with carriage returns.
        *lines, self._rest = re.split(r"[\r\n]", self._rest + self._decoder.decode(content))
        return next((phase for line in reversed(lines) if (phase := phase_of(line)) is not None), None)


@asynccontextmanager
async def following(log: Path, on_phase: OnPhase) -> AsyncIterator[None]:
    """Tell `on_phase` what the log announces while the body runs."""
    follower = LogFollower(log)
    follower.news()  # what it holds already is known

    async def follow() -> None:
        while True:
            if (phase := follower.news()) is not None:
                on_phase(phase)
            await asyncio.sleep(_LOOK_EVERY_S)

    task = asyncio.create_task(follow())
    try:
        yield
    finally:
        task.cancel()
