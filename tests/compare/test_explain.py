"""The identities: parts make up the whole, and each cause moves its own part only."""

from __future__ import annotations

import gc
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests

from farm.stats import family
from farm.stats.explain import LatencyParts, Means, Payback, latency_parts, payback, speed_parts

seconds = st.floats(0.001, 1000)
steps = st.floats(1, 30_000)
means = st.builds(Means, latency_s=seconds, ttft_s=seconds, decode_s=seconds, steps=steps)


@given(means, means)
def test_parts_of_the_latency_change_sum_to_the_whole(variant, against):
    parts = latency_parts(variant, against)
    assert sum(parts[:4]) == pytest.approx(parts.total, abs=1e-6)
    assert parts.total == pytest.approx(variant.latency_s - against.latency_s)


@given(means, means)
def test_swapping_the_variants_changes_the_sign_of_every_part(variant, against):
    assert latency_parts(against, variant) == pytest.approx(tuple(-part for part in latency_parts(variant, against)))


@given(means, means, st.floats(0, 100))
def test_a_slower_first_token_moves_the_ttft_part_alone(variant, against, extra):
    before = latency_parts(variant, against)
    later = variant._replace(latency_s=variant.latency_s + extra, ttft_s=variant.ttft_s + extra)
    expected = before._replace(ttft=before.ttft + extra, total=before.total + extra)
    assert latency_parts(later, against) == pytest.approx(expected, abs=1e-6)


def test_equal_speed_leaves_length_alone_to_explain():
    one, two = Means(3.2, 0.2, 3.0, 300), Means(2.2, 0.2, 2.0, 200)
    assert latency_parts(one, two) == pytest.approx(LatencyParts(0, 1.0, 0, 0, 1.0), abs=1e-12)


@given(seconds, st.floats(1, 8), seconds, st.floats(1, 8))
def test_throughput_ratio_is_tokens_over_cost(tpot, length, tpot_against, length_against):
    parts = speed_parts(tpot, length, tpot_against, length_against)
    assert parts.throughput_ratio == pytest.approx(parts.accept_length_ratio / parts.round_cost_ratio)
    assert (length > parts.break_even_accept_length) == (parts.throughput_ratio > 1) or math.isclose(
        parts.throughput_ratio, 1, rel_tol=1e-9
    )


def test_published_ladder_top_rung():
    parts = speed_parts(9.72, 3.90, 22.76, 1.0)
    assert parts.throughput_ratio == pytest.approx(102.88 / 43.94, rel=1e-3)
    assert parts.round_cost_ratio == pytest.approx(1.666, abs=1e-3)


@pytest.mark.parametrize(
    ("extra", "request_gain", "token_gain", "expected"),
    [
        (60, 3.0, 0.01, Payback(20, 6000)),
        (60, -1.0, 0.01, Payback(None, 6000)),
        (-5, 3.0, 0.01, Payback(0, 0)),
        (0, 0.0, 0.0, Payback(None, None)),
    ],
)
def test_payback(extra, request_gain, token_gain, expected):
    assert payback(extra, request_gain, token_gain) == expected


def named(variants):
    """Features as the names alone tell them."""
    return family.features(variants, "baseline", {})


PARTS = {"plain": ["baseline"], "hum": ["baseline", "humming"], "next": ["baseline", "nextn"],
         "hum-next": ["baseline", "humming", "nextn"]}  # fmt: skip


def test_ladder_and_factorial_follow_the_parts_whatever_the_names():
    made_of = family.features(list(PARTS), "plain", PARTS)
    assert made_of["hum-next"] == {"humming", "nextn"}
    assert [one.name for one in family.effects(made_of)] == ["humming", "nextn", "humming x nextn"]
    ladder = family.features(["plain", "hum", "hum-next"], "plain", PARTS)
    assert [(one.variant, one.against) for one in family.pairs(ladder, "plain")] == [
        ("hum", "plain"),
        ("hum-next", "plain"),
        ("hum-next", "hum"),
    ]
    assert family.without("hum-next", "nextn", made_of) == "hum"


def test_settings_beside_the_parts_are_a_feature_and_twins_make_no_factorial():
    parts = PARTS | {"hum+fast": ["baseline", "humming"], "twin": ["baseline"]}
    made_of = family.features([*PARTS, "hum+fast", "twin"], "plain", parts, own=["hum+fast"])
    assert made_of["hum+fast"] == {"humming", "hum", "fast"}
    assert made_of["twin"] == made_of["plain"] == frozenset()
    assert family.effects(made_of) == []
    assert family.without("hum", "humming", made_of) == "plain"


LADDER = ["baseline", "humming", "humming+fp8-head", "humming+fp8-head+nextn"]


def test_ladder_pairs_each_variant_with_the_baseline_and_the_rung_before():
    found = {(p.variant, p.against): p.kinds for p in family.pairs(named(LADDER), "baseline")}
    assert found == {
        ("humming", "baseline"): ("baseline", "rung"),
        ("humming+fp8-head", "baseline"): ("baseline",),
        ("humming+fp8-head", "humming"): ("rung",),
        ("humming+fp8-head+nextn", "baseline"): ("baseline",),
        ("humming+fp8-head+nextn", "humming+fp8-head"): ("rung",),
    }
    assert family.effects(named(LADDER)) == []


def test_ladder_without_its_middle_rung():
    found = {(p.variant, p.against) for p in family.pairs(named([LADDER[0], LADDER[1], LADDER[3]]), "baseline")}
    assert (LADDER[3], LADDER[1]) in found


def test_factorial_effects_name_their_cells():
    main_a, main_b, both = family.effects(named(["baseline", "a", "b", "a+b"]))
    assert (set(main_a.numerators), set(main_a.denominators), main_a.exponent) == ({"a", "a+b"}, {"baseline", "b"}, 0.5)
    assert (main_b.name, main_b.kind) == ("b", "main")
    assert (set(both.numerators), set(both.denominators), both.exponent) == ({"baseline", "a+b"}, {"a", "b"}, 1.0)


@given(st.integers(2, 4))
def test_full_factorials_have_all_main_effects_and_two_way_interactions(count):
    names = [chr(ord("a") + index) for index in range(count)]
    cells = ["baseline"] + [
        "+".join(name for index, name in enumerate(names) if number >> index & 1) for number in range(1, 2**count)
    ]
    kinds = [effect.kind for effect in family.effects(named(cells))]
    assert kinds.count("main") == count
    assert kinds.count("interaction") == count * (count - 1) // 2
    assert family.effects(named(cells[:-1])) == []


@pytest.fixture
def little_garbage():
    """That of statsmodels collects garbage at every call, which takes long amid what other tests have imported."""
    gc.freeze()
    yield
    gc.unfreeze()


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_is_that_of_statsmodels(little_garbage, p_values):
    assert family.holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_undefined_p_values_take_no_part_in_holm():
    assert family.holm([0.01, math.nan, 0.04, 0.03]) == pytest.approx([0.03, math.nan, 0.06, 0.06], nan_ok=True)
    assert family.holm([]) == []
