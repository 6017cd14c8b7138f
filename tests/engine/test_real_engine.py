"""The engine layer on real SGLang: one CPU engine with NEXTN serves all tests of this file."""

import asyncio
import os
import signal
import sys

import psutil
import pytest
from support import REPOSITORY

from farm.builtin.catalogue import builtin_model
from farm.engines.base import EngineCommand
from farm.engines.registry import engine_of
from farm.engines.sglang.running import launch
from farm.engines.sglang.stream import generation_of
from farm.errors import EngineGone, EngineStartError, RequestRefused, StreamBroken
from farm.spec.loading import load_sweep
from farm.workloads import gsm8k
from farm.workloads.gsm8k import Gsm8kWorkload

pytestmark = pytest.mark.engine
# What the tiny model's linear attention needs on a CPU, and room for a long generation.
TINY_ARGS = [
    "mamba-radix-cache-strategy=no_buffer",
    "disable-overlap-schedule=true",
    "max-mamba-cache-size=8",
    "max-total-tokens=32768",
]
GREEDY = {"temperature": 0.0, "max_new_tokens": 48, "ignore_eos": True}


@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


def command_of(variant, cpu_engine, model):
    sweep = load_sweep(REPOSITORY / "jobs" / "sweeps" / "quickstart.yaml", [f"engine.args.{arg}" for arg in TINY_ARGS])
    return engine_of(sweep).command(sweep, sweep.variant(variant), model_path=str(model), python=str(cpu_engine))


@pytest.fixture(scope="module")
def engine(loop, cpu_engine, tmp_path_factory):
    command = command_of("nextn", cpu_engine, builtin_model("tiny-bailing-v3"))
    log = tmp_path_factory.mktemp("engine") / "engine.log"
    engine = loop.run_until_complete(launch(command, log, start_timeout_s=300, request_timeout_s=120))
    yield engine
    if engine.process.alive:
        loop.run_until_complete(engine.stop())


@pytest.fixture(scope="module")
def client(engine):
    return engine.client


def chat_ids(loop, client, text, **kwargs):
    return loop.run_until_complete(client.tokenize_chat([{"role": "user", "content": text}], kwargs))


def test_client_and_engine_agree_on_the_same_requests(loop, client):
    """Token counts equal, speculation included; times of the client enclose the engine's own, and by far less than they
    last on any machine that can run this."""
    several = False
    for number in range(8):
        loop.run_until_complete(client.flush_cache())
        ids = chat_ids(loop, client, f"{number} ducks lay {number + 3} eggs a day. How many eggs in a week?")
        answer = loop.run_until_complete(client.generate(ids, GREEDY))
        figures = generation_of(answer)
        assert figures.prompt_tokens == len(ids)
        assert figures.completion_tokens == 48 == answer.chunk_tokens[-1]
        assert figures.cached_tokens == 0
        histogram = figures.accept_histogram
        assert sum(histogram) == figures.verify_rounds
        assert sum(place * rounds for place, rounds in enumerate(histogram)) == figures.draft_tokens_accepted
        assert figures.draft_tokens_proposed == 3 * figures.verify_rounds
        assert 0 <= figures.latency_s - figures.engine_latency_s < 1
        assert 0 <= figures.ttft_s - figures.engine_ttft_s < 1
        steps = [after - before for before, after in zip(answer.chunk_tokens, answer.chunk_tokens[1:], strict=False)]
        several |= max(steps) > 1
    assert several, "speculation never gave several tokens in one chunk"


def test_a_reused_prefix_is_seen_in_cached_tokens_and_flushing_prevents_it(loop, client):
    """A conversation that goes on: the prompt, its answer, and more. The tiny model's state is kept where one ended."""
    ids = chat_ids(loop, client, "A train leaves at noon and " + "another one follows it, " * 40)
    run = loop.run_until_complete
    run(client.flush_cache())
    first = run(client.generate(ids, GREEDY | {"max_new_tokens": 8}))
    assert first.meta["cached_tokens"] == 0
    longer = ids + run(client.tokenize_text(first.text)) + [5, 6, 7]
    assert run(client.generate(longer, GREEDY)).meta["cached_tokens"] >= len(ids)
    run(client.flush_cache())
    assert run(client.generate(longer, GREEDY)).meta["cached_tokens"] == 0


def test_all_gsm8k_questions_are_tokenized_with_their_shots(loop, client, gsm8k_folder):
    """The 1,319 real questions with 5 train shots, by the engine's own tokenizer and template."""
    items = gsm8k.items(Gsm8kWorkload(kind="gsm8k", source=str(gsm8k_folder)))
    assert len(items) == 1319

    async def count():
        return [len(await client.tokenize_chat(item.messages, item.template_kwargs)) for item in items]

    lengths = loop.run_until_complete(count())
    assert min(lengths) > 500
    assert len({item.item_id for item in items}) == 1319


def test_it_listens_on_loopback_alone(engine):
    listening = {
        connection.laddr.ip
        for pid in engine.process.pids()
        for connection in psutil.Process(pid).net_connections("tcp")
        if connection.status == psutil.CONN_LISTEN and connection.laddr.port == engine.process.port
    }
    assert listening == {"127.0.0.1"}


def test_killed_in_the_middle_of_a_request(loop, engine):
    """The last test on this engine: its scheduler is killed while it generates, and nothing of the tree survives."""
    pids = engine.process.pids()
    assert len(pids) >= 3

    async def ask_and_kill():
        asking = asyncio.create_task(engine.client.generate([9, 8, 7], GREEDY | {"max_new_tokens": 20000}))
        await asyncio.sleep(1.0)
        scheduler = next(pid for pid in pids if "scheduler" in " ".join(psutil.Process(pid).cmdline()))
        os.kill(scheduler, signal.SIGKILL)
        await asking

    with pytest.raises((EngineGone, StreamBroken, RequestRefused)):
        loop.run_until_complete(ask_and_kill())
    loop.run_until_complete(engine.stop())
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
    assert engine.process.api_key not in engine.process.log.read_text()


def test_a_failed_start_is_explained_by_the_logs_own_error(loop, cpu_engine, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    command = command_of("baseline", cpu_engine, tmp_path)
    with pytest.raises(EngineStartError) as caught:
        loop.run_until_complete(launch(command, tmp_path / "engine.log", start_timeout_s=300, request_timeout_s=10))
    assert "Error" in str(caught.value)
    assert str(tmp_path / "engine.log") in str(caught.value)


def test_an_engine_that_never_gets_ready_is_ended(loop, tmp_path):
    command = EngineCommand((sys.executable, "-c", "import time; time.sleep(600)"), {})
    with pytest.raises(EngineStartError, match="not ready after 1 s"):
        loop.run_until_complete(launch(command, tmp_path / "log", start_timeout_s=1, request_timeout_s=10))
