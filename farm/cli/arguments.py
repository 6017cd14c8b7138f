"""Which sweep a job is about: the arguments that all jobs have in common, and the file that they name."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from pathlib import Path

from farm.engines.registry import problem_of
from farm.errors import InputError
from farm.paths import expand
from farm.spec.loading import load_sweep
from farm.spec.models import Sweep


def sweep_parser(prog: str, description: str, default: str) -> argparse.ArgumentParser:
    """A parser that knows the sweep and its overrides."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    named = f"a name under jobs/sweeps/ or a path (default: {default})"
    parser.add_argument("sweep", nargs="?", default=default, help=named)
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override a field: dotted.key=value"
    )
    return parser


def chosen_sweep(arguments: argparse.Namespace, sweeps: Path) -> Sweep:
    """The sweep that the arguments name; `sweeps` is the folder whose files are known by name.

    Raises:
        InputError: there is none of that name, or it is wrong; names the file, the field and the fix.
    """
    return load_sweep(_find_sweep(arguments.sweep, sweeps), arguments.set, problem_of)


def positive(text: str) -> int:
    """An argument that counts something."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _find_sweep(name: str, sweeps: Path) -> Path:
    known = sorted(path.stem for path in sweeps.glob("*.yaml"))
    if name in known:
        return sweeps / f"{name}.yaml"
    path = Path(expand(name))
    if path.suffix in (".yaml", ".yml") or "/" in name:
        return path
    near = get_close_matches(name, known, n=1)
    hint = f"did you mean '{near[0]}'?" if near else f"known are {', '.join(known)}, or give the path of a file"
    raise InputError(f"no sweep is named '{name}': {hint}")
