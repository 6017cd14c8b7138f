"""The generated problems are right, reproducible, and split by template."""

import itertools
import re
from fractions import Fraction

import pytest
from demo_model.problems import MAX_STEPS, Problem, problems, split_of
from demo_model.sums import SCALES, DoesNotFitError, Worksheet, apply

EVENLY = dict.fromkeys(SCALES, 1.0)
STEP = re.compile(r"(\d+)([-+*/])(\d+) = <<(\d+[-+*/]\d+)=(\d+)>>(\d+)")
OPERATIONS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
IMPLIED = {"2", "3"}
"""Twice, half, double, a third: numbers that a story says in words."""


def sample(split: str, count: int = 1500, seed: int = 5) -> list[Problem]:
    return list(itertools.islice(problems(seed, split, EVENLY), count))


@pytest.mark.parametrize("split", ["train", "test"])
def test_every_step_is_right_and_uses_known_numbers(split):
    for problem in sample(split):
        *lines, last = problem.answer.split("\n")
        assert len(lines) == problem.steps
        known = set(re.findall(r"\d+", problem.question)) | IMPLIED
        result = ""
        for line in lines:
            left, operator, right, inside, result, shown = STEP.search(line).groups()
            assert Fraction(result) == OPERATIONS[operator](Fraction(left), Fraction(right)), line
            assert inside == f"{left}{operator}{right}"
            assert shown == result
            assert {left, right} <= known, (problem.question, line)
            known.add(result)
        assert last == f"#### {result}"


def test_no_template_is_in_both_splits():
    train, test = ({p.template for p in sample(split)} for split in ("train", "test"))
    assert train
    assert test
    assert not train & test
    assert {split_of(t) for t in train} == {"train"}
    assert {split_of(t) for t in test} == {"test"}


def test_the_same_seed_gives_the_same_problems_and_another_seed_others():
    assert sample("test", 50) == sample("test", 50)
    assert sample("test", 50) != sample("test", 50, seed=6)


def test_lengths_families_and_scales_vary():
    drawn = sample("train")
    assert {p.steps for p in drawn} == set(range(1, MAX_STEPS + 1))
    assert {p.template.split("/")[0] for p in drawn} == {"chain", "compare", "shop", "work", "save"}
    assert {p.scale for p in drawn} == set(SCALES)


def test_step_and_scale_weights_are_obeyed():
    only = list(itertools.islice(problems(1, "train", {"small": 1.0}, {2: 1.0}), 200))
    assert {p.scale for p in only} == {"small"}
    assert 1.5 < sum(p.steps for p in only) / len(only) < 2.5
    numbers = [int(n) for p in only for n in re.findall(r"=(\d+)>>", p.answer)]
    assert max(numbers) <= SCALES["small"].cap


@pytest.mark.parametrize(("left", "operator", "right"), [(3, "-", 4), (7, "/", 2), (7, "/", 0)])
def test_what_does_not_come_out_whole_is_refused(left, operator, right):
    with pytest.raises(DoesNotFitError):
        apply(left, operator, right)


def test_a_step_beyond_the_cap_is_refused():
    with pytest.raises(DoesNotFitError):
        Worksheet(SCALES["small"]).step("", 100, "*", 2, "")


def test_nobody_gives_to_themselves():
    for problem in sample("train", 3000):
        if problem.template.startswith("chain"):
            owner = problem.question.split()[0]
            assert f" to {owner}." not in problem.question
