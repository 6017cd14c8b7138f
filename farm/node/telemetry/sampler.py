"""The thread that reads a GPU once a second while an engine runs, and at the end of every request."""

from __future__ import annotations

import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import replace
from typing import Final

from farm.engines.nvml import open_gpu
from farm.node.telemetry.reading import read
from farm.node.telemetry.samples import RequestTelemetry, Sample, of_request

PERIOD_S: Final = 1.0
MAX_SAMPLES: Final = 100_000
"""Kept of one engine, about a day at one a second; the oldest go first."""
_WAIT_S: Final = 0.5


class Telemetry:
    """The readings of one engine's GPU, from `start` to `stop`."""

    def __init__(self, gpu: int | str | None, *, shared: bool, period_s: float) -> None:
        """Use `start`."""
        self._shared = shared
        self._period_s = period_s
        self._samples: deque[Sample] = deque(maxlen=MAX_SAMPLES)
        self._changed = threading.Condition()
        self._wanted_s = 0.0  # a reading is wanted that is not older than this
        self._stopping = False
        self._thread = threading.Thread(target=self._run, args=(gpu,), name="farm-telemetry", daemon=True)

    @classmethod
    def start(cls, gpu: int | str | None, *, shared: bool = False, period_s: float = PERIOD_S) -> Telemetry:
        """Begin to read a GPU.

        Args:
            gpu: its index or UUID (see `visible_gpu`); None: the engine has none, and every field stays null.
            shared: several requests run at once, so that no energy can be told to be that of one of them.
            period_s: seconds between readings.
        """
        telemetry = cls(gpu, shared=shared, period_s=period_s)
        if gpu is not None:
            telemetry._thread.start()
        return telemetry

    def between(self, start_s: float, end_s: float) -> RequestTelemetry:
        """What a request from `start_s` to `end_s` (`time.perf_counter`) cost.

        Takes one more reading so that the end is enclosed, which takes milliseconds: call it from a thread.
        """
        with self._changed:
            if self._thread.is_alive():
                self._wanted_s = max(self._wanted_s, min(end_s, time.perf_counter()))
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._newest_s() >= end_s or not self._thread.is_alive(), _WAIT_S)
            window = self._tail(start_s)
        telemetry = of_request(window, start_s, end_s)
        return replace(telemetry, energy_j=None, energy_method=None) if self._shared else telemetry

    def stop(self) -> list[Sample]:
        """End the readings and return them."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if self._thread.is_alive():
            # NVML of a GPU that is lost may never return; the thread ends with the process then.
            self._thread.join(2 * self._period_s)
        with self._changed:
            return list(self._samples)

    def _newest_s(self) -> float:
        return self._samples[-1].at_s if self._samples else -1.0

    def _tail(self, start_s: float) -> list[Sample]:
        """The readings from the last one before a time on."""
        newest_first: list[Sample] = []
        for sample in reversed(self._samples):
            newest_first.append(sample)
            if sample.at_s <= start_s:
                break
        return newest_first[::-1]

    def _run(self, gpu_id: int | str) -> None:
        gpu = open_gpu(gpu_id)
        if gpu is None:
            return
        try:
            due_s = time.perf_counter()
            while True:
                sample = read(gpu)
                if sample.at_s >= due_s:
                    due_s = sample.at_s + self._period_s
                with self._changed:
                    self._samples.append(sample)
                    self._changed.notify_all()
                    self._changed.wait_for(
                        lambda: self._stopping or self._wanted_s > self._newest_s(), due_s - time.perf_counter()
                    )
                    if self._stopping:
                        return
        finally:
            with suppress(Exception):
                gpu.close()
