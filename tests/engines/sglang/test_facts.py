"""What an engine's words mean: cases that no engine of the suite shows."""

from farm.engines.base import Evidence
from farm.engines.emulated.reading import DIALECT, emulated_generation
from farm.engines.sglang.evidence import ProcessEvidence
from farm.engines.sglang.facts import SGLANG_DIALECT, facts_of, hardware_in, versions_in
from farm.engines.sglang.server_info import ServerInfo
from farm.engines.sglang.stream import Answer, generation_of
from farm.node.record import grade_of, is_truncated
from farm.types import Item
from farm.workloads.grading import Grade

NOTHING = Evidence("processes")


def spoken(text="", finish="stop", **meta):
    base = {"prompt_tokens": 5, "cached_tokens": 0, "completion_tokens": 9, "finish_reason": {"type": finish}}
    return Answer(text, 0.5, 2.0, base | meta, [0.5, 2.0], [1, 9])


def answer(*words, **meta):
    return generation_of(spoken(*words, **meta))


def test_an_answer_cut_by_its_limit_is_counted_apart_and_has_no_answer():
    item = Item("q", {}, text="?", gold="18")
    assert grade_of(answer("so #### 18", "length"), item, prompt_opens_think=False) == Grade(None, False)
    assert is_truncated(answer(finish="length"), ends_by_itself=True)
    assert not is_truncated(answer(finish="length"), ends_by_itself=False)


def test_an_open_think_section_has_no_answer():
    item = Item("q", {}, text="?", gold="18")
    assert grade_of(answer("it must be #### 18"), item, prompt_opens_think=True).answer is None
    assert grade_of(answer("sum</think>#### 18"), item, prompt_opens_think=True) == Grade("18", True)
    assert grade_of(answer("#### 18"), Item("q", {}, text="?"), prompt_opens_think=False) is None


def test_an_emulated_answer_keeps_the_models_seconds():
    figures = emulated_generation(
        spoken(
            emulation_latency_s=20.0, emulation_ttft_s=5.0, emulation_chunk_times_s=[5.0, 20.0],
            emulation_chunk_tokens=[1, 9],
        )
    )  # fmt: skip
    assert (figures.ttft_s, figures.latency_s, figures.decode_s) == (5.0, 20.0, 15.0)


def test_start_times_and_surroundings_are_null_where_the_engine_is_silent():
    assert facts_of(ServerInfo(), 12.5, NOTHING, SGLANG_DIALECT).start_s == 12.5
    assert facts_of(ServerInfo(), 12.5, NOTHING, SGLANG_DIALECT).startup.graphs_s is None
    times = {"load_weight": 3.0, "cuda_graph": {"decode": 1.0, "prefill": 0.5}, "tokenizer_e2e": 480.0}
    phases = ServerInfo.model_validate({"startup_time": times})
    assert facts_of(phases, 1.0, NOTHING, DIALECT).start_s == 480.0
    assert facts_of(phases, 1.0, NOTHING, DIALECT).startup.graphs_s == 1.5
    assert (versions_in(NOTHING), hardware_in(NOTHING)) == ({}, {})
    processes = [
        ProcessEvidence(versions={"sglang": "0.5.23", "triton": None}),
        ProcessEvidence(versions={}, gpu={"name": "GB10", "driver": None}),
    ]
    shown = Evidence("processes", processes)
    assert versions_in(shown) == {"sglang": "0.5.23"}
    assert hardware_in(shown) == {"name": "GB10"}
