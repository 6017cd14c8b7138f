"""What to do: the sentence follows from intervals and verdicts by rule, and says when it cannot be said."""

from __future__ import annotations

import pandas as pd
import pytest
from compare_sweeps import LADDER, Truth, sweep

from farm.compare import compare
from farm.compare.advice import questions_needed
from farm.results.summary import EngineSummary, SweepSummary

SPEC = Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2)
SOLID = Truth(right=0.95)  # no question is answered by chance


def advice(truths, items=400, margin_pp=1.0, label=None, **facts):
    records = sweep(truths, items, nodes=2).assign(label=label)
    return " ".join(compare(records, SweepSummary.model_validate(facts), margin_pp=margin_pp).advice)


def truth(one, **changes):
    return Truth(**vars(one) | changes)


def test_fast_and_equivalent_is_deployed():
    text = advice({"baseline": SOLID, "nextn": truth(SPEC, right=0.95)})
    assert text.startswith("gsm8k: deploy nextn. decode throughput 1.")
    assert "accuracy equivalent within 1 pp" in text


def test_fast_with_worse_answers_is_not():
    records = sweep({"baseline": SOLID, "nextn": truth(SPEC, right=0.95)}, 400, nodes=2)
    records["correct"] = records["correct"].astype(bool) & ~(
        (records["variant"] == "nextn") & (records["item_id"] < "q000040")
    )
    text = " ".join(compare(records).advice)
    assert "nextn is faster" in text
    assert "answers gsm8k worse by" in text
    assert text.endswith("keep baseline.")


def test_fast_with_undecided_answers_says_how_many_questions_would_decide():
    text = advice({"baseline": Truth(), "nextn": SPEC}, items=100)
    assert "is not shown to answer gsm8k as well" in text
    assert "are needed for a margin of 1 pp: keep baseline" in text


def test_slower_safe_variant_is_preferred_to_a_faster_one_that_answers_worse():
    truths = {"baseline": SOLID, "humming": truth(SOLID, step_s=0.018), "nextn": truth(SPEC, right=0.95)}
    records = sweep(truths, 400, nodes=2)
    worse = (records["variant"] == "nextn") & (records["item_id"] < "q000040")
    records["correct"] = records["correct"].astype(bool) & ~worse
    text = " ".join(compare(records).advice)
    assert "gsm8k: deploy humming." in text


def test_nothing_faster_keeps_the_baseline():
    text = advice({"baseline": SOLID, "twin": SOLID})
    assert text.startswith("gsm8k: keep baseline; no variant is shown to be faster")


def test_sure_throughput_is_enough_and_unsure_latency_is_said():
    comparison = compare(sweep({"baseline": Truth(), "humming": Truth(step_s=0.0243)}, 100, graded=False))
    (found,) = comparison.workloads["gsm8k"].contrasts
    assert found.mean_latency_change.ci[1] > 0 > found.mean_latency_change.value
    (text,) = comparison.advice
    assert "deploy humming" in text
    assert "output lengths scatter too much to be sure of the gain in latency" in text


def test_too_few_items_decide_nothing():
    assert "cannot be said from 4 paired items" in advice({"baseline": Truth(), "nextn": SPEC}, items=4)


def test_without_grades_speed_alone_decides_and_is_said_to():
    records = sweep({"baseline": Truth(), "nextn": SPEC}, 200, graded=False, nodes=2)
    (text,) = compare(records).advice
    assert "deploy nextn" in text
    assert "accuracy was not measured" in text


def test_twins_cannot_be_told_apart():
    truths = {"baseline": SOLID, "a": truth(SOLID, step_s=0.016), "b": truth(SOLID, step_s=0.016)}
    assert "It cannot be told apart from" in advice(truths)


def test_label_and_partial_come_first():
    text = advice({"baseline": Truth(), "nextn": SPEC}, label="emulated", planned_cells=5000)
    assert text.startswith("These results are EMULATED: they show that the farm works, not what to deploy.")
    assert "PARTIAL: 800 of 5,000 cells are answered" in text


def test_questions_needed_shrinks_with_the_square_of_the_margin():
    records = sweep({"baseline": Truth(), "nextn": Truth()}, 20)
    measured = compare(records).workloads["gsm8k"].contrasts[0].accuracy
    counts = {"only_against": 14, "only_variant": 13, "both": 1264, "neither": 28, "margin_pp": 1.0}
    found = measured.model_copy(update=counts)
    assert questions_needed(found) == pytest.approx(1754, abs=1)
    assert questions_needed(found.model_copy(update={"margin_pp": 0.5})) == pytest.approx(4 * 1754, abs=4)


def test_gap_between_synthetic_and_real_adds_up():
    spec, greedy = LADDER[3], Truth(step_s=0.0218, accept_length=3.6, round_cost=1.7)
    real = sweep({"baseline": Truth(), spec: SPEC}, 200, nodes=2)
    synthetic = sweep({"baseline": Truth(), spec: greedy}, 40, nodes=2, graded=False, workload="synthetic")
    facts = {"workloads": {"gsm8k": {"kind": "gsm8k", "sampling": {"temperature": 0.6}},
                           "synthetic": {"kind": "synthetic", "sampling": {"temperature": 0}}}}  # fmt: skip
    comparison = compare(pd.concat([real, synthetic], ignore_index=True), SweepSummary.model_validate(facts))
    (gap,) = comparison.gaps
    one, two = gap.throughput_ratios
    assert two / one == pytest.approx(gap.accept_length_factor * gap.round_cost_factor)
    assert "sampling greedy and temperature 0.6" in gap.text
    assert gap.text in comparison.why


def test_slower_start_is_weighed_against_seconds_saved():
    records = sweep({"baseline": Truth(), "humming": Truth(step_s=0.02)}, 200, nodes=2)
    engines = [
        {"variant": "baseline", "start_s": 480.0, "startup": {"compile_s": None}},
        {"variant": "humming", "start_s": 500.0, "startup": {"compile_s": 15.0}},
        {"variant": "humming", "start_s": 520.0, "startup": {"compile_s": 15.0}},
        {"variant": "humming", "start_s": None, "startup": None},
    ]
    comparison = compare(records, None, [EngineSummary.model_validate(one) for one in engines])
    (cost,) = comparison.start_up
    assert cost.extra_start_s == 30
    assert cost.requests_to_pay_back == pytest.approx(30 / cost.saved_s_per_request)
    assert cost.tokens_to_pay_back == pytest.approx(30_000 / cost.saved_s_per_1000_tokens)
    assert any("humming over baseline +30 s" in line for line in comparison.why)
