"""Predicted seconds: what is known beforehand, what the first answers teach, and what slots differ in."""

import pytest

from farm.driver.costs import Costs
from farm.types import CellKey


def cell(variant, item):
    return CellKey(variant, "w", item, 0)


def test_before_anything_is_known_the_prior_counts():
    costs = Costs(prior_cell_s={"w": 15.0}, prior_start_s=480)
    assert costs.cell_s(cell("v", "q")) == 15.0
    assert costs.start_s("v") == 480
    assert costs.slowness("a") == 1.0


def test_an_answer_under_one_variant_predicts_the_same_item_under_another():
    costs = Costs()
    for item, tokens in (("short", 50), ("long", 500)):
        costs.learn(cell("slow", item), "a", tokens, tokens * 0.02)
    for number in range(5):
        costs.learn(cell("fast", f"q{number}"), "a", 100, 100 * 0.01)
    assert costs.cell_s(cell("fast", "long")) == pytest.approx(5.0)
    assert costs.cell_s(cell("fast", "short")) == pytest.approx(0.5)


def test_an_unseen_item_is_predicted_from_the_length_of_its_question():
    lengths = {("w", f"q{n}"): 10.0 * n for n in range(1, 101)}
    costs = Costs(lengths=lengths)
    for n in range(1, 100):
        costs.learn(cell("v", f"q{n}"), "a", 5 * n, 5 * n * 0.1)
    costs.lengths = lengths | {("w", "new"): 900.0, ("w", "tiny"): 20.0}
    assert costs.cell_s(cell("v", "new")) == pytest.approx(45.0, rel=0.15)
    assert costs.cell_s(cell("v", "tiny")) < 10


def test_exact_lengths_are_taken_as_they_are():
    costs = Costs(tokens={("w", "q"): 2048.0})
    for number in range(5):
        costs.learn(cell("v", f"other{number}"), "a", 10, 0.1)
    assert costs.cell_s(cell("v", "q")) == pytest.approx(20.48)


def test_own_records_replace_the_speed_of_an_earlier_sweep():
    costs = Costs()
    for number in range(100):
        costs.learn_earlier(cell("v", f"q{number}"), 100, 3.0)
    assert costs.cell_s(cell("v", "q1")) == pytest.approx(3.0)
    for number in range(5):
        costs.learn(cell("v", f"q{number}"), "a", 100, 1.0)
    assert costs.cell_s(cell("v", "q50")) == pytest.approx(1.0)


def test_a_slow_slot_shows_once_there_is_enough_of_it():
    costs = Costs()
    for number in range(200):
        costs.learn(cell("v", f"a{number}"), "usual", 100, 1.0)
        costs.learn(cell("v", f"b{number}"), "usual too", 100, 1.0)
        costs.learn(cell("v", f"c{number}"), "half clock", 100, 2.0)
    assert costs.slowness("half clock") == pytest.approx(1.5, rel=0.05)  # against a mean of 1.33 s
    assert costs.slowness("usual") == pytest.approx(0.75, rel=0.05)
    costs.learn(cell("v", "d"), "new", 100, 5.0)
    assert costs.slowness("new") < 1.5


def test_starts_are_predicted_by_variant_and_else_by_their_mean():
    costs = Costs(prior_start_s=480)
    costs.learn_start("v0", 300.0)
    costs.learn_start("v1", 100.0)
    assert (costs.start_s("v0"), costs.start_s("v1"), costs.start_s("v2")) == (300.0, 100.0, 200.0)


def test_answers_that_are_not_complete_yet_count_for_the_mean_length():
    """Ten short answers are there and ten long ones are not: the next question is not a short one for sure."""
    costs = Costs(lengths={})
    for number in range(10):
        costs.learn(cell("v", f"short{number}"), "a", 100, 1.0)
    assert costs.cell_s(cell("v", "next")) == pytest.approx(1.0)
    costs.under_way((cell("v", f"long{number}"), 3.0) for number in range(10))
    assert costs.cell_s(cell("v", "next")) == pytest.approx(4.0)
    assert costs.cell_s(cell("v", "short1")) == pytest.approx(1.0)
