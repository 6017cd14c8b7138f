"""The command line of `jobs/doctor.py`, and an examiner on every node of the cluster."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from farm.cli.arguments import chosen_sweep, positive, sweep_parser
from farm.doctor.examine import all_checks
from farm.doctor.machine import clock_offset
from farm.doctor.show import show
from farm.doctor.verdict import Verdict
from farm.doctor.versions import Driver
from farm.errors import FarmError, InputError, first_line
from farm.node.preflight.check import FAIL, Check
from farm.spec.models import Sweep
from farm.workloads.build import build

_START_TIMEOUT_S: Final = 60.0
_EXAMINE_TIMEOUT_S: Final = 600.0
_ROUND_TRIPS: Final = 5


class Examiner:
    """Lives on the node for as long as it is examined, with the CPUs and the GPU that an engine would have."""

    def now_s(self) -> float:
        """The node's wall clock."""
        return time.time()

    def examine(self, sweep: Sweep, driver: Driver, bandwidth_probe: bool) -> list[Check]:
        """Make all checks."""
        return all_checks(sweep, driver, bandwidth_probe=bandwidth_probe)


def main(argv: Sequence[str], sweeps: Path) -> int:
    """Run `jobs/doctor.py`; returns its exit status: 0 every node can run the sweep, 1 one cannot or the driver lacks
    its data, 2 bad input."""
    console = Console(soft_wrap=True)
    arguments = _arguments(argv)
    try:
        sweep = chosen_sweep(arguments, sweeps)
        data_problem = _data_problem(sweep)
        verdicts, apart = examine_all(sweep, arguments.nodes, bandwidth_probe=not arguments.skip_bandwidth)
    except FarmError as error:
        # Standard output is for the report alone, which another program may read.
        Console(stderr=True).print(Text(f"error: {error}"), style="bold red", highlight=False, soft_wrap=True)
        return error.exit_status
    can_run = bool(verdicts) and all(verdict.can_run for verdict in verdicts) and data_problem is None
    if arguments.json:
        report = {"sweep": sweep.name, "can_run": can_run, "data_problem": data_problem, "without_slot": apart}
        print(json.dumps(report | {"nodes": [verdict.as_json() for verdict in verdicts]}, indent=1))
        return int(not can_run)
    show(verdicts, console)
    for line in apart:
        console.print(Text(line), highlight=False)
    console.print(Text(f"sweep {sweep.name}: {_summary(verdicts)}", "bold"), highlight=False)
    if data_problem:
        console.print(Text(f"its questions cannot be had here: {data_problem}", "bold red"), highlight=False)
    return int(not can_run)


def _data_problem(sweep: Sweep) -> str | None:
    """Why the driver cannot read the sweep's workloads; nodes get them from it."""
    try:
        build(sweep.workloads)
    except InputError as error:
        return str(error)
    return None


def _summary(verdicts: Sequence[Verdict]) -> str:
    able = sum(verdict.can_run for verdict in verdicts)
    return f"{able} of {len(verdicts)} can run it" if verdicts else "no node can run it"


def examine_all(sweep: Sweep, nodes: int | None, *, bandwidth_probe: bool) -> tuple[list[Verdict], list[str]]:
    """Examine the cluster's nodes at the same time: a verdict for each GPU, or for each node that needs none.

    Returns:
        The verdicts, and lines on nodes that have no place for an engine of this sweep.

    Raises:
        InputError: fewer nodes than were asked for.
    """
    # Ray is imported here so that bad input is refused before its start-up time.
    import ray

    from farm.driver import workers as cluster

    cluster.connect(before_local_start=lambda: None)
    try:
        slots = cluster.find_slots(sweep.engine)
    except InputError as error:
        return [], [str(error)]
    # Several engines on one node without GPUs would be examined alike.
    candidates = slots if slots[0].gpus else list({slot.node_id: slot for slot in slots}.values())
    if nodes is not None and nodes > len(candidates):
        raise InputError(
            f"--nodes {nodes}: the cluster has {len(candidates)}: {', '.join(one.name for one in candidates)}"
        )
    apart = [
        f"{node['NodeManagerHostname']} ({node['NodeID'][:6]}) has no slot for an engine of this sweep"
        for node in ray.nodes()
        if node["Alive"] and node["NodeID"] not in {slot.node_id for slot in slots}
    ]
    candidates = candidates[:nodes]
    actor: Any = ray.remote(Examiner)
    examiners = [actor.options(**cluster.placement(candidate, sweep.engine)).remote() for candidate in candidates]
    names = [candidate.name if candidate.gpus else candidate.node for candidate in candidates]
    clocks = [_clock(ray, examiner) for examiner in examiners]
    driver = Driver.here()
    running = [
        None if isinstance(clock, str) else examiner.examine.remote(sweep, driver, bandwidth_probe)
        for examiner, clock in zip(examiners, clocks, strict=True)
    ]
    verdicts = [
        Verdict(name, [*_result(ray, reference, clock), *([] if isinstance(clock, str) else [clock_offset(*clock)])])
        for name, reference, clock in zip(names, running, clocks, strict=True)
    ]
    for examiner in examiners:
        ray.kill(examiner)
    return verdicts, apart


def _clock(ray: Any, examiner: Any) -> tuple[float, float] | str:
    """Offset of the node's clock and the round trip it was taken in, the shortest of several; or why none came."""
    best = (0.0, float("inf"))
    timeout_s = _START_TIMEOUT_S
    for _ in range(1 + _ROUND_TRIPS):
        sent_s, begun_s = time.time(), time.perf_counter()
        try:
            there_s = ray.get(examiner.now_s.remote(), timeout=timeout_s)
        except ray.exceptions.GetTimeoutError:
            return f"no worker started within {timeout_s:g} s: the node's CPUs or GPUs are taken by another job"
        except ray.exceptions.RayError as error:
            return f"no worker started: {first_line(error)}"
        trip_s = time.perf_counter() - begun_s
        if trip_s < best[1]:
            best = (there_s - (sent_s + trip_s / 2), trip_s)
    return best


def _result(ray: Any, reference: Any, clock: tuple[float, float] | str) -> list[Check]:
    name = "Ray worker"
    if isinstance(clock, str):
        return [Check(name, FAIL, clock, "wait for that job or end it: `ray status` shows what is taken")]
    try:
        checks: list[Check] = ray.get(reference, timeout=_EXAMINE_TIMEOUT_S)
    except ray.exceptions.GetTimeoutError:
        found = f"the examination did not end within {_EXAMINE_TIMEOUT_S:g} s"
        return [Check(name, FAIL, found, "log in and look whether `nvidia-smi` and the disk answer")]
    except ray.exceptions.RayError as error:
        return [Check(name, FAIL, f"the examination failed: {first_line(error)}", "see the worker's log in Ray")]
    return checks


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = sweep_parser("jobs/doctor.py", "Say whether each node can run a sweep.", "quickstart")
    add: Callable[..., Any] = parser.add_argument
    add("--nodes", type=positive, metavar="N", help="examine N of them (default: all)")
    add("--json", action="store_true", help="print the report as JSON")
    add("--skip-bandwidth", action="store_true", help="leave the ten-second bandwidth probe out")
    return parser.parse_args(argv)
