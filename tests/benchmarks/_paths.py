"""Lets the scripts beside it import the farm and what its tests share, from a plain checkout."""

import sys
from pathlib import Path

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS / "driver"), str(_TESTS / "tracking"), str(_TESTS), str(_TESTS.parent)]
