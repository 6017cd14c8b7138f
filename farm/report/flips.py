"""Questions that one variant answers right and another does not, with both answers: for a reader to judge by eye."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import pandas as pd

from farm.compare.model import Contrast

Texts = Callable[[Iterable[str]], pd.DataFrame]
"""Item ids to their output texts: workload, variant, item_id, repeat, output_text."""

MOST: Final = 100
"""Flips listed for one contrast."""
_CELL: Final = ["workload", "variant", "item_id", "repeat"]


class Flip(NamedTuple):
    """One question answered right by one side only."""

    item_id: str
    repeat: int
    right: str  # the variant that is right
    question: str
    gold: str
    answers: dict[str, str]
    outputs: dict[str, str]


def find(answers: pd.DataFrame, workload: str, variant: str, against: str) -> pd.DataFrame:
    """The cells in which exactly one of the two is right."""
    own = answers[(answers["workload"] == workload).to_numpy() & answers["correct"].notna().to_numpy()]
    keep = ["item_id", "repeat", "correct", "answer", "gold"]
    sides = [own.loc[(own["variant"] == name).to_numpy(), keep] for name in (variant, against)]
    both = sides[0].merge(sides[1], on=["item_id", "repeat"], suffixes=("_variant", "_against"))
    return both[(both["correct_variant"] != both["correct_against"]).to_numpy()]


def describe(found: pd.DataFrame, contrast: Contrast, workload: str, items: pd.DataFrame | None,
             texts: pd.DataFrame) -> list[Flip]:  # fmt: skip
    """The first `MOST` flips with their question and both outputs."""
    questions = _questions(items, workload)
    outputs = {tuple(row[:4]): row[4] for row in texts[[*_CELL, "output_text"]].itertuples(index=False)}
    names = {"variant": contrast.variant, "against": contrast.against}
    out = []
    for row in found.head(MOST).to_dict("records"):
        keys = {side: (workload, name, row["item_id"], row["repeat"]) for side, name in names.items()}
        out.append(
            Flip(
                item_id=row["item_id"],
                repeat=int(row["repeat"]),
                right=names["variant"] if row["correct_variant"] else names["against"],
                question=questions.get(row["item_id"], ""),
                gold=_text(row["gold_variant"]),
                answers={name: _text(row[f"answer_{side}"]) for side, name in names.items()},
                outputs={name: _text(outputs.get(keys[side])) for side, name in names.items()},
            )
        )
    return out


def _questions(items: pd.DataFrame | None, workload: str) -> dict[str, str]:
    if items is None or not {"workload", "item_id", "prompt"} <= set(items.columns):
        return {}
    own = items[(items["workload"] == workload).to_numpy()]
    return {str(item): _text(prompt) for item, prompt in zip(own["item_id"], own["prompt"], strict=True)}


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)
