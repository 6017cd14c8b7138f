"""What every layer names: a cell's key, the grid of all cells, an item of a workload, and the label of its results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

Label = Literal["emulated", "dummy-weights", "demo-model"]
"""How results must be marked that do not come from real weights on a real engine."""


class CellKey(NamedTuple):
    """Identity of a cell: it is answered exactly once in a sweep."""

    variant: str
    workload: str
    item_id: str
    repeat: int

    def __str__(self) -> str:
        return f"{self.variant} / {self.workload} / {self.item_id} / repeat {self.repeat}"


@dataclass(frozen=True)
class CellGrid:
    """All cells of a sweep, by name alone: variants, and each workload's item ids and repeats, in order."""

    variants: tuple[str, ...]
    items: Mapping[str, tuple[str, ...]]
    repeats: Mapping[str, int]

    def cells(self) -> Iterator[CellKey]:
        """Every cell of the sweep."""
        for variant in self.variants:
            yield from self.cells_of(variant)

    def cells_of(self, variant: str) -> Iterator[CellKey]:
        """The cells of one variant, in the order they are asked: a whole pass over the items before the next repeat."""
        for workload, item_ids in self.items.items():
            for repeat in range(self.repeats[workload]):
                for item_id in item_ids:
                    yield CellKey(variant, workload, item_id, repeat)


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
    sampling: dict[str, float]
    messages: list[dict[str, str]] | None = None
    text: str | None = None
    template_kwargs: dict[str, bool] = field(default_factory=dict)
    exact_tokens: int | None = None
    gold: str | None = None

    @property
    def shown_prompt(self) -> str:
        """What a reader of the report sees: the last message, or the text."""
        return self.messages[-1]["content"] if self.messages else self.text or ""
