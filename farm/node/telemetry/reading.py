"""One reading of a GPU. What NVML does not answer is None."""

from __future__ import annotations

import time

import psutil

from farm.engines.nvml import OpenGpu
from farm.node.telemetry.samples import Sample


def read(gpu: OpenGpu) -> Sample:
    """Take one reading now."""
    ask, at_s = gpu.ask, time.perf_counter()
    power_mw, counter_mj = ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetTotalEnergyConsumption")
    utilisation = ask("nvmlDeviceGetUtilizationRates")
    memory_bytes, memory_source = _memory(gpu)
    return Sample(
        at_s=at_s,
        power_w=None if power_mw is None else power_mw / 1000,
        counter_j=None if counter_mj is None else counter_mj / 1000,
        sm_clock_mhz=ask("nvmlDeviceGetClockInfo", gpu.nvml.NVML_CLOCK_SM),
        max_sm_clock_mhz=gpu.max_sm_clock_mhz,
        temperature_c=ask("nvmlDeviceGetTemperature", gpu.nvml.NVML_TEMPERATURE_GPU),
        utilisation=None if utilisation is None else utilisation.gpu / 100,
        reasons=ask("nvmlDeviceGetCurrentClocksEventReasons"),
        memory_bytes=memory_bytes,
        memory_source=memory_source,
    )


def _memory(gpu: OpenGpu) -> tuple[int, str]:
    """Bytes in use: of the GPU's processes, else of the whole GPU, else of the host, whose memory a Spark's is."""
    held = gpu.processes()
    sizes = [size for size in held.values() if size is not None]
    # A container may be shown no processes, or processes without their memory.
    if sizes and len(sizes) == len(held):
        return sum(sizes), "gpu-processes"
    whole = gpu.ask("nvmlDeviceGetMemoryInfo")
    if whole is not None:
        return int(whole.used), "gpu"
    host = psutil.virtual_memory()
    return host.total - host.available, "host"
