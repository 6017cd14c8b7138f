"""What an engine's words mean: cases that no engine of the suite shows."""

from farm.engines.emulated.reading import emulated_generation
from farm.engines.sglang.stream import Answer, generation_of
from farm.node.record import grade_of, is_truncated, start_times, surroundings
from farm.types import Item
from farm.workloads.grading import Grade


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
    assert start_times({}, 12.5, emulated=False)["start_s"] == 12.5
    assert start_times({}, 12.5, emulated=False)["startup"]["graphs_s"] is None
    phases = {
        "startup_time": {"load_weight": 3.0, "cuda_graph": {"decode": 1.0, "prefill": 0.5}, "tokenizer_e2e": 480.0}
    }
    assert start_times(phases, 1.0, emulated=True)["start_s"] == 480.0
    assert start_times(phases, 1.0, emulated=True)["startup"]["graphs_s"] == 1.5
    assert surroundings({}) == {"versions": {}, "hardware": {}}
    processes = [
        {"versions": {"sglang": "0.5.23", "triton": None}},
        {"versions": {}, "gpu": {"name": "GB10", "driver": None}},
    ]
    assert surroundings({"processes": processes}) == {
        "versions": {"sglang": "0.5.23"},
        "hardware": {"name": "GB10"},
    }
