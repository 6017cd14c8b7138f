"""Answers that failed: what accuracy is with them counted as wrong, and what the figures of speed leave out."""

from __future__ import annotations

import pandas as pd

from farm.compare.metrics import WorkloadTable, same_prompt
from farm.compare.model import LeftOut, finite

_CELL = ["item", "repeat"]
_READ = [*_CELL, "ok", "truncated", "correct", "prompt_tokens", "completion_tokens", "prompt_sha256"]


def cells_of_both(table: WorkloadTable, variant: str, against: str) -> pd.DataFrame | None:
    """The cells of which both variants have a record; columns of the second end in `_against`. None if none failed.

    `failed` is true of errors (time-outs are among them) and of answers cut off at their token limit.
    """
    names = table.frame["variant"].to_numpy()
    sides = []
    for name in (variant, against):
        side = table.frame.loc[names == name, _READ]
        sides.append(side.assign(failed=side["truncated"].to_numpy() | ~side["ok"].to_numpy()))
    if not any(side["failed"].any() for side in sides):
        return None
    cells: pd.DataFrame = sides[0].merge(sides[1], on=_CELL, suffixes=("", "_against"))
    return cells[same_prompt(cells["prompt_sha256"], cells["prompt_sha256_against"])]


def failures_as_wrong(cells: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame] | None:
    """Row by row the same cells of both sides, a failed one wrong; None where no answer failed or none is graded.

    A cell that failed on both sides is wrong on both: no difference.
    """
    failed = cells["failed"].to_numpy() | cells["failed_against"].to_numpy()
    graded = cells["correct"].notna().to_numpy() & cells["correct_against"].notna().to_numpy()
    if not failed.any() or not graded.any():
        return None
    sides = (
        pd.DataFrame({"item": cells["item"], "correct": cells[f"correct{end}"].mask(cells[f"failed{end}"], 0.0)})
        for end in ("", "_against")
    )
    one, two = sides
    return one, two


def left_out(cells: pd.DataFrame) -> LeftOut | None:
    """What errors keep out of the figures of speed, and its length by the side that did answer; None without errors."""
    ok, other = cells["ok"].to_numpy(dtype=bool), cells["ok_against"].to_numpy(dtype=bool)
    lost = ~(ok & other)
    if not lost.any():
        return None
    tokens = cells["completion_tokens_against"].where(other, cells["completion_tokens"].where(ok))
    prompts = cells["prompt_tokens_against"].where(other, cells["prompt_tokens"].where(ok))
    return LeftOut(
        answers=int(lost.sum()),
        items=int(cells.loc[lost, "item"].nunique()),
        answered_by_one=int((lost & (ok | other)).sum()),
        completion_tokens=finite(float(tokens[lost].mean())),
        completion_tokens_kept=finite(float(tokens[~lost].mean())),
        prompt_tokens=finite(float(prompts[lost].mean())),
        prompt_tokens_kept=finite(float(prompts[~lost].mean())),
    )
