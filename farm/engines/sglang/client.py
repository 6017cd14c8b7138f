"""HTTP to one engine over loopback: what SGLang 0.5.23's native endpoints are asked, and how errors are told apart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final

import aiohttp

from farm.engines.sglang.stream import Answer, StreamReader
from farm.errors import EngineGone, RequestRefused, StreamBroken

_CONTROL_TIMEOUT_S: Final = 60.0
_MAX_LINE_BYTES: Final = 1 << 22
# SGLang closes connections that were idle for 5 s; one that is used at that moment looks like an engine that is gone.
_KEEPALIVE_S: Final = 2.0
_REQUEST_LIMIT: Final = "engine.request_timeout_s"
_START_LIMIT: Final = "engine.start_timeout_s"
STALL_TIMEOUT_S: Final = 300.0
# Before the first chunk a prompt of 32k tokens is read, and kernels may be compiled for its shape.
_FIRST_CHUNK_FACTOR: Final = 4.0


class EngineClient:
    """One engine's endpoints. Use it as an async context manager.

    Every method raises `EngineGone` when the engine does not answer in time or at all, or fails inside (HTTP 5xx),
    `RequestRefused` when it refuses what it is asked, and `StreamBroken` when its answer is not what SGLang sends.
    """

    def __init__(
        self, url: str, api_key: str, *, request_timeout_s: float, stall_timeout_s: float = STALL_TIMEOUT_S
    ) -> None:
        """Bounds of one generation: `request_timeout_s` from sending to the last chunk, and `stall_timeout_s` from one
        chunk to the next, four times that to the first."""
        self._request_timeout_s = request_timeout_s
        self._stall_timeout_s = stall_timeout_s
        self._session = aiohttp.ClientSession(
            url,
            headers={"Authorization": f"Bearer {api_key}"},
            read_bufsize=_MAX_LINE_BYTES,
            # Loopback only: a proxy from the environment has no business here.
            trust_env=False,
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEPALIVE_S),
            timeout=aiohttp.ClientTimeout(total=min(_CONTROL_TIMEOUT_S, _FIRST_CHUNK_FACTOR * stall_timeout_s)),
        )

    async def __aenter__(self) -> EngineClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def healthy(self) -> bool:
        """Whether `/health` answers 200; false while the engine starts, and once this client is closed."""
        if self._session.closed:
            return False
        try:
            async with self._session.get("/health", timeout=aiohttp.ClientTimeout(total=5)) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def server_info(self) -> Any:
        """All that the engine says of its resolved arguments and state."""
        return await self._json("GET", "/server_info")

    async def metrics(self) -> str:
        """The engine's own numbers, in Prometheus' text format."""
        async with self._request("GET", "/metrics") as response:
            return await response.text(errors="replace")

    async def flush_cache(self) -> None:
        """Empty the prefix cache; waits until the engine is idle."""
        async with self._request("POST", "/flush_cache?timeout=10"):
            pass

    async def tokenize_text(self, text: str) -> list[int]:
        """Token ids of plain text, as the model's tokenizer gives them."""
        return await self._token_ids({"prompt": text})

    async def tokenize_chat(self, messages: list[dict[str, str]], template_kwargs: Mapping[str, bool]) -> list[int]:
        """Token ids of chat messages in the engine's own chat template, ready for generation."""
        body = {"messages": messages, "chat_template_kwargs": template_kwargs}
        return await self._token_ids(body)

    async def text_of(self, token_ids: list[int]) -> str:
        """Text of token ids, special tokens included."""
        body = {"tokens": token_ids, "skip_special_tokens": False}
        text = (await self._json("POST", "/detokenize", body)).get("text")
        if not isinstance(text, str):
            raise StreamBroken("/detokenize did not answer with text")
        return text

    async def generate(
        self, input_ids: list[int], sampling: Mapping[str, float], *, start_timeout_s: float | None = None
    ) -> Answer:
        """Stream one generation and time it.

        Args:
            input_ids: the prompt.
            sampling: sampling parameters by SGLang's names.
            start_timeout_s: for a request that belongs to an engine's start and is not measured: it may wait minutes
                for kernels to be compiled, so this alone bounds it.

        Raises:
            StreamBroken: the stream is malformed, ends early, or counts impossibly.
            EngineGone: it stopped for longer than the stall timeout, or took longer than the request timeout.
        """
        reader = StreamReader()
        body = {"input_ids": input_ids, "sampling_params": sampling, "stream": True}
        clock, now = time.perf_counter, asyncio.get_running_loop().time
        sent = clock()
        total_s, limit_name = self._request_timeout_s, _REQUEST_LIMIT
        patience_s: float | None = _FIRST_CHUNK_FACTOR * self._stall_timeout_s
        if start_timeout_s is not None:
            total_s, limit_name, patience_s = start_timeout_s, _START_LIMIT, None
        stall = asyncio.timeout(patience_s)
        try:
            async with stall, self._request("POST", "/generate", body, total_s, limit_name) as response:
                async for line in response.content:
                    # Microseconds: below them lies the event loop's own jitter, and a journal twice the size.
                    reader.feed(line, round(clock() - sent, 6))
                    if start_timeout_s is None:
                        patience_s = self._stall_timeout_s
                        stall.reschedule(now() + patience_s)
        except TimeoutError as error:
            raise EngineGone(
                f"the stream stopped after {reader.tokens} tokens: nothing came for {patience_s:g} s; raise "
                "engine.stall_timeout_s if the engine only needs longer"
            ) from error
        except ValueError as error:  # aiohttp: a line beyond the buffer
            raise StreamBroken(f"a chunk is larger than {_MAX_LINE_BYTES} bytes") from error
        answer = reader.finish()
        limit = sampling.get("max_new_tokens")
        if answer.meta["prompt_tokens"] != len(input_ids) or (limit and answer.completion_tokens > limit):
            raise StreamBroken(
                f"impossible token counts: {answer.meta['prompt_tokens']} of the prompt's {len(input_ids)} and "
                f"{answer.completion_tokens} of at most {limit}"
            )
        return answer

    async def _token_ids(self, body: object) -> list[int]:
        tokens = (await self._json("POST", "/tokenize", body)).get("tokens")
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise StreamBroken("/tokenize did not answer with token ids")
        return tokens

    async def _json(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        async with self._request(method, path, body) as response:
            try:
                reply = await response.json(content_type=None)
            except (ValueError, RecursionError) as error:
                raise StreamBroken(f"{path} did not answer with JSON") from error
        if not isinstance(reply, dict):
            raise StreamBroken(f"{path} did not answer with a JSON object")
        return reply

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        body: object = None,
        timeout_s: float | None = None,
        limit_name: str | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._session.closed:  # another cell saw this engine fail, and it is being ended
            raise EngineGone(f"{path.partition('?')[0]}: the engine was given up")
        timeout = self._session.timeout if timeout_s is None else aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.request(method, path, json=body, timeout=timeout) as response:
                if response.status != 200:
                    text = " ".join((await response.text(errors="replace")).split())
                    message = f"{path.partition('?')[0]} answered {response.status}: {text[:300]}"
                    # A refusal would be repeated by any engine; an engine that fails inside is broken.
                    raise (EngineGone if response.status >= 500 else RequestRefused)(message)
                yield response
        except TimeoutError as error:
            advice = f"; raise {limit_name} if the engine only needs longer" if limit_name else ""
            raise EngineGone(f"{path} did not finish within {timeout.total:g} s{advice}") from error
        except aiohttp.ClientPayloadError as error:
            raise StreamBroken(f"{path}: the answer broke off: {error}") from error
        except aiohttp.ClientError as error:
            raise EngineGone(f"{path}: {error or type(error).__name__}") from error
