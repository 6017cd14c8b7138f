"""`python -m farm.tracking sync [SWEEP]`: log a sweep to MLflow from its results folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from farm.errors import FarmError, InputError
from farm.paths import results_root
from farm.tracking.sync import sync


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m farm.tracking", description="Sweeps in MLflow.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("sync", help="log a sweep from its results folder; doing it again adds nothing twice")
    command.add_argument("sweep", nargs="?", help="a sweep's id or its results folder; default: the newest sweep")
    command.add_argument("--results", metavar="DIR", help="the folder of the sweep, or of all sweeps")
    command.add_argument("--tracking-uri", metavar="URI", help="default: MLFLOW_TRACKING_URI, else FARM_HOME/mlflow.db")
    arguments = parser.parse_args(argv)
    try:
        synced = sync(_folder(arguments.sweep, arguments.results), uri=arguments.tracking_uri)
    except FarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    print(f"logged to {synced.tracking_uri}")
    print(f"MLflow UI: {synced.ui}")
    return 0


def _folder(sweep: str | None, results: str | None) -> Path:
    root = Path(results).expanduser().absolute() if results else results_root()
    if sweep is not None:
        for folder in (root / sweep, root, Path(sweep).expanduser().absolute()):
            if (folder / "sweep.json").is_file() and (folder != root or sweep == root.name or results):
                return folder
        raise InputError(f"no sweep '{sweep}' in {root}; give its id, its folder, or --results DIR")
    if (root / "sweep.json").is_file():
        return root
    found = sorted(root.glob("*/sweep.json"), key=lambda path: path.stat().st_mtime)
    if not found:
        raise InputError(f"no sweep in {root}; give --results DIR")
    return found[-1].parent


if __name__ == "__main__":
    sys.exit(main())
