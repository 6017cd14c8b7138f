r"""The answer in what a model wrote, and whether it is right.

What counts as the answer, in this order:

1. Nothing inside a think section. One that never closes leaves no answer.
2. `#### 18` or `\boxed{18}`. Of several `####` the first counts, for what follows the answer is a model that runs on,
   unless the text right after it takes it back ("Wait, ..."). Of several boxes the last counts. `####` before boxes: it
   is what the prompt asks for. A markdown heading (`#### Step 2`) is no answer.
3. A sentence that says so: "the answer is 18", "Final answer: 18". The last one counts.
4. The last number, or the last bold number if its line has one.

An ordinal (`3rd`) is a number only where there is no other.

A model that runs on into the next question ("Question: ...", a new turn) is graded on the first part that marks or says
an answer; if no part does, on the first that holds a number.

An answer is right when it is exactly the reference number: `18.0`, `$18` and `36/2` are 18, `17.99` is not. Units are
not looked at. See `numbers` for how numbers are read. All of it takes linear time, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from farm.workloads.numbers import LONE_NUMBER, NUMBER, ORDINAL, canonical, number, ordinal, plain

# No answer is longer: it bounds what is looked at behind each marker.
ANSWER_CHARACTERS: Final = 300
LIST_ENTRY_CHARACTERS: Final = 1000

_NEXT_QUESTION: Final = re.compile(
    r"^[ \t>*#_]{0,12}(?:(?:question|problem|exercise|example|q)(?:\s?[0-9]{1,4}\s?[*_]{0,2}[.:]|\s?[*_]{0,2}:)"
    r"|(?:human|user)\s?:)|<\|[^|<>\n]{1,40}\|>|</?role>|</s>|<(?:start|end)_of_turn>",
    re.IGNORECASE | re.MULTILINE,
)
_TAKEN_BACK: Final = re.compile(
    r"(?:\A|[.!\n])[^A-Za-z]{0,20}(?:(?:hmm|oh|no|but|sorry)\b[^A-Za-z]{0,10}){0,3}"
    r"(?:wait|actually|correct(?:ion|ing)|oops|hold on|i made|my mistake|"
    r"(?:that|this)(?: is|'s|’s| was) (?:wrong|incorrect|not right)|let me (?:re|double|check|verify|correct|fix))",
    re.IGNORECASE,
)
_HASHES: Final = re.compile(r"####+")
_LEAD: Final = re.compile(
    r"[\s$*_`~(\[\"'“‘:=>]*+(?:(?:the )?(?:final )?(?:answer|result)\b(?: is\b)?[\s$*_:=]*+)?(?:[A-Za-z]\s?=\s?)?",
    re.IGNORECASE,
)
_BULLET: Final = re.compile(r"[-•]\s+")
_ENUMERATION: Final = re.compile(r"([0-9]{1,3})[.)]\s+\S")
_BOX_OR_BRACE: Final = re.compile(r"\\{1,2}(?:boxed|fbox)\s?\{|\\.|[{}]", re.DOTALL)
_SAYS_ANSWER: Final = re.compile(
    r"(?:\b(?P<final>final\s)|(?P<heading>^[ \t*#_>]{0,12})|\b)answer\b[*_ ]{0,9}(?:to the (?:question|problem))?"
    r"(?P<link>[:=\n]|(?:(?:to|for|of|in)\b[^.:=\n]{0,120}?)?"
    r"\b(?:is|are|was|equals|(?:will|would|should|must) be|comes (?:out )?to)\b(?! not\b))",
    re.IGNORECASE | re.MULTILINE,
)
_SAYS_ANSWER_IN_CHINESE: Final = re.compile(
    r"(?P<final>最终|最后|正确)?(?P<heading>)答案(?:应该|应|就)?[*_ ]{0,9}(?P<link>[:=]|是|为)"
)
_SENTENCE_END: Final = re.compile(r"\n|[.!?](?=\s+[A-Z*]|\s*$)|[。；！？]")
_SECOND_OF_LIST: Final = re.compile(r"\n[ \t*_]{0,8}2[.)]\s")
# What follows a number that is only the first of a calculation: `16 eggs - 3`.
_CALCULATES: Final = re.compile(r"(?:[*_ ]{0,3}[A-Za-z%]{1,20}){0,2}[*_ ]{0,3}[-+*/÷x=][ $(]{0,3}[0-9]")
_BOLD: Final = re.compile(r"\*\*([^*\n]{1,80})\*\*|__([^_\n]{1,80})__")
_DIGITS: Final = re.compile(r"[0-9]+")
_LABEL: Final = re.compile(r"[.:)]\s*$")


@dataclass(frozen=True, slots=True)
class Grade:
    """The answer as a canonical number, null when there is none, and whether it is the reference's."""

    answer: str | None
    correct: bool


def grade(output_text: str, gold: str, *, thinking: bool = False) -> Grade:
    """Grade what a model wrote against the reference number.

    Args:
        output_text: all that the model generated, its think section included.
        gold: the reference: a number, in any way of writing.
        thinking: the prompt itself opened a think section, so an output that never closes it is all reasoning.

    Raises:
        ValueError: `gold` is not a number.
    """
    reference = number(gold)
    if reference is None:
        raise ValueError(f"the reference {gold!r:.80} is not a number")
    answer = extract(output_text, thinking=thinking)
    return Grade(answer=answer, correct=answer == reference)


def gold_answer(answer_field: str) -> str:
    """The reference number of a GSM8K solution: what follows the last `####`.

    Raises:
        ValueError: there is none.
    """
    _, marker, after = answer_field.rpartition("####")
    gold = number(after) if marker else None
    if gold is None:
        raise ValueError(f"must end in `#### N` with a number N, not in {answer_field[-40:]!r}")
    return gold


def extract(output_text: str, *, thinking: bool = False) -> str | None:
    """The answer that a model's output gives, as a canonical number."""
    _, closed, visible = output_text.rpartition("</think>")
    if "<think>" in visible or (thinking and not closed):
        return None
    parts = [(part, plain(part)) for part in _parts(visible)]
    for raw, text in parts:
        answer = _marked(raw, text) or _said(text)
        if answer is not None:
            return answer
    numbers = (answer for _, text in parts if (answer := _last(text)) is not None)
    places = (ordinal(found) for _, text in parts for found in list(ORDINAL.finditer(text))[-1:])
    return next(numbers, None) or next(places, None)


def _parts(text: str) -> list[str]:
    starts = [0, *(found.start() for found in _NEXT_QUESTION.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(starts)]


def _marked(raw: str, text: str) -> str | None:
    """The number behind `####` or in a box."""
    answer, end, headings = None, 0, 0
    for found in _HASHES.finditer(text):
        if answer is not None and not _TAKEN_BACK.search(text, end, end + ANSWER_CHARACTERS):
            return answer
        content, start = _content(text, found.end())
        enumeration = _ENUMERATION.match(content)
        if enumeration and int(enumeration[1]) == headings + 1:
            headings += 1  # `#### 1. Find the eggs`
            continue
        first = LONE_NUMBER.match(content) or ORDINAL.match(content)
        if first:
            answer, end = _final(content.partition("\n")[0]), start + first.end()
    if answer is not None:
        return answer
    return next((value for box in _boxes(raw) if (value := _final(plain(box))) is not None), None)


def _boxes(raw: str) -> Iterator[str]:
    """What the closed boxes of a text hold, the last first."""
    closed: list[tuple[int, int]] = []
    opened: list[tuple[bool, int]] = []
    for found in _BOX_OR_BRACE.finditer(raw):
        if found[0].endswith("{") and found[0] != "\\{":
            opened.append((found[0] != "{", found.end()))
        elif found[0] == "}" and opened:
            is_box, start = opened.pop()
            if is_box and found.start() - start <= ANSWER_CHARACTERS:
                closed.append((start, found.start()))
    return (raw[start:end] for start, end in reversed(closed))


def _said(text: str) -> str | None:
    """The number in the last sentence that says what the answer is."""
    last_digit = max(text.rfind(digit) for digit in "0123456789")
    said = [*_SAYS_ANSWER.finditer(text), *_SAYS_ANSWER_IN_CHINESE.finditer(text)]
    for found in sorted(said, key=re.Match.start, reverse=True):
        label = found["link"] in ":=\n" and not found["final"]
        if label and found["link"] == "\n" and found["heading"] is None:
            continue
        content, start = _content(text, found.end())
        if not _DIGITS.search(content) or _is_list(text, found.end(), start, content):
            continue
        ending = _SENTENCE_END.search(content)
        sentence = content[: ending.start()] if ending else content
        first = LONE_NUMBER.match(content)
        # "Answer:" may only open the solution: it counts before a bare number, or in front of the last sentence.
        if label and (_CALCULATES.match(content, first.end()) if first else last_digit >= start + len(sentence)):
            continue
        answer = _final(sentence)
        if answer is not None:
            return answer
    return None


def _is_list(text: str, marker: int, start: int, content: str) -> bool:
    """`Answer:` before `1. ...`, which opens the steps of a solution."""
    enumeration = _ENUMERATION.match(content)
    if enumeration is None or enumeration[1] != "1":
        return False
    return "\n" in text[marker:start] or _SECOND_OF_LIST.search(text, start, start + LIST_ENTRY_CHARACTERS) is not None


def _last(text: str) -> str | None:
    """The last number of the text, or the last bold one if its line has one."""
    for line in reversed(text.split("\n")):
        numbers = list(NUMBER.finditer(line))
        if numbers:
            return _bold(line) or canonical(numbers[-1])
    return None


def _content(text: str, position: int) -> tuple[str, int]:
    """What stands behind a marker, without the decoration before it, and where it starts."""
    end = position + ANSWER_CHARACTERS
    digits = _DIGITS.match(text, end)  # the window ends beside a number, never inside
    end = digits.end() if digits else end
    lead = _LEAD.match(text, position, end)
    start = lead.end() if lead else position
    bullet = _BULLET.match(text, start, end)
    if bullet:  # `- 10` is an entry of a list, also behind a marker: a minus stands at its number
        start = bullet.end()
    return text[start:end], start


def _final(content: str) -> str | None:
    """The result that a short text states: the number it opens with, or what it calculates, sets in bold or names."""
    first = LONE_NUMBER.match(content)
    if first and not _CALCULATES.match(content, first.end()):
        return canonical(first)
    for piece in (content.rpartition("=")[2], content):
        found = LONE_NUMBER.search(piece)
        if found:
            return _bold(piece) or canonical(found)
    place = ORDINAL.search(content)
    return ordinal(place) if place else None


def _bold(line: str) -> str | None:
    """The last number that a line sets in bold, labels such as `**Step 2:**` aside."""
    value = None
    for found in _BOLD.finditer(line):
        inside = found[1] or found[2]
        number_inside = LONE_NUMBER.match(inside, _LEAD.match(inside).end())  # type: ignore[union-attr]
        opens_line = found.start() < 20 and not line[: found.start()].strip(" \t-*>#")
        if number_inside and not (opens_line and _LABEL.search(inside) and line[found.end() :].strip()):
            value = canonical(number_inside)
    return value
