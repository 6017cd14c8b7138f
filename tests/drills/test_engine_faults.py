"""An engine dies, hangs or lies: the cell gets a fresh engine, and the answers are those of the undisturbed sweep."""

import json
import signal

import drill
import pytest

from farm.spec.loading import load_sweep
from farm.workloads.build import build


def faulty(**fault):
    """Settings that let a fault act on each slot's first engine."""
    return {"engine": {"env": {"FARM_EMULATION_FAULTS": json.dumps(fault | {"launches": [0]})}}}


FAULTS = [
    "crash_after",
    "hang_after",
    "truncate_after",
    "malformed_after",
    "impossible_counts_after",
    "error_after",
]


def test_a_cell_is_asked_again_on_a_fresh_engine(home, undisturbed, tmp_path):
    """One engine after the other has another fault, which strikes its second cell."""
    # A start takes two generations, the readiness test and the probe.
    faults = json.dumps([{fault: 3, "launches": [launch]} for launch, fault in enumerate(FAULTS)])
    settings = {"engine": {"env": {"FARM_EMULATION_FAULTS": faults}}}
    outcome = drill.run(drill.write_sweep(tmp_path, drill.merged(drill.FAST, settings)), "--nodes", "1")
    table = outcome.complete_like(undisturbed)
    struck = table[table["attempts"] > 1]
    assert list(struck["attempts"]) == [2] * len(FAULTS)
    # The record is of the last, whole attempt alone, the first request of a fresh engine.
    assert set(struck["sequence"]) == {0}
    assert struck["engine_id"].nunique() == len(FAULTS)
    engines = json.loads((outcome.folder / "engines.json").read_text())
    assert len(engines) == len(FAULTS) + 2
    drill.wait_until_nothing_runs()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_an_engine_is_struck_amid_a_request(home, undisturbed, tmp_path, number):
    sweep = drill.write_sweep(tmp_path)
    job = drill.start(sweep, "--nodes", "1")
    drill.wait_for_records(4)
    drill.an_engine().send_signal(number)
    outcome = job.wait()
    table = outcome.complete_like(undisturbed)
    assert (table["attempts"] > 1).sum() <= 1
    assert len(json.loads((outcome.folder / "engines.json").read_text())) == 3
    drill.wait_until_nothing_runs()


def test_a_grandchild_that_ignores_sigterm_in_a_session_of_its_own(home, undisturbed, tmp_path):
    sweep = drill.write_sweep(tmp_path, faulty(grandchild=True, refuse_sigterm=True))
    job = drill.start(sweep, "--nodes", "1")
    drill.wait_for_records(4)
    drill.an_engine().kill()
    outcome = job.wait()
    outcome.complete_like(undisturbed)
    drill.wait_until_nothing_runs()


def test_a_poison_item_is_an_error_after_two_engines_and_the_sweep_goes_on(home, undisturbed, tmp_path):
    poison = {"poison": first_sentence(drill.write_sweep(tmp_path))}
    faults = {"engine": {"env": {"FARM_EMULATION_FAULTS": json.dumps(poison)}}}
    sweep = drill.write_sweep(tmp_path, drill.merged(drill.FAST, faults))
    outcome = drill.run(sweep, "--nodes", "1")
    assert outcome.status == 3, outcome.output
    table = outcome.table
    bad = table[table["error"].notna()]
    assert len(table) == drill.CELLS
    assert len(bad) == 2  # the item, under both variants
    assert bad["item_id"].nunique() == 1
    assert (bad["attempts"] == 2).all()
    assert bad["error"].str.contains("engine died").all()
    assert bad["item_id"].iloc[0] in outcome.output
    drill.hold(
        table[table["error"].isna()],
        undisturbed[undisturbed["item_id"] != bad["item_id"].iloc[0]],
    )
    drill.wait_until_nothing_runs()


def first_sentence(sweep):
    """Words of one question alone."""
    question = build(load_sweep(sweep).workloads)["gsm8k"][3].shown_prompt
    return question.rpartition("Question: ")[2].partition(". ")[0]
