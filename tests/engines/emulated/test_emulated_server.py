"""The protocol, over HTTP, as the farm's own reader checks it."""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from farm.engines.emulated import answers, tokenizer
from farm.engines.emulated.shapes import VOCABULARY
from farm.types import Item

PROMPT = tokenizer.encode("Janet sells the remaining eggs every day. How much does she make? ") * 8
GREEDY = {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": 40}


def chunks(lines: list[bytes]) -> list[dict]:
    return [json.loads(line[5:]) for line in lines if line.startswith(b"data: {")]


def test_server_info_reports_the_resolved_settings(plain, fast):
    info = plain.call("GET", "/server_info")[1]
    assert (info["version"], info["moe_runner_backend"]) == ("0.5.23", "flashinfer_mxfp4")
    assert info["enable_fp32_lm_head"] is True
    assert info["speculative_algorithm"] is None
    assert "env_vars" not in info["internal_states"][0]
    fast.generate(PROMPT, **GREEDY)
    info = fast.call("GET", "/server_info")[1]
    assert (info["moe_runner_backend"], info["speculative_algorithm"]) == ("humming", "EAGLE")
    assert info["emulation_speed"] == 4000
    assert 342 <= info["startup_time"]["load_weight"] <= 382
    assert 460 < info["startup_time"]["tokenizer_e2e"] < 520
    state = info["internal_states"][0]
    assert state["env_vars"]["SGLANG_ENABLE_FP8_LM_HEAD"] == "1"
    assert state["avg_spec_accept_length"] > 1


def test_a_later_start_on_a_node_is_warm(start):
    info = start(env={"FARM_EMULATION_LAUNCH": "3"}).call("GET", "/server_info")[1]
    assert info["startup_time"]["tokenizer_e2e"] < 460


def test_the_last_chunk_has_every_arrival_on_the_models_clock(plain):
    meta = plain.generate(PROMPT, **GREEDY).meta
    assert meta["emulation_chunk_tokens"] == list(range(1, 41))
    assert len(meta["emulation_chunk_times_s"]) == 40
    assert meta["emulation_chunk_times_s"][0] == meta["emulation_ttft_s"]
    assert (
        meta["emulation_chunk_times_s"][-1]
        == meta["emulation_latency_s"]
        == pytest.approx(meta["e2e_latency"], abs=1e-5)
    )


def test_under_speculation_a_round_is_an_arrival(fast):
    meta = fast.generate(PROMPT, temperature=0.6, max_new_tokens=32_000, sampling_seed=5).meta
    assert meta["spec_verify_ct"] == len(meta["emulation_chunk_tokens"]) - 1


def test_real_arrivals_follow_the_model_at_real_speed(shared):
    engine = shared(speed=50)
    engine.generate(PROMPT, **GREEDY)
    events = chunks(engine.lines({"input_ids": PROMPT, "sampling_params": GREEDY}))
    assert len(events) < 40  # 0.5 ms apart are sent together
    began = time.monotonic()
    answer = engine.generate(list(reversed(PROMPT)), **GREEDY | {"max_new_tokens": 400})
    assert time.monotonic() - began >= answer.meta["emulation_latency_s"] / 50


def test_a_larger_gap_sends_fewer_chunks_of_the_same_times(start, shared):
    engine = start("--emulation-chunk-gap-ms", "1000", speed=50)
    asked = {"input_ids": PROMPT, "sampling_params": GREEDY}
    (event,) = chunks(engine.lines(asked))
    *_, last = chunks(shared(speed=50).lines(asked))
    for name in ("completion_tokens", "emulation_chunk_times_s", "emulation_latency_s"):
        assert event["meta_info"][name] == last["meta_info"][name]


def test_without_incremental_streaming_chunks_are_cumulative(start):
    # The farm always asks for deltas; whoever forgets it gets what SGLang sends.
    engine = start("--incremental-streaming-output=false", speed=300)
    events = chunks(engine.lines({"input_ids": PROMPT, "sampling_params": GREEDY}))
    assert len(events) > 1
    assert [len(event["output_ids"]) for event in events] == [e["meta_info"]["completion_tokens"] for e in events]


def test_the_same_request_has_the_same_answer_and_a_new_seed_another(fast):
    sampling = {"temperature": 0.6, "max_new_tokens": 32_000}
    first = fast.generate(PROMPT, **sampling, sampling_seed=1)
    fast.call("POST", "/flush_cache?timeout=5")
    again = fast.generate(PROMPT, **sampling, sampling_seed=1)
    other = fast.generate(PROMPT, **sampling, sampling_seed=2)
    assert again.text == first.text
    assert again.meta["emulation_chunk_tokens"] == first.meta["emulation_chunk_tokens"]
    assert other.meta["emulation_chunk_tokens"] != first.meta["emulation_chunk_tokens"]


def test_a_repeated_prompt_is_cached_until_the_cache_is_flushed(plain):
    prompt = list(range(300, 300 + 4096))
    assert plain.call("POST", "/flush_cache?timeout=5")[0] == 200
    cold = plain.generate(prompt, **GREEDY).meta
    warm = plain.generate(prompt, **GREEDY).meta
    assert cold["cached_tokens"] == 0
    assert warm["cached_tokens"] == 4032
    assert warm["emulation_ttft_s"] < 0.6 * cold["emulation_ttft_s"]
    assert plain.call("POST", "/flush_cache?timeout=5")[0] == 200
    assert plain.generate(prompt, **GREEDY).meta["cached_tokens"] == 0


def test_without_the_radix_cache_nothing_is_cached(start):
    engine = start("--disable-radix-cache")
    engine.generate(PROMPT, **GREEDY)
    assert engine.generate(PROMPT, **GREEDY).meta["cached_tokens"] == 0


def test_a_prompt_beyond_the_kv_cache_is_aborted_in_a_chunk_that_looks_like_an_answer(start):
    engine = start("--max-total-tokens", "1000")
    body = {"input_ids": [1] * 2000, "sampling_params": GREEDY}
    event = chunks(engine.lines(body))[0]
    assert event["meta_info"]["finish_reason"]["type"] == "abort"
    assert event["text"]
    assert engine.call("POST", "/generate", body)[0] == 400


def test_the_table_of_answers_makes_answers_right(start, tmp_path):
    items = [
        Item(item_id=str(n), sampling={}, messages=[{"role": "user", "content": f"How much is {n}?"}], gold=str(n))
        for n in range(1000, 1040)
    ]
    table = tmp_path / "answers.jsonl"
    answers.write_answers(items, table)
    engine = start(*(), env={"FARM_EMULATION_ANSWERS": str(table)})
    right = 0
    for item in items:
        body = {"messages": item.messages, "chat_template_kwargs": {"enable_thinking": True}}
        ids = engine.call("POST", "/tokenize", body)[1]["tokens"]
        text = engine.generate(ids, temperature=0.6, max_new_tokens=32_000, sampling_seed=1).text
        assert text.count("</think>") == 1
        right += text.endswith(f"#### {item.gold}")
    assert right >= 36


def test_it_logs_when_requests_came_and_were_answered(start, tmp_path):
    log = tmp_path / "requests.jsonl"
    before = time.monotonic()
    engine = start(env={"FARM_EMULATION_REQUEST_LOG": str(log)})
    engine.generate(PROMPT, **GREEDY)
    engine.call("POST", "/flush_cache?timeout=5")
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    assert [entry["path"] for entry in entries][-2:] == ["/generate", "/flush_cache"]
    times = [before, *(entries[-2][name] for name in ("received_s", "finished_s")), entries[-1]["received_s"]]
    assert times == sorted(times)


def test_a_start_that_cannot_be_emulated_says_why(start):
    engine = start("--moe-runner-backend", "triton", ready=False)
    assert engine.process.wait(20) == 2
    assert "error: --moe-runner-backend triton" in engine.log.read_text()


def test_sigterm_ends_it_even_while_a_request_runs(start):
    engine = start(speed=10)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(engine.lines, {"input_ids": PROMPT, "sampling_params": GREEDY | {"max_new_tokens": 9000}})
        time.sleep(0.3)
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(10) == 0
        assert running.exception() or b"[DONE]" not in b"".join(running.result())


def test_many_engines_fit_on_one_machine(start):
    engine = start(*())
    prompt = [300 + n % 5000 for n in range(32_768)]
    engine.generate(prompt, **GREEDY | {"max_new_tokens": 2048})
    with open(f"/proc/{engine.process.pid}/status") as lines:
        resident_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
    assert resident_kib < 100 * 1024


def test_a_token_id_outside_of_the_vocabulary_kills_the_engine(start):
    engine = start()
    with pytest.raises(Exception):  # noqa: B017, PT011 - whichever way the connection breaks
        engine.lines({"input_ids": [VOCABULARY], "sampling_params": GREEDY})
    assert engine.process.wait(10) == 1
