"""Checks of the machine: GPU, memory, other engines, kernel caches, disk, port, clock, Ray's settings."""

from __future__ import annotations

import os
import platform
from typing import Final

import psutil

from farm.engines.nvml import open_gpu
from farm.engines.sglang.requirements import missing_memory, wrong_architecture
from farm.node.preflight.check import FAIL, OK, WARN, Check, judged, not_applicable
from farm.node.preflight.view import GIB, NO_GPU, NO_GPU_FOUND, Node
from farm.node.preflight.weights import weights_bytes
from farm.node.telemetry import visible_gpu
from farm.sglang_plugin.caches import cache_state

SPARK_FLOOR_GIB: Final = 85.0
"""Below this much available memory an engine of Ling-3.0-flash can wedge a DGX Spark while it starts."""
CLOCK_OFFSET_S: Final = 1.0
_SHOWN: Final = 4


def gpu(node: Node) -> Check:
    """Driver, CUDA, compute capability."""
    name = "GPU"
    if not node.on_gpu:
        return not_applicable(name, node.no_sglang or NO_GPU)
    if node.gpu is None:
        return Check(name, FAIL, "NVML finds no GPU", "install NVIDIA's driver, or look why `nvidia-smi` fails")
    versions = _nvidia_versions()
    return Check(name, OK, f"{node.gpu.name}, compute capability {'.'.join(map(str, node.gpu.capability))}, {versions}")


def _nvidia_versions() -> str:
    """Driver and the newest CUDA that it runs, by NVML."""
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]

        pynvml.nvmlInit()
        driver, cuda = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion_v2()
        pynvml.nvmlShutdown()
    except Exception:  # no package, no library, an older driver: only the text is poorer
        return "driver unknown to NVML"
    return f"driver {driver}, CUDA up to {cuda // 1000}.{cuda % 1000 // 10}"


def architecture(node: Node) -> Check:
    """The GPU is new enough for every variant."""
    name = "architecture"
    if not node.on_gpu or node.gpu is None:
        return not_applicable(name, NO_GPU if not node.on_gpu else NO_GPU_FOUND)
    missing = wrong_architecture(node.needs, node.gpu)
    found = f"{platform.machine()}, enough for {', '.join(node.needs) or 'the variants'}"
    return judged(name, found, "; ".join(missing) or None, "leave these variants out with --set variants=[...]")


def memory(node: Node) -> Check:
    """Free memory for the engine: the host's on a Spark, the GPU's elsewhere."""
    name = "memory"
    if node.no_sglang:
        return not_applicable(name, node.no_sglang)
    host = psutil.virtual_memory()
    total_gib, free_gib = host.total / GIB, host.available / GIB
    weights_gib = weights_bytes(node.model) / GIB if node.model else 0.0
    do = "stop what else runs here, and wait until its memory is back"
    if not node.on_gpu:
        short = (
            None if free_gib > weights_gib else f"{free_gib:.1f} GiB are free and the weights take {weights_gib:.1f}"
        )
        return judged(name, f"{free_gib:.1f} GiB available on the host", short, do)
    if node.gpu is None:
        return not_applicable(name, NO_GPU_FOUND)
    fractions = {variant.name: node.sweep.args_of(variant) for variant in node.sweep.variants}
    short_of = [line for args in fractions.values() for line in missing_memory(args, node.gpu, total_gib, free_gib)]
    unified = node.gpu.free_gib is None
    free = free_gib if node.gpu.free_gib is None else node.gpu.free_gib
    floor = SPARK_FLOOR_GIB if unified else weights_gib
    if not short_of and free < floor and not all("mem-fraction-static" in args for args in fractions.values()):
        short_of = [f"{free:.1f} GiB are free and {floor:.0f} GiB are needed"]
    where = "of unified memory available" if unified else "free on the GPU"
    return judged(name, f"{free:.1f} GiB {where}", short_of[0] if short_of else None, do)


def other_engines(node: Node) -> Check:
    """Other engines: processes that hold this GPU stop a sweep, engines elsewhere on the machine disturb it."""
    name = "other engines"
    if node.no_sglang:
        return not_applicable(name, node.no_sglang)
    holders: list[int] = []
    if node.on_gpu and (opened := open_gpu(visible_gpu())) is not None:
        holders = [pid for pid in opened.processes() if pid != os.getpid()]
        opened.close()
    engines = [process.pid for process in psutil.process_iter() if _is_engine(process)]
    if holders:
        shown = ", ".join(f"{pid} ({_command(pid)})" for pid in holders)
        return Check(name, FAIL, f"the GPU is held by {shown}", f"stop it: kill {' '.join(map(str, holders))}")
    if engines:
        shown = ", ".join(map(str, engines[:_SHOWN])) + (f" and {len(engines) - _SHOWN} more" * (len(engines) > _SHOWN))
        return Check(
            name, WARN, f"SGLang runs on this machine: {shown}", "stop it, unless it is meant to run beside this sweep"
        )
    return Check(name, OK, "no other engine")


def _is_engine(process: psutil.Process) -> bool:
    try:
        words = process.cmdline()
    except psutil.Error:
        return False
    return "sglang.launch_server" in words or bool(words and words[0].startswith("sglang::"))


def _command(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline()[:4])[:80] or "unknown"
    except psutil.Error:
        return "unknown"


def kernel_caches(node: Node) -> Check:
    """Whether kernels are compiled already; compiling beside a loading model is what wedges a Spark."""
    name = "kernel caches"
    if not node.on_gpu:
        return not_applicable(name, node.no_sglang or NO_GPU)
    state = cache_state(node.environment)
    backends = {node.sweep.args_of(variant).get("moe-runner-backend") for variant in node.sweep.variants}
    wanted = {"flashinfer": "flashinfer_mxfp4" in backends, "humming": "humming" in backends}
    cold = [cache for cache, is_wanted in wanted.items() if is_wanted and not state[cache]["kernels"]]
    found = ", ".join(f"{cache} {entry['kernels']} kernels" for cache, entry in state.items())
    problem = f"cold: {', '.join(cold)} ({found})" if cold else None
    return judged(name, found, problem, f"jobs/prewarm.py {node.sweep.name}", status=WARN)


def clock_offset(offset_s: float, round_trip_s: float) -> Check:
    """The node's clock against the driver's, from the shortest of several round trips. Pure."""
    found = f"{1000 * offset_s:+.1f} ms against the driver, plus or minus {500 * round_trip_s:.1f} ms"
    problem = found if abs(offset_s) - round_trip_s / 2 > CLOCK_OFFSET_S else None
    return judged("clock offset", found, problem, "set the node's clock by NTP (timedatectl set-ntp true)", status=WARN)
