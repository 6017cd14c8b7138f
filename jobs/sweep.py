#!/usr/bin/env python3
"""Run a sweep, on the Ray cluster that this job belongs to or on a local one: `python jobs/sweep.py --help`."""

import sys
from pathlib import Path

from _start import use_farm

use_farm()

from farm.cli.sweep import main  # noqa: E402 - importable only now

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent / "sweeps"))
