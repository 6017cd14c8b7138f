"""A sweep from its command line to its results: load, plan, run, export, track, compare."""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from farm.cli.arguments import chosen_sweep, positive, sweep_parser
from farm.cli.submission import submitted
from farm.driver.deadlines import Deadlines
from farm.driver.history import first_costs
from farm.driver.plan import Position, make_plan
from farm.driver.progress import Progress, span
from farm.engines.base import default_python, model_of, python_of
from farm.engines.registry import engine_of, label_of
from farm.errors import FarmError, InputError, JournalError
from farm.paths import expand, results_root
from farm.redaction import HIDDEN
from farm.results.describe import describe, grid_of
from farm.results.folder import ResultsFolder
from farm.results.journal import Journal
from farm.results.origin import Origin
from farm.results.recovery import open_journal
from farm.results.runs import run_of
from farm.results.summary import SweepSummary
from farm.spec.identity import identity
from farm.spec.models import Sweep
from farm.types import CellGrid, Item
from farm.workloads.build import build
from farm.workloads.items import digest

COMPLETE: Final = 0
FAILED: Final = 1
INCOMPLETE: Final = 3
_SHOWN_PROBLEMS: Final = 10
_SHORT_S: Final = 1200


@dataclass(frozen=True)
class Run:
    """A loaded sweep and where its results go."""

    sweep: Sweep
    items: dict[str, list[Item]]
    sweep_id: str
    folder: Path
    grid: CellGrid


def main(argv: Sequence[str], sweeps: Path) -> int:
    """Run `jobs/sweep.py`; returns its exit status.

    Args:
        argv: command line arguments.
        sweeps: the folder whose sweeps are known by name.
    """
    # Where the output is no terminal nobody knows its width; the tables are made for 100 columns.
    console = Console() if sys.stdout.isatty() else Console(width=100)
    arguments = _arguments(argv)
    # `ray job stop` and a plain kill end a sweep as Ctrl-C does, which a process started in the background may ignore.
    _end_on_signals()
    try:
        run = prepare(arguments, sweeps)
        if arguments.dry_run:
            _show_plan(run, arguments.nodes or run.sweep.engine.slots_per_node, console)
            return COMPLETE
        # All paths are absolute by now. Ray may take a job's working directory away while the job still runs.
        _enter(run.folder.parent)
        return execute(run, arguments, console)
    except FarmError as error:
        console.print(Text(f"error: {error}"), style="bold red", highlight=False, soft_wrap=True)
        return error.exit_status
    except KeyboardInterrupt:
        _say(
            console, "interrupted; every record is kept: submit the same sweep again to go on, and to write its results"
        )
        return INCOMPLETE


def _enter(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        os.chdir(folder)
    except OSError as error:
        raise JournalError(
            f"{folder}: {error.strerror or error}; make the folder writable, or choose another with --results or "
            "FARM_HOME"
        ) from error


def prepare(arguments: argparse.Namespace, sweeps: Path) -> Run:
    """Load and check all that can be checked before any engine starts."""
    sweep = chosen_sweep(arguments, sweeps)
    items = build(sweep.workloads)
    sweep_id = identity(sweep, {name: digest(entries) for name, entries in items.items()})
    root = Path(expand(arguments.results)).absolute() if arguments.results else results_root()
    sweep_id = run_of(root, sweep, sweep_id, fresh=arguments.fresh)
    return Run(sweep, items, sweep_id, root / sweep_id, grid_of(sweep, items))


def execute(run: Run, arguments: argparse.Namespace, console: Console) -> int:
    """Run what is missing, then bring tables, MLflow and the comparison up to date."""
    sweep = run.sweep
    python = sweep.engine.python or default_python()
    commands = {
        variant.name: engine_of(sweep).command(sweep, variant, model_path=sweep.model.path, python=python).masked()
        for variant in sweep.variants
    }
    summary = describe(
        sweep,
        run.sweep_id,
        run.items,
        {name: command.argv for name, command in commands.items()},
        {name: command.env for name, command in commands.items()},
        label_of(sweep),
    )
    results = ResultsFolder(run.folder)
    with open_journal(results) as (journal, notes):
        for note in notes:
            _say(console, note)
        answered = journal.answered()
        summary, allowed = submitted(
            sweep, results, journal, summary, mix=arguments.mix, say=lambda text: _say(console, text)
        )
        results.write_sweep(summary)
        results.write_items(run.items)
        total = sum(1 for _ in run.grid.cells())
        _say(console, f"sweep {run.sweep_id}: {total} cells, {len(answered)} already answered, in {run.folder}")
        if journal.rolled_back:
            _say(console, "the last driver was ended while it wrote: the cells of its last batch are asked again")
        problems: list[str] = []
        failed: dict[str, str] = {}
        interrupted = False
        started = time.monotonic()
        if len(answered) < total:
            try:
                problems, failed = _run_missing(run, arguments, journal, summary, console, total, allowed)
            except KeyboardInterrupt:
                interrupted = True
                _say(console, "interrupted: results are being written, which takes some seconds")
        results.export(journal, summary.model_copy(update={"failed_variants": failed}))
        missing = total - len(journal.answered())
        took = span(time.monotonic() - started)
    _say(console, f"{total - missing} / {total} cells answered, {took}")
    ui = _track(run, console, running=False)
    if missing < total:
        _show_comparison(run, console)
    if ui:
        _say(console, f"MLflow UI: {ui}")
    return _close(run, missing, total, problems, failed, interrupted, console)


def _run_missing(
    run: Run,
    arguments: argparse.Namespace,
    journal: Journal,
    summary: SweepSummary,
    console: Console,
    total: int,
    allowed: Sequence[Origin],
) -> tuple[list[str], dict[str, str]]:
    # Ray is imported here so that bad input is refused before its start-up time.
    import ray

    from farm.driver import workers as cluster
    from farm.driver.dispatch import Dispatcher
    from farm.driver.prometheus import Meters
    from farm.driver.schedule import MIN_GAIN_S, Schedule
    from farm.node.messages import Assignment
    from farm.node.slot import EngineSlot

    assignment = Assignment(
        run.sweep_id,
        run.sweep,
        {name: {item.item_id: item for item in entries} for name, entries in run.items.items()},
        tuple(allowed),
    )
    cluster.connect(before_local_start=EngineSlot("local", "this machine", assignment).check)
    _end_on_signals()  # a Ray that was started here has put its own handler in the place of ours
    engine = run.sweep.engine
    pool = cluster.WorkerPool(engine, ray.put(assignment), arguments.nodes)
    try:
        unfit = pool.gather()
        for name, reason in unfit.items():
            _say(console, f"left out: {name}: {reason}")
        answered = journal.answered()
        costs = first_costs(run.sweep, run.items, run.folder.parent)
        min_gain_s = MIN_GAIN_S / engine_of(run.sweep).speed(engine)
        schedule = Schedule(run.grid, run.sweep.design, costs, answered, engine.concurrency, min_gain_s, pool.slots)
        with Progress(console, pool.slots, costs.expected_start_s, total, len(answered)) as progress:
            show = partial(_show_in_mlflow, run, journal, summary, console)
            meters = Meters(run.sweep_id, cells=total, answered=len(answered))
            wait_s = engine.lost_node_wait_s
            deadlines = Deadlines(run.sweep.engine)
            folder = ResultsFolder(run.folder)
            dispatcher = Dispatcher(schedule, pool, journal, progress, folder, wait_s, show, meters, deadlines)
            dispatcher.problems += [f"{name} was left out: {reason}" for name, reason in unfit.items()]
            dispatcher.run()
        return dispatcher.problems, dispatcher.failed
    finally:
        pool.stop()


def _show_in_mlflow(run: Run, journal: Journal, summary: SweepSummary, console: Console) -> None:
    """Let MLflow show what there is of a sweep that still runs."""
    ResultsFolder(run.folder).export(journal, summary)
    _track(run, console, running=True)


def _track(run: Run, console: Console, *, running: bool) -> str | None:
    """Bring MLflow up to date; returns how to open its UI."""
    # MLflow is imported late: it takes seconds, and bad input should not wait for it.
    from farm import tracking

    try:
        return tracking.sync(run.folder, running=running).ui
    except FarmError as error:
        _say(console, f"MLflow: {error}")
        return None


def _show_comparison(run: Run, console: Console) -> None:
    # Late for the same reason: pandas and the statistics.
    from farm.compare import compare
    from farm.compare.load import load
    from farm.report import terminal

    try:
        found = load(run.folder)
        terminal.render(compare(found.records, found.sweep, found.engines, found.items), console)
    except InputError as error:
        _say(console, f"no comparison: {error}")


def _close(
    run: Run,
    missing: int,
    total: int,
    problems: list[str],
    failed: Collection[str],
    interrupted: bool,
    console: Console,
) -> int:
    """The last lines: what is missing and why, and the commands that show the results or go on."""

    def say(text: str) -> None:
        _say(console, text)

    results = f" --results {shlex.quote(str(run.folder))}"
    say(f"compare again, in the repository: {shlex.quote(sys.executable)} -m farm.compare{results}")
    if not missing:
        return COMPLETE
    if interrupted:
        say("the sweep was interrupted; every record so far is kept")
    for problem in problems[:_SHOWN_PROBLEMS]:
        say(f"- {problem}")
    if len(problems) > _SHOWN_PROBLEMS:
        say(f"- and {len(problems) - _SHOWN_PROBLEMS} more")
    say(f"incomplete: {missing} of {total} cells have no answer; submit the same sweep again to go on")
    if failed:
        say(
            f"{', '.join(failed)} failed: fix what is said above first. A sweep without it, or with other settings of "
            "it, is another sweep, whose cells are all asked again"
        )
    return FAILED if missing == total and not interrupted else INCOMPLETE


def _show_plan(run: Run, nodes: int, console: Console) -> None:
    kind = engine_of(run.sweep)
    slots = {f"node-{index + 1}": Position(index) for index in range(nodes)}
    costs = first_costs(run.sweep, run.items, run.folder.parent)
    plan = make_plan(run.grid, slots, design=run.sweep.design, costs=costs)

    def say(text: str = "") -> None:
        _say(console, text)

    say(f"sweep {run.sweep_id}" + (f" [{label}]" if (label := label_of(run.sweep)) else ""))
    say(f"results in {run.folder}")
    for slot, sessions in plan.sessions.items():
        say(f"{slot}: " + ", then ".join(f"{session.variant} ({len(session.cells)} cells)" for session in sessions))
    say(f"{sum(1 for _ in run.grid.cells())} cells, {plan.starts} engine starts on {len(plan.sessions)} nodes")
    measured = costs.measured(run.grid.variants, run.grid.items)
    if run.sweep.engine.device == "cuda" or measured:
        end = datetime.now().astimezone() + timedelta(seconds=plan.end_s)
        hours = kind.speed(run.sweep.engine) / 3600  # an emulation's hours are its machines'
        emulated = f"{kind.name} " if kind.own_clock else ""
        published = ", else at the published speed of the baseline on DGX Sparks; faster variants take less"
        say(
            f"about {sum(plan.ends_s.values()) * hours:.{_digits(plan.end_s)}f} {emulated}node-hours, warm-ups "
            f"included, done after {plan.end_s * hours:.{_digits(plan.end_s)}f} {emulated}h ({end:%Y-%m-%d %H:%M} if "
            f"started now), by what earlier sweeps of this model took{'' if measured else published}"
        )
    else:
        say("no cost is predicted for engines on a CPU before a first sweep of this model has measured it here")
    say()
    say("# The engines, as they start on this machine; each listens on SGLang's own port unless --port is added.")
    if kind.note:
        say(f"# {kind.note}")
    model, python = model_of(run.sweep), python_of(run.sweep)
    for variant in run.sweep.variants:
        command = kind.command(run.sweep, variant, model_path=model, python=python)
        shown = command.masked()
        say(f"# {variant.name}" + (f" ({HIDDEN} stands for a secret: write it in)" if shown != command else ""))
        say(shown.as_shell())


def _digits(seconds: float) -> int:
    return 1 if seconds > _SHORT_S else 3


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = sweep_parser("jobs/sweep.py", "Run a sweep, or go on with one.", "quickstart")
    add: Callable[..., Any] = parser.add_argument
    add("--results", metavar="DIR", help="folder that holds the sweeps' results (default: FARM_HOME/results)")
    add("--nodes", type=positive, metavar="N", help="use N engine slots; with --dry-run, plan for N (default: all)")
    add("--dry-run", action="store_true", help="print the plan, its cost and the engines' command lines; start nothing")
    add("--fresh", action="store_true", help="start anew beside earlier results of the same sweep")
    add("--mix", action="store_true", help="go on though model content, versions or named nodes differ from before")
    return parser.parse_args(argv)


def _say(console: Console, text: str) -> None:
    """A line of its own, whatever its length, and whatever it quotes."""
    console.print(Text(text), highlight=False, soft_wrap=True)


def _end_on_signals() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
