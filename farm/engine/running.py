"""A ready engine: launched, proven to generate, its own account of itself harvested."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from farm.engine import process
from farm.engine.client import EngineClient
from farm.engine.command import EngineCommand
from farm.engine.process import EngineProcess
from farm.errors import EngineError, EngineStartError

_POLL_S: Final = 0.25
_SECRET: Final = re.compile(r"(api_?key|token|secret|password|credential)s?$", re.IGNORECASE)
_READINESS_SAMPLING: Final = {"temperature": 0.0, "max_new_tokens": 4, "ignore_eos": True}


@dataclass
class RunningEngine:
    """An engine that has answered a real generation."""

    process: EngineProcess
    client: EngineClient
    server_info: dict[str, Any]
    start_s: float  # from launch to the first generated tokens

    async def stop(self) -> None:
        """End the engine's whole process tree; its log no longer holds its key afterwards."""
        await self.client.__aexit__(None, None, None)
        await asyncio.to_thread(self.process.stop)
        await asyncio.to_thread(redact_log, self.process.log, self.process.api_key)


async def launch(
    command: EngineCommand,
    log: Path,
    *,
    start_timeout_s: float,
    request_timeout_s: float,
    extra_env: Mapping[str, str] | None = None,
) -> RunningEngine:
    """Start an engine and wait until it generates.

    Raises:
        EngineStartError: it died, or was not ready in time; the message is its log's own error.
    """
    started = time.monotonic()
    engine = process.start(command, log, extra_env=extra_env)
    client = EngineClient(engine.url, engine.api_key, request_timeout_s=request_timeout_s)
    try:
        while not await client.healthy():
            if not engine.alive:
                raise EngineStartError(f"the engine died while starting: {engine.explain()} (log: {log})")
            if time.monotonic() - started > start_timeout_s:
                raise EngineStartError(
                    f"the engine was not ready after {start_timeout_s:g} s: {engine.explain()} (log: {log}); "
                    "raise engine.start_timeout_s if it only needs longer"
                )
            await asyncio.sleep(_POLL_S)
        # Health may answer while generation hangs, so only tokens prove that it is ready.
        await client.generate(await client.tokenize_text("The engine is ready when this goes on."), _READINESS_SAMPLING)
        start_s = time.monotonic() - started
        return RunningEngine(engine, client, redacted(await client.server_info()), start_s)
    except BaseException as error:
        failed = RunningEngine(engine, client, {}, 0.0)
        await asyncio.shield(failed.stop())
        if isinstance(error, EngineError) and not isinstance(error, EngineStartError):
            raise EngineStartError(f"the engine started and does not generate: {error} (log: {log})") from error
        raise


def redacted(value: Any) -> Any:
    """A copy of JSON-like data without the values of keys and of command line flags that name a secret."""
    if isinstance(value, dict):
        # Numbers are no secrets: `max_total_tokens` must stay what it is.
        hidden = {key for key, entry in value.items() if isinstance(entry, str) and entry and _SECRET.search(str(key))}
        return {key: "***" if key in hidden else redacted(entry) for key, entry in value.items()}
    if isinstance(value, list):
        after_flag = [False, *(isinstance(entry, str) and _is_secret_flag(entry) for entry in value[:-1])]
        return ["***" if hide else redacted(entry) for hide, entry in zip(after_flag, value, strict=False)]
    if isinstance(value, str) and "--" in value:
        return re.sub(r"(--[\w-]*(?:key|token|secret|password)[= ])\S+", r"\1***", value, flags=re.IGNORECASE)
    return value


def redact_log(log: Path, api_key: str) -> None:
    """Take the launch's key out of a finished log."""
    try:
        content = log.read_bytes()
        if api_key.encode() in content:
            log.write_bytes(content.replace(api_key.encode(), b"***"))
    except OSError:
        # The key died with its engine; a log that cannot be rewritten must not stop the sweep.
        return


def _is_secret_flag(text: str) -> bool:
    return text.startswith("-") and bool(_SECRET.search(text.replace("-", "_")))
