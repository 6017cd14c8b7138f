"""The plan: every missing cell once, pairs on one slot, variants rotated, starts counted."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.plan import Ask, make_plan
from farm.records import CellKey


def ask(variants=3, gsm=10, synthetic=3, repeats=1):
    return Ask(
        tuple(f"v{i}" for i in range(variants)),
        {"gsm": tuple(f"q{i}" for i in range(gsm)), "syn": tuple(f"s{i}" for i in range(synthetic))},
        {"gsm": repeats, "syn": 1},
    )


def planned(plan):
    return [(slot, cell) for slot, stints in plan.items() for stint in stints for cell in stint.cells]


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
    asked = ask(variants, gsm, synthetic, repeats)
    names = [f"n{i}" for i in range(slots)]
    done = {cell: random.choice([*names, "gone"]) for cell in asked.cells() if random.random() < 0.3}
    plan = make_plan(asked, names, design=design, done=done)
    assert Counter(cell for _, cell in planned(plan)) == Counter(cell for cell in asked.cells() if cell not in done)
    for stints in plan.values():
        assert len(stints) == len({stint.variant for stint in stints})
        assert all(stint.cells and {cell.variant for cell in stint.cells} == {stint.variant} for stint in stints)


@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 9))
def test_crossover_keeps_pairs_on_one_slot_and_shares_even(variants, gsm, slots):
    asked = ask(variants, gsm, 4)
    plan = make_plan(asked, [f"n{i}" for i in range(slots)])
    homes = {}
    for slot, cell in planned(plan):
        assert homes.setdefault((cell.workload, cell.item_id), slot) == slot
    shares = Counter(homes.values())
    assert max(shares.values()) - min([*shares.values(), *([0] * (len(shares) < slots))]) <= 1


def test_every_slot_asks_its_items_in_the_same_order_under_every_variant():
    plan = make_plan(ask(), ["a", "b"])
    for stints in plan.values():
        orders = {tuple((cell.workload, cell.item_id, cell.repeat) for cell in stint.cells) for stint in stints}
        assert len(orders) == 1


def test_order_of_variants_rotates():
    plan = make_plan(ask(3), ["a", "b", "c"])
    firsts = [[stint.variant for stint in plan[slot]] for slot in "abc"]
    assert firsts == [["v0", "v1", "v2"], ["v1", "v2", "v0"], ["v2", "v0", "v1"]]


def test_starts_are_slots_times_variants_in_crossover_and_slots_in_dedicated():
    slots = [f"n{i}" for i in range(6)]
    assert sum(map(len, make_plan(ask(3, 20), slots).values())) == 18
    assert sum(map(len, make_plan(ask(3, 20), slots, design="dedicated").values())) == 6


def test_resume_leaves_partners_with_the_slot_that_began_them():
    asked = ask(2, 6, 1)
    first = make_plan(asked, ["a", "b"])
    done = {cell: slot for slot, cell in planned(first) if cell.variant == "v0"}
    for slot, cell in planned(make_plan(asked, ["a", "b"], done=done)):
        assert done[cell._replace(variant="v0")] == slot


def test_barred_variants_move_or_drop():
    asked = ask(2, 4, 1)
    moved = make_plan(asked, ["a", "b"], barred={("a", "v1")})
    assert {slot for slot, cell in planned(moved) if cell.variant == "v1"} == {"b"}
    assert len(planned(moved)) == 10
    dropped = make_plan(asked, ["a", "b"], barred={("a", "v1"), ("b", "v1")})
    assert {cell.variant for _, cell in planned(dropped)} == {"v0"}


@pytest.mark.parametrize("design", ["crossover", "dedicated"])
def test_one_slot_and_no_slot(design):
    assert make_plan(ask(), [], design=design) == {}
    assert len(planned(make_plan(ask(), ["only"], design=design))) == 39


def test_a_pass_over_the_items_comes_before_its_repeat():
    cells = [cell for cell in ask(1, 2, 1, repeats=2).cells() if cell.workload == "gsm"]
    assert cells == [
        CellKey("v0", "gsm", "q0", 0),
        CellKey("v0", "gsm", "q1", 0),
        CellKey("v0", "gsm", "q0", 1),
        CellKey("v0", "gsm", "q1", 1),
    ]
