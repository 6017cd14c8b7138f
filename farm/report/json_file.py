"""The comparison as JSON, the contract other programs read."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np


def render(comparison: dict[str, Any]) -> str:
    """Strict JSON: what is not a number is null."""
    return json.dumps(_strict(comparison), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _strict(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple | np.ndarray):
        return [_strict(item) for item in value]
    if isinstance(value, np.generic):
        return _strict(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
