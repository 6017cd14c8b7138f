"""One item of a workload, before any tokenizer has seen it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Item:
    """One question, the same for every variant.

    Exactly one of `messages` and `text` is set. Messages go through the engine's chat template with
    `template_kwargs`; text is tokenized as it is. With `exact_tokens`, the token ids are cut to that many.

    Attributes:
        item_id: stable name, unique in its workload.
        sampling: SGLang sampling parameters without the seed.
        gold: the reference answer; null when answers are not graded.
    """

    item_id: str
    sampling: dict[str, Any]
    messages: list[dict[str, str]] | None = None
    text: str | None = None
    template_kwargs: dict[str, Any] = field(default_factory=dict)
    exact_tokens: int | None = None
    gold: str | None = None

    @property
    def shown_prompt(self) -> str:
        """What a reader of the report sees: the last message, or the text."""
        return self.messages[-1]["content"] if self.messages else self.text or ""


def digest(items: Iterable[Item]) -> str:
    """SHA-256 over the content of items, in order: part of a sweep's identity."""
    state = hashlib.sha256()
    for item in items:
        state.update(json.dumps(asdict(item), sort_keys=True, ensure_ascii=False).encode())
        state.update(b"\n")
    return state.hexdigest()


def request_seed(workload_seed: int, item_id: str, repeat: int) -> int:
    """The sampling seed of one item and repeat, the same for all variants: 31 bits of a hash, so that order is free."""
    material = f"{workload_seed}/{item_id}/{repeat}".encode()
    return int.from_bytes(hashlib.sha256(material).digest()[:4]) & 0x7FFFFFFF
