from __future__ import annotations

import math
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
import tracking_sweeps as sweeps
from hypothesis import given
from hypothesis import strategies as st
from mlflow.utils.validation import _validate_metric_name, _validate_param_name

from farm.compare import figures_alone
from farm.tracking import entries
from farm.tracking.artifacts import answers
from farm.tracking.describe import describe_sweep
from farm.tracking.entries import State
from farm.tracking.results import Key, milliseconds, read

KEY = Key("humming", "gsm8k")


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=20))
def test_any_name_becomes_one_that_mlflow_takes_and_can_be_read_back(text: str):
    name = entries.safe_name(text)
    _validate_param_name(f"arg/{name}")
    assert unquote(name.replace(":", "%")) == text


def test_usual_names_stay_as_they_are():
    for name in ("moe-runner-backend", "SGLANG_ENABLE_FP8_LM_HEAD", "torch", "humming_kernels.0"):
        assert entries.safe_name(name) == name


def test_figures_are_finite_and_their_names_are_valid(tmp_path: Path):
    results = read(sweeps.write(tmp_path / "s"))
    records = results.records.assign(verify_rounds=0, correct=None, completion_tokens=1)
    records = records.where(records["item_id"] == "gsm8k-0000").dropna(subset="item_id")
    figures = entries.figures_of(figures_alone(records, results.sweep), KEY)
    assert figures["answers/requests"] == 1
    assert "speed/tpot_ms" not in figures  # an answer of one token has none
    assert "ci95/tpot_ms.low" not in figures
    assert all(math.isfinite(value) for value in figures.values())
    for name in figures:
        _validate_metric_name(name)


def test_a_long_value_is_cut(tmp_path: Path):
    results = read(sweeps.write(tmp_path / "s", change={"model": "m" * 9000}))
    assert len(entries.params_of(results, KEY)["model"]) == entries.MAX_PARAM_CHARACTERS


def test_the_running_accuracy_stops_at_the_first_gap_and_other_series_do_not(tmp_path: Path):
    results = read(sweeps.write(tmp_path / "s", keep=lambda one: one.sequence != 4))
    points = entries.series_of(results, KEY)
    assert [one.step for one in points if one.key == "by_item/accuracy_so_far"] == [0, 1, 2, 3]
    assert [one.step for one in points if one.key == "by_item/ttft_s"] == [0, 1, 2, 3, *range(5, 12)]


def test_a_long_series_is_thinned_alike_for_all_variants_and_keeps_its_end(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(entries, "MOST_STEPS", 5)
    results = read(sweeps.write(tmp_path / "s"))
    for variant in sweeps.VARIANTS:
        points = entries.series_of(results, Key(variant, "gsm8k"))
        for name in ("by_item/ttft_s", "by_item/accuracy_so_far"):
            assert [one.step for one in points if one.key == name] == [0, 3, 6, 9, 11]
    graded = results.of(KEY).correct
    accuracies = [one for one in entries.series_of(results, KEY) if one.key == "by_item/accuracy_so_far"]
    assert accuracies[-1].value == graded.mean()


def test_repeats_follow_each_other(tmp_path: Path):
    folder = sweeps.write(tmp_path / "s", items=2)
    results = read(folder)
    again = results.records.assign(repeat=1)
    import pandas as pd

    pd.concat([results.records, again]).to_parquet(folder / "requests.parquet")
    results = read(folder)
    again = results.sweep.workloads["gsm8k"].model_copy(update={"repeats": 2})
    results.sweep.workloads["gsm8k"] = again
    steps = [one.step for one in entries.series_of(results, KEY) if one.key == "by_item/ttft_s"]
    assert steps == [0, 1, 2, 3]
    assert list(answers(results, KEY)["repeat"]) == [0, 1, 0, 1]


def test_a_long_description_is_cut_between_lines(tmp_path: Path):
    results = read(sweeps.write(tmp_path / "s"))
    row = "| " + "x" * 60 + " |\n"
    text = describe_sweep(results, State(entries.COMPLETE, 1, 1), row * 500, "#/experiments/1")
    assert len(text) <= entries.MAX_TAG_CHARACTERS
    assert all(line == row.strip() for line in text.splitlines() if line.startswith("|"))
    assert "comparison.md" in text


def test_an_answer_without_a_question_or_a_grade_keeps_its_row(tmp_path: Path):
    results = read(sweeps.write(tmp_path / "s"))
    table = answers(results, Key("baseline", "synthetic-2k"))
    assert len(table) == 4
    assert table["correct"].isna().all()


def test_a_state_tells_failed_from_partial(tmp_path: Path):
    folder = sweeps.write(tmp_path / "s", keep=lambda one: one.sequence < 3, failed={"baseline": "broken"})
    results = read(folder)
    assert entries.state_of(results, Key("baseline", "gsm8k"), running=True).name == entries.FAILED
    assert entries.state_of(results, KEY, running=True).name == entries.RUNNING
    assert entries.state_of(results, KEY, running=False) == State(
        entries.PARTIAL, 3, 12, "9 of 12 cells have no answer"
    )


def test_a_log_outside_the_folder_is_not_followed(tmp_path: Path):
    from farm.tracking.artifacts import write_child

    folder = sweeps.write(tmp_path / "s")
    results = read(folder)
    (tmp_path / "private").write_text("private")
    for engine in results.engines:
        log = folder / "engines" / f"{engine.engine_id}.log"
        log.unlink()
        log.symlink_to(tmp_path / "private")
    place = tmp_path / "out"
    place.mkdir()
    write_child(place, results, KEY)
    assert list(place.rglob("engine.log")) == []


@pytest.mark.parametrize("text", ["2026-03-01T08:00:00", "2026-03-01T08:00:00+00:00"])
def test_a_moment_without_a_zone_is_utc(tmp_path: Path, text: str):
    results = read(sweeps.write(tmp_path / "s", change={"created_at": text}))
    assert results.started_ms == milliseconds(datetime(2026, 3, 1, 8, tzinfo=UTC))
