"""The GPU of an engine, by NVML. What it does not answer is None: a DGX Spark, for one, gives no memory totals."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

_GIB: Final = 1 << 30
# NVML of a GPU that is lost may never return.
_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class Gpu:
    """What an engine's GPU is. Memory is None where it is the host's own (one unified pool)."""

    name: str
    capability: tuple[int, int]
    total_gib: float | None
    free_gib: float | None


def find_gpu() -> Gpu | None:
    """This process's GPU as it is now; None when there is none, or when it does not answer."""
    found: list[Gpu | None] = []
    asking = threading.Thread(target=lambda: found.append(_look()), name="farm-nvml", daemon=True)
    asking.start()
    asking.join(_TIMEOUT_S)
    return found[0] if found else None


def visible_gpu() -> int | str:
    """The GPU of this process: the first that `CUDA_VISIBLE_DEVICES` names, by index or UUID, else the machine's first.

    Ray sets the variable for a worker that reserved a GPU. NVML itself does not heed it, and counts in the order of the
    PCI bus, as Ray does.
    """
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return int(first) if first.isdigit() else first or 0


class OpenGpu:
    """A GPU that NVML answers for. Calls that it does not support are made once and not again."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        """Use `open_gpu`."""
        self.nvml = nvml
        self._handle = handle
        self._silent: set[str] = set()
        self.name: str = self.ask("nvmlDeviceGetName") or "GPU"
        self.max_sm_clock_mhz: float | None = self.ask("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM)

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of an NVML function of this GPU, or None."""
        if name in self._silent:
            return None
        try:
            return getattr(self.nvml, name)(self._handle, *arguments)
        except (self.nvml.NVMLError_NotSupported, self.nvml.NVMLError_FunctionNotFound, AttributeError):
            self._silent.add(name)
        except self.nvml.NVMLError:
            pass  # a GPU that does not answer now may answer later
        return None

    def describe(self) -> Gpu | None:
        """What it is; None when it does not tell its compute capability."""
        capability, memory = self.ask("nvmlDeviceGetCudaComputeCapability"), self.ask("nvmlDeviceGetMemoryInfo")
        if capability is None:
            return None
        total_gib, free_gib = (memory.total / _GIB, memory.free / _GIB) if memory is not None else (None, None)
        return Gpu(self.name, tuple(capability), total_gib, free_gib)

    def processes(self) -> dict[int, int | None]:
        """Processes that hold this GPU, each with its bytes where they are known."""
        return {
            process.pid: process.usedGpuMemory for process in self.ask("nvmlDeviceGetComputeRunningProcesses") or []
        }

    def close(self) -> None:
        """Let NVML go."""
        self.nvml.nvmlShutdown()


def open_gpu(gpu: int | str) -> OpenGpu | None:
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
    return OpenGpu(nvml, handle)


def _handle(nvml: Any, gpu: int | str) -> Any:
    by_index: Callable[[int], Any] = nvml.nvmlDeviceGetHandleByIndex
    if isinstance(gpu, int):
        return by_index(gpu)
    if gpu.startswith("MIG-"):
        return nvml.nvmlDeviceGetHandleByUUID(gpu)
    handles = (by_index(index) for index in range(nvml.nvmlDeviceGetCount()))
    return next((handle for handle in handles if nvml.nvmlDeviceGetUUID(handle).startswith(gpu)), None)


def _look() -> Gpu | None:
    opened = open_gpu(visible_gpu())
    if opened is None:
        return None
    try:
        return opened.describe()
    finally:
        opened.close()
