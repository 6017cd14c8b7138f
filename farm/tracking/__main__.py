"""`python -m farm.tracking sync [SWEEP | --all]`: log sweeps to MLflow from their results folders."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from farm.errors import FarmError, InputError
from farm.paths import results_root
from farm.results.folder import ResultsFolder, sweeps_in
from farm.tracking.sync import resync


def main(argv: list[str] | None = None) -> int:
    """Run the command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m farm.tracking", description="Sweeps in MLflow.")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("sync", help="log sweeps from their results; doing it again adds nothing twice")
    which = command.add_mutually_exclusive_group()
    which.add_argument("sweep", nargs="?", help="a sweep's id or its results folder; default: the newest sweep")
    which.add_argument("--all", action="store_true", help="every sweep there is: how to move to another MLflow")
    command.add_argument("--results", metavar="DIR", help="the folder of the sweep, or of all sweeps")
    command.add_argument("--tracking-uri", metavar="URI", help="default: MLFLOW_TRACKING_URI, else FARM_HOME/mlflow.db")
    arguments = parser.parse_args(argv)
    root = Path(arguments.results).expanduser().absolute() if arguments.results else results_root()
    try:
        if arguments.all:
            return _sync_all(_all(root), arguments.tracking_uri)
        synced = resync(_folder(arguments.sweep, root, given=arguments.results is not None), uri=arguments.tracking_uri)
    except FarmError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_status
    _show(synced.notes)
    print(f"logged to {synced.tracking_uri}")
    print(f"MLflow UI: {synced.ui}")
    return 0


def _sync_all(folders: list[Path], uri: str | None) -> int:
    """Log one sweep after another; one that cannot be logged does not stop the others."""
    status = 0
    for folder in folders:
        try:
            synced = resync(folder, uri=uri)
        except FarmError as error:
            print(f"error: {folder.name}: {error}", file=sys.stderr)
            status = error.exit_status
        else:
            _show(synced.notes, f"{folder.name}: ")
            print(f"{folder.name}: {1 + len(synced.children)} runs in {synced.tracking_uri}")
    return status


def _show(notes: Sequence[str], before: str = "") -> None:
    for note in notes:
        print(f"{before}{note}", file=sys.stderr)


def _folder(sweep: str | None, root: Path, *, given: bool) -> Path:
    if sweep is None:
        return _all(root)[-1]
    for folder in (root / sweep, root, Path(sweep).expanduser().absolute()):
        if ResultsFolder(folder).has_sweep and (folder != root or sweep == root.name or given):
            return folder
    raise InputError(f"no sweep '{sweep}' in {root}; give its id, its folder, or --results DIR")


def _all(root: Path) -> list[Path]:
    """The folders of all sweeps at `root`, which may be one itself; the newest is the last."""
    found = sweeps_in(root)
    if not found:
        raise InputError(f"no sweep in {root}; give --results DIR")
    return [one.path for one in found]


if __name__ == "__main__":
    sys.exit(main())
