"""Whatever a model writes is graded, and only the reference number is right."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from farm.workloads.grading import grade
from farm.workloads.numbers import number

PIECES = st.sampled_from(
    [
        *(
            "####",
            "#### ",
            "\\boxed{",
            "}",
            "{",
            "</think>",
            "<think>",
            "the answer is ",
            "Answer:",
            "**",
            "$",
            ",",
            ".",
        ),
        *(
            "-",
            "/",
            "\n",
            " ",
            "18",
            "1,234",
            "0",
            "1/2",
            "½",
            "−",
            "٣",
            "e9",
            "e999",
            "%",
            "Question:",
            "\\frac{1}{2}",
        ),
        *("Wait, ", "=", "^", "\ud800", "\x00", "\u202f", "9" * 400, "\\", "x", "1e-400", "0/0", "5/0"),
    ]
)
OUTPUTS = st.text(max_size=80) | st.lists(PIECES, max_size=14).map("".join)
GOLDS = st.integers(-(10**6), 10**6).map(str) | st.sampled_from(["18", "0.5", "1/3", "1,234", "-7"])


@given(OUTPUTS, GOLDS, st.booleans())
def test_any_text_is_graded(output, gold, thinking):
    graded = grade(output, gold, thinking=thinking)
    reference = number(gold)
    assert graded.correct == (graded.answer == reference)
    if graded.answer is not None:
        assert number(graded.answer) == graded.answer  # the canonical form is its own
        if len(graded.answer) < 100:
            assert (Fraction(graded.answer) == Fraction(reference)) == graded.correct


@given(st.integers(-(10**9), 10**9), st.text(alphabet=st.characters(categories=("L", "Zs")), max_size=30))
def test_a_marked_answer_is_found_behind_any_words(value, words):
    assert grade(f"{words}\n#### {value}", str(value)).correct
    assert not grade(f"{words}\n#### {value}", str(value + 1)).correct


@given(OUTPUTS)
def test_any_text_is_a_number_or_none(text):
    found = number(text)
    assert found is None or number(found) == found
