#!/usr/bin/env python3
"""Run a sweep, on the Ray cluster that this job belongs to or on a local one: `python jobs/sweep.py --help`."""

import sys
from pathlib import Path

# The farm beside this file is the one that runs, whether or not one is installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from farm.job import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent / "sweeps"))
