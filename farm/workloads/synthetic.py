"""Synthetic requests: exactly N tokens in and M tokens out, greedy, from seeded text.

`repetitive` repeats one passage to the length asked for, as published synthetic benchmarks do: speculation guesses such
text well, so it shows the most that a drafter can give. `varied` never repeats itself for long. Every request has a
text of its own, so that a figure is a distribution and not one lucky prompt, and begins in words that no other request
of the workload begins with, so that nothing is served from another's prefix cache.

Output length needs only `ignore_eos`: SGLang's `min_new_tokens` would add a mask over the vocabulary to each step that
is measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final, Literal

from pydantic import Field

from farm.types import Item
from farm.workloads.base import MAX_TOKENS, WorkloadBase

# English words of this kind are at least one token each; the margin is for tokenizers that join some of them.
WORDS_PER_TOKEN: Final = 1.5
PASSAGE_SENTENCES: Final = 8

VOCABULARY: Final = {
    "person": (
        "baker|captain|carpenter|clerk|cook|doctor|driver|engineer|farmer|fisher|gardener|guard|hunter|judge|keeper|lawyer|"
        "librarian|merchant|miller|miner|nurse|painter|pilot|player|poet|printer|sailor|scholar|singer|smith|soldier|student|"
        "surgeon|tailor|teacher|traveller|visitor|waiter|weaver|writer"
    ),
    "place": (
        "airport|bank|barn|beach|bridge|canal|castle|cellar|church|city|coast|college|court|desert|factory|field|forest|"
        "garden|harbour|hill|hospital|hotel|island|kitchen|lake|library|market|mill|mountain|museum|office|palace|park|"
        "river|road|school|square|station|theatre|tower|valley|village|wall|workshop"
    ),
    "thing": (
        "answer|apple|basket|bell|blanket|boat|book|bottle|box|bread|button|camera|candle|card|chair|clock|cloth|coat|coin|"
        "cup|door|drum|engine|fence|flag|flower|glass|hammer|hat|helmet|jacket|key|knife|ladder|lamp|lantern|letter|machine|"
        "map|medal|mirror|needle|note|paper|pencil|picture|plate|puzzle|record|ring|rope|saddle|ship|shirt|spoon|stone|"
        "story|table|ticket|tool|wagon|watch|wheel|window"
    ),
    "quality": (
        "ancient|bitter|black|blue|brave|bright|broken|busy|careful|clean|clever|cold|common|curious|dark|deep|distant|dry|"
        "dusty|early|empty|famous|fine|gentle|golden|green|grey|heavy|honest|large|late|light|lonely|long|loud|narrow|new|"
        "old|patient|plain|quick|quiet|rare|red|rich|rough|round|secret|sharp|silent|silver|simple|small|soft|"
        "strange|strong|sweet|tall|thick|thin|tired|warm|wet|white|wide|wild|wise|wooden|yellow|young"
    ),
    "action": (
        "borrowed|bought|broke|brought|built|carried|changed|chose|cleaned|counted|covered|described|drew|dropped|examined|"
        "exchanged|fetched|filled|finished|followed|forgot|found|gave|held|hid|kept|left|lifted|lost|made|measured|mended|"
        "moved|noticed|opened|ordered|packed|painted|passed|placed|polished|prepared|promised|pulled|pushed|received|"
        "remembered|repaired|returned|sent|showed|sold|stored|studied|took|touched|traded|turned|used|wanted|washed|weighed"
    ),
    "time": (
        "After a while|At dawn|At midnight|At noon|Before breakfast|By evening|During the storm|Early in spring|"
        "In the afternoon|In the autumn|Late at night|Long ago|Next morning|On Monday|On Friday|Once a year|One summer|"
        "The same day|Three weeks later|Two days before|Years afterwards|Without a word"
    ),
}
WORDS: Final = {slot: words.split("|") for slot, words in VOCABULARY.items()}
# Each slot draws from the words of its name.
SENTENCES: Final = (
    "{time}, the {quality} {person} {action} one {quality} {thing} near the {place}.",
    "The {person} from the {quality} {place} {action} the {thing} and {action} the {quality} {thing}.",
    "{time} one {quality} {thing} stood in the {place}, and the {person} {action} it with the {thing}.",
    "Nobody in the {place} knew why the {quality} {person} {action} every {thing} that the {person} {action}.",
    "One {quality} {person} and one {quality} {person} {action} the {thing} on the way to the {quality} {place}.",
    "{time}, when the {place} was {quality}, the {person} {action} the {thing} behind the {quality} {place}.",
    "The {thing} of the {person} was more {quality} than the {quality} {thing} in the {place}.",
    "Between the {place} and the {quality} {place}, the {person} {action} the {quality} {thing} {number} times.",
)
OPENERS: Final = WORDS["person"] + WORDS["place"] + WORDS["thing"] + WORDS["quality"]


class SyntheticWorkload(WorkloadBase):
    """Exactly N tokens in and M tokens out, greedy, from seeded text."""

    kind: Literal["synthetic"]
    requests: int = Field(default=8, ge=1, le=100_000)
    input_tokens: int = Field(default=32768, ge=8, le=MAX_TOKENS)
    output_tokens: int = Field(default=2048, ge=1, le=MAX_TOKENS)
    text: Literal["repetitive", "varied"] = "repetitive"

    def items(self) -> list[Item]:
        """Requests, each with a text of its own."""
        return items(self)

    @property
    def title(self) -> str:
        """Text and lengths."""
        return f"{self.text} text, {self.input_tokens} tokens in, {self.output_tokens} out, greedy"

    @property
    def source_name(self) -> str:
        """The seed of the texts."""
        return f"seed {self.seed}"


def items(spec: SyntheticWorkload) -> list[Item]:
    """The requests of the workload: the same for the same seed, on every machine and Python version."""
    sampling = {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": spec.output_tokens}
    words = int(spec.input_tokens * WORDS_PER_TOKEN) + 16
    return [
        Item(
            item_id=f"synthetic-{index:04d}",
            sampling=dict(sampling),
            text=_text(spec, index, words),
            exact_tokens=spec.input_tokens,
        )
        for index in range(spec.requests)
    ]


def _text(spec: SyntheticWorkload, index: int, words: int) -> str:
    # Lengths and styles differ in their text, so that two workloads of one sweep share no prefix either.
    kind = f"{spec.seed}/{spec.text}/{spec.input_tokens}"
    rng = random.Random(f"{kind}/{index}")  # noqa: S311 - text to repeat, no secret
    opening = f"{_opening(kind, index)}: request {index + 1}."
    if spec.text == "varied":
        return _to_length(opening, (_sentence(rng) for _ in iter(int, 1)), words)
    passage = " ".join(_sentence(rng) for _ in range(PASSAGE_SENTENCES))
    return _to_length(opening, (passage for _ in iter(int, 1)), words)


def _opening(kind: str, index: int) -> str:
    """Words that begin no other request of this kind; for the first two hundred, the first word alone is new."""
    order = list(range(len(OPENERS)))
    _shuffle(random.Random(f"{kind}/openings"), order)  # noqa: S311
    chosen = [OPENERS[order[index % len(order)]].capitalize()]
    index //= len(order)
    while index:
        chosen.append(OPENERS[order[index % len(order)]])
        index //= len(order)
    return " ".join(chosen)


def _to_length(opening: str, parts: Iterator[str], words: int) -> str:
    pieces, count = [opening], opening.count(" ") + 1
    while count < words:
        part = next(parts)
        pieces.append(part)
        count += part.count(" ") + 1
    return " ".join(pieces)


def _sentence(rng: random.Random) -> str:
    out = []
    for piece in _draw(rng, SENTENCES).split("{"):
        slot, closed, rest = piece.partition("}")
        if not closed:
            out.append(piece)
        elif slot == "number":
            out.append(str(2 + int(rng.random() * 998)) + rest)
        else:
            out.append(_draw(rng, WORDS[slot]) + rest)
    text = "".join(out)
    return text[0].upper() + text[1:]


# Of `random.Random`, only seeding and `random()` are promised to give the same numbers in every Python version.
def _draw(rng: random.Random, choices: tuple[str, ...] | list[str]) -> str:
    return choices[int(rng.random() * len(choices))]


def _shuffle(rng: random.Random, values: list[int]) -> None:
    for last in range(len(values) - 1, 0, -1):
        other = int(rng.random() * (last + 1))
        values[last], values[other] = values[other], values[last]
