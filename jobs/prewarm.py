#!/usr/bin/env python3
"""Compile what a sweep needs on every node before anything is measured: `python jobs/prewarm.py --help`."""

import sys
from pathlib import Path

from _start import use_farm

use_farm()

from farm.cli.prewarm import main  # noqa: E402 - importable only now

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent / "sweeps"))
