"""Failing must not buy a decision: errors, time-outs and cut answers count, and losses are said."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from compare_sweeps import Truth, published_sweep, sweep

from farm.compare import compare
from farm.compare.codes import Code
from farm.results.summary import EngineSummary

BASE = Truth(right=0.95)
FAST = Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2, right=0.95)
ITEMS = 400


@pytest.fixture
def records():
    return sweep({"baseline": BASE, "nextn": FAST}, ITEMS, nodes=2).astype({"error": object, "correct": object})


def longest(records, share=0.1):
    """The items with the longest answers of the baseline."""
    own = records[records["variant"] == "baseline"].nlargest(int(share * ITEMS), "completion_tokens")
    return records["item_id"].isin(own["item_id"])


def failed(records, which):
    """The records, with those answers errors as a sweep writes them."""
    out = records.copy()
    out.loc[which, ["error", "correct"]] = ["timed out", None]
    out.loc[which, ["completion_tokens", "ttft_s", "latency_s", "decode_s"]] = 0
    return out


def test_a_variant_that_errors_on_the_longest_questions_is_not_deployed(records):
    assert compare(records).decision.action == "deploy"
    comparison = compare(failed(records, longest(records) & (records["variant"] == "nextn")))
    (found,) = comparison.workloads["gsm8k"].contrasts
    assert found.accuracy.verdict == "equivalent"
    right = records[longest(records) & (records["variant"] == "baseline")]["correct"].sum()
    assert found.accuracy_with_failures.difference_pp == pytest.approx(-100 * right / ITEMS)
    assert (found.accuracy_with_failures.questions, found.accuracy_with_failures.verdict) == (ITEMS, "worse")
    assert comparison.decision.action == "keep"
    assert comparison.decision.reasons == (Code.TOO_MANY_ERRORS, Code.ACCURACY_LOST_TO_FAILURES)


def test_speed_names_what_it_leaves_out_and_how_long_that_is(records):
    lost = longest(records) & (records["variant"] == "nextn")
    comparison = compare(failed(records, lost))
    (found,) = comparison.workloads["gsm8k"].contrasts
    base = records[records["variant"] == "baseline"]
    long = longest(records)[base.index]
    assert (found.left_out.answers, found.left_out.items, found.left_out.answered_by_one) == (40, 40, 40)
    assert found.left_out.completion_tokens == pytest.approx(base[long]["completion_tokens"].mean())
    assert found.left_out.completion_tokens_kept == pytest.approx(base[~long]["completion_tokens"].mean())
    assert (found.left_out.prompt_tokens, found.left_out.prompt_tokens_kept) == (800, 800)
    assert Code.FAILED_LEFT_OUT in {note.code for note in comparison.warnings}


def test_what_failed_on_both_sides_is_no_difference(records):
    comparison = compare(failed(records, longest(records, 0.01)))
    (found,) = comparison.workloads["gsm8k"].contrasts
    assert found.accuracy_with_failures.difference_pp * ITEMS == pytest.approx(
        found.accuracy.difference_pp * found.accuracy.questions
    )
    assert found.accuracy_with_failures.neither == found.accuracy.neither + 4
    assert comparison.decision.action == "deploy"


def test_an_answer_cut_off_is_wrong_even_where_it_was_graded_right(records):
    cut = longest(records) & (records["variant"] == "nextn")
    comparison = compare(records.assign(truncated=cut, correct=True))
    (found,) = comparison.workloads["gsm8k"].contrasts
    assert (found.accuracy.difference_pp, found.accuracy_with_failures.difference_pp) == (0, pytest.approx(-10))
    assert found.left_out is None
    assert comparison.decision.reasons == (Code.ACCURACY_LOST_TO_FAILURES,)


def test_the_published_pairing_stays_equivalent():
    (found,) = compare(published_sweep()).workloads["gsm8k"].contrasts
    assert found.accuracy_with_failures == found.accuracy
    assert found.accuracy_with_failures.verdict == "equivalent"


@pytest.mark.parametrize("speed", [BASE, Truth(step_s=0.03)])
def test_a_collapse_without_gain_is_the_first_thing_said(speed):
    records = sweep({"baseline": BASE, "broken": speed}, ITEMS, nodes=2)
    right = np.where(records["variant"] == "broken", records["item_id"] < "q000012", records["correct"].astype(bool))
    comparison = compare(records.assign(correct=right))
    (found,) = comparison.workloads["gsm8k"].contrasts
    assert found.accuracy.difference_pp < -90
    assert list(comparison.decision.reasons) == ["loss-shown", "none-faster"]
    (note,) = comparison.advice
    assert note.code == Code.LOSS_SHOWN
    assert f"{-found.accuracy.difference_pp:.2f} pp" in note.text


def test_a_slower_variant_is_a_loss_too():
    comparison = compare(sweep({"baseline": BASE, "slow": Truth(step_s=0.03, right=0.95)}, ITEMS, nodes=2))
    assert list(comparison.decision.reasons) == ["loss-shown", "none-faster"]


def test_the_fastest_two_are_compared_over_what_both_answered():
    records = sweep({"baseline": BASE, "a": Truth(step_s=0.016), "b": Truth(step_s=0.016)}, 200, nodes=2, graded=False)
    there = records["variant"] != "a"
    records = pd.concat([records[there], records[~there & ~longest(records, 0.25)]], ignore_index=True)
    two = compare(records).workloads["gsm8k"].fastest_two
    assert (two.variant, two.against) == ("a", "b")
    own = records.pivot_table(index="item_id", columns="variant", values="latency_s").dropna()
    assert two.mean_latency_change.value == pytest.approx(own["a"].mean() / own["b"].mean() - 1)


@pytest.mark.parametrize(("errors", "action"), [(4, "deploy"), (5, "keep")])
def test_above_one_percent_errors_nothing_is_deployed(records, errors, action):
    comparison = compare(failed(records.assign(correct=None), longest(records, errors / ITEMS)))
    assert comparison.decision.action == action
    assert (Code.TOO_MANY_ERRORS in comparison.decision.reasons) == (action == "keep")


@pytest.mark.parametrize(("variant", "action"), [("nextn", "keep"), ("baseline", "deploy")])
def test_second_attempts_beyond_chance_are_not_deployed(records, variant, action):
    again = longest(records, 0.3) & (records["variant"] == variant)
    comparison = compare(records.assign(attempts=np.where(again, 2, 1)))
    assert comparison.workloads["gsm8k"].variants[variant].reliability.attempted_again == 120
    assert comparison.decision.action == action
    assert (Code.ATTEMPTS_REPEATED in comparison.decision.reasons) == (action == "keep")
    assert (Code.UNRELIABLE, variant) in {(note.code, note.variant) for note in comparison.warnings}


def test_a_few_second_attempts_are_chance(records):
    again = longest(records, 0.01) & (records["variant"] == "nextn")
    assert compare(records.assign(attempts=np.where(again, 2, 1))).decision.action == "deploy"


def test_what_became_of_engines_is_counted(records):
    ends = ["died", "died", "started", "failed", "not-active", "stopped"]
    engines = [EngineSummary(engine_id=f"e{n}", variant="nextn", status=status) for n, status in enumerate(ends)]
    figures = compare(records, engines=engines).workloads["gsm8k"].variants
    found = figures["nextn"].reliability
    assert (found.engines_died, found.engines_lost, found.starts_failed, found.starts_refused) == (2, 1, 1, 1)
    assert figures["baseline"].reliability.engines_died == 0
