"""A sweep that is submitted again: of the same origin it goes on, of another only when that is wanted."""

from datetime import UTC, datetime

import pytest
import yaml

from farm.cli.submission import submitted
from farm.errors import InputError
from farm.results.describe import describe
from farm.results.folder import SWEEP, ResultsFolder
from farm.results.journal import Journal
from farm.results.record import Record
from farm.spec.loading import load_sweep
from farm.workloads.build import build

RECORD = Record(
    sweep_id="s-1", variant="baseline", workload="w", item_id="i", repeat=0, node="n", engine_id="e",
    engine_kind="emulated", label=None, started_at=datetime(2026, 1, 2, tzinfo=UTC), sequence=0,
)  # fmt: skip


@pytest.fixture
def submit(tmp_path):
    (tmp_path / "model").mkdir()
    results, said = ResultsFolder(tmp_path / "results"), []

    def again(weights, *overrides, mix=False):
        (tmp_path / "model" / "model.safetensors").write_bytes(weights)
        (tmp_path / "s.yaml").write_text(
            yaml.safe_dump(
                {
                    "name": "s",
                    "model": {"path": str(tmp_path / "model")},
                    "engine": {"kind": "emulated"},
                    "variants": ["baseline"],
                    "workloads": {"w": {"kind": "synthetic", "requests": 1, "input_tokens": 8, "output_tokens": 8}},
                }
            )
        )
        sweep = load_sweep(tmp_path / "s.yaml", list(overrides))
        described = describe(sweep, "s-1", build(sweep.workloads), {}, {}, None)
        with Journal(results.path) as journal:
            written, origins = submitted(sweep, results, journal, described, mix=mix, say=said.append)
            results.write_sweep(written)
            journal.add([RECORD])
        return written, origins

    return results, said, again


def test_the_same_goes_on_and_its_first_description_stays(submit):
    _, said, again = submit
    first, origins = again(b"weights")
    assert origins == []
    later, origins = again(b"weights", "margin_pp=2")
    assert [one.model for one in origins] == [first.submissions[0].origin.model]
    assert later.created_at == first.created_at
    assert later.margin_pp == 2
    assert len(later.submissions) == 2
    assert said == []


@pytest.mark.parametrize(
    ("weights", "override", "named"),
    [(b"other weights", "about=x", "model content"), (b"weights", "engine.node_labels={rack: b}", "node_labels")],
)
def test_another_origin_is_refused_and_mixed_where_that_is_wanted(submit, weights, override, named):
    results, said, again = submit
    again(b"weights")
    before = (results.path / SWEEP).read_bytes()
    with pytest.raises(InputError, match=named):
        again(weights, override)
    assert (results.path / SWEEP).read_bytes() == before
    written, origins = again(weights, override, mix=True)
    assert origins == []
    assert named in written.submissions[1].mixed[0]
    assert named in said[0]
    again(weights, override)  # both are known now


def test_a_broken_description_is_kept_beside_a_new_one(submit):
    results, said, again = submit
    again(b"weights")
    (results.path / SWEEP).write_text('{"variants": 7}')
    written, _ = again(b"weights")
    assert written.variants == ("baseline",)
    [aside] = results.path.glob("damaged-*")
    assert aside.read_text() == '{"variants": 7}'
    assert aside.name in said[0]
