"""What is known of cost before a sweep's first answer: from its settings, and from earlier sweeps of the same items."""

import json

import pandas as pd
import pytest
from support import REPOSITORY

from farm.driver.history import first_costs
from farm.spec.loading import load_sweep
from farm.types import CellKey
from farm.workloads.build import build
from farm.workloads.items import digest

QUESTIONS = 12


@pytest.fixture
def sweep():
    return load_sweep(
        REPOSITORY / "jobs" / "sweeps" / "rehearsal.yaml",
        [
            "workloads.gsm8k.source=builtin:gsm-mini",
            f"workloads.gsm8k.questions={QUESTIONS}",
            "variants=[baseline,humming]",
            "engine.args.emulation-speed=100",
        ],
    )


def test_without_earlier_sweeps_the_published_figures_count(sweep, tmp_path):
    costs = first_costs(sweep, build(sweep.workloads), tmp_path / "none")
    assert costs.cell_s(CellKey("baseline", "gsm8k", "gsm-mini-0001", 0)) == 0.152
    assert costs.cell_s(CellKey("humming", "synthetic", "synthetic-0000", 0)) == pytest.approx(0.667, rel=0.01)
    # The published start, and two warm-up requests of each workload.
    assert costs.start_s("baseline") == pytest.approx(4.8 + 0.238, abs=0.001)


def write_earlier(folder, items):
    """The results of a sweep that asked the same questions of one other variant: every second answer is a long one."""
    folder.mkdir(parents=True)
    tokens = [100 + 400 * (index % 2) for index in range(len(items))]
    rows = {
        "variant": "marlin",
        "workload": "maths",
        "item_id": [item.item_id for item in items],
        "repeat": 0,
        "completion_tokens": tokens,
        "latency_s": [0.02 * count for count in tokens],
    }
    pd.DataFrame(rows).to_parquet(folder / "requests.parquet")
    described = {
        "model": "inclusionAI/Ling-3.0-flash-fp4",
        "label": "emulated",
        "workloads": {"maths": {"digest": digest(items)}},
    }
    (folder / "sweep.json").write_text(json.dumps(described))


def test_an_earlier_sweep_tells_which_questions_need_long_answers(sweep, tmp_path):
    """The earlier one asked other variants; a broken folder beside it is passed over."""
    items = build(sweep.workloads)
    write_earlier(tmp_path / "earlier", items["gsm8k"])
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "requests.parquet").write_bytes(b"not a table")
    (broken / "sweep.json").write_text(json.dumps(["not a sweep"]))
    costs = first_costs(sweep, items, tmp_path)
    for number in range(6):
        costs.learn(CellKey("baseline", "gsm8k", f"other-{number}", 0), "a", 100, 1.0)
    predicted = [costs.cell_s(CellKey("baseline", "gsm8k", item.item_id, 0)) for item in items["gsm8k"]]
    assert min(predicted[1::2]) > 2 * max(predicted[::2])


def test_a_cost_is_measured_once_starts_and_answers_of_all_variants_are_known(sweep, tmp_path):
    items = build(sweep.workloads)
    write_earlier(tmp_path / "earlier", items["gsm8k"])
    assert not first_costs(sweep, items, tmp_path).measured(["marlin"], ["gsm8k", "synthetic"])
    assert first_costs(sweep, items, tmp_path).measured(["marlin"], ["gsm8k"])
    assert not first_costs(sweep, items, tmp_path).measured(["marlin", "baseline"], ["gsm8k"])
