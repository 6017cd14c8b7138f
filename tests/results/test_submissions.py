"""Answers of another origin are not taken for the same, and what was said of the first is not rewritten."""

import numpy as np
import pytest
from safetensors.numpy import save_file

from farm.node.content import model_content
from farm.results.origin import Origin, differences
from farm.results.submissions import continued, mixes
from farm.results.summary import EngineSummary, Submission, SweepSummary
from farm.spec.loading import load_sweep

ENGINES = [
    EngineSummary.model_validate(
        {
            "engine_id": "e",
            "status": "stopped",
            "model_digest": {"sampled": "aa"},
            "versions": {"sglang": "0.5.23", "torch": "2.14"},
            "hardware": {"driver": "580"},
        }
    )
]
BEFORE = SweepSummary.model_validate({"resolved": {"engine": {"node_labels": {"rack": "a"}}}})
SAME = Origin(model={"sampled": "aa"}, versions={"sglang": "0.5.23", "driver": "580"})


@pytest.mark.parametrize(
    ("now", "labels", "what"),
    [
        (SAME, {"rack": "a"}, None),
        (Origin(), {"rack": "a"}, None),
        (Origin(model={"full": "bb"}), {"rack": "a"}, None),
        (Origin(model={"sampled": "bb"}), {"rack": "a"}, "model content"),
        (Origin(versions={"torch": "2.15"}), {"rack": "a"}, "torch: 2.14 -> 2.15"),
        (Origin(versions={"driver": "590"}), {"rack": "a"}, "driver: 580 -> 590"),
        (SAME, {"rack": "b"}, "rack=a -> rack=b"),
        (SAME, {}, "any node"),
    ],
)
def test_a_mix_is_said_with_what_was_and_what_is(now, labels, what):
    found = mixes(BEFORE, ENGINES, now, labels)
    assert bool(found) == (what is not None)
    assert what is None or what in found[0]


def test_an_engine_that_never_started_is_no_origin():
    assert EngineSummary(status="failed", versions={"torch": "9"}).origin is None
    assert differences([], SAME) == []


def test_what_the_first_submission_said_stays():
    one, two = Submission(at="1"), Submission(at="2")
    first = continued(None, SweepSummary(created_at="2026-12-01", margin_pp=1.0, device="cpu"), one)
    later = continued(first, SweepSummary(created_at="2026-12-02", margin_pp=2.0, device="cuda"), two)
    assert later == first.model_copy(update={"margin_pp": 2.0, "submissions": (one, two)})


def test_other_weights_of_the_same_shape_have_another_digest(tmp_path):
    sweep_file = tmp_path / "s.yaml"
    sweep_file.write_text(
        "name: s\nvariants: [{name: plain}]\nengine: {device: cpu}\n"
        f"model: {{path: {tmp_path / 'm'}, digest: full}}\n"
        "workloads: {s: {kind: synthetic, requests: 1, input_tokens: 8, output_tokens: 8}}\n"
    )
    sweep = load_sweep(sweep_file)
    assert model_content(sweep) == {}
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    found = []
    for value in (0.0, 0.0, 1.0):
        save_file({"w": np.full((2304, 2304), value, np.float32)}, tmp_path / "m" / "model.safetensors")
        found.append(model_content(sweep))
    assert found[0] == found[1]
    assert found[0].keys() == {"sampled", "full"}
    assert all(found[0][kind] != found[2][kind] for kind in found[0])
