"""A ready engine: launched, proven to generate, its own account of itself harvested."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from farm.engines import process
from farm.engines.base import EngineCommand, Evidence, Facts, Generation, OnPhase, Phase, RunningEngine
from farm.engines.process import EngineProcess
from farm.engines.sglang.client import STALL_TIMEOUT_S, EngineClient
from farm.engines.sglang.facts import SGLANG_DIALECT, Dialect, facts_of
from farm.engines.sglang.phases import FIRST_TOKENS, STARTING, following
from farm.engines.sglang.server_info import ServerInfo
from farm.errors import EngineError, EngineStartError
from farm.redaction import masked, masked_text

_POLL_S: Final = 0.25
_READINESS_SAMPLING: Final = {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True}


@dataclass
class RunningServer(RunningEngine):
    """A server that speaks SGLang's protocol and has answered a real generation."""

    process: EngineProcess
    client: EngineClient
    server_info: ServerInfo
    start_s: float  # from launch to the first generated tokens
    dialect: Dialect = SGLANG_DIALECT
    evidence: Evidence = field(default_factory=lambda: Evidence("processes"))  # what it has shown so far

    @property
    def facts(self) -> Facts:
        """What it says of itself."""
        return facts_of(self.server_info, self.start_s, self.evidence, self.dialect)

    async def tokenize_text(self, text: str) -> list[int]:
        """Token ids of plain text."""
        return await self.client.tokenize_text(text)

    async def tokenize_chat(self, messages: list[dict[str, str]], template_kwargs: Mapping[str, bool]) -> list[int]:
        """Token ids of chat messages."""
        return await self.client.tokenize_chat(messages, template_kwargs)

    async def detokenize(self, token_ids: list[int]) -> str:
        """Text of token ids."""
        return await self.client.text_of(token_ids)

    async def flush_cache(self) -> None:
        """Empty the prefix cache."""
        await self.client.flush_cache()

    async def metrics(self) -> str:
        """What `/metrics` answers; an emulated engine has none."""
        return await self.client.metrics()

    @property
    def alive(self) -> bool:
        """Whether its first process still runs."""
        return self.process.alive

    def explain(self) -> str:
        """The signal that ended it, if one did, and the words of its own log."""
        return self.process.explain()

    def following(self, on_phase: OnPhase) -> AbstractAsyncContextManager[None]:
        """What its log announces from now on."""
        return following(self.process.log, on_phase)

    async def generate(
        self, input_ids: list[int], sampling: Mapping[str, float], *, start_timeout_s: float | None = None
    ) -> Generation:
        """One answer, streamed and timed; see `EngineClient.generate`."""
        return self.dialect.generation_of(
            await self.client.generate(input_ids, sampling, start_timeout_s=start_timeout_s)
        )

    async def why(self, error: EngineError) -> str:
        """Why a request failed: the log's own error if the engine died of it, else the client's.

        A dead engine refuses connections at once, and its guard reports its death when the rest of it has ended.
        """
        deadline = time.monotonic() + process.GRACE_S + 1
        while self.process.alive and time.monotonic() < deadline and not await self.client.healthy():
            await asyncio.sleep(_POLL_S)
        if self.process.alive:
            return masked_text(str(error), self.process.secrets)
        return f"the engine died: {self.process.explain()}"

    async def stop(self) -> None:
        """End the engine's whole process tree; its log no longer holds its secrets afterwards."""
        # The engine first: its end breaks off every stream. Closing the client wakes nobody who reads one (aiohttp).
        await asyncio.to_thread(self.process.stop)
        await self.client.__aexit__(None, None, None)
        await asyncio.to_thread(mask_log, self.process.log, self.process.secrets)


async def launch(
    command: EngineCommand,
    log: Path,
    *,
    start_timeout_s: float,
    request_timeout_s: float,
    stall_timeout_s: float = STALL_TIMEOUT_S,
    extra_env: Mapping[str, str] | None = None,
    on_phase: OnPhase = lambda phase: None,
    dialect: Dialect = SGLANG_DIALECT,
) -> RunningServer:
    """Start an engine and wait until it generates; `on_phase` is told what the engine's log says it is doing.

    Raises:
        EngineStartError: it died, or was not ready in time; the message is its log's own error.
    """
    started = time.monotonic()
    engine = process.start(command, log, extra_env=extra_env)
    client = EngineClient(
        engine.url, engine.api_key, request_timeout_s=request_timeout_s, stall_timeout_s=stall_timeout_s
    )
    reached = STARTING

    def reach(phase: Phase) -> None:
        nonlocal reached
        reached = phase
        on_phase(phase)

    try:
        async with asyncio.timeout(start_timeout_s), following(log, reach):
            while not await client.healthy():
                if not engine.alive:
                    raise EngineStartError(f"the engine died while starting: {engine.explain()} (log: {log})")
                await asyncio.sleep(_POLL_S)
            reach(FIRST_TOKENS)
            # Health may answer while generation hangs, so only tokens prove that it is ready.
            prompt = await client.tokenize_text("The engine is ready when this goes on.")
            await client.generate(prompt, _READINESS_SAMPLING, start_timeout_s=start_timeout_s)
            start_s = time.monotonic() - started
            server_info = ServerInfo.model_validate(masked(await client.server_info(), engine.secrets))
            return RunningServer(engine, client, server_info, start_s, dialect)
    except BaseException as error:
        said = engine.explain()
        failed = RunningServer(engine, client, ServerInfo(), 0.0)
        await asyncio.shield(failed.stop())
        if isinstance(error, TimeoutError):
            raise EngineStartError(
                f"the engine was not ready after {start_timeout_s:g} s, while {reached}: {said} (log: {log}); "
                "raise engine.start_timeout_s if it only needs longer"
            ) from error
        if isinstance(error, ValidationError):
            raise EngineStartError(f"the engine's /server_info is not SGLang's: {error} (log: {log})") from error
        if isinstance(error, EngineError) and not isinstance(error, EngineStartError):
            raise EngineStartError(f"the engine started and does not generate: {error} (log: {log})") from error
        raise


def mask_log(log: Path, secrets: Collection[str]) -> None:
    """Take secrets out of a finished log: those that are known, wherever they stand, and what looks like one.

    Line by line, for a log may be large.
    """
    masked_copy = log.with_suffix(".masked")
    try:
        with (
            log.open(encoding="utf-8", errors="surrogateescape", newline="") as lines,
            masked_copy.open("w", encoding="utf-8", errors="surrogateescape", newline="") as copy,
        ):
            copy.writelines(masked_text(line, secrets) for line in lines)
        masked_copy.replace(log)
    except OSError:
        # A log that cannot be rewritten must not stop the sweep; what holds secrets is not kept then.
        masked_copy.unlink(missing_ok=True)
        log.unlink(missing_ok=True)
