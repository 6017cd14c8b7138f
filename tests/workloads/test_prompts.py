"""The user's own prompts: what a row may hold, and what each mistake is told."""

import json

import pytest

from farm.errors import InputError
from farm.workloads import jsonl, prompts
from farm.workloads.prompts import PromptsWorkload

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


@pytest.fixture
def load(tmp_path):
    def load_rows(*rows, **settings):
        path = tmp_path / "mine.jsonl"
        encoded = [row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows]
        path.write_bytes(b"\n".join(encoded))
        return prompts.items(PromptsWorkload(kind="prompts", file=str(path), **settings))

    return load_rows


def test_the_three_kinds_of_rows(load):
    chat, conversation, raw = load({"prompt": "Hello"}, {"messages": MESSAGES}, {"text": "Once upon"}, thinking=False)
    assert chat.messages == [{"role": "user", "content": "Hello"}]
    assert conversation.messages == MESSAGES
    assert (raw.text, raw.messages) == ("Once upon", None)
    assert chat.template_kwargs == conversation.template_kwargs == {"enable_thinking": False}
    assert raw.template_kwargs == {}
    assert {item.gold for item in (chat, conversation, raw)} == {None}


def test_names_answers_and_limits(load):
    rows = [
        {"id": "sum", "prompt": "1,000 + 8?", "answer": "1,008"},
        b"",
        {"id": 7, "prompt": "b", "answer": 2.5, "max_new_tokens": 9, "temperature": 0},
        {"prompt": "c"},
    ]
    first, second, third = load(*rows)
    assert [item.item_id for item in (first, second, third)] == ["sum", "7", "line-4"]
    assert [item.gold for item in (first, second, third)] == ["1008", "2.5", None]
    assert first.sampling == {"temperature": 0.6, "top_p": 0.95, "top_k": -1, "max_new_tokens": 2048}
    assert second.sampling == {"temperature": 0.0, "top_p": 0.95, "top_k": -1, "max_new_tokens": 9}
    assert first.template_kwargs == {}


def test_text_arrives_as_it_was_written(load):
    text = "  naïve 🦆\u2028 \x0b tab\t\n"
    assert load(b"\xef\xbb\xbf" + json.dumps({"prompt": text}, ensure_ascii=False).encode())[0].shown_prompt == text
    assert len(load(b'{"prompt": "a"}\r', b'{"prompt": "b"}\r', b"")) == 2


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b"{", "is not valid JSON"),
        (b'{"prompt": "a"} {"prompt": "b"}', "is not valid JSON"),
        (b"[" * 100_000, "is not valid JSON"),
        (b'{"prompt": "a", "temperature": NaN}', "is not valid JSON: NaN is not a JSON number"),
        (b'{"prompt": "a", "max_new_tokens": ' + b"9" * 5000 + b"}", "is not valid JSON"),
        (b'{"prompt": "\xff"}', "is not UTF-8 at byte 13"),
        (b'{"prompt": "\\ud83d"}', "holds half of a surrogate pair"),
        (b'"prompt"', "is not a JSON object"),
        ({"promt": "a"}, "'promt': unknown field; did you mean 'prompt'"),
        ({"prompt": "a", "zzz": 1}, "'zzz': unknown field; a row may hold prompt, messages"),
        ({"id": "a"}, "holds nothing to ask: add prompt"),
        ({"prompt": "a", "messages": MESSAGES}, "holds both prompt and messages: keep one"),
        ({"prompt": "a", "text": "b"}, "holds both prompt and text: keep one"),
        ({"prompt": ""}, "prompt: must be a text"),
        ({"prompt": ["a"]}, "prompt: must be a text"),
        ({"text": " \n"}, "text: must be a text"),
        ({"messages": []}, "messages: must be a list with at least one"),
        ({"messages": "a"}, "messages: must be a list"),
        ({"messages": [{"role": "user"}]}, r"messages.0: must be \{"),
        ({"messages": ["a"]}, "messages.0: must be"),
        ({"messages": [{"role": "robot", "content": "a"}]}, "messages.0.role: must be one of system, user, assistant"),
        ({"messages": [{"role": ["user"], "content": "a"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": None}]}, "messages.0.content: must be a text"),
        ({"messages": [*MESSAGES, {"role": "assistant", "content": "a"}]}, "messages: the last one must be the user's"),
        ({"prompt": "a", "answer": "Paris"}, "answer: only numbers can be graded, not 'Paris'"),
        ({"prompt": "a", "answer": True}, "answer: only numbers"),
        ({"prompt": "a", "answer": [1]}, "answer: only numbers"),
        ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens: .*greater than or equal to 1, not 0"),
        ({"prompt": "a", "max_new_tokens": "9"}, "max_new_tokens: .*integer, not '9'"),
        ({"prompt": "a", "temperature": -1}, "temperature: "),
        ({"prompt": "a", "top_p": True}, "top_p: "),
        ({"prompt": "a", "id": "../../etc/passwd"}, "id: holds '/'"),
        ({"prompt": "a", "id": "a\\b"}, "id: holds"),
        ({"prompt": "a", "id": "a\nb"}, r"id: holds '\\n'"),
        ({"prompt": "a", "id": "a\u202eb"}, "id: holds"),
        ({"prompt": "a", "id": ".."}, "id: '..' is no name"),
        ({"prompt": "a", "id": ""}, "id: '' is no name"),
        ({"prompt": "a", "id": " a"}, "id: ' a' is no name"),
        ({"prompt": "a", "id": None}, "id: write a text or a whole number"),
        ({"prompt": "a", "id": "x" * 201}, "id: 201 characters"),
        ({"prompt": "a", "id": "first"}, "id: 'first' is taken by line 1"),
        ({"prompt": "a", "id": "line-3"}, "id: 'line-3' is taken"),
    ],
)
def test_every_mistake_names_file_line_and_field(load, row, message):
    good = {"id": "first", "prompt": "Hello"}
    rows = [good, {"prompt": "b"}, {"prompt": "c"}, row]
    with pytest.raises(InputError, match=rf"^file: .*mine.jsonl, line 4: {message}"):
        load(*rows)


def test_files_that_hold_no_prompts(load, tmp_path, monkeypatch):
    with pytest.raises(InputError, match=r"^file: .*mine.jsonl: is empty"):
        load(b"", b"  ")
    for path in (tmp_path / "missing.jsonl", tmp_path):
        with pytest.raises(InputError, match=rf"^file: {path}: cannot be read"):
            prompts.items(PromptsWorkload(kind="prompts", file=str(path)))
    monkeypatch.setattr(jsonl, "MAX_FILE_BYTES", 10)
    with pytest.raises(InputError, match=r"mine.jsonl: is .* MiB; at most"):
        load({"prompt": "Hello"})
