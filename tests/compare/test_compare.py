"""The comparison as a whole: definitions, pairing, invariances, decisions."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from compare_sweeps import LADDER, Truth, sweep
from hypothesis import given, settings
from hypothesis import strategies as st

from farm.compare import compare
from farm.compare.load import load
from farm.compare.metrics import distribution
from farm.compare.model import AcceptLengths
from farm.report import json_file
from farm.results.summary import SweepSummary

SPEC = Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2)
TRUTHS = {LADDER[0]: Truth(), LADDER[1]: Truth(step_s=0.0243), LADDER[2]: Truth(step_s=0.0218), LADDER[3]: SPEC}
PAIR = {"baseline": Truth(), "nextn": SPEC}


def contrast(comparison, variant, against="baseline", workload="gsm8k"):
    contrasts = comparison.workloads[workload].contrasts
    return next(c for c in contrasts if (c.variant, c.against) == (variant, against))


def test_figures_are_those_of_the_definitions():
    records = sweep(PAIR, 60, repeats=2)
    figures = compare(records).workloads["gsm8k"].variants["nextn"]
    own = records[records["variant"] == "nextn"]
    tpot = own["decode_s"].sum() / (own["completion_tokens"] - 1).sum()
    assert figures.tpot_ms.value == pytest.approx(1000 * tpot)
    assert figures.decode_tokens_per_s.value == pytest.approx(1 / tpot)
    assert figures.accept_length == pytest.approx((own["completion_tokens"] - 1).sum() / own["verify_rounds"].sum())
    assert figures.accept_length_engine == pytest.approx(own["completion_tokens"].sum() / own["verify_rounds"].sum())
    accepted, proposed = own["draft_tokens_accepted"].sum(), own["draft_tokens_proposed"].sum()
    assert figures.accept_rate == pytest.approx(accepted / proposed)
    assert figures.latency_s.p95 == pytest.approx(np.quantile(own["latency_s"], 0.95))
    per_request = 1000 * own["decode_s"] / (own["completion_tokens"] - 1)
    assert figures.tpot_per_request_ms.mean == pytest.approx(per_request.mean())
    assert figures.tpot_per_request_ms.p50 == pytest.approx(per_request.median())
    assert figures.accuracy.correct == own["correct"].sum()
    assert figures.round_cost.ms == pytest.approx(figures.tpot_ms.value * figures.accept_length)


def test_answers_of_one_token_and_errors_take_part_where_they_can():
    records = sweep(PAIR, 40)
    records.loc[0, ["completion_tokens", "decode_s", "latency_s"]] = [1, 0.0, records.loc[0, "ttft_s"]]
    records.loc[1, ["ttft_s", "latency_s", "decode_s", "completion_tokens"]] = [np.nan, np.nan, np.nan, 0]
    records["error"] = records["error"].astype(object)
    records.loc[1, "error"] = "the engine died"
    figures = compare(records).workloads["gsm8k"].variants["baseline"]
    rest = records[(records["variant"] == "baseline") & records["error"].isna() & (records["completion_tokens"] > 1)]
    assert (figures.requests, figures.errors) == (39, 1)
    tpot = rest["decode_s"].sum() / (rest["completion_tokens"] - 1).sum()
    assert figures.tpot_ms.value == pytest.approx(1000 * tpot)


def test_the_first_chunk_is_no_decode_step_and_the_prefill_is_in_no_verify_round():
    """16 tokens, 4 in the first chunk, then 12 in 120 ms; 4 tokens in 3 rounds that accept nothing."""
    records = sweep(PAIR, 20, nodes=2).assign(first_chunk_tokens=4, decode_s=0.12, ttft_s=0.2, latency_s=0.32)
    records["completion_tokens"] = 16
    figures = compare(records).workloads["gsm8k"].variants
    assert figures["baseline"].tpot_ms.value == pytest.approx(10)
    assert figures["baseline"].tpot_per_request_ms.p50 == pytest.approx(10)
    refused = records.assign(
        completion_tokens=4, verify_rounds=3, draft_tokens_proposed=9, draft_tokens_accepted=0, first_chunk_tokens=1
    )
    found = compare(refused).workloads["gsm8k"].variants["nextn"]
    assert (found.accept_length, found.accept_length_engine) == pytest.approx((1.0, 4 / 3))


def test_older_tables_tell_the_first_chunk_by_their_lists(write):
    records = sweep(PAIR, 20, nodes=2).assign(chunk_tokens=[[4, 16]] * 40, completion_tokens=16, decode_s=0.12)
    records.loc[[3, 5], "chunk_tokens"] = pd.Series([[], None], index=[3, 5])
    loaded = load(write(records)).records["first_chunk_tokens"]
    assert loaded.isna().sum() == 2
    assert set(loaded.dropna()) == {4}


def test_repeats_of_an_item_add_no_sureness_to_a_percentile_where_they_agree():
    values, items = np.exp(np.random.default_rng(2).standard_normal(200)), np.arange(200)
    once, often = distribution(values, items), distribution(np.tile(values, 16), np.tile(items, 16))
    assert often.p50_ci == pytest.approx(once.p50_ci)
    assert often.p95_ci == pytest.approx(once.p95_ci, rel=0.05)


def test_contrast_is_over_shared_cells_only():
    records = sweep(PAIR, 50)
    kept = records.drop(index=[3, 7])
    found = contrast(compare(kept), "nextn")
    shared = records[~records["item_id"].isin(records.loc[[3, 7], "item_id"])]
    assert found.pairs == 48
    assert found.throughput_ratio == contrast(compare(shared), "nextn").throughput_ratio.model_copy(
        update={"ci": found.throughput_ratio.ci}
    )


def test_repeats_are_averaged_within_the_item():
    records = sweep(PAIR, 40, repeats=3)
    twice = records[~((records["repeat"] == 2) & (records["item_id"] < "q000020"))]
    found = contrast(compare(twice), "nextn")
    columns = ["decode_s", "completion_tokens", "latency_s"]
    items = twice.groupby(["variant", "item_id"])[columns].mean().groupby("variant").sum()
    assert found.pairs == 40
    assert found.answers_paired == 100
    latency = items.loc["nextn", "latency_s"] / items.loc["baseline", "latency_s"] - 1
    assert found.mean_latency_change.value == pytest.approx(latency)
    tpot = items["decode_s"] / (items["completion_tokens"] - 40)
    assert found.throughput_ratio.value == pytest.approx(tpot["baseline"] / tpot["nextn"])


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 10_000), items=st.integers(2, 60))
def test_swapping_the_variants_inverts_ratios_and_mirrors_differences(seed, items):
    records = sweep(PAIR, items, seed=seed)
    one = contrast(compare(records, baseline="baseline"), "nextn")
    two = contrast(compare(records, baseline="nextn"), "baseline", "nextn")
    ratio, inverse = one.throughput_ratio, two.throughput_ratio
    assert inverse.value == pytest.approx(1 / ratio.value)
    assert inverse.ci == pytest.approx([1 / end for end in reversed(ratio.ci)])
    assert two.accuracy.difference_pp == pytest.approx(-one.accuracy.difference_pp)
    assert two.accuracy.only_against == one.accuracy.only_variant
    assert 1 + two.mean_latency_change.value == pytest.approx(1 / (1 + one.mean_latency_change.value))


@settings(max_examples=5, deadline=None)
@given(extra=st.floats(0.001, 30), seed=st.integers(0, 10_000))
def test_a_constant_in_ttft_moves_only_the_ttft_part(extra, seed):
    records = sweep(PAIR, 25, seed=seed)
    later = records.copy()
    later.loc[later["variant"] == "nextn", ["ttft_s", "latency_s"]] += extra
    before, after = (contrast(compare(table), "nextn") for table in (records, later))
    moved = {name: getattr(after.latency_parts_s, name) - value for name, value in before.latency_parts_s}
    assert moved == pytest.approx(
        {"ttft": extra, "output_length": 0, "per_token": 0, "other": 0, "total": extra}, abs=1e-9
    )
    assert after.throughput_ratio == before.throughput_ratio


def test_ladder_and_speculation_identity():
    comparison = compare(sweep(TRUTHS, 150))
    rung = contrast(comparison, LADDER[3], LADDER[2])
    parts = rung.speed_parts
    assert rung.kinds == ("rung",)
    assert parts.throughput_ratio == pytest.approx(parts.accept_length_ratio / parts.round_cost_ratio)
    assert parts.throughput_ratio == pytest.approx(rung.throughput_ratio.value)
    cost = comparison.workloads["gsm8k"].variants[LADDER[3]].round_cost
    assert cost.plain_variant == LADDER[2]
    assert cost.plain_steps == pytest.approx(2.2, rel=0.03)
    assert all(c.throughput_p_holm >= c.throughput_p for c in comparison.workloads["gsm8k"].contrasts)


def test_accept_length_of_a_contrast():
    comparison = compare(sweep(TRUTHS, 80))
    assert contrast(comparison, LADDER[1]).accept_length == AcceptLengths(variant=None, against=None, ratio=None)
    found = contrast(comparison, LADDER[3]).accept_length
    figures = comparison.workloads["gsm8k"].variants[LADDER[3]]
    assert found.ratio.value == pytest.approx(found.variant)
    assert found.variant == pytest.approx(figures.accept_length)
    assert found.ratio.ci == pytest.approx(figures.accept_length_ci)


def test_factorial_recovers_effects_that_multiply():
    truths = {"baseline": Truth(0.03), "a": Truth(0.024), "b": Truth(0.02), "a+b": Truth(0.016)}
    effects = {e.name: e for e in compare(sweep(truths, 200)).workloads["gsm8k"].effects}
    for name, expected in (("a", 1.25), ("b", 1.5), ("a x b", 1.0)):
        low, high = effects[name].throughput_ratio.ci
        assert low - 0.002 <= expected <= high + 0.002
    assert effects["a x b"].kind == "interaction"


def test_engine_starts_that_scatter_widen_the_interval():
    widths = []
    for scatter in (0.0, 0.3):
        truths = {name: Truth(**vars(one) | {"start_scatter": scatter}) for name, one in PAIR.items()}
        found = contrast(compare(sweep(truths, 200, nodes=4, seed=2)), "nextn")
        assert found.engine_starts == 4
        low, high = found.throughput_ratio.ci
        widths.append(high - low)
    assert widths[1] > 2 * widths[0]


def test_json_holds_the_contract_and_no_nan():
    records = sweep(PAIR, 12)
    text = json_file.render(compare(records.drop(columns=["correct", "engine_id", "verify_rounds", "decode_s"])))
    found = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    workload = found["workloads"]["gsm8k"]
    assert workload["variants"]["nextn"]["accuracy"] is None
    assert workload["variants"]["nextn"]["accept_length"] is None
    assert set(workload["variants"]["nextn"]["ttft_s"]) >= {"mean", "p50", "p95"}
    assert set(workload["contrasts"][0]) >= {"variant", "against", "pairs", "throughput_ratio", "mean_latency_change"}
    assert workload["contrasts"][0]["accuracy"] is None


def test_required_columns_are_enough():
    required = ["variant", "workload", "item_id", "repeat", "completion_tokens", "ttft_s", "latency_s"]
    full, bare = (contrast(compare(table), "nextn") for table in (sweep(PAIR, 30), sweep(PAIR, 30)[required]))
    assert bare.throughput_ratio.value == pytest.approx(full.throughput_ratio.value)


def test_order_of_records_does_not_matter():
    records = sweep(PAIR, 40)
    one, two = (contrast(compare(table), "nextn") for table in (records, records.sample(frac=1, random_state=1)))
    for name in ("throughput_ratio", "mean_latency_change"):
        assert getattr(two, name).value == pytest.approx(getattr(one, name).value)
        assert getattr(two, name).ci == pytest.approx(getattr(one, name).ci)


def test_variants_of_any_name_keep_the_contrasts_of_their_parts():
    truths = {"plain": TRUTHS[LADDER[0]], "hum": TRUTHS[LADDER[1]], "hum-next": SPEC}
    parts = {"plain": ["baseline"], "hum": ["baseline", "humming"], "hum-next": ["baseline", "humming", "nextn"]}
    reported = {"resolved": {"variants": [{"name": name, "parts": own} for name, own in parts.items()]}}
    comparison = compare(sweep(truths, 40), SweepSummary.model_validate(reported), baseline="plain")
    assert contrast(comparison, "hum-next", "hum").kinds == ("rung",)
    assert comparison.workloads["gsm8k"].variants["hum-next"].round_cost.plain_variant == "hum"
