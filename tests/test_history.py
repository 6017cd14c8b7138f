"""What is known of cost before a sweep's first answer: from its settings, and from earlier sweeps of the same items."""

import json
import os

import pytest
from support import GSM8K, REPOSITORY, run_sweep

from farm.history import first_costs
from farm.records import CellKey
from farm.spec import load_sweep
from farm.workloads.build import build

QUESTIONS = 12


@pytest.fixture
def sweep():
    return load_sweep(
        REPOSITORY / "jobs" / "sweeps" / "rehearsal.yaml",
        [
            f"workloads.gsm8k.source={GSM8K}",
            f"workloads.gsm8k.questions={QUESTIONS}",
            "variants=[baseline,humming]",
            "engine.args.emulation-speed=100",
        ],
    )


def test_without_earlier_sweeps_the_published_figures_count(sweep, tmp_path):
    costs = first_costs(sweep, build(sweep), tmp_path / "none")
    assert costs.cell_s(CellKey("baseline", "gsm8k", "test-0000", 0)) == 0.152
    assert costs.cell_s(CellKey("humming", "synthetic", "synthetic-0000", 0)) == pytest.approx(0.667, rel=0.01)
    assert costs.start_s("baseline") == 4.8


def test_an_earlier_sweep_tells_which_questions_need_long_answers(sweep, farm_home):
    """The earlier one asked other variants; a broken folder beside it is passed over."""
    items = build(sweep)
    settings = [
        f"workloads.gsm8k.source={GSM8K}",
        f"workloads.gsm8k.questions={QUESTIONS}",
        "variants=[marlin]",
        "engine.slots_per_node=1",
    ]
    done = run_sweep(
        "rehearsal",
        *(word for entry in settings for word in ("--set", entry)),
        env=os.environ | {"RAY_ADDRESS": "local"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    broken = farm_home / "results" / "broken"
    broken.mkdir()
    (broken / "requests.parquet").write_bytes(b"not a table")
    (broken / "sweep.json").write_text(json.dumps(["not a sweep"]))
    costs = first_costs(sweep, items, farm_home / "results")
    for number in range(6):
        costs.learn(CellKey("baseline", "gsm8k", f"other-{number}", 0), "a", 100, 1.0)
    predicted = {item.item_id: costs.cell_s(CellKey("baseline", "gsm8k", item.item_id, 0)) for item in items["gsm8k"]}
    assert len(set(predicted.values())) > QUESTIONS / 2
    assert max(predicted.values()) > 2 * min(predicted.values())
