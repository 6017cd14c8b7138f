"""Whatever an engine sends: a checked answer, or one of the declared errors; never a count that was not sent."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import mutated

from farm.engines.sglang.stream import StreamReader, generation_of
from farm.errors import EngineGone, RequestRefused, StreamBroken

DECLARED = (StreamBroken, RequestRefused, EngineGone)


def event(tokens, text, ids, finish=None, **meta):
    return {
        "text": text,
        "output_ids": ids,
        "meta_info": {
            "id": "r",
            "completion_tokens": tokens,
            "prompt_tokens": 5,
            "cached_tokens": 0,
            "reasoning_tokens": 0,
            "finish_reason": finish,
        }
        | meta,
    }


SPECULATION = {
    "e2e_latency": 1.5,
    "first_token_latency": 0.5,
    "spec_verify_ct": 2,
    "spec_num_correct_drafts": 3,
    "spec_num_proposed_drafts": 6,
    "spec_correct_drafts_histogram": [0, 1, 1],
}
VALID = [
    event(1, "a", [7]),
    event(4, "bcd", [8, 9, 10]),
    event(6, "ef", [11, 12], {"type": "stop", "matched": 2}, **SPECULATION),
]


def lines_of(events):
    return [b"data: " + json.dumps(event).encode() + b"\n" for event in events] + [b"data: [DONE]\n"]


def parse(lines):
    reader = StreamReader()
    for index, line in enumerate(lines):
        reader.feed(line, 0.1 * (index + 1))
    return reader.finish()


def read(lines):
    """The figures of a stream, or None when it is refused with a declared error."""
    try:
        answer = parse(lines)
    except DECLARED as error:
        refusal = str(error)
    else:
        answer.text.encode()  # goes into the journal, as a refusal does
        return generation_of(answer)
    assert len(refusal.encode()) < 2000
    return None


def test_the_valid_stream_is_read():
    assert read(lines_of(VALID)).completion_tokens == 6


@given(st.lists(st.binary(max_size=60) | st.binary(max_size=60).map(b"data: ".__add__), max_size=6))
def test_any_lines(lines):
    assert read(lines) is None


@given(mutated(VALID))
def test_a_stream_with_something_wrong(events):
    figures = read(lines_of(events))
    if figures is not None:
        sent = [event["meta_info"]["completion_tokens"] for event in events]
        assert figures.completion_tokens == sent[-1] == max(sent)
        ids = [event["output_ids"] for event in events if isinstance(event.get("output_ids"), list)]
        assert sum(map(len, ids)) in (0, sent[-1])
        check_figures(figures)


@given(st.integers(0, 10_000), st.binary(max_size=3), st.integers(0, 30))
def test_a_damaged_stream(at, put, cut):
    whole = b"".join(lines_of(VALID))
    at %= len(whole)
    damaged = whole[:at] + put + whole[at + cut :]
    figures = read(damaged.splitlines(keepends=True))
    if figures is not None:
        check_figures(figures)


@given(st.integers(0, 10_000))
def test_a_stream_that_is_cut_anywhere(at):
    whole = b"".join(lines_of(VALID))
    end = at % (len(whole) - len(b"]\n"))
    assert read(whole[:end].splitlines(keepends=True)) is None


@given(st.permutations(lines_of(VALID)))
def test_lines_in_another_order(lines):
    assert (read(lines) is not None) == (lines == lines_of(VALID))


def check_figures(figures):
    """What is kept of an answer fits its table and is possible."""
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "reasoning_tokens", "verify_rounds"):
        count = getattr(figures, name)
        assert count is None or (type(count) is int and 0 <= count < 2**31)
    assert figures.completion_tokens >= 1
    assert figures.cached_tokens <= figures.prompt_tokens
    assert figures.latency_s >= figures.ttft_s > 0
    assert (figures.draft_tokens_accepted or 0) <= (figures.draft_tokens_proposed or 2**31)
    json.dumps({name: getattr(figures, name) for name in ("engine_latency_s", "engine_ttft_s")}, allow_nan=False)


@pytest.mark.parametrize(
    "failure",
    [
        {"error": {"message": "CUDA error", "code": 500}},
        event(1, "", [], {"type": "abort", "message": "scheduler died", "status_code": 503}),
    ],
)
def test_a_failure_inside_the_engine_is_no_refusal(failure):
    with pytest.raises(EngineGone):
        parse(lines_of([failure]))
