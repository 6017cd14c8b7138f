"""A sweep's id: what it asks of which model and engine, by content; not where things lie nor how they are looked at."""

import json

import pytest
import yaml

from farm.results.runs import run_of
from farm.spec.identity import identity
from farm.spec.loading import load_sweep
from farm.workloads.build import build
from farm.workloads.items import digest

SWEEP = {
    "name": "same",
    "model": {"path": "/models/one/tiny"},
    "engine": {"device": "cpu"},
    "variants": [{"name": "plain"}, {"name": "nextn", "parts": ["nextn"]}],
    "workloads": {
        "mine": {"kind": "prompts", "file": "p.jsonl"},
        "sums": {"kind": "gsm8k", "source": "./data", "shots": 0, "questions": 1},
        "s": {"kind": "synthetic", "requests": 2, "input_tokens": 16, "output_tokens": 4},
    },
}


def loaded(folder, overrides=(), prompt="hello"):
    (folder / "data").mkdir(parents=True, exist_ok=True)
    (folder / "s.yaml").write_text(yaml.safe_dump(SWEEP))
    (folder / "p.jsonl").write_text(f'{{"prompt": "{prompt}"}}\n')
    (folder / "data" / "test.jsonl").write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    return load_sweep(folder / "s.yaml", list(overrides))


def digests(sweep):
    return {name: digest(items) for name, items in build(sweep.workloads).items()}


def id_of(sweep):
    return identity(sweep, digests(sweep))


@pytest.mark.parametrize(
    "override",
    [
        "about=words",
        "margin_pp=2",
        "baseline=nextn",
        "model.path=/elsewhere/tiny",
        "model.digest=full",
        "engine.python=/elsewhere",
        "engine.start_timeout_s=5",
        "engine.node_labels={rack: b}",
        "workloads.s.repeats=1",
    ],
)
def test_what_changes_no_answer_changes_no_id(tmp_path, override):
    assert id_of(loaded(tmp_path / "a", [override])) == id_of(loaded(tmp_path / "b"))


@pytest.mark.parametrize(
    "override",
    [
        "model.path=/models/one/other",
        "engine.args={dtype: float32}",
        "engine.version=0.5.24",
        "engine.concurrency=2",
        "variants=[{name: plain}]",
        "workloads.s.requests=3",
        "workloads.s.repeats=2",
        "workloads.mine.sampling.max_new_tokens=9",
        "warmup_requests=5",
    ],
)
def test_what_can_change_an_answer_or_a_figure_changes_the_id(tmp_path, override):
    extra = ["workloads.s.prefix_cache=keep", "workloads.mine.prefix_cache=keep", "workloads.sums.prefix_cache=keep"]
    assert id_of(loaded(tmp_path, [*extra, override])) != id_of(loaded(tmp_path, extra))


def test_the_content_of_files_is_asked(tmp_path):
    assert id_of(loaded(tmp_path / "a", prompt="hello")) != id_of(loaded(tmp_path / "b", prompt="hallo"))


def test_results_of_an_earlier_farms_id_go_on(tmp_path):
    sweep = loaded(tmp_path / "a")
    old = tmp_path / "results" / "same-0123456789"
    old.mkdir(parents=True)
    asked = {name: {"digest": value} for name, value in digests(sweep).items()}
    resolved = sweep.model_dump(mode="json")
    del resolved["model"]["digest"]  # of a farm that did not know it
    (old / "sweep.json").write_text(json.dumps({"workloads": asked, "resolved": resolved}))
    moved = loaded(tmp_path / "b", ["margin_pp=2"])
    assert run_of(old.parent, moved, id_of(moved), fresh=False) == old.name
    assert run_of(old.parent, moved, id_of(moved), fresh=True) == id_of(moved)
    other = loaded(tmp_path / "b", ["engine.args={dtype: float32}"])
    assert run_of(old.parent, other, id_of(other), fresh=False) == id_of(other)
