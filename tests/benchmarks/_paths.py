"""Lets the scripts beside it import the farm and the made-up sweeps of its tests, from a plain checkout."""

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / "compare"), str(Path(__file__).parents[2])]
