"""All workloads of a sweep at once."""

import json

import pytest

from farm.errors import InputError
from farm.spec.models import Sweep
from farm.workloads.build import build


def sweep(**workloads):
    return Sweep.model_validate(
        {"name": "t", "model": {"path": "/m"}, "variants": [{"name": "baseline"}], "workloads": workloads}
    ).workloads


def test_every_workload_by_its_name(tmp_path):
    (tmp_path / "p.jsonl").write_text(json.dumps({"prompt": "Hello"}))
    built = build(
        sweep(
            maths={"kind": "gsm8k", "source": "builtin:gsm-mini", "questions": 3},
            long={"kind": "synthetic", "requests": 2, "input_tokens": 100},
            mine={"kind": "prompts", "file": str(tmp_path / "p.jsonl")},
        )
    )
    assert {name: len(items) for name, items in built.items()} == {"maths": 3, "long": 2, "mine": 1}


def test_an_error_begins_with_the_field_to_change(tmp_path):
    with pytest.raises(InputError, match=r"^workloads.maths.source: .*builtin:gsm-mini"):
        build(sweep(maths={"kind": "gsm8k", "source": "builtin:none"}))
    with pytest.raises(InputError, match=r"^workloads.maths.questions: "):
        build(sweep(maths={"kind": "gsm8k", "source": "builtin:gsm-mini", "questions": 10**9}))
    with pytest.raises(InputError, match=r"^workloads.mine.file: .*cannot be read"):
        build(sweep(mine={"kind": "prompts", "file": str(tmp_path / "none.jsonl")}))
