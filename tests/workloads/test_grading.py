"""Grading: what real models write, whole sets of solutions in many renderings, and text made to break it."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.builtin import demo
from farm.workloads.grading import extract, gold_answer, grade
from farm.workloads.numbers import number

NEXT_QUESTION = "\n\nQuestion: Tom has 3 apples and buys 4 more. How many?\nAnswer: He has 3 + 4 = 7.\n#### 7"

# name -> text written around a solution's reasoning `body`, with the number plain (`n`), grouped (`c`) and with a unit.
RENDERINGS = {
    "hashes": "{body}\n#### {n}",
    "hashes grouped": "{body}\n#### {c}",
    "hashes bold": "{body}\n#### **{c}**",
    "hashes boxed": "{body}\n#### \\boxed{{{c}}}",
    "hashes with unit": "{body}\n#### {c} {unit} in 7 days",
    "hashes decimals": "{body}\n#### {n}.00",
    "hashes percent": "{body}\n#### {n}%",
    "hashes half": "{body}\n#### {double}/2",
    "hashes fraction": "{body}\n#### \\frac{{{double}}}{{2}}",
    "hashes equation": "{body}\n#### x = {n}",
    "hashes thin spaces": "{body}\n#### {thin}",
    "hashes unicode minus": "{body}\n#### {minus}",
    "boxed": "{body}\n\n\\boxed{{{n}}}",
    "boxed in display math": "{body}\n\n\\[\\boxed{{{latex}}}\\]",
    "boxed with unit": "{body}\nThe total is $\\boxed{{\\text{{\\${c} {unit}}}}}$.",
    "sentence": "{body}\nThe answer is ${c}.",
    "sentence decimals": "{body}\nThe answer is ${c}.00.",
    "sentence bold": "{body}\n\nThe answer is **{c}**.",
    "sentence with unit": "{body}\nTherefore, the answer is {c} {unit} in 7 days.",
    "sentence in math": "{body}\nThe answer is \\({c}\\).",
    "sentence unicode minus": "{body}\nThe answer is {minus}.",
    "final answer": "{body}\n\n**Final Answer: {c} {unit}**",
    "final answer as heading": "{body}\n\n### Final Answer\n\n**{c} {unit}** (out of 5000)",
    "markdown headings": "#### Step 1: Read\n#### Step 2: Think\n{body}\n\n**Answer:** {c} {unit}.",
    "last number": "{body}\nSo the result is {c} {unit}.",
    "last number bold": "{body}\nSo the result is **{c} {unit}** (out of 5000).",
    "think before": "<think>\nIs it #### 5, \\boxed{{6}}? The answer is 7.\n</think>\n\n{body}\n#### {n}",
    "think opened by the prompt": "Is it #### 5?\n</think>\n\n{body}\n#### {n}",
    "run-on": "{body}\n#### {n}" + NEXT_QUESTION,
    "run-on after box": "{body}\n\\boxed{{{n}}}" + NEXT_QUESTION,
    "run-on after sentence": "{body}\nThe answer is {n}." + NEXT_QUESTION,
    "run-on without a label": "{body}\n#### {n}\n\nTom has 3 apples. He gets 4 more.\n#### 7",
    "run-on into a new turn": "{body}\n#### {n}<|im_end|>\n<|im_start|>user\nAnd now?\n#### 3",
}


def solutions(path):
    return [json.loads(row)["answer"] for row in path.read_text(encoding="utf-8").splitlines()]


def rendered(template, solution, value):
    body = re.sub(r"<<.*?>>", "", solution.rpartition("####")[0].strip())
    grouped = f"{value:,}"
    unit = re.search(rf"(?<![\d.,])(?:{value}|{grouped}) ([a-z]+)", body)
    return template.format(
        body=body,
        n=value,
        c=grouped,
        double=2 * value,
        latex=grouped.replace(",", "{,}"),
        thin=grouped.replace(",", "\u2009"),
        minus=str(value).replace("-", "−"),
        unit=unit[1] if unit else "units",
    )


def check_rendering(name, solutions):
    thinking = name == "think opened by the prompt"
    for solution in solutions:
        gold = gold_answer(solution)
        right = rendered(RENDERINGS[name], solution, int(gold))
        wrong = rendered(RENDERINGS[name], solution, int(gold) + 1)
        assert grade(right, gold, thinking=thinking).answer == gold, right
        assert not grade(wrong, gold, thinking=thinking).correct, wrong


def test_every_gold_solution_is_its_own_answer():
    assert all(grade(solution, gold_answer(solution)).correct for solution in solutions(demo.test_path()))


@pytest.mark.parametrize("name", RENDERINGS)
def test_every_rendering_of_every_solution(name):
    check_rendering(name, solutions(demo.test_path()))


def test_every_solution_of_gsm8k_itself_in_every_rendering(gsm8k_folder):
    real = solutions(gsm8k_folder / "test.jsonl")
    assert len(real) == 1319
    assert all(grade(solution, gold_answer(solution)).correct for solution in real)
    for name in RENDERINGS:
        check_rendering(name, real)


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # markers
        ("####18", "18"),
        ("#### $18.00.", "18"),
        ("#### Answer: 18 dollars", "18"),
        ("#### 5 - 3 = 2", "2"),
        ("#### 16 eggs - 3 eggs - 4 eggs = 9 eggs", "9"),
        ("#### 18 (since 16 - 7 = 9 eggs at $2)", "18"),
        ("#### - 10", "10"),
        ("#### -$10", "-10"),
        ("#### $-10$", "-10"),
        ("#### 10 000", "10000"),
        ("#### 18. I hope this helps with your 3 questions.", "18"),
        ("#### 1. Eggs: 16-7\n9\n#### 2. Money: 9*2\n18\n\n**Final Answer**\n\nJanet makes $18 a day.", "18"),
        ("#### 17\n\nWait, that is wrong.\n#### 18", "18"),
        ("#### 17. Hmm, no, let me recheck: 9*2.\n#### 18", "18"),
        ("First \\boxed{9}, and then \\boxed{18}.", "18"),
        (r"\boxed{\boxed{18}}", "18"),
        (r"\boxed{x = 18}", "18"),
        (r"\\boxed{18} for 9 eggs", "18"),
        (r"\boxed{\text{no answer}} but 18", "18"),
        (r"\boxed{1\,234}", "1234"),
        (r"\boxed{\mathbf{18}~\text{km/h}}", "18"),
        (r"$\boxed{\$18 \text{ per day for } 7 \text{ days}}$", "18"),
        (r"\boxed{-\dfrac{3}{4}}", "-0.75"),
        (r"\boxed{1\frac{1}{2}}", "1.5"),
        (r"\boxed{\frac12}", "0.5"),
        (r"The box \boxed{18 never closes", "18"),
        # sentences
        ("The final answer is therefore **$1,450,000**.", "1450000"),
        ("The answer is:\n- 18 eggs", "18"),
        ("The answer is 18, because 16 - 7 = 9 eggs are sold at $2.", "18"),
        ("The answer is that Janet makes 9 * 2 = $18 every day of the 7-day week.", "18"),
        ("The answer is not 17 but 18.", "18"),
        ("Answer: 16 - 3 - 4 = 9 eggs.\nShe makes 9*2 = $18", "18"),
        ("**Answer:** She makes $18 from 9 eggs.", "18"),
        ("**Answer**\n\n18 eggs (of 30)", "18"),
        ("To convert the answer to weeks: 28 days / 7 = 4 weeks\nSo the result is 5", "5"),
        ("The answer to the question: 18. It took 3 steps.", "18"),
        ("Answer:\n1. Janet has 16 eggs.\n2. She eats 3.\n3. She sells 13 for $2 each, which makes $26.", "26"),
        ("**Answer:**\n\n1. 16 - 3 = 13\n2. 13 * 2 = 26", "26"),
        ("Answer: 1. First, 16 - 3 = 13.\n2. Then 13 * 2 = 26\nSo 26 dollars.", "26"),
        ("Answer: 18\n1. Check: 9\n2. It is 9 * 2.", "18"),
        ("所以答案是 18。共用了 3 步，第 5 题。", "18"),
        ("答案是18，因为 9 x 2 = 18，所以 7 天", "18"),
        ("最终答案：18\n\n检查: 3 + 4", "18"),
        ("答案：首先 16 - 3 = 13。\n一共 26", "26"),
        ("#### - 18", "18"),
        ("She finishes in 3rd place.", "3"),
        ("There are 5 runners.\n#### 3rd", "3"),
        ("She came 2nd, and the total is 18.", "18"),
        # the last number
        ("Therefore, she makes **$18** every day (9 eggs at $2 each).", "18"),
        ("**Step 3:** 9*2 = 18 dollars", "18"),
        ("2. 9*2 = **18**", "18"),
        ("The area is 18 m^2", "18"),
        ("The area is 18 m²", "18"),
        ("It takes 18.5kg of H2O", "18.5"),
        ("It costs Rs.18", "18"),
        ("from 10-20", "20"),
        ("18 <|im_end|>\n<|im_start|>user\n5", "18"),
        ("Question: Janet has 16 eggs.\nSolution: she sells 9 for 18", "18"),
        # numbers
        ("#### 2½", "2.5"),
        ("#### 1 1/2", "1.5"),
        ("#### 1/3", "1/3"),
        ("#### 4/0", "4"),
        ("#### .5", "0.5"),
        ("#### -0.00", "0"),
        ("#### 1,00,000", "100000"),
        ("#### 1.450.000", "1450000"),
        ("#### 1.450", "1.45"),
        ("#### 1.5 \\times 10^{6}", "1500000"),
        ("#### 25e-1", "2.5"),
        ("#### １８", "18"),
        ("#### ١٨", "18"),
        # nothing
        ("", None),
        ("I do not know.", None),
        ("#### N", None),
        ("eighteen", None),
    ],
)
def test_answers_as_models_write_them(text, answer):
    assert extract(text) == answer


@pytest.mark.parametrize(
    ("text", "thinking", "answer"),
    [
        ("<think>#### 5</think>\n#### 18", False, "18"),
        ("#### 5</think>18", True, "18"),
        ("#### 5</think>18", False, "18"),
        ("a</think> #### 5 <think>b</think> #### 18", True, "18"),
        ("<think>It must be #### 18", False, None),
        ("It must be #### 18", True, None),
        ("<think>a</think><think>#### 18", False, None),
        ("9 * 2 = 18</think>", True, None),
    ],
)
def test_reasoning_is_never_graded(text, thinking, answer):
    assert extract(text, thinking=thinking) == answer


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("18", ["18.0", "018", "$18", "36/2", "1.8e1"], ["17.99", "18.01", "-18", "180"]),
        ("-10", ["−10", "-$10.00", "–10"], ["10"]),
        ("2,125", ["2125", "2\u202f125", "2 125.0"], ["2.125", "2"]),
        ("0.75", ["3/4", "75e-2"], ["75", "0.7500001"]),
        ("50", ["50%"], ["0.5"]),
        ("1/3", ["2/6"], ["0.3333333333"]),
    ],
)
def test_equality_is_exact(gold, right, wrong):
    for text in right:
        assert grade(f"#### {text}", gold).correct, text
    for text in wrong:
        assert not grade(f"#### {text}", gold).correct, text


def test_huge_numbers_are_compared_digit_by_digit():
    huge = "9" * 5000
    assert grade(f"#### {huge}", huge).correct
    assert grade(f"The answer is {huge}.0", huge).correct
    assert not grade(f"#### {huge[:-1]}8", huge).correct


@pytest.mark.parametrize("gold", ["", "Paris", "18 dollars", "#### 18", "1/0", "2 1/0"])
def test_a_reference_that_is_no_number_is_refused(gold):
    with pytest.raises(ValueError, match="not a number"):
        grade("#### 18", gold)


def test_gold_answers():
    assert gold_answer("9 * 2 = <<9*2=18>>18\n#### 1,018") == "1018"
    for field in ("18", "reasoning\n#### ", "#### many", "#### 3 apples"):
        with pytest.raises(ValueError, match="#### N"):
            gold_answer(field)


PIECES = [
    *[
        "#### ",
        "\\boxed{",
        "}",
        "{",
        "answer is ",
        "Final answer\n",
        "Answer:",
        "**",
        "__",
        "$",
        "-",
        "−",
        "\\frac{1}{2}",
    ],
    *[
        "1,234",
        "1/0",
        "/",
        ".",
        "9" * 400,
        "1e999",
        "e9",
        "٣",
        "½",
        "²",
        "\u202f",
        "\ud800",
        "\x00",
        "\n",
        " ",
        "= ",
        "%",
    ],
    *["<think>", "</think>", "Question: ", "<|im_end|>", "Wait, ", "\\", "\\text{", "^", "_", "1. ", "* 10^{3}", "x"],
]


@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=5), max_size=60).map("".join), st.booleans())
def test_any_text_has_a_canonical_answer_or_none(text, thinking):
    answer = extract(text, thinking=thinking)
    if answer is not None:
        assert number(answer) == answer
        assert grade(text, answer, thinking=thinking).correct


@given(st.text(st.characters(codec=None), max_size=300))
def test_unicode_never_breaks_it(text):
    grade(text, "18")
    number(text)


@pytest.mark.parametrize("piece", PIECES)
def test_repetition_without_end_is_graded_all_the_same(piece):
    extract(piece * (30_000 // len(piece)))


@given(st.integers(-(10**30), 10**30), st.integers(0, 6))
def test_a_number_reads_the_same_however_it_is_written(value, places):
    text = f"{value:,}" + (".5" + "0" * places if places else "")
    plain = f"{value}" + (".5" if places else "")
    expected = plain if plain != "-0" else "0"
    for written in (
        text,
        f"${text}",
        text.replace(",", "\u202f"),
        text.replace(",", "{,}"),
        f"**{text}**",
        f"{text} eggs.",
    ):
        assert extract(f"So it is #### {written}") == expected
