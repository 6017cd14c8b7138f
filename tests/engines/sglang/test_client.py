"""The farm's HTTP client against servers that are not what they should be: always a declared error, and in time."""

import asyncio
import json
import time

import pytest
from aiohttp import web

from farm.engines.sglang.client import EngineClient
from farm.errors import EngineGone, RequestRefused, StreamBroken

STOP = {"type": "stop", "matched": 2}
CALLS = {
    "server_info": lambda client: client.server_info(),
    "flush_cache": lambda client: client.flush_cache(),
    "tokenize": lambda client: client.tokenize_text("a"),
    "tokenize chat": lambda client: client.tokenize_chat([{"role": "user", "content": "a"}], {}),
    "detokenize": lambda client: client.text_of([1]),
    "generate": lambda client: client.generate([1, 2, 3], {"max_new_tokens": 4}),
}


def chunk(tokens, ids, finish=None, prompt=3):
    meta = {"completion_tokens": tokens, "prompt_tokens": prompt, "cached_tokens": 0, "finish_reason": finish}
    return b"data: " + json.dumps({"text": "x", "output_ids": ids, "meta_info": meta}).encode() + b"\n\n"


def ask(handler, call, *, stall_timeout_s=0.3, request_timeout_s=20):
    """What a call gets from a server that answers everything with `handler`."""

    async def go():
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", handler)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = site._server.sockets[0].getsockname()[1]
        try:
            async with EngineClient(
                f"http://127.0.0.1:{port}", "key", request_timeout_s=request_timeout_s, stall_timeout_s=stall_timeout_s
            ) as client:
                return await call(client)
        finally:
            await runner.cleanup()

    return asyncio.run(go())


def stream(*parts, then_hang=False):
    """A handler that sends these parts, each as it is."""

    async def handler(request):
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for part in parts:
            await (asyncio.sleep(part) if isinstance(part, float) else response.write(part))
        if then_hang:
            await asyncio.Event().wait()
        return response

    return handler


def reply(status, body, content_type="application/json"):
    async def handler(request):
        return web.Response(status=status, body=body, content_type=content_type)

    return handler


@pytest.mark.parametrize("call", CALLS)
def test_a_refusal_keeps_the_engines_words(call):
    with pytest.raises(RequestRefused, match="no such field"):
        ask(reply(400, b'{"error": {"message": "no such field"}}'), CALLS[call])


@pytest.mark.parametrize("call", CALLS)
def test_a_failure_inside_the_engine_asks_for_a_fresh_one(call):
    with pytest.raises(EngineGone, match="answered 500"):
        ask(reply(500, b"Internal Server Error"), CALLS[call])


@pytest.mark.parametrize("body", [b"", b"{", b"<html>", b"null", b"[1]", b"3", b'"x"', b"\xff\xfe\x00", b"[" * 10**5])
@pytest.mark.parametrize("call", [name for name in CALLS if name != "flush_cache"])
def test_a_malformed_answer_is_said_to_be_one(call, body):
    with pytest.raises(StreamBroken):
        ask(reply(200, body), CALLS[call])


@pytest.mark.parametrize(
    "body", [b"{}", b'{"tokens": null}', b'{"tokens": ["1"]}', b'{"tokens": [true]}', b'{"text": 3}']
)
@pytest.mark.parametrize("call", ["tokenize", "tokenize chat", "detokenize"])
def test_an_answer_without_what_was_asked_for(call, body):
    with pytest.raises(StreamBroken):
        ask(reply(200, body), CALLS[call])


@pytest.mark.parametrize("call", CALLS)
def test_nobody_listens(call):
    async def go():
        async with EngineClient("http://127.0.0.1:9", "key", request_timeout_s=5) as client:
            assert not await client.healthy()
            await CALLS[call](client)

    with pytest.raises(EngineGone):
        asyncio.run(go())


@pytest.mark.parametrize("call", CALLS)
def test_a_connection_that_is_cut(call):
    async def handler(request):
        request.transport.abort()

    with pytest.raises(EngineGone):
        ask(handler, CALLS[call])


def test_a_stream_that_stops_is_found_by_its_silence():
    with pytest.raises(EngineGone, match=r"after 2 tokens: nothing came for 0.3 s; raise engine.stall_timeout_s"):
        ask(stream(chunk(1, [7]), 0.1, chunk(2, [8]), then_hang=True), CALLS["generate"])


@pytest.mark.parametrize("handler", [stream(then_hang=True), stream(b": ping\n\n", then_hang=True)])
def test_a_stream_that_never_begins_is_found_too(handler):
    with pytest.raises(EngineGone, match="after 0 tokens"):
        ask(handler, CALLS["generate"], stall_timeout_s=0.1)


def test_a_slow_first_chunk_and_a_long_steady_stream_are_no_stall():
    parts = [1.5, *(part for token in range(1, 9) for part in (chunk(token, [token]), 0.2))]
    parts += [chunk(9, [9], STOP), b"data: [DONE]\n\n"]
    answer = ask(stream(*parts), lambda client: client.generate([1, 2, 3], {}), stall_timeout_s=1)
    assert answer.completion_tokens == 9


def test_a_stream_that_never_ends_is_bounded():
    parts = [part for token in range(1, 100) for part in (chunk(token, [token]), 0.05)]
    with pytest.raises(EngineGone, match="did not finish within 1 s; raise engine.request_timeout_s"):
        ask(stream(*parts), lambda client: client.generate([1, 2, 3], {}), request_timeout_s=1)


@pytest.mark.parametrize(
    "parts",
    [
        [chunk(1, [7]), b"data: " + b"x" * (5 << 20)],  # no line is that long
        [chunk(5, [1, 2, 3, 4, 5], STOP), b"data: [DONE]\n\n"],  # four were asked for
        [chunk(1, [1], STOP, prompt=4), b"data: [DONE]\n\n"],  # three were sent
        [chunk(1, [1])],
        [],
    ],
)
def test_a_stream_that_cannot_be_right(parts):
    with pytest.raises(StreamBroken):
        ask(stream(*parts), CALLS["generate"], stall_timeout_s=5)


def test_a_step_of_the_wall_clock_shows_in_no_duration(monkeypatch):
    clock, began = time.time, time.monotonic()
    monkeypatch.setattr("time.time", lambda: clock() - (3600 if time.monotonic() > began + 0.3 else 0))
    parts = [0.2, chunk(1, [1]), 0.3, chunk(2, [2], STOP), b"data: [DONE]\n\n"]
    answer = ask(stream(*parts), CALLS["generate"], stall_timeout_s=5)
    assert answer.ttft_s >= 0.2
    assert answer.ttft_s + 0.25 <= answer.latency_s < 60
    assert answer.chunk_times_s == sorted(answer.chunk_times_s)
