"""The bandwidth probe: copies within the GPU's memory with its clock watched, which unmasks a hidden slow state."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

from pydantic import BaseModel

from farm.node.preflight.check import FAIL, OK, WARN, Check, not_applicable
from farm.node.preflight.view import NO_GPU, NO_GPU_FOUND, TIMEOUT_S, Node
from farm.node.telemetry import NO_TELEMETRY, RequestTelemetry, Telemetry, visible_gpu

_SCRIPT: Final = Path(__file__).with_name("bandwidth.py")
PROBE_S: Final = 10.0
GB10_NOMINAL_GB_PER_S: Final = 273.0
# Two thirds of nominal. Engines reach 0.83 of it at the published speed, and 0.49 when they are slowed down 1.7 times.
GB10_FLOOR_GB_PER_S: Final = 180.0


class Rate(BaseModel):
    """What `bandwidth.py` prints."""

    bytes_per_s: float
    began_s: float
    ended_s: float


def bandwidth(node: Node) -> Check:
    """Ten seconds of copies with the clock watched: what unmasks a slow state that gives no reason."""
    name = "bandwidth"
    if not node.on_gpu or node.gpu is None:
        return not_applicable(name, NO_GPU if not node.on_gpu else NO_GPU_FOUND)
    telemetry = Telemetry.start(visible_gpu(), period_s=0.5)
    rate = node.ask_engine(_SCRIPT, Rate, str(PROBE_S), timeout_s=PROBE_S + TIMEOUT_S)
    time.sleep(0.6)  # one more reading, so that the copies are enclosed
    seen = NO_TELEMETRY if isinstance(rate, str) else telemetry.between(rate.began_s, rate.ended_s)
    telemetry.stop()
    if isinstance(rate, str):
        return Check(name, FAIL, f"the copies failed: {rate}", "look whether torch runs on this GPU")
    is_gb10 = node.gpu.capability == (12, 1)
    return bandwidth_verdict(rate.bytes_per_s / 1e9, seen, is_gb10=is_gb10)


def bandwidth_verdict(gb_per_s: float, gpu: RequestTelemetry, *, is_gb10: bool) -> Check:
    """What the rate and the clock say. Pure."""
    clock = gpu.sm_clock_mhz
    seen = f"{gb_per_s:.0f} GB/s read and written at an SM clock of "
    seen += "unknown MHz" if clock is None else f"{clock:.0f} MHz"
    cure = "shut the machine down, take its AC power off for a minute, start it again, and run the doctor again"
    if gpu.slow_state:
        return Check("bandwidth", FAIL, f"slow state: {seen}", cure)
    if is_gb10 and gb_per_s < GB10_FLOOR_GB_PER_S:
        wanted = f"of {GB10_NOMINAL_GB_PER_S:.0f} nominal, at least {GB10_FLOOR_GB_PER_S:.0f} wanted"
        return Check("bandwidth", FAIL, f"slow: {seen}, {wanted}", cure)
    if gpu.slow_state is None:
        return Check("bandwidth", WARN, f"{seen}: the clock cannot be judged", "look at `nvidia-smi -q -d CLOCK`")
    return Check("bandwidth", OK, seen)
