"""The HTTP side of the emulated engine: SGLang 0.5.23's native endpoints, as far as the farm uses them."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

from aiohttp import web

from farm.engines.emulated import replies, requests, tokenizer
from farm.engines.emulated.answers import Answers, prompt_digest, thinks
from farm.engines.emulated.arguments import ServerArgs
from farm.engines.emulated.draws import predictability_of
from farm.engines.emulated.faults import Faults
from farm.engines.emulated.model import Setup
from farm.engines.emulated.prefix_cache import PrefixCache
from farm.engines.emulated.replies import Generation, Totals
from farm.engines.emulated.requests import Asked, are_ids
from farm.engines.emulated.schedule import Demand, chunk_ends, schedule

_FLUSH_POLL_S: Final = 2e-3
HEALTH_TIMEOUT_S: Final = 20.0
_MAX_BODY_BYTES: Final = 64 << 20
_DONE: Final = b"data: [DONE]\n\n"
_COLD_GENERATIONS: Final = 3  # a start's first tokens, the gate's probe, and one that warms it up


@dataclass(frozen=True)
class _Job(Generation):
    """One generation in progress.

    Attributes:
        number: how many were asked of this engine before it.
        began: when it got its place, on the event loop's clock.
        dies: the engine does not survive it.
    """

    number: int
    began: float
    dies: bool


class Engine:
    """The state of one emulated engine, and its handlers."""

    def __init__(
        self,
        args: ServerArgs,
        setup: Setup,
        faults: Faults,
        answers: Answers,
        info: Callable[[Totals], replies.ServerInfo],
        request_log: IO[str] | None = None,
    ) -> None:
        """`info` gives `/server_info` from the totals so far; `request_log` receives a line for each request."""
        self._args = args
        self._speed = args.emulation_speed
        self._chunk_gap_s = args.emulation_chunk_gap_ms / 1e3 * self._speed  # in the model's seconds
        self._setup = setup
        self._faults = faults
        self._answers = answers
        self._info = info
        self._request_log = request_log
        capacity = 0 if args.disable_radix_cache else replies.token_capacity(args)
        self._cache = PrefixCache(args.page_size, capacity)
        self._slots = asyncio.Semaphore(args.max_running_requests)
        self._open = 0
        self._received = 0
        self._hung = False
        self._totals = Totals()
        self._poison = [tokenizer.encode(space + faults.poison) for space in ("", " ")] if faults.poison else []

    def app(self) -> web.Application:
        """The web application."""
        middlewares = [self._authorised] if self._request_log is None else [self._logged, self._authorised]
        app = web.Application(middlewares=middlewares, client_max_size=_MAX_BODY_BYTES)
        app.add_routes(
            [
                web.get("/health", self._health),
                web.get("/health_generate", self._health),
                web.get("/server_info", self._server_info),
                web.post("/tokenize", self._tokenize),
                web.post("/detokenize", self._detokenize),
                web.get("/flush_cache", self._flush_cache),
                web.post("/flush_cache", self._flush_cache),
                web.post("/generate", self._generate),
            ]
        )
        return app

    @web.middleware
    async def _authorised(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        key = self._args.api_key
        if key and not request.path.startswith("/health") and request.headers.get("Authorization") != f"Bearer {key}":
            return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)

    @web.middleware
    async def _logged(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        assert self._request_log is not None
        received_s = time.monotonic()
        response = await handler(request)
        entry = {"path": request.path, "received_s": received_s, "finished_s": time.monotonic()}
        self._request_log.write(json.dumps(entry) + "\n")
        return response

    async def _health(self, request: web.Request) -> web.Response:
        if self._hung:
            await asyncio.sleep(HEALTH_TIMEOUT_S)
            return web.Response(status=503)
        return web.Response()

    async def _server_info(self, request: web.Request) -> web.Response:
        return web.json_response(text=self._info(self._totals).model_dump_json())

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = await _body(request)
        prompt, messages = body.get("prompt"), body.get("messages")
        if isinstance(messages, list) and all(isinstance(message, dict) for message in messages):
            ids = tokenizer.encode_chat(messages, thinking=thinks(body.get("chat_template_kwargs")))
        elif isinstance(prompt, str):
            ids = tokenizer.encode(prompt)
        else:
            raise _bad_request(f"Invalid prompt type: {type(prompt)}. Expected str or List[str].")
        return web.json_response({"tokens": ids, "count": len(ids), "max_model_len": self._args.context_length})

    async def _detokenize(self, request: web.Request) -> web.Response:
        body = await _body(request)
        ids: Any = body.get("tokens")
        if not are_ids(ids):
            raise _bad_request("Invalid tokens: expected List[int].")
        return web.json_response({"text": tokenizer.decode(ids, skip_special=body.get("skip_special_tokens", True))})

    async def _flush_cache(self, request: web.Request) -> web.Response:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + float(request.query.get("timeout", 0))
        while self._open:
            if loop.time() >= deadline:
                return web.Response(status=400, text="Flush cache failed.\n")
            await asyncio.sleep(_FLUSH_POLL_S)
        self._cache.clear()
        return web.Response(text="Cache flushed.\n")

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        body = await _body(request)
        number, received_ts = self._received, time.time()
        self._received += 1
        if _strikes(self._faults.error_after, number):
            return web.json_response({"error": {"message": "Internal server error"}}, status=500)
        streamed = body.get("stream") is True
        try:
            asked = requests.asked(body, self._args)
        except requests.UnknownField as error:
            return web.json_response({"error": str(error)}, status=400)
        except requests.Malformed as error:
            raise _bad_request(str(error)) from error
        except requests.PromptTooLong as error:
            return await self._refused(request, replies.aborted(self._args, str(error)), str(error), streamed=streamed)
        except ValueError as error:
            return await self._refused(request, replies.refused(str(error)), str(error), streamed=streamed)
        async with self._running() as (began, queue_s):
            if number < _COLD_GENERATIONS and self._faults.cold_s:
                await asyncio.sleep(self._faults.cold_s)
                began = asyncio.get_running_loop().time()
            demand = self._demand(asked)
            answer = schedule(
                demand, self._setup, slowdown=1 / self._faults.slow_clock, drafts_fail=self._faults.silent_fallback
            )
            dies = asked.kills or self._poisoned(asked.ids) or _strikes(self._faults.crash_after, number)
            job = _Job(asked.rid, demand, answer, received_ts, queue_s, number, began, dies)
            response = await (self._stream(request, job) if streamed else self._whole(job))
            self._totals.add(answer)
            self._cache.insert(asked.ids + answer.ids)
        return response

    @asynccontextmanager
    async def _running(self) -> AsyncIterator[tuple[float, float]]:
        """Take a place among the running requests: when it was free, and the model's seconds waited for it."""
        loop = asyncio.get_running_loop()
        self._open += 1
        try:
            asked, queued = loop.time(), self._slots.locked()
            async with self._slots:
                began = loop.time()
                yield began, (began - asked) * self._speed if queued else 0.0
        finally:
            self._open -= 1

    def _demand(self, asked: Asked) -> Demand:
        digest = prompt_digest(asked.ids)
        question, gold = self._answers.look_up(digest)
        tail = asked.ids[-8:]
        return Demand(
            digest=digest,
            question=question,
            prompt_tokens=len(asked.ids),
            cached_tokens=self._cache.match(asked.ids),
            predictability=predictability_of(asked.ids),
            limit=asked.limit,
            gold=gold,
            open_think=tokenizer.THINK_START in tail and tokenizer.THINK_END not in tail,
            ignore_eos=asked.ignore_eos,
            sampled=asked.temperature > 0,
            seed=asked.seed,
        )

    async def _whole(self, job: _Job) -> web.StreamResponse:
        await self._until(job, len(job.answer.times_s) - 1)
        if job.dies:
            os._exit(1)
        return web.json_response(self._chunk(job, 0, len(job.answer.times_s) - 1))

    async def _stream(self, request: web.Request, job: _Job) -> web.StreamResponse:
        response = _event_stream()
        await response.prepare(request)
        first = 0
        ends = chunk_ends(job.answer.times_s, self._chunk_gap_s)
        struck = ends[len(ends) // 2]
        for end in ends:
            await self._until(job, end)
            chunk = self._chunk(job, first, end)
            if end == ends[-1] and _strikes(self._faults.impossible_counts_after, job.number):
                chunk["meta_info"]["completion_tokens"] += 7
            line = _event(chunk)
            if end == struck:
                if job.dies:
                    os._exit(1)
                self._hung = self._hung or _strikes(self._faults.hang_after, job.number)
                if _strikes(self._faults.truncate_after, job.number):
                    return response
                if _strikes(self._faults.malformed_after, job.number):
                    line = line[: len(line) // 2] + b"\n\n"
            if self._hung:
                await asyncio.Event().wait()
            await response.write(line)
            first = end + 1
        await response.write(_DONE)
        return response

    async def _until(self, job: _Job, arrival: int) -> None:
        """Wait for an arrival by its absolute time, so that small delays do not add up."""
        due = job.began + job.answer.times_s[arrival] / self._speed
        await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

    def _chunk(self, job: _Job, first: int, end: int) -> replies.Chunk:
        """The chunk of the arrivals from `first` to `end`."""
        answer = job.answer
        tokens = answer.tokens[end]
        sent = answer.tokens[first - 1] if first and self._args.incremental_streaming_output else 0
        ids = answer.ids[sent:tokens]
        if end == len(answer.tokens) - 1:
            meta = replies.final_meta(self._args, job, first=first == 0, slow_clock=self._faults.slow_clock)
        else:
            meta = replies.chunk_meta(self._args, job, tokens, first=first == 0)
        text = tokenizer.decode(ids, skip_special=True)
        return {"text": text, "output_ids": ids, "meta_info": meta}

    async def _refused(
        self, request: web.Request, event: replies.Chunk | replies.Refused, message: str, *, streamed: bool
    ) -> web.StreamResponse:
        if not streamed:
            return web.json_response({"error": {"message": message}}, status=400)
        response = _event_stream()
        await response.prepare(request)
        await response.write(_event(event) + _DONE)
        return response

    def _poisoned(self, ids: list[int]) -> bool:
        return any(
            ids[start : start + len(poison)] == poison
            for poison in self._poison
            for start in range(len(ids) - len(poison) + 1)
        )


def _event(content: replies.Chunk | replies.Refused) -> bytes:
    return b"data: " + json.dumps(content).encode() + b"\n\n"


def _strikes(after: int | None, number: int) -> bool:
    return after is not None and number >= after


def _event_stream() -> web.StreamResponse:
    return web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})


def _bad_request(message: str) -> web.HTTPBadRequest:
    error = {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}
    return web.HTTPBadRequest(text=json.dumps(error), content_type="application/json")


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        body = await request.json()
    except ValueError as error:
        raise _bad_request(f"the body is not JSON: {error}") from error
    if not isinstance(body, dict):
        raise _bad_request("the body is not a JSON object")
    return body
