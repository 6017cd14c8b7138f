"""The stream parser: what SGLang sends becomes an answer; anything else is one of two declared errors."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.engines.sglang.stream import StreamReader
from farm.errors import RequestRefused, StreamBroken


def chunk(tokens, text="x", ids=None, finish=None, **meta):
    body = {
        "text": text,
        "meta_info": {"completion_tokens": tokens, "prompt_tokens": 5, "cached_tokens": 0, "finish_reason": finish}
        | meta,
    }
    if ids is not None:
        body["output_ids"] = ids
    return b"data: " + json.dumps(body).encode() + b"\n"


STOP = {"type": "stop", "matched": 2}
DONE = b"data: [DONE]\n"


def read(*lines):
    reader = StreamReader()
    for index, line in enumerate(lines):
        reader.feed(line, float(index + 1))
    return reader.finish()


def test_chunks_of_several_tokens_are_counted_by_the_engine():
    answer = read(
        chunk(1, "a", [1]),
        b"\n",
        chunk(4, "bcd", [2, 3, 4]),
        b": comment\n",
        chunk(6, "ef", [5, 6], STOP, spec_verify_ct=3),
        DONE,
    )
    assert answer.text == "abcdef"
    assert answer.completion_tokens == 6
    assert answer.chunk_tokens == [1, 4, 6]
    assert answer.chunk_times_s == [1.0, 3.0, 5.0]
    assert (answer.ttft_s, answer.latency_s) == (1.0, 5.0)
    assert answer.meta["spec_verify_ct"] == 3


def test_an_empty_first_chunk_is_not_the_first_token():
    assert read(chunk(0, "", []), chunk(1, "a", [1]), chunk(1, "", [], STOP), DONE).ttft_s == 2.0


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [DONE],
        [chunk(1)],
        [chunk(1, finish=STOP)],
        [chunk(1), DONE],
        [chunk(3), chunk(2, finish=STOP), DONE],
        [chunk(1, finish=STOP), chunk(2, finish=STOP), DONE],
        [chunk(1, finish=STOP), DONE, chunk(2)],
        [chunk(1, ids=[1, 2], finish=STOP), DONE],
        [chunk(2, ids=[1], finish=STOP), DONE],
        [chunk(0, finish=STOP), DONE],
        [chunk(-1, finish=STOP), DONE],
        [chunk(1.5, finish=STOP), DONE],
        [chunk(True, finish=STOP), DONE],
        [chunk(1, finish="stop"), DONE],
        [chunk(1, finish=STOP, prompt_tokens=None), DONE],
        [chunk(1, finish=STOP, cached_tokens=-2), DONE],
        [b"data: {\n"],
        [b"data: 3\n"],
        [b"data: null\n"],
        [b"data: {}\n"],
        [b"<html>\n"],
        [chunk(1)[:40]],
    ],
)
def test_broken_streams(lines):
    with pytest.raises(StreamBroken):
        read(*lines)


def test_errors_of_the_engine_keep_its_words():
    with pytest.raises(RequestRefused, match="too long"):
        read(b'data: {"error": {"message": "the prompt is too long", "code": 400}}\n')
    with pytest.raises(RequestRefused, match="out of pages"):
        read(chunk(1, finish={"type": "abort", "message": "out of pages"}), DONE)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=40),
            st.builds(lambda b: b"data: " + b, st.binary(max_size=40)),
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                lambda c: (
                    st.lists(c, max_size=3)
                    | st.dictionaries(
                        st.sampled_from(
                            ["text", "meta_info", "error", "completion_tokens", "finish_reason", "output_ids", "type"]
                        ),
                        c,
                        max_size=5,
                    )
                ),
                max_leaves=12,
            ).map(lambda v: b"data: " + json.dumps(v).encode()),
        ),
        max_size=6,
    )
)
def test_any_stream_is_an_answer_or_a_declared_error(lines):
    with pytest.raises((StreamBroken, RequestRefused)):
        read(*lines)
