"""Compiles what a sweep's variants need on every node, before anything is measured: `jobs/prewarm.py`.

Two steps on each node, and then the second one again to see what a warm start costs:

1. FlashInfer's MXFP4 module, alone: no engine is resident, and as many compilers run at once as the memory that is
   available allows.
2. One short engine for each variant, with dummy weights and few layers: it compiles the kernels that are compiled when
   a model is loaded and first used (Humming, Triton), in a few gigabytes. CUDA graphs are not captured: they belong to
   one start and cannot be kept.

A model whose deeper layers differ from its first ones may need kernels that few layers do not; `--layers 0` takes all.
An engine on a CPU compiles nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table
from rich.text import Text

from farm.cli.arguments import chosen_sweep, sweep_parser
from farm.engines.base import EngineCommand, model_of, python_of
from farm.engines.nvml import find_gpu
from farm.engines.registry import engine_of
from farm.engines.sglang.running import launch
from farm.errors import EngineStartError, FarmError, first_line
from farm.paths import farm_home
from farm.sglang_plugin.caches import cache_state
from farm.spec.models import Sweep, Variant

COMPILER_GIB: Final = 8  # what one of FlashInfer's compilations may take
_BUILD_TIMEOUT_S: Final = 3600.0
_PROMPT_TOKENS: Final = 2048
_LAYERS: Final = 6
_BUILD_FLASHINFER: Final = (
    "import sys; from flashinfer.fused_moe.core import get_cutlass_fused_moe_module as build; build(sys.argv[1])"
)


@dataclass
class Step:
    """One thing that was compiled; seconds are None where it was not run, `problem` says why it failed."""

    what: str
    cold_s: float | None = None
    warm_s: float | None = None
    kernels: int = 0
    problem: str | None = None


@dataclass
class NodeReport:
    """What one node compiled, and its kernel caches afterwards."""

    node: str
    note: str | None = None
    steps: list[Step] = field(default_factory=list)
    caches: dict[str, dict[str, int]] = field(default_factory=dict)


def prewarm_node(node: str, sweep: Sweep, layers: int) -> NodeReport:
    """Compile what the sweep's variants need on this machine."""
    report = NodeReport(node)
    kind = engine_of(sweep)
    if not (kind.needs_sglang and kind.needs_gpu(sweep.engine)):
        on_cpu = not kind.needs_gpu(sweep.engine)
        report.note = f"nothing to compile: the engine {'runs on the CPU' if on_cpu else 'is not SGLang'}"
        return report
    backends = {sweep.args_of(variant).get("moe-runner-backend") for variant in sweep.variants}
    if "flashinfer_mxfp4" in backends:
        report.steps.append(_timed("FlashInfer MXFP4 module", partial(_build_flashinfer, sweep)))
    for variant in sweep.variants:
        start = partial(_run_once, sweep, variant, layers)
        step = _timed(variant.name, start)
        if step.problem is None:
            step.warm_s = _timed(variant.name, start).cold_s
        report.steps.append(step)
    report.caches = cache_state(os.environ)
    return report


def compilers_at_once(available_gib: float, cpus: int) -> int:
    """How many compilations fit the memory and the processor, at least one."""
    return max(1, min(cpus, int(available_gib // COMPILER_GIB)))


def short_command(sweep: Sweep, variant: Variant, layers: int, model_path: str, python: str) -> EngineCommand:
    """The variant's engine with dummy weights and the first layers alone, without CUDA graphs."""
    few = {"json-model-override-args": json.dumps({"num_hidden_layers": layers})} if layers else {}
    args = {**variant.args, "load-format": "dummy", "disable-cuda-graph": True, **few}
    short = variant.model_copy(update={"args": args})
    return engine_of(sweep).command(sweep, short, model_path=model_path, python=python)


def _timed(what: str, work: Callable[[], None]) -> Step:
    before, started = _kernels(), time.monotonic()
    try:
        work()
    except FarmError as error:
        return Step(what, problem=str(error))
    return Step(what, cold_s=time.monotonic() - started, kernels=_kernels() - before)


def _kernels() -> int:
    return sum(state["kernels"] for state in cache_state(os.environ).values())


def _build_flashinfer(sweep: Sweep) -> None:
    gpu = find_gpu()
    if gpu is None:
        raise EngineStartError("NVML finds no GPU")
    available_gib = psutil.virtual_memory().available / (1 << 30)
    jobs = compilers_at_once(available_gib, os.cpu_count() or 1)
    command = [python_of(sweep), "-c", _BUILD_FLASHINFER, "".join(map(str, gpu.capability))]
    env = os.environ | sweep.engine.env | {"MAX_JOBS": str(jobs)}
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=_BUILD_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EngineStartError(f"FlashInfer's build with {jobs} jobs: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise EngineStartError(f"FlashInfer's build with {jobs} jobs failed: {last[:400]}")


def _run_once(sweep: Sweep, variant: Variant, layers: int) -> None:
    command = short_command(sweep, variant, layers, model_of(sweep), python_of(sweep))
    log = farm_home() / "engines" / "prewarm" / f"{variant.name}-{time.time_ns()}.log"
    asyncio.run(_generate(command, log, sweep))


async def _generate(command: EngineCommand, log: Path, sweep: Sweep) -> None:
    engine = await launch(
        command,
        log,
        start_timeout_s=sweep.engine.start_timeout_s,
        request_timeout_s=sweep.engine.request_timeout_s,
    )
    try:
        # A prompt of some length compiles what prefill needs and single tokens do not.
        ids = await engine.client.tokenize_text("Count the baskets of every tree. " * _PROMPT_TOKENS)
        sampling = {"max_new_tokens": 16, "ignore_eos": True}
        limit_s = sweep.engine.start_timeout_s
        await engine.client.generate(ids[:_PROMPT_TOKENS], sampling, start_timeout_s=limit_s)
    finally:
        await engine.stop()


def main(argv: Sequence[str], sweeps: Path) -> int:
    """Run `jobs/prewarm.py`; returns its exit status: 0 done, 1 something failed to compile, 2 bad input."""
    console = Console(soft_wrap=True)
    arguments = _arguments(argv)
    try:
        sweep = chosen_sweep(arguments, sweeps)
        failed = False
        for report in _on_every_node(sweep, arguments.layers):
            show(report, console)
            failed |= any(step.problem for step in report.steps)
    except FarmError as error:
        console.print(Text(f"error: {error}"), style="bold red", highlight=False)
        return error.exit_status
    return int(failed)


def _on_every_node(sweep: Sweep, layers: int) -> Iterator[NodeReport]:
    """Each node's report as soon as it is there; that of a node which was lost says so."""
    # Ray is imported here so that bad input is refused before its start-up time.
    import ray

    from farm.driver import workers as cluster

    cluster.connect(before_local_start=lambda: None)
    slots = {slot.node_id: slot for slot in cluster.find_slots(sweep.engine)}
    task: Any = ray.remote(prewarm_node)
    running = {
        task.options(**cluster.placement(slot, sweep.engine)).remote(slot.node, sweep, layers): slot.node
        for slot in slots.values()
    }
    while running:
        (done,), _ = ray.wait(list(running))
        node = running.pop(done)
        try:
            report: NodeReport = ray.get(done)
        except ray.exceptions.RayError as error:
            report = NodeReport(
                node, steps=[Step("all", problem=f"the node or its worker was lost: {first_line(error)}")]
            )
        yield report


def show(report: NodeReport, console: Console) -> None:
    """One node's table."""
    console.print(Text(f"{report.node}: {report.note or f'{len(report.steps)} steps'}"), highlight=False)
    if not report.steps:
        return
    table = Table("step", "cold s", "warm s", "kernels", "problem")
    for step in report.steps:
        seconds = ["-" if value is None else f"{value:.0f}" for value in (step.cold_s, step.warm_s)]
        table.add_row(step.what, *seconds, str(step.kernels), step.problem or "")
    console.print(table)
    for name, state in report.caches.items():
        console.print(Text(f"{name}: {state['kernels']} kernels, {state['bytes'] / 1e6:.1f} MB"), highlight=False)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = sweep_parser("jobs/prewarm.py", "Compile what a sweep needs on every node.", "ling-flash-ladder")
    add: Callable[..., Any] = parser.add_argument
    add("--layers", type=int, default=_LAYERS, help="layers of the short engines; 0: all (default: %(default)s)")
    return parser.parse_args(argv)
