"""Each fault on demand shows the symptom that it is named after, and strikes when it was told to."""

from __future__ import annotations

import signal
import time

import aiohttp
import psutil
import pytest

from farm.engines.emulated import tokenizer
from farm.errors import StreamBroken

PROMPT = tokenizer.encode("Janet sells the remaining eggs every day. How much does she make? ")
SAMPLING = {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": 200}
BODY = {"input_ids": PROMPT, "sampling_params": SAMPLING}
HUMMING = ("--moe-runner-backend", "humming")
NEXTN = (*HUMMING, "--speculative-algorithm", "NEXTN")
BROKEN = (aiohttp.ClientError, TimeoutError)


def test_a_start_that_fails_leaves_a_traceback(start):
    engine = start(faults={"fail_start": True}, ready=False)
    assert engine.process.wait(30) == 1
    assert "RuntimeError: Not enough memory" in engine.log.read_text()


def test_faults_that_do_not_exist_are_refused(start):
    engine = start(faults={"crash_afer": 1}, ready=False)
    assert engine.process.wait(30) == 2
    assert "crash_afer" in engine.log.read_text()


def test_crash_after_n_requests_in_the_middle_of_a_stream(start):
    engine = start(faults={"crash_after": 2}, speed=200)
    for _ in range(2):
        assert engine.generate(PROMPT, **SAMPLING).completion_tokens == 200
    with pytest.raises(BROKEN):
        engine.lines(BODY)
    assert engine.process.wait(10) == 1


def test_a_poisoned_prompt_crashes_and_others_do_not(start):
    engine = start(faults={"poison": "purple elephants"})
    assert engine.generate(PROMPT, **SAMPLING).completion_tokens == 200
    with pytest.raises(BROKEN):
        engine.lines({"input_ids": tokenizer.encode("How many purple elephants are there?")})
    assert engine.process.wait(10) == 1


def test_a_hang_keeps_the_connection_open_and_health_no_longer_answers(start):
    engine = start(faults={"hang_after": 1}, speed=200)
    assert engine.generate(PROMPT, **SAMPLING).completion_tokens == 200
    for _ in range(2):
        with pytest.raises(TimeoutError):
            engine.lines(BODY, timeout_s=1.5)
    assert engine.process.poll() is None
    with pytest.raises(TimeoutError):
        engine.lines(BODY, timeout_s=0.5)


@pytest.mark.parametrize(
    ("fault", "symptom"),
    [
        ("truncate_after", "ended early"),
        ("malformed_after", "not JSON"),
        ("impossible_counts_after", "were sent and"),
    ],
)
def test_a_broken_stream_is_told_by_the_farms_reader(start, fault, symptom):
    engine = start(faults={fault: 1}, speed=200)
    assert engine.generate(PROMPT, **SAMPLING).completion_tokens == 200
    for _ in range(2):
        with pytest.raises(StreamBroken, match=symptom):
            engine.generate(PROMPT, **SAMPLING)


def test_errors_are_http_errors(start):
    engine = start(faults={"error_after": 0})
    assert engine.call("POST", "/generate", BODY)[0] == 500


def test_a_slow_clock_shows_in_every_time_and_in_the_answer_of_none(start):
    usual, slow = (start(faults=faults).generate(PROMPT, **SAMPLING) for faults in ({}, {"slow_clock": 0.5}))
    assert slow.text == usual.text
    assert slow.meta["e2e_latency"] == pytest.approx(2 * usual.meta["e2e_latency"])


def test_drafts_that_are_never_accepted_are_silent(start):
    engine = start(*NEXTN, faults={"silent_fallback": True}, env={"SGLANG_ENABLE_FP8_LM_HEAD": "1"})
    meta = engine.generate(PROMPT, **SAMPLING).meta
    assert meta["spec_accept_length"] == pytest.approx(1.0, abs=0.01)
    assert meta["decode_throughput"] == pytest.approx(24.0, rel=0.05)
    assert engine.call("GET", "/server_info")[1]["speculative_algorithm"] == "EAGLE"


def test_a_fallback_to_other_expert_kernels_shows_in_server_info_alone(start):
    fallen = start(*HUMMING, faults={"silent_fallback": True})
    assert fallen.call("GET", "/server_info")[1]["moe_runner_backend"] == "flashinfer_mxfp4"
    plain = start()
    tpots = [1 / engine.generate(PROMPT, **SAMPLING).meta["decode_throughput"] for engine in (fallen, plain)]
    assert tpots[0] == pytest.approx(tpots[1])


def test_a_fault_of_another_launch_does_not_act(start):
    engine = start(faults={"crash_after": 0, "launches": [0]}, env={"FARM_EMULATION_LAUNCH": "1"})
    assert engine.generate(PROMPT, **SAMPLING).completion_tokens == 200


def test_an_engine_may_refuse_to_end(start):
    engine = start(faults={"refuse_sigterm": True})
    engine.process.send_signal(signal.SIGTERM)
    time.sleep(0.5)
    assert engine.process.poll() is None
    assert engine.generate(PROMPT, **SAMPLING).completion_tokens == 200


def test_a_grandchild_outlives_its_engine_in_a_session_of_its_own(start):
    engine = start(faults={"grandchild": True})
    (child,) = psutil.Process(engine.process.pid).children()
    try:
        engine.process.send_signal(signal.SIGTERM)
        assert engine.process.wait(10) == 0
        child.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert child.is_running()
    finally:
        child.kill()
