#!/usr/bin/env python3
"""Say whether each node can run a sweep, and what to do where it cannot: `python jobs/doctor.py --help`."""

import sys
from pathlib import Path

from _start import use_farm

use_farm()

from farm.cli.doctor import main  # noqa: E402 - importable only now

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], Path(__file__).resolve().parent / "sweeps"))
