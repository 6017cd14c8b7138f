"""A GPU's readings by NVML. What it does not answer is None: a DGX Spark, for one, gives no memory totals."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from farm.node.telemetry.samples import Sample


def visible_gpu() -> int | str:
    """The GPU of this process: the first that `CUDA_VISIBLE_DEVICES` names, by index or UUID, else the machine's first.

    Ray sets the variable for a worker that reserved a GPU. NVML itself does not heed it, and counts in the order of the
    PCI bus, as Ray does.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return int(first) if first.isdigit() else first or 0


class Gpu:
    """An open GPU. Calls that it does not support are made once and not again."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """Use `open_gpu`."""
        self._nvml = nvml
        self._handle = handle
        self._silent: set[str] = set()
        self.name: str = self._ask("nvmlDeviceGetName") or "GPU"
        self.max_sm_clock_mhz: float | None = self._ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)

    def read(self) -> Sample:
        """Take one reading now."""
        ask, at_s = self._ask, time.perf_counter()
        power_mw, counter_mj = ask("nvmlDeviceGetPowerUsage"), ask("nvmlDeviceGetTotalEnergyConsumption")
        utilisation = ask("nvmlDeviceGetUtilizationRates")
        memory_bytes, memory_source = self._memory()
        return Sample(
            at_s=at_s,
            power_w=None if power_mw is None else power_mw / 1000,
            counter_j=None if counter_mj is None else counter_mj / 1000,
            sm_clock_mhz=ask("nvmlDeviceGetClockInfo", self._nvml.NVML_CLOCK_SM),
            max_sm_clock_mhz=self.max_sm_clock_mhz,
            temperature_c=ask("nvmlDeviceGetTemperature", self._nvml.NVML_TEMPERATURE_GPU),
            utilisation=None if utilisation is None else utilisation.gpu / 100,
            reasons=ask("nvmlDeviceGetCurrentClocksEventReasons"),
            memory_bytes=memory_bytes,
            memory_source=memory_source,
        )

    def processes(self) -> dict[int, int | None]:
        """Processes that hold this GPU, each with its bytes where they are known."""
        return {
            process.pid: process.usedGpuMemory for process in self._ask("nvmlDeviceGetComputeRunningProcesses") or []
        }

    def close(self) -> None:
        """Let NVML go."""
        self._nvml.nvmlShutdown()

    def _memory(self) -> tuple[int | None, str | None]:
        """Bytes in use: of the GPU's processes, else of the whole GPU, else of the host, whose memory a Spark's is."""
        held = self.processes()
        sizes = [size for size in held.values() if size is not None]
        # A container may be shown no processes, or processes without their memory.
        if sizes and len(sizes) == len(held):
            return sum(sizes), "gpu-processes"
        whole = self._ask("nvmlDeviceGetMemoryInfo")
        return (whole.used, "gpu") if whole is not None else (host_used_bytes(), "host")

    def _ask(self, name: str, *arguments: Any) -> Any:
        if name in self._silent:
            return None
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except (self._nvml.NVMLError_NotSupported, self._nvml.NVMLError_FunctionNotFound, AttributeError):
            self._silent.add(name)
        except self._nvml.NVMLError:
            pass  # a GPU that does not answer now may answer later
        return None


def open_gpu(gpu: int | str) -> Gpu | None:
    """The GPU with this index or UUID (its beginning is enough); None without NVML or without such a GPU."""
    try:
        import pynvml  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        return None
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    try:
        handle = _handle(nvml, gpu)
    except nvml.NVMLError:
        handle = None
    if handle is None:
        nvml.nvmlShutdown()
        return None
    return Gpu(nvml, handle)


def _handle(nvml: Any, gpu: int | str) -> Any:
    by_index: Callable[[int], Any] = nvml.nvmlDeviceGetHandleByIndex
    if isinstance(gpu, int):
        return by_index(gpu)
    if gpu.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(gpu)
    handles = (by_index(place) for place in range(nvml.nvmlDeviceGetCount()))
    return next((handle for handle in handles if nvml.nvmlDeviceGetUUID(handle).startswith(gpu)), None)


def host_used_bytes() -> int | None:
    """Memory of the host that is in use, by /proc/meminfo."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        fields = dict(line.split(":", 1) for line in lines)
        total, available = (int(fields[name].split()[0]) * 1024 for name in ("MemTotal", "MemAvailable"))
    except (OSError, KeyError, ValueError):
        return None
    return total - available
