"""Whatever stands in a prompts file: items that can be sent and stored, or one sentence that says what is wrong."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mutations import VALUES, mutated

from farm.errors import InputError
from farm.workloads.items import digest
from farm.workloads.prompts import PromptsWorkload, items

VALID = [
    {"id": "one", "prompt": "What is 9 + 9?", "answer": 18, "temperature": 0.0, "max_new_tokens": 8},
    {"messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Hello"}]},
    {"id": 3, "text": "Once upon a time"},
]


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("prompts") / "prompts.jsonl"


def use(file, content):
    file.write_bytes(content)
    try:
        found = items(PromptsWorkload(kind="prompts", file=str(file)))
    except InputError as error:
        said = str(error)
        assert "prompts.jsonl" in said
        assert "\n" not in said
        said.encode()
        return None
    assert len({item.item_id for item in found}) == len(found) > 0
    for item in found:
        assert Path(item.item_id).name == item.item_id
        assert item.item_id.isprintable()
        item.shown_prompt.encode()
    digest(found)
    return found


def test_the_valid_file_is_read(file):
    assert len(use(file, b"\n".join(json.dumps(row).encode() for row in VALID))) == 3


@given(st.binary(max_size=200))
def test_any_bytes(file, content):
    use(file, content)


@given(st.lists(VALUES, max_size=3))
def test_any_rows(file, rows):
    use(file, b"\n".join(json.dumps(row).encode() for row in rows))


@given(mutated(VALID))
def test_rows_with_something_wrong(file, rows):
    use(file, b"\n".join(json.dumps(row).encode() for row in rows))
