"""Energy and slow states in the comparison: right where the truth is known, absent where nothing was measured."""

from __future__ import annotations

import json

import numpy as np
import pytest
from compare_sweeps import Truth, sweep

from farm.compare import compare
from farm.report import csv_file, json_file, markdown, terminal
from farm.report import html as report
from farm.tracking.entries import figures_of as figures_of_run
from farm.tracking.results import Key

PAIR = {"baseline": Truth(), "nextn": Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2)}
WATTS = {"baseline": 50.0, "nextn": 55.0}


@pytest.fixture
def records():
    """Both variants draw a power of their own, so that energy follows latency."""
    frame = sweep(PAIR, 120, nodes=2)
    frame["energy_j"] = frame["latency_s"] * frame["variant"].map(WATTS)
    frame["energy_method"] = "board-counter"
    frame["power_w"] = frame["variant"].map(WATTS)
    frame["sm_clock_mhz"] = 2400.0
    frame["throttled_s"] = 0.0
    frame["slow_state"] = False
    return frame


def slowed(frame, variant, count, factor=1.7):
    """The first answers of a variant, taken in the hidden slow state."""
    rows = frame.index[frame["variant"] == variant][:count]
    for name in ("latency_s", "decode_s"):
        frame.loc[rows, name] *= factor
    frame.loc[rows, "slow_state"] = True
    return frame


def figures_of(records, **options):
    return compare(records, **options).workloads["gsm8k"].variants


def test_energy_per_answer_and_per_token_are_ratios_of_sums(records):
    for variant, figures in figures_of(records).items():
        own = records[records["variant"] == variant]
        energy, tokens = own["energy_j"].sum(), own["completion_tokens"].sum()
        assert figures.energy_j_per_request.value == pytest.approx(energy / len(own))
        assert figures.energy_j_per_token.value == pytest.approx(energy / tokens)
        low, high = figures.energy_j_per_token.ci
        assert low < energy / tokens < high
        assert figures.energy_method == "board-counter"
        assert figures.sm_clock_mhz == pytest.approx(2400.0)
        assert figures.throttled_s == 0.0


def test_the_contrast_in_energy(records):
    comparison = compare(records)
    figures = comparison.workloads["gsm8k"].variants
    contrast = comparison.workloads["gsm8k"].contrasts[0]
    expected = figures["nextn"].energy_j_per_token.value / figures["baseline"].energy_j_per_token.value
    assert contrast.energy_per_token_ratio.value == pytest.approx(expected)
    assert any("board-counter" in note.text for note in comparison.why if note.code == "energy")


def test_answers_without_energy_are_in_neither_sum(records):
    lost = records.index[records["variant"] == "nextn"][:30]
    records.loc[lost, ["energy_j", "energy_method"]] = [np.nan, None]
    own = records[(records["variant"] == "nextn") & records["energy_j"].notna()]
    figures = figures_of(records)["nextn"]
    assert figures.energy_answers == 90
    assert figures.energy_j_per_token.value == pytest.approx(own["energy_j"].sum() / own["completion_tokens"].sum())


def test_methods_that_differ_are_named(records):
    records.loc[records.index[0], "energy_method"] = "power-integral"
    assert figures_of(records)["baseline"].energy_method == "board-counter, power-integral"


def test_without_telemetry_everything_is_null_and_no_view_speaks_of_energy():
    plain = sweep(PAIR, 120, nodes=2)
    comparison = compare(plain)
    contract = json.loads(json_file.render(comparison))["workloads"]["gsm8k"]
    for figures in contract["variants"].values():
        for name in ("energy_j_per_request", "energy_j_per_token", "energy_method", "sm_clock_mhz", "throttled_s"):
            assert figures[name] is None
    assert contract["contrasts"][0]["energy_per_token_ratio"] is None
    for text in (
        terminal.text(comparison, styled=False),
        markdown.render(comparison),
        report.render(comparison, plain),
    ):
        assert "J/token" not in text
        assert "energy" not in text


def test_views_show_energy_where_it_is_known(records):
    comparison = compare(records)
    value = f"{comparison.workloads['gsm8k'].variants['nextn'].energy_j_per_token.value:.2f}"
    shown = terminal.text(comparison, styled=False)
    assert "J/token" in shown
    assert value in shown
    assert max(map(len, shown.splitlines())) <= terminal.WIDTH
    assert "J/token" in markdown.render(comparison)
    assert "energy J per generated token" in report.render(comparison, records)
    assert "energy_j_per_token" in csv_file.render(comparison).splitlines()[0]


def test_mlflow_gets_energy_and_clock_where_they_are_known(records):
    comparison = compare(slowed(records, "nextn", 3))
    found = figures_of_run(comparison, Key("nextn", "gsm8k"))
    assert found["energy/energy_j_per_token"] == pytest.approx(
        comparison.workloads["gsm8k"].variants["nextn"].energy_j_per_token.value
    )
    assert found["ci95/energy_j_per_token.low"] < found["energy/energy_j_per_token"]
    assert found["vs_baseline/energy_per_token_ratio"] < 1
    assert (found["energy/sm_clock_mhz"], found["energy/slow_answers"]) == (pytest.approx(2400.0), 3)
    plain = figures_of_run(compare(sweep(PAIR, 120, nodes=2)), Key("nextn", "gsm8k"))
    assert not [name for name in plain if "energy" in name]


def test_slow_records_are_counted_in_a_warning_with_both_figures(records):
    comparison = compare(slowed(records, "nextn", 6))
    reported = [note.text for note in comparison.warnings if note.code == "slow-state"]
    assert len(reported) == 1
    assert "6 answers" in reported[0]
    assert "nextn 6" in reported[0]
    tpot = comparison.workloads["gsm8k"].variants["nextn"].tpot_ms.value
    without = compare(records, slow_records="exclude").workloads["gsm8k"].variants["nextn"].tpot_ms.value
    assert f"nextn {tpot:.2f} with them, {without:.2f} without" in reported[0]
    assert tpot > without


def test_slow_records_can_be_left_out(records):
    comparison = compare(slowed(records, "nextn", 6), slow_records="exclude")
    workload = comparison.workloads["gsm8k"]
    assert workload.variants["nextn"].requests == 114
    assert workload.contrasts[0].pairs == 114
    assert comparison.sweep.complete
    assert any(
        "6 answers" in note.text and "left out" in note.text
        for note in comparison.warnings
        if note.code == "slow-state"
    )


def test_the_command_leaves_slow_records_out(records, write, run):
    folder = write(slowed(records, "baseline", 9))
    counts = {}
    for mode in ("include", "exclude"):
        status, out, _ = run("--results", folder, "--format", "json", "--slow-records", mode)
        assert status == 0
        counts[mode] = json.loads(out)["workloads"]["gsm8k"]["variants"]["baseline"]["requests"]
    assert counts == {"include": 120, "exclude": 111}


def test_a_sweep_of_slow_records_alone_cannot_leave_them_out(records, write, run):
    records["slow_state"] = True
    status, _, err = run("--results", write(records), "--slow-records", "exclude")
    assert status == 2
    assert "slow state" in err
