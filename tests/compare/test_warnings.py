"""Warnings: each appears when there is cause, with its figures, and not otherwise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from compare_sweeps import Truth, sweep

from farm.compare import compare
from farm.results.summary import SweepSummary

PAIR = {"baseline": Truth(), "nextn": Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2)}


def warnings_of(records, **sweep_facts):
    return compare(records, SweepSummary.model_validate(sweep_facts)).warnings


def has(warnings, code, *figures, variant=None, workload="gsm8k"):
    """Is there a warning of this code, on this variant and workload, with these figures in its words?"""
    return any(
        (note.code, note.variant, note.workload) == (code, variant, workload)
        and all(figure in note.text for figure in figures)
        for note in warnings
    )


@pytest.fixture
def records():
    return sweep(PAIR, 120, nodes=2)


def test_clean_sweep_warns_of_nothing(records):
    assert warnings_of(records) == ()


def test_missing_pairs(records):
    assert has(warnings_of(records.drop(index=[0, 5])), "pairs-missing", "2 of 120", variant="nextn")


def test_prompts_that_differ_between_variants(records):
    records.loc[[1, 2], "prompt_sha256"] = "other"
    assert has(warnings_of(records), "prompts-differ", "2 prompts")


def test_prompts_that_differ_are_no_pair(records):
    """Their answers would say anything: here the other prompts take a hundred times as long on one side."""
    other = records.index[:30]
    plain = compare(records.drop(index=other))
    records.loc[other, "prompt_sha256"] = "other"
    records.loc[other, ["latency_s", "decode_s"]] *= 100
    (found,), (expected,) = (one.workloads["gsm8k"].contrasts for one in (compare(records), plain))
    assert (found.pairs, found.answers_paired) == (90, 90)
    assert found.throughput_ratio.value == pytest.approx(expected.throughput_ratio.value)
    assert (
        found.accuracy.both + found.accuracy.neither + found.accuracy.only_variant + found.accuracy.only_against == 90
    )


def test_a_grade_on_one_side_alone(records):
    records["correct"] = records["correct"].astype(object)
    records.loc[[0, 1, 2], "correct"] = None
    assert has(warnings_of(records), "graded-on-one-side", "3 pairs", variant="nextn")


@pytest.mark.parametrize(("column", "value"), [("engine_kind", "parrot"), ("label", "emulated")])
def test_records_of_several_kinds_decide_nothing(records, column, value):
    records[column] = records[column].astype(object)
    assert "kinds-mixed" not in compare(records).decision.reasons
    records.loc[records.index[-5:], column] = value
    found = compare(records)
    assert has(found.warnings, "kinds-mixed", "nextn 5 of")
    assert found.decision.action == "undecided"
    assert "kinds-mixed" in found.decision.reasons


def test_cached_tokens(records):
    records.loc[[0, 1, 2], "cached_tokens"] = 640
    assert has(warnings_of(records), "cached-prompt-tokens", "baseline 3")


def test_uneven_truncation_and_errors(records):
    records.loc[[0, 1], "truncated"] = True
    records["error"] = records["error"].astype(object)
    records.loc[130, "error"] = "refused"
    found = warnings_of(records)
    assert has(found, "truncation-uneven", "baseline 2, nextn 0")
    assert has(found, "errors-uneven", "baseline 0, nextn 1")


def test_even_truncation_is_no_warning(records):
    records.loc[[0, 120], "truncated"] = True
    assert not has(warnings_of(records), "truncation-uneven")


def test_answers_moved_between_nodes(records):
    assert has(warnings_of(records.assign(moved=records.index == 7)), "reassigned", "1 answers")


def test_node_effect_that_pairs_cancel(records):
    slow = (records["node"] == "node-1").to_numpy()
    records.loc[slow, "decode_s"] *= 1.7
    records["latency_s"] = records["ttft_s"] + records["decode_s"]
    assert has(warnings_of(records), "node-effect", "node-1 takes", "than node-0", "pairs on one node cancel it")


@pytest.mark.parametrize(("factor", "within"), [(1.004, 0.002), (1.7, 0.05)])
def test_the_size_of_a_node_effect_is_told_also_where_it_is_small(records, factor, within):
    """Against the variants' differences it may be nothing: who reads the ratio should see that."""
    slow = (records["node"] == "node-1").to_numpy()
    before = compare(records).workloads["gsm8k"].steadiness.node_effect
    sign = 1 if before.slow == "node-1" else -1
    records.loc[slow, "decode_s"] *= factor
    records["latency_s"] = records["ttft_s"] + records["decode_s"]
    found = compare(records)
    effect = found.workloads["gsm8k"].steadiness.node_effect
    usual = (1 + before.percent / 100) ** sign
    signed = (1 + effect.percent / 100) ** (1 if effect.slow == "node-1" else -1)
    assert signed == pytest.approx(usual * factor, rel=within)
    assert any(f"node {effect.slow} takes" in note.text for note in found.why if note.code == "stability")


def test_with_one_node_there_is_no_node_effect(records):
    found = compare(records.assign(node="only", sequence=None)).workloads["gsm8k"].steadiness
    assert (found.node_effect, found.largest_drift) == (None, None)


def test_node_effect_that_is_part_of_the_contrast(records):
    records["node"] = records["variant"].map({"baseline": "node-0", "nextn": "node-1"})
    half = (records["item_id"] < "q000060").to_numpy()
    extra = records[half].assign(node="node-2", repeat=1)
    extra["decode_s"] *= 1.3
    extra["latency_s"] = extra["ttft_s"] + extra["decode_s"]
    mixed = pd.concat([records, extra[extra["variant"] == "nextn"]], ignore_index=True)
    assert has(warnings_of(mixed), "node-effect", "node-2 takes", "variants did not share nodes")


def test_drift_along_the_sequence(records):
    own = (records["engine_id"] == "baseline@node-0").to_numpy()
    records.loc[own, "decode_s"] *= 1 + 0.3 * records.loc[own, "sequence"] / records.loc[own, "sequence"].max()
    records["latency_s"] = records["ttft_s"] + records["decode_s"]
    (found,) = [note for note in warnings_of(records) if note.code == "drift"]
    assert found.variant == "baseline"
    assert "baseline@node-0 ends +" in found.text


def test_speculation_in_vain():
    truths = PAIR | {"nextn": Truth(step_s=0.0417, accept_length=1.004)}
    found = warnings_of(sweep(truths, 120, nodes=2))
    assert has(found, "speculation-does-not-pay", "accept rate 1.2 %, accept length 1.04", variant="nextn")


@pytest.mark.parametrize("label", ["emulated", "dummy-weights", "demo-model"])
def test_labels(records, label):
    records.loc[0, "label"] = label
    assert has(warnings_of(records), "labelled", label.upper(), workload=None)


def test_incomplete_sweep(records):
    found = warnings_of(records, planned_cells=300, variants=["baseline", "nextn", "humming"])
    assert has(found, "partial", "240 of 300", workload=None)
    assert has(found, "variant-without-records", variant="humming", workload=None)


def test_failed_variant_is_named_with_its_reason(records):
    found = warnings_of(records, failed_variants={"fp8-head": "VariantNotActive: BF16 head"})
    assert has(found, "variant-failed", "VariantNotActive: BF16 head", variant="fp8-head", workload=None)


def test_small_sweep_is_honest():
    found = warnings_of(sweep(PAIR, 5))
    assert [note.code for note in found] == ["few-items", "few-answers-for-p95", "one-start"]
    assert has(warnings_of(sweep(PAIR, 20)), "skewed-means", "20 items")
    assert not has(warnings_of(sweep(PAIR, 72, nodes=2)), "few-answers-for-p95")


def test_starts_that_differ_are_said_to_widen_the_interval():
    truths = {name: Truth(**vars(one) | {"start_scatter": 0.2}) for name, one in PAIR.items()}
    found = warnings_of(sweep(truths, 120, nodes=3, seed=1))
    assert has(found, "starts-differ", "3 engine starts", variant="nextn")


def test_variant_without_a_single_answer(records):
    lost = records["variant"] == "nextn"
    records["error"] = np.where(lost, "died", None)
    extra = sweep({"humming": Truth(step_s=0.024)}, 120, nodes=2)
    comparison = compare(pd.concat([records, extra], ignore_index=True))
    figures = comparison.workloads["gsm8k"].variants["nextn"]
    assert (figures.requests, figures.errors, figures.tpot_ms.value) == (0, 120, None)
    assert has(comparison.warnings, "pairs-missing", "120 of 120", variant="nextn")


def test_workload_that_the_baseline_never_ran(records):
    other = records[records["variant"] == "nextn"].assign(workload="synthetic")
    assert has(warnings_of(pd.concat([records, other], ignore_index=True)), "nothing-paired", workload="synthetic")
