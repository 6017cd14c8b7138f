"""The comparison as JSON, the contract other programs read; `comparison.schema.json` beside the model is its schema."""

from __future__ import annotations

import json

from farm.compare.model import Comparison


def render(comparison: Comparison, indent: int = 2) -> str:
    """Strict JSON: what is not a number is null. Published figures are there where they were asked for."""
    left_out = {"published"} if comparison.published is None else set()
    values = comparison.model_dump(mode="json", exclude=left_out)
    return json.dumps(values, indent=indent, ensure_ascii=False, allow_nan=False) + "\n"
