"""The command line of `python -m farm.compare`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from farm.compare.assemble import Analysis, compare
from farm.compare.load import Results, default_tracking_uri, download, load, local_folder
from farm.compare.model import Comparison
from farm.errors import FarmError, InputError
from farm.paths import results_root
from farm.results.folder import RECORDS
from farm.results.journal import damage

FORMATS = ("table", "markdown", "json", "csv", "html")


def parser() -> argparse.ArgumentParser:
    """The arguments, as `--help` shows them."""
    out = argparse.ArgumentParser(prog="python -m farm.compare", description="Compare the variants of a sweep.")
    out.add_argument("sweep_id", nargs="?", metavar="SWEEP_ID", help="id or unique prefix; the newest when absent")
    out.add_argument("--baseline", metavar="NAME", help="compare with this variant")
    out.add_argument("--results", metavar="DIR", type=Path, help="read DIR/requests.parquet, without MLflow")
    out.add_argument("--tracking-uri", metavar="URI", help="fetch the sweep from this MLflow server")
    out.add_argument("--format", choices=FORMATS, default="table")
    out.add_argument("--output", metavar="FILE", type=Path, help="write there instead of to standard output")
    out.add_argument("--published", action="store_true", help="set the published figures beside the measured ones")
    out.add_argument(
        "--slow-records",
        choices=("include", "exclude"),
        default="include",
        help="answers that were taken in a slow state of the GPU: count them, with a warning, or leave them out",
    )
    out.add_argument("--margin-pp", metavar="X", type=float, help="equivalence margin in percentage points")
    out.add_argument("--min-gain", metavar="X", type=float, help="the smallest gain worth deploying: 0.02 is 2 %%")
    for what in ("start", "node"):
        text = f"standard deviation between {what}s of one variant, 0.01 for 1 %%, where too few are there to show it"
        out.add_argument(f"--{what}-scatter", metavar="X", type=float, help=text)
    return out


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; the exit status is 2 for bad input, with one sentence on standard error."""
    options = parser().parse_args(arguments)
    try:
        with tempfile.TemporaryDirectory(prefix="farm-compare-") as scratch:
            text = _run(options, Path(scratch))
        _write(text, options.output)
    except FarmError as error:
        print(f"farm.compare: {error}", file=sys.stderr)
        return error.exit_status
    return 0


def _run(options: argparse.Namespace, scratch: Path) -> str:
    folder = _folder(options, scratch)
    results = load(folder)
    if broken := damage(folder):
        print(f"farm.compare: the journal of {folder} is damaged ({broken}): read from {RECORDS}", file=sys.stderr)
    comparison = compare(
        results.records,
        results.sweep,
        results.engines,
        results.items,
        options.baseline,
        options.margin_pp,
        options.slow_records,
        Analysis(options.min_gain, options.start_scatter, options.node_scatter),
    )
    if options.published:
        from farm.compare.published import beside

        comparison = comparison.model_copy(update={"published": beside(comparison)})
    return _rendered(options, comparison, results)


def _folder(options: argparse.Namespace, scratch: Path) -> Path:
    if options.results is not None:
        if options.sweep_id or options.tracking_uri:
            raise InputError("--results names one folder; leave SWEEP_ID and --tracking-uri out.")
        return Path(options.results)
    found = None if options.tracking_uri else local_folder(options.sweep_id)
    if found is not None:
        return found
    uri = options.tracking_uri or default_tracking_uri()
    if uri is None:
        wanted = f"no sweep {options.sweep_id}" if options.sweep_id else "no sweep yet"
        raise InputError(f"There is {wanted} under {results_root()}; name a folder with --results or a server.")
    return download(options.sweep_id, uri, scratch)


def _rendered(options: argparse.Namespace, comparison: Comparison, results: Results) -> str:
    match options.format:
        case "json":
            from farm.report import json_file

            return json_file.render(comparison)
        case "csv":
            from farm.report import csv_file

            return csv_file.render(comparison)
        case "markdown":
            from farm.report import markdown

            return markdown.render(comparison)
        case "html":
            from farm.report import html as report

            return report.render(comparison, results.records, results.items, results.texts)
        case _:
            from farm.report import terminal

            return terminal.text(comparison, styled=options.output is None and sys.stdout.isatty())


def _write(text: str, output: Path | None) -> None:
    if output is None:
        sys.stdout.write(text)
        return
    try:
        output.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise InputError(f"{output} cannot be written: {error.strerror}.") from error
