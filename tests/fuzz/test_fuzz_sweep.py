"""Whatever stands in a sweep file or behind --set: it is a sweep, or one sentence that says what is wrong."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from mutations import VALUES, mutated

from farm.engines.registry import engine_of
from farm.errors import InputError
from farm.spec.identity import identity
from farm.spec.loading import load_sweep

VALID = {
    "name": "fuzz",
    "about": "a sweep",
    "model": {"path": "builtin:demo"},
    "engine": {
        "kind": "emulated",
        "args": {"emulation-speed": 10, "dtype": "bfloat16", "cuda-graph-bs-decode": [1, 2]},
        "env": {"OMP_NUM_THREADS": "1"},
        "concurrency": 1,
    },
    "variants": [
        "baseline",
        "humming+fp8-head",
        {"name": "own", "parts": ["nextn"], "args": {"page-size": 1}, "env": {}},
    ],
    "baseline": "baseline",
    "workloads": {
        "gsm8k": {
            "kind": "gsm8k",
            "source": "builtin:gsm-mini",
            "questions": 3,
            "sampling": {"temperature": 0, "max_new_tokens": 8},
        },
        "own": {"kind": "prompts", "file": "prompts.jsonl"},
        "long": {"kind": "synthetic", "requests": 2, "input_tokens": 64, "output_tokens": 8},
    },
}


@pytest.fixture(scope="module")
def file(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("sweep") / "fuzz.yaml"


def use(file, content, overrides=()):
    """Load a file, and do what comes next with what was loaded."""
    file.write_bytes(content)
    try:
        sweep = load_sweep(file, list(overrides))
    except InputError as error:
        said = str(error)
        assert "fuzz.yaml" in said or "--set" in said
        assert overrides or "\n" not in said
        return
    assert identity(sweep, dict.fromkeys(sweep.workloads, "0" * 64)).startswith(f"{sweep.name}-")
    assert Path(sweep.name).name == sweep.name
    for variant in sweep.variants:
        engine_of(sweep).command(sweep, variant, model_path="/model", python="python")


@given(st.binary(max_size=200))
def test_any_bytes(file, content):
    use(file, content)


@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"%@`#,? \n\t0.~<"), max_size=60))
def test_any_yaml(file, text):
    use(file, text.encode())


@given(VALUES)
def test_any_value(file, value):
    use(file, yaml.safe_dump(value).encode())


@given(mutated(VALID))
def test_a_sweep_with_something_wrong(file, value):
    use(file, yaml.safe_dump(value).encode())


@given(st.integers(0, 5000), st.binary(max_size=4), st.integers(0, 20))
def test_a_damaged_file(file, at, put, cut):
    whole = yaml.safe_dump(VALID).encode()
    at %= len(whole)
    use(file, whole[:at] + put + whole[at + cut :])


KEYS = ["engine", "concurrency", "args", "variants", "0", "7", "workloads", "gsm8k", "questions", "x", "name", "²", ""]


@given(
    st.lists(st.sampled_from(KEYS), min_size=1, max_size=4).map(".".join),
    st.sampled_from(["", "=", "=[", "=1", "={}", "=[a]", "=null", "=!!python/object:os.system x", "=&a [*a]"])
    | st.text(max_size=8).map("={}".format),
)
def test_any_override(file, keys, value):
    use(file, yaml.safe_dump(VALID).encode(), [keys + value])
