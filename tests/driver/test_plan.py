"""The plan: every missing cell once, pairs on one slot, variants rotated, starts counted."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.driver.costs import Costs
from farm.driver.plan import Position, make_plan
from farm.types import CellGrid, CellKey


def ask(variants=3, gsm=10, synthetic=3, repeats=1):
    return CellGrid(
        tuple(f"v{i}" for i in range(variants)),
        {"gsm": tuple(f"q{i}" for i in range(gsm)), "syn": tuple(f"s{i}" for i in range(synthetic))},
        {"gsm": repeats, "syn": 1},
    )


def at(*slots):
    return {slot: Position(index) for index, slot in enumerate(slots)}


def planned(plan):
    return [(slot, cell) for slot, sessions in plan.sessions.items() for session in sessions for cell in session.cells]


@given(
    st.integers(1, 5),
    st.integers(0, 20),
    st.integers(1, 4),
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from(["crossover", "dedicated"]),
    st.randoms(),
)
def test_every_missing_cell_is_planned_once_and_no_other(variants, gsm, synthetic, repeats, slots, design, random):
    requested = ask(variants, gsm, synthetic, repeats)
    names = at(*(f"n{i}" for i in range(slots)))
    done = {cell: random.choice([*names, "gone"]) for cell in requested.cells() if random.random() < 0.3}
    plan = make_plan(requested, names, design=design, taken=done)
    assert Counter(cell for _, cell in planned(plan)) == Counter(cell for cell in requested.cells() if cell not in done)
    for sessions in plan.sessions.values():
        assert len(sessions) == len({session.variant for session in sessions})
        assert all(
            session.cells and {cell.variant for cell in session.cells} == {session.variant} for session in sessions
        )


@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 9))
def test_crossover_keeps_pairs_on_one_slot_and_shares_even(variants, gsm, slots):
    requested = ask(variants, gsm, 4)
    plan = make_plan(requested, at(*(f"n{i}" for i in range(slots))))
    homes = {}
    for slot, cell in planned(plan):
        assert homes.setdefault((cell.workload, cell.item_id), slot) == slot
    shares = Counter(homes.values())
    assert max(shares.values()) - min([*shares.values(), *([0] * (len(shares) < slots))]) <= 1


def test_every_slot_asks_its_items_in_the_same_order_under_every_variant():
    plan = make_plan(ask(), at("a", "b"))
    for sessions in plan.sessions.values():
        orders = {tuple((cell.workload, cell.item_id, cell.repeat) for cell in session.cells) for session in sessions}
        assert len(orders) == 1


def test_order_of_variants_rotates():
    plan = make_plan(ask(3), at("a", "b", "c"))
    firsts = [[session.variant for session in plan.sessions[slot]] for slot in "abc"]
    assert firsts == [["v0", "v1", "v2"], ["v1", "v2", "v0"], ["v2", "v0", "v1"]]


def test_starts_are_slots_times_variants_in_crossover_and_slots_in_dedicated():
    slots = at(*(f"n{i}" for i in range(6)))
    assert make_plan(ask(3, 20), slots).starts == 18
    assert make_plan(ask(3, 20), slots, design="dedicated", min_gain_s=1e9).starts == 6


def test_resume_leaves_partners_with_the_slot_that_began_them():
    requested = ask(2, 6, 1)
    first = make_plan(requested, at("a", "b"))
    done = {cell: slot for slot, cell in planned(first) if cell.variant == "v0"}
    for slot, cell in planned(make_plan(requested, at("a", "b"), taken=done)):
        assert done[cell._replace(variant="v0")] == slot


def test_barred_variants_move_or_drop():
    requested = ask(2, 4, 1)
    moved = make_plan(requested, at("a", "b"), excluded={("a", "v1")})
    assert {slot for slot, cell in planned(moved) if cell.variant == "v1"} == {"b"}
    assert len(planned(moved)) == 10
    dropped = make_plan(requested, at("a", "b"), excluded={("a", "v1"), ("b", "v1")})
    assert {cell.variant for _, cell in planned(dropped)} == {"v0"}


@pytest.mark.parametrize("design", ["crossover", "dedicated"])
def test_one_slot_and_no_slot(design):
    assert make_plan(ask(), {}, design=design).sessions == {}
    assert len(planned(make_plan(ask(), at("only"), design=design))) == 39


def test_a_pass_over_the_items_comes_before_its_repeat():
    cells = [cell for cell in ask(1, 2, 1, repeats=2).cells() if cell.workload == "gsm"]
    assert cells == [
        CellKey("v0", "gsm", "q0", 0),
        CellKey("v0", "gsm", "q1", 0),
        CellKey("v0", "gsm", "q0", 1),
        CellKey("v0", "gsm", "q1", 1),
    ]


def learned(**seconds):
    """Costs of items by name, under one token rate, so that seconds are what they take."""
    costs = Costs(tokens={("gsm", item): each for item, each in seconds.items()}, prior_start_s=10)
    for number in range(5):
        costs.learn(CellKey("v0", "gsm", f"seen{number}", 0), "a", 100, 100.0)
    return costs


def test_shares_are_even_in_cost_and_not_in_number():
    requested = CellGrid(("v0",), {"gsm": ("q0", "q1", "q2", "q3", "q4")}, {"gsm": 1})
    plan = make_plan(requested, at("a", "b"), costs=learned(q0=40, q1=10, q2=10, q3=10, q4=10))
    assert {slot: len(sessions[0].cells) for slot, sessions in plan.sessions.items()} == {"a": 1, "b": 4}
    assert plan.ends_s == pytest.approx({"a": 50, "b": 50})


def test_a_slot_that_fell_behind_gets_no_more_items():
    requested = ask(1, 10, 0)
    costs = learned(**{f"q{i}": 10 for i in range(10)})
    slots = {"a": Position(0, "v0", busy_s=70), "b": Position(1, "v0")}
    plan = make_plan(requested, slots, costs=costs)
    assert [len(plan.sessions[slot][0].cells) for slot in "ab"] == [2, 8]


def test_an_engine_that_runs_goes_on_first():
    plan = make_plan(ask(3), {"a": Position(0, "v2")})
    assert [session.variant for session in plan.sessions["a"]] == ["v2", "v0", "v1"]


def test_new_items_stay_away_from_slots_that_would_need_another_start():
    requested = ask(2, 6, 0)
    first = {CellKey("v0", "gsm", "q0", 0): "a", CellKey("v0", "gsm", "q1", 0): "b"}
    slots = {"a": Position(0, "v1", left=frozenset({"v0"})), "b": Position(1, "v0")}
    plan = make_plan(requested, slots, taken=first)
    assert [session.variant for session in plan.sessions["a"]] == ["v1"]
    assert {cell.item_id for slot, cell in planned(plan) if slot == "a"} == {"q0"}


def last_cells(count, slot="a"):
    """One variant left, `count` of its items on one slot; the other slot has done its share."""
    requested = ask(2, count, 0)
    taken = {cell: slot for cell in requested.cells() if cell.variant == "v0"}
    return requested, taken, learned(**{f"q{i}": 20 for i in range(count)})


@pytest.mark.parametrize(("min_gain_s", "moved"), [(0, 5), (150, 0)])
def test_cells_leave_their_pairs_only_when_the_sweep_ends_earlier_enough(min_gain_s, moved):
    requested, taken, costs = last_cells(10)
    slots = {"a": Position(0, "v1", left=frozenset({"v0"})), "b": Position(1, "v1", left=frozenset({"v0"}))}
    plan = make_plan(requested, slots, taken=taken, costs=costs, min_gain_s=min_gain_s)
    assert sum(slot == "b" for slot, _ in planned(plan)) == moved


def test_a_move_pays_for_the_start_that_it_needs():
    requested, taken, costs = last_cells(10)
    slots = {"a": Position(0, "v1", left=frozenset({"v0"})), "b": Position(1, "v0")}
    plan = make_plan(requested, slots, taken=taken, costs=costs)
    assert plan.ends_s == pytest.approx({"a": 100, "b": 110}) or plan.ends_s == pytest.approx({"a": 120, "b": 90})
    costs.learn_start("v1", 500.0)
    assert not any(slot == "b" for slot, _ in planned(make_plan(requested, slots, taken=taken, costs=costs)))


def test_a_slot_that_is_expected_back_keeps_what_it_began_and_gets_nothing_new():
    requested = ask(2, 6, 0)
    taken = {CellKey("v0", "gsm", "q0", 0): "a"}
    plan = make_plan(requested, {"a": Position(0, away=True), "b": Position(1)}, taken=taken)
    assert {cell.item_id for slot, cell in planned(plan) if slot == "a"} == {"q0"}
    assert {cell.item_id for slot, cell in planned(plan) if slot == "b"} == {"q1", "q2", "q3", "q4", "q5"}
