"""What to do: the sentence follows from intervals and verdicts by rule, and says when it cannot be said."""

from __future__ import annotations

import pandas as pd
import pytest
from compare_sweeps import LADDER, Truth, sweep
from support import REPOSITORY

from farm.compare import compare
from farm.compare.codes import Code
from farm.results.summary import EngineSummary, SweepSummary

SPEC = Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2)
SOLID = Truth(right=0.95)  # no question is answered by chance


def compared(truths, items=400, margin_pp=1.0, label=None, **facts):
    records = sweep(truths, items, nodes=2).assign(label=label)
    return compare(records, SweepSummary.model_validate(facts), margin_pp=margin_pp)


def said(comparison):
    return " ".join(note.text for note in comparison.advice)


def decided(comparison):
    """Action, variant and the reasons on the one workload; the sweep's own decision is the same."""
    one = comparison.decision.workloads["gsm8k"]
    assert (comparison.decision.action, comparison.decision.variant) == (one.action, one.variant)
    assert comparison.decision.reasons == one.reasons
    return one.action, one.variant, list(one.reasons)


def worse_on_the_first(records, variant, items):
    """The records, with a variant's answers to its first items wrong."""
    wrong = (records["variant"] == variant) & (records["item_id"] < f"q{items:06}")
    return records.assign(correct=records["correct"].astype(bool) & ~wrong)


def truth(one, **changes):
    return Truth(**vars(one) | changes)


def test_fast_and_equivalent_is_deployed():
    comparison = compared({"baseline": SOLID, "nextn": truth(SPEC, right=0.95)})
    assert decided(comparison) == ("deploy", "nextn", ["shown-faster", "accuracy-equivalent", "starts-assumed"])
    (note,) = comparison.advice
    assert (note.code, note.workload, note.variant) == ("shown-faster", "gsm8k", "nextn")
    assert note.text.startswith("gsm8k: deploy nextn. decode throughput 1.")
    assert "accuracy equivalent within 1 pp" in note.text


def test_fast_with_worse_answers_is_not():
    records = sweep({"baseline": SOLID, "nextn": truth(SPEC, right=0.95)}, 400, nodes=2)
    comparison = compare(worse_on_the_first(records, "nextn", 40))
    assert decided(comparison) == ("keep", "baseline", ["accuracy-worse"])
    assert "answers gsm8k worse by" in said(comparison)


def test_fast_with_undecided_answers_says_how_many_questions_would_decide():
    comparison = compared({"baseline": Truth(), "nextn": SPEC}, items=100)
    assert decided(comparison) == ("keep", "baseline", ["accuracy-not-shown"])
    assert "are needed for a margin of 1 pp: keep baseline" in said(comparison)


def test_where_gsm8k_has_too_few_questions_repeats_are_asked_for():
    comparison = compared({"baseline": Truth(), "nextn": SPEC}, items=100, workloads={"gsm8k": {"kind": "gsm8k"}})
    workload = comparison.workloads["gsm8k"]
    found = workload.contrasts[0].accuracy
    assert (workload.questions_known, found.questions_needed > 1319) == (1319, True)
    assert f"(repeats: {found.repeats_needed})" in said(comparison)


def test_slower_safe_variant_is_preferred_to_a_faster_one_that_answers_worse():
    truths = {"baseline": SOLID, "humming": truth(SOLID, step_s=0.018), "nextn": truth(SPEC, right=0.95)}
    comparison = compare(worse_on_the_first(sweep(truths, 400, nodes=2), "nextn", 40))
    action, variant, reasons = decided(comparison)
    assert (action, variant) == ("deploy", "humming")
    assert "faster-one-held-back" in reasons


def test_nothing_faster_keeps_the_baseline():
    assert decided(compared({"baseline": SOLID, "twin": SOLID})) == ("keep", "baseline", ["none-faster"])


def test_sure_throughput_is_enough_and_unsure_latency_is_said():
    comparison = compare(sweep({"baseline": Truth(), "humming": Truth(step_s=0.0243)}, 100, graded=False))
    (found,) = comparison.workloads["gsm8k"].contrasts
    assert found.mean_latency_change.ci[1] > 0 > found.mean_latency_change.value
    reasons = ["shown-faster", "accuracy-not-measured", "latency-gain-unsure", "starts-assumed"]
    assert decided(comparison) == ("deploy", "humming", reasons)
    assert "output lengths scatter too much to be sure of the gain in latency" in said(comparison)


def test_too_few_items_decide_nothing():
    assert decided(compared({"baseline": Truth(), "nextn": SPEC}, items=4)) == ("undecided", "baseline", ["few-items"])


def test_a_variant_with_three_answers_does_not_silence_the_others():
    records = sweep(
        {"baseline": SOLID, "nextn": truth(SPEC, right=0.95), "late": truth(SPEC, step_s=0.01)}, 400, nodes=2
    )
    comparison = compare(records[(records["variant"] != "late") | (records["item_id"] < "q000003")])
    assert decided(comparison)[:2] == ("deploy", "nextn")


def test_without_grades_speed_alone_decides_and_is_said_to():
    comparison = compare(sweep({"baseline": Truth(), "nextn": SPEC}, 200, graded=False, nodes=2))
    assert decided(comparison) == ("deploy", "nextn", ["shown-faster", "accuracy-not-measured", "starts-assumed"])


def test_twins_cannot_be_told_apart():
    truths = {"baseline": SOLID, "a": truth(SOLID, step_s=0.016), "b": truth(SOLID, step_s=0.016)}
    comparison = compared(truths)
    assert "second-not-told-apart" in decided(comparison)[2]
    assert "It cannot be told apart from" in said(comparison)


@pytest.mark.parametrize(("facts", "code"), [({"label": "emulated"}, "labelled"), ({"planned_cells": 5000}, "partial")])
def test_labelled_or_partial_records_decide_nothing(facts, code):
    comparison = compared({"baseline": SOLID, "nextn": truth(SPEC, right=0.95)}, **facts)
    action, variant, reasons = decided(comparison)
    assert (action, variant, reasons[0]) == ("undecided", "baseline", code)
    assert comparison.decision.workloads["gsm8k"].candidate == "nextn"
    assert [note.code for note in comparison.advice] == [code, "shown-faster"]
    assert "deploy nextn" in said(comparison)
    assert ": deploy" not in said(comparison)


def test_a_variant_that_failed_leaves_the_decision_on_the_others_whole():
    failed = {"planned_cells": 1200, "variants": ["baseline", "nextn", "humming"], "failed_variants": {"humming": "no"}}
    comparison = compared({"baseline": SOLID, "nextn": truth(SPEC, right=0.95)}, **failed)
    assert decided(comparison)[:2] == ("deploy", "nextn")
    assert comparison.sweep.cells_pending == {}


def test_workloads_that_disagree_decide_nothing():
    fast = sweep({"baseline": Truth(), "nextn": SPEC}, 100, graded=False, nodes=2)
    slow = sweep({"baseline": Truth(), "nextn": Truth(step_s=0.05)}, 100, graded=False, nodes=2, workload="other")
    comparison = compare(pd.concat([fast, slow], ignore_index=True))
    found = comparison.decision
    assert (found.action, found.variant, list(found.reasons)) == ("undecided", "baseline", ["workloads-disagree"])
    assert {name: one.action for name, one in found.workloads.items()} == {"gsm8k": "deploy", "other": "keep"}
    assert comparison.advice[-1].code == "workloads-disagree"


def test_a_graded_workload_decides_and_the_others_have_their_decision_beside_it():
    graded = sweep({"baseline": SOLID, "nextn": truth(SPEC, right=0.95)}, 400, nodes=2)
    slow = sweep({"baseline": Truth(), "nextn": Truth(step_s=0.05)}, 100, graded=False, nodes=2, workload="other")
    found = compare(pd.concat([graded, slow], ignore_index=True)).decision
    assert (found.action, found.variant) == ("deploy", "nextn")
    assert {name: one.decides for name, one in found.workloads.items()} == {"gsm8k": True, "other": False}


def test_every_code_is_explained_where_a_reader_looks():
    readme = (REPOSITORY / "farm" / "compare" / "README.md").read_text(encoding="utf-8")
    assert [code for code in Code if f"`{code}`" not in readme] == []


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
    assert [note.text for note in comparison.why if note.code == "workload-gap"] == [gap.text]


def test_slower_start_is_weighed_against_seconds_saved():
    records = sweep({"baseline": Truth(), "humming": Truth(step_s=0.02)}, 200, nodes=2)
    engines = [
        {"variant": "baseline", "start_s": 480.0},
        {"variant": "humming", "start_s": 500.0},
        {"variant": "humming", "start_s": 520.0},
        {"variant": "humming", "start_s": None, "startup": None},
    ]
    comparison = compare(records, None, [EngineSummary.model_validate(one) for one in engines])
    (cost,) = comparison.start_up
    assert cost.extra_start_s == 30
    assert cost.requests_to_pay_back == pytest.approx(30 / cost.saved_s_per_request)
    assert cost.tokens_to_pay_back == pytest.approx(30_000 / cost.saved_s_per_1000_tokens)
    assert any("humming over baseline +30 s" in note.text for note in comparison.why if note.code == "start-up")
