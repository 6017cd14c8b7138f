"""The table of right answers that an emulated engine is given, since a prompt's token ids do not tell them.

A row is `{"prompt_sha256": ..., "gold": ...}`: the digest of the prompt's token ids in the emulated engine's tokenizer,
so that the table says which prompt has which answer and nothing else. `write_answers` makes it from a workload's items;
the engine reads it from the path in `FARM_EMULATION_ANSWERS`.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from farm.engines.emulated import draws, tokenizer
from farm.engines.emulated.draws import Question
from farm.types import Item


@dataclass(frozen=True)
class Known:
    """What the table says of one prompt."""

    gold: str
    rank: int


class Answers:
    """Right answers by prompt; without a table every prompt is unknown."""

    def __init__(self, golds: dict[str, str]) -> None:
        """`golds` maps the digest of a prompt to its right answer."""
        # The order of digests is a fixed random order of the questions.
        self._known = {digest: Known(golds[digest], rank) for rank, digest in enumerate(sorted(golds))}

    @classmethod
    def read(cls, path: Path) -> Answers:
        """Read a table.

        Raises:
            ValueError: the file is not such a table.
        """
        golds: dict[str, str] = {}
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            try:
                row = json.loads(line)
                golds[str(row["prompt_sha256"])] = str(row["gold"])
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{path}:{number}: a row is an object with prompt_sha256 and gold") from error
        return cls(golds)

    def look_up(self, digest: bytes) -> tuple[Question, str | None]:
        """A prompt's question and its right answer, if the table has it."""
        known = self._known.get(digest.hex())
        if known is None:
            return draws.question_of(digest), None
        return draws.question_of(digest, known.rank, len(self._known)), known.gold


def prompt_digest(ids: Sequence[int]) -> bytes:
    """SHA-256 of token ids as 32-bit integers, as records carry it."""
    return hashlib.sha256(array("i", ids).tobytes()).digest()


def write_answers(items: Iterable[Item], path: Path) -> None:
    """Write the table for all graded items; items of several workloads and variants may share one table."""
    with path.open("w", encoding="utf-8") as table:
        for item in items:
            if item.gold is not None:
                row = {"prompt_sha256": prompt_digest(_prompt(item)).hex(), "gold": item.gold}
                table.write(json.dumps(row) + "\n")


def _prompt(item: Item) -> list[int]:
    if item.messages is not None:
        return tokenizer.encode_chat(item.messages, thinking=thinks(item.template_kwargs))
    return tokenizer.encode(item.text or "")[: item.exact_tokens]


def thinks(template_kwargs: Mapping[str, bool] | None) -> bool:
    """Whether the chat template opens a think section."""
    return bool((template_kwargs or {}).get("enable_thinking", True))
