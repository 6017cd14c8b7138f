"""Engine starts and nodes in the interval and in the decision: right values, planted cases, and what is assumed."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from compare_sweeps import Truth, sweep

from farm.compare import compare
from farm.compare.assemble import Analysis
from farm.compare.codes import Code
from farm.results.summary import SweepSummary
from farm.stats.starts import Assumed, Side, scatter

PAIR = {"baseline": Truth(), "twin": Truth()}
SLOW, FAST = np.array([0.0, 0.01, -0.02, 0.03]), np.array([0.02, -0.01, 0.005, 0.0])
SURE = Assumed(start=0.0015)


def of_starts(one, two, own, other, *, shared, items=None):
    """The scatter of a ratio whose rows have these starts on its two sides, and no noise of items."""
    shares = np.full(len(one), 1 / len(one))
    logs = own[one] - other[two]
    sides = [Side(1.0, one, shares), Side(-1.0, two, shares)]
    rows = np.arange(len(one)) if items is None else items
    return scatter(rows, shares * (logs - logs.mean()), sides, 1e-12, shared_nodes=shared, assumed=SURE)


def test_pairs_of_starts_give_the_t_interval_of_their_differences():
    start = np.arange(400) % 4
    found = of_starts(start, start, SLOW, FAST, shared=True)
    assert found.source == "measured"
    assert found.error == pytest.approx(np.std(SLOW - FAST, ddof=1) / 2, rel=0.02)
    assert found.freedom == pytest.approx(3)


def test_crossed_starts_are_no_independent_pairs():
    """Each side has four, whatever the number of combinations: the variances of two means add up."""
    one, two = np.divmod(np.arange(1600) % 16, 4)
    found = of_starts(one, two, SLOW, FAST, shared=False)
    own, other = np.var(SLOW, ddof=1) / 4, np.var(FAST, ddof=1) / 4
    assert found.error == pytest.approx(np.sqrt(own + other), rel=0.02)
    assert found.freedom == pytest.approx((own + other) ** 2 / (own**2 / 3 + other**2 / 3), rel=0.02)


def test_a_side_of_one_start_borrows_from_the_other():
    one, two = np.zeros(400, dtype=np.int64), np.arange(400) % 4
    found = of_starts(one, two, SLOW, FAST, shared=False)
    variance = np.var(FAST, ddof=1)
    assert found.nodes_bounded
    assert found.error == pytest.approx(np.sqrt(variance + variance / 4), rel=0.02)


def test_one_start_of_each_is_assumed_to_scatter_as_stated():
    rows = np.zeros(400, dtype=np.int64)
    found = of_starts(rows, rows, np.zeros(1), np.zeros(1), shared=True)
    assert (found.source, found.error, found.freedom) == ("assumed", None, 4)
    assert found.deviation == pytest.approx(0.0015 * np.sqrt(2))


def test_two_starts_move_the_assumption():
    start = np.arange(400) % 2
    found = of_starts(start, start, np.array([0.0, 0.02]), np.zeros(2), shared=True)
    assert (found.source, found.freedom) == ("both", pytest.approx(5))
    # The difference of 0.02 has the variance 0.0002, of two sides.
    assert found.deviation**2 == pytest.approx((4 * 0.0015**2 + 0.0001) / 5, rel=0.02)


def dedicated(records: pd.DataFrame, nodes: int, faster: float = 0.0) -> pd.DataFrame:
    """Each variant on nodes of its own; the twin's are faster."""
    rng = np.random.default_rng(1)
    own = records["variant"].map({"baseline": "a", "twin": "b"}) + (rng.permutation(len(records)) % nodes).astype(str)
    speed = np.where(records["variant"] == "twin", 1 / (1 + faster), 1.0)
    decode = records["decode_s"] * speed
    return records.assign(
        node=own, engine_id=records["variant"] + "@" + own, decode_s=decode, latency_s=records["ttft_s"] + decode
    )


def test_a_twin_on_a_faster_node_is_not_deployed():
    records = dedicated(sweep(PAIR, 400, graded=False), 1, faster=0.03)
    found = compare(records)
    assert found.workloads["gsm8k"].contrasts[0].throughput_ratio.value == pytest.approx(1.03, abs=0.005)
    assert (found.decision.action, found.decision.reasons) == ("undecided", (Code.NODES_UNBOUNDED,))
    assert found.workloads["gsm8k"].steadiness.node_effect is None


@pytest.mark.parametrize(("bound", "action"), [(0.001, "deploy"), (0.01, "keep")])
def test_a_stated_bound_on_nodes_lets_the_rule_decide(bound, action):
    records = dedicated(sweep(PAIR, 400, graded=False), 1, faster=0.1 if bound < 0.01 else 0.03)
    decision = compare(records, analysis=Analysis(node_scatter=bound)).decision
    assert decision.action == action


def test_with_several_nodes_of_their_own_the_nodes_are_what_scatters():
    rng = np.random.default_rng(5)
    records = dedicated(sweep(PAIR, 400, graded=False), 4)
    speed = records["node"].map({name: np.exp(0.01 * rng.standard_normal()) for name in sorted(set(records["node"]))})
    records["decode_s"] *= speed
    records["latency_s"] = records["ttft_s"] + records["decode_s"]
    (found,) = compare(records).workloads["gsm8k"].contrasts
    assert (found.engine_starts, found.scatter_source, found.nodes_bounded) == (4, "measured", True)
    low, high = found.throughput_ratio.ci
    assert low < 1 < high
    assert high - low > 0.02


def test_a_gain_below_the_minimum_is_not_deployed():
    truths = {"baseline": Truth(), "faster": Truth(step_s=0.0265 / 1.015)}
    records = sweep(truths, 400, graded=False, nodes=4)
    found = compare(records)
    assert found.workloads["gsm8k"].contrasts[0].throughput_ratio.ci[0] > 1
    assert (found.decision.action, found.decision.reasons) == ("keep", (Code.GAIN_BELOW_MINIMUM,))
    assert compare(records, analysis=Analysis(min_gain=0)).decision.action == "deploy"


def test_a_second_arm_of_the_baseline_moves_what_is_assumed():
    truths = {"baseline": Truth(), "arm": Truth(step_s=0.0265 * 1.02), "nextn": Truth(step_s=0.02)}
    facts = {"variants": [{"name": "baseline", "parts": []}, {"name": "arm", "parts": []},
                          {"name": "nextn", "parts": ["nextn"]}]}  # fmt: skip
    records = sweep(truths, 400, graded=False)
    found = compare(records, SweepSummary.model_validate({"resolved": facts})).workloads["gsm8k"]
    assert found.assumed_scatter.source == "baseline-arms"
    expected = np.sqrt((4 * 0.15**2 + (100 * np.log(1.02)) ** 2 / 2) / 5)
    assert found.assumed_scatter.start_percent == pytest.approx(expected, rel=0.1)
    assert compare(records).workloads["gsm8k"].assumed_scatter.source == "default"


def test_main_effects_and_per_request_ratios_hold_the_scatter_of_starts():
    widths = {}
    for scatter_ in (0.0, 0.02):
        names = ("baseline", "a", "b", "a+b")
        truths = {name: Truth(start_scatter=scatter_) for name in names}
        workload = compare(sweep(truths, 200, graded=False, nodes=4, seed=3)).workloads["gsm8k"]
        main = next(one for one in workload.effects if one.kind == "main")
        pair = workload.contrasts[0].per_request_throughput_ratio
        widths[scatter_] = [ci[1] - ci[0] for ci in (main.throughput_ratio.ci, pair.ci)]
        assert main.throughput_ratio.ci[0] < 1 < main.throughput_ratio.ci[1]
    assert all(wide > 3 * narrow for wide, narrow in zip(widths[0.02], widths[0.0], strict=True))


@pytest.mark.parametrize("items", [1, 2, 9])
@pytest.mark.parametrize("kind", ["constant", "one token", "no decode", "one answer wrong"])
def test_no_numpy_warning_reaches_the_user(items, kind):
    records = sweep(PAIR | {"nextn": Truth(accept_length=2.0)}, items, nodes=2)
    if kind == "constant":
        records[["ttft_s", "decode_s", "latency_s", "completion_tokens"]] = [0.1, 0.9, 1.0, 10]
    elif kind == "one token":
        records["completion_tokens"] = 1
    elif kind == "no decode":
        records["decode_s"] = 0.0
    else:
        records.loc[0, ["completion_tokens", "decode_s"]] = [1, 0.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        compare(records)


def test_the_rule_counts_the_variants_it_tried():
    found = compare(sweep({name: Truth() for name in ("baseline", "a", "b", "c")}, 60, nodes=2))
    assert found.decision.variants_tried == 3
    contrasts = found.workloads["gsm8k"].contrasts
    least = min(contrasts, key=lambda one: one.accuracy.not_worse_p)
    assert least.accuracy.not_worse_p_holm == pytest.approx(min(1, 3 * least.accuracy.not_worse_p))
    assert all(one.gain_p_holm >= one.gain_p for one in contrasts)
