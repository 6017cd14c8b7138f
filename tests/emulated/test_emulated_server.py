"""The protocol, over HTTP, as the farm's own reader checks it."""

from __future__ import annotations

import json
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from farm.engine.emulated import answers, tokenizer
from farm.engine.emulated.shapes import VOCABULARY
from farm.workloads.items import Item

PROMPT = tokenizer.encode("Janet sells the remaining eggs every day. How much does she make? ") * 8
GREEDY = {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": 40}


def chunks(lines: list[bytes]) -> list[dict]:
    return [json.loads(line[5:]) for line in lines if line.startswith(b"data: {")]


def test_only_health_is_open_without_the_key(plain):
    assert plain.call("GET", "/health", key=None)[0] == 200
    assert plain.call("GET", "/health_generate", key=None)[0] == 200
    assert plain.call("GET", "/server_info", key=None) == (401, {"error": "Unauthorized"})
    assert plain.call("POST", "/generate", {"input_ids": [1]}, key="other")[0] == 401


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


def test_tokenize_and_detokenize_are_inverse(plain):
    status, reply = plain.call("POST", "/tokenize", {"prompt": "The café costs $1,234."})
    assert status == 200
    assert reply["count"] == len(reply["tokens"])
    assert reply["max_model_len"] == 262_144
    back = plain.call("POST", "/detokenize", {"tokens": reply["tokens"], "skip_special_tokens": False})
    assert back == (200, {"text": "The café costs $1,234."})


def test_chat_messages_get_the_template(plain):
    body = {"messages": [{"role": "user", "content": "Why?"}], "chat_template_kwargs": {"enable_thinking": True}}
    ids = plain.call("POST", "/tokenize", body)[1]["tokens"]
    assert ids == tokenizer.encode_chat(body["messages"], thinking=True)
    assert plain.call("POST", "/tokenize", {"prompt": 3})[0] == 400


def test_a_plain_stream_counts_its_tokens(plain):
    lines = plain.lines({"input_ids": PROMPT, "sampling_params": GREEDY})
    assert [line for line in lines if line.strip()][-1] == b"data: [DONE]\n"
    events = chunks(lines)
    assert sum(len(event["output_ids"]) for event in events) == 40
    assert tokenizer.decode([i for event in events for i in event["output_ids"]]) == "".join(e["text"] for e in events)
    assert all(event["meta_info"]["finish_reason"] is None for event in events[:-1])
    meta = events[-1]["meta_info"]
    assert meta["finish_reason"] == {"type": "length", "length": 40}
    assert (meta["prompt_tokens"], meta["completion_tokens"]) == (len(PROMPT), 40)
    assert {"e2e_latency", "first_token_latency", "queue_time", "decode_throughput"} <= set(meta)
    assert not any(name.startswith("spec_") for name in meta)
    assert meta["emulation_chunk_tokens"] == list(range(1, 41))
    assert len(meta["emulation_chunk_times_s"]) == 40
    assert meta["emulation_chunk_times_s"][0] == meta["emulation_ttft_s"]
    assert (
        meta["emulation_chunk_times_s"][-1]
        == meta["emulation_latency_s"]
        == pytest.approx(meta["e2e_latency"], abs=1e-5)
    )


def test_speculation_reports_its_rounds(fast):
    meta = fast.generate(PROMPT, temperature=0.6, max_new_tokens=32_000, sampling_seed=5).meta
    assert meta["finish_reason"] == {"type": "stop", "matched": tokenizer.END}
    rounds, accepted = meta["spec_verify_ct"], meta["spec_num_correct_drafts"]
    histogram = meta["spec_correct_drafts_histogram"]
    assert sum(histogram) == rounds == len(meta["emulation_chunk_tokens"]) - 1
    assert sum(drafts * count for drafts, count in enumerate(histogram)) == accepted
    assert meta["spec_num_proposed_drafts"] == 3 * rounds
    assert meta["spec_accept_rate"] == pytest.approx(accepted / (3 * rounds))
    assert meta["spec_accept_length"] == pytest.approx(meta["completion_tokens"] / rounds)


def test_real_arrivals_follow_the_model_at_real_speed(shared):
    engine = shared(speed=50)
    engine.generate(PROMPT, **GREEDY)
    events = chunks(engine.lines({"input_ids": PROMPT, "sampling_params": GREEDY}))
    assert len(events) < 40  # 0.5 ms apart are sent together
    began = time.monotonic()
    answer = engine.generate(list(reversed(PROMPT)), **GREEDY | {"max_new_tokens": 400})
    assert time.monotonic() - began >= answer.meta["emulation_latency_s"] / 50


def test_without_incremental_streaming_chunks_are_cumulative(start):
    # The farm always asks for deltas; whoever forgets it gets what SGLang sends.
    engine = start("--incremental-streaming-output=", speed=300)
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


def test_requests_beyond_the_limit_wait_and_the_cache_is_not_flushed_meanwhile(start):
    engine = start(speed=100)
    body = {"input_ids": PROMPT, "sampling_params": GREEDY | {"max_new_tokens": 2000}}
    with ThreadPoolExecutor(2) as pool:
        streams = [pool.submit(engine.lines, body) for _ in range(2)]
        time.sleep(0.2)
        assert engine.call("POST", "/flush_cache")[0] == 400
        metas = [chunks(stream.result())[-1]["meta_info"] for stream in streams]
    waits = sorted(meta["queue_time"] for meta in metas)
    assert waits[0] == 0
    assert waits[1] > 10
    assert all(meta["emulation_latency_s"] > meta["queue_time"] for meta in metas)


@pytest.mark.parametrize(
    "body",
    [
        {"input_ids": []},
        {"input_ids": ["a"]},
        {"input_ids": [1], "sampling_params": {"temperature": -1}},
        {"input_ids": [1], "sampling_params": {"top_p": 0}},
        {"input_ids": [1], "sampling_params": {"max_new_tokens": 0}},
        {"input_ids": [1] * 300_000},
        {"input_ids": [1] * 100, "sampling_params": {"max_new_tokens": 262_144}},
    ],
)
def test_a_bad_request_is_refused_in_the_stream(plain, body):
    lines = plain.lines(body)
    assert chunks(lines)[0]["error"]["type"] == "invalid_request_error"
    assert b"[DONE]" in b"".join(lines)
    status, reply = plain.call("POST", "/generate", body)
    assert (status, list(reply)) == (400, ["error"])


def test_an_unknown_field_and_a_body_that_is_no_json_object_are_refused(plain):
    status, reply = plain.call("POST", "/generate", {"input_ids": [1], "stream": True, "colour": "red"})
    assert status == 400
    assert "unknown field `colour`" in reply["error"]
    assert plain.call("POST", "/generate", [1])[0] == 400


def test_a_prompt_beyond_the_kv_cache_is_aborted_in_a_chunk_that_looks_like_an_answer(start):
    engine = start("--max-total-tokens", "1000")
    body = {"input_ids": [1] * 2000, "sampling_params": GREEDY}
    event = chunks(engine.lines(body))[0]
    assert event["meta_info"]["finish_reason"]["type"] == "abort"
    assert event["text"]
    assert engine.call("POST", "/generate", body)[0] == 400


def test_an_answer_without_a_stream_is_one_object(fast):
    status, reply = fast.call("POST", "/generate", {"text": "Why is it so?", "sampling_params": GREEDY})
    assert status == 200
    assert len(reply["output_ids"]) == reply["meta_info"]["completion_tokens"] == 40


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


def test_a_client_that_goes_away_frees_its_place(start):
    engine = start(speed=10)
    with pytest.raises(TimeoutError):
        engine.lines({"input_ids": PROMPT, "sampling_params": GREEDY | {"max_new_tokens": 9000}}, timeout_s=0.5)
    assert engine.generate(PROMPT, **GREEDY).completion_tokens == 40


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
