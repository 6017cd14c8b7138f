"""What a running sweep tells Prometheus, through Ray's metrics API.

Ray puts `ray_` before each name and `_total` after each counter, and serves them on every node's metrics port. Sums are
exported rather than ratios, so that a query can form each figure over any span as it is defined: decode throughput is
`farm_decode_tokens / farm_decode_seconds`, accept length `farm_speculated_tokens / farm_verify_rounds`.
`infra/monitoring` holds the Prometheus configuration and a Grafana dashboard. What is of a GPU is exported only where
the records carry it: a node without one has no such series, rather than one of zeros.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final

import ray
from prometheus_client.parser import text_string_to_metric_families
from ray.util.metrics import Counter, Gauge

from farm.results.record import Record

READ_ENGINE_EVERY_S: Final = 15.0
# Ray forgets a gauge that is not set again within its report interval, 10 s by default.
_SET_AGAIN_EVERY_S: Final = 4.0
# What is taken from an engine's own `/metrics`, so that the farm's account of its requests can be compared with it.
ENGINE_GAUGES: Final = {
    "sglang:gen_throughput": "farm_sglang_gen_throughput",
    "sglang:spec_accept_length": "farm_sglang_spec_accept_length",
    "sglang:token_usage": "farm_sglang_token_usage",
    "sglang:generation_tokens_total": "farm_sglang_generation_tokens",
}
_ENGINE_TAGS: Final = ("sweep", "node", "variant")


class EngineState(IntEnum):
    """The value of `farm_engine_state` for one variant on one slot."""

    FAILED = -1
    STOPPED = 0
    STARTING = 1
    MEASURING = 2


_STATES: Final = {
    "started": EngineState.MEASURING,
    "stopped": EngineState.STOPPED,
    "died": EngineState.FAILED,
    "failed": EngineState.FAILED,
    "not-active": EngineState.FAILED,
}


class Gauges:
    """Gauges that keep standing at what they were set to, and at 0 where nothing was added yet."""

    def __init__(self, descriptions: Mapping[str, str], tag_keys: tuple[str, ...]) -> None:
        self._gauges = {name: Gauge(name, text, tag_keys) for name, text in descriptions.items()}
        self._values: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
        self._lock = threading.Lock()
        threading.Thread(target=self._keep, name="farm-gauges", daemon=True).start()

    def set(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Let a gauge stand at a value."""
        with self._lock:
            self._values[name, tuple(tags.items())] = value
        self._gauges[name].set(value, dict(tags))

    def add(self, name: str, value: float, tags: Mapping[str, str]) -> None:
        """Raise a gauge by a value; 0 makes it stand at 0. A counter would be absent until something happens."""
        self.set(name, self._values.get((name, tuple(tags.items())), 0.0) + value, tags)

    def clear(self) -> None:
        """Set nothing again: what was measured is no longer there."""
        with self._lock:
            self._values.clear()

    def _keep(self) -> None:
        while ray.is_initialized():
            time.sleep(_SET_AGAIN_EVERY_S)
            with self._lock:
                for (name, tags), value in self._values.items():
                    self._gauges[name].set(value, dict(tags))


class Meters:
    """The driver's account of a sweep: cells, tokens, acceptance, failures, and each engine's state.

    Call it where the dispatcher learns something; a call costs some tens of microseconds.
    """

    def __init__(self, sweep_id: str, *, cells: int, answered: int) -> None:
        """`cells` are all of the sweep's, `answered` those of earlier submissions."""
        self._sweep = {"sweep": sweep_id}
        self._at_work: dict[str, str] = {}  # node -> the variant whose engine starts or measures there
        self._of_sweep = Gauges(
            {
                "farm_cells": "Cells of the sweep.",
                "farm_cells_answered": "Cells answered, those of earlier submissions too.",
            },
            ("sweep",),
        )
        self._of_engines = Gauges(
            {
                "farm_engine_state": "-1 failed, 0 stopped, 1 starting, 2 measuring.",
                "farm_engine_start_seconds": "From launch to the first tokens.",
                "farm_engine_failures": "Engines that died or did not start.",
                "farm_gate_failures": "Engines whose variant was not active.",
                "farm_cell_errors": "Cells that no engine answered.",
                "farm_cached_tokens": "Prompt tokens that came from a prefix cache.",
            },
            _ENGINE_TAGS,
        )
        self._of_gpus = Gauges(
            {
                "farm_gpu_power_w": "Mean power during the last answer.",
                "farm_gpu_sm_clock_mhz": "Mean SM clock during the last answer.",
                "farm_gpu_slow_records": "Answers taken in a slow state of the GPU.",
            },
            _ENGINE_TAGS,
        )
        self._energy_j = Counter("farm_gpu_energy_joules", "Energy of answers.", _ENGINE_TAGS)
        self._cells_done = Counter("farm_cells_done", "Cells answered by this submission.", (*_ENGINE_TAGS, "workload"))
        self._decode_tokens = Counter("farm_decode_tokens", "Completion tokens after the first.", _ENGINE_TAGS)
        self._decode_s = Counter("farm_decode_seconds", "Seconds from the first token to the last.", _ENGINE_TAGS)
        self._ttft_s = Counter("farm_ttft_seconds", "Seconds to the first token, summed over answers.", _ENGINE_TAGS)
        self._speculated = Counter("farm_speculated_tokens", "Completion tokens under speculation.", _ENGINE_TAGS)
        self._rounds = Counter("farm_verify_rounds", "Verify rounds of speculation.", _ENGINE_TAGS)
        self._of_sweep.set("farm_cells", cells, self._sweep)
        self._of_sweep.set("farm_cells_answered", answered, self._sweep)

    def starting(self, node: str, variant: str) -> None:
        """An engine is about to be started for a variant."""
        self._at_work[node] = variant
        self._of_engines.set("farm_engine_state", EngineState.STARTING, self._tags(node, variant))

    def engine(self, values: Mapping[str, Any]) -> None:
        """What an `EngineReport` says: its status moves the engine's state and counts failures."""
        node, variant, status = (str(values[name]) for name in ("node", "variant", "status"))
        if status == "started":
            self._at_work[node] = variant
        else:
            self._at_work.pop(node, None)
        tags = self._tags(node, variant)
        gauges = self._of_engines
        gauges.set("farm_engine_state", _STATES[status], tags)
        gauges.add("farm_gate_failures", status == "not-active", tags)
        gauges.add("farm_engine_failures", status in ("died", "failed"), tags)
        if status == "started":
            gauges.set("farm_engine_start_seconds", float(values["start_s"]), tags)

    def lost(self, node: str) -> None:
        """A node is gone, and with it its engine, which makes no report of its own."""
        if variant := self._at_work.pop(node, None):
            tags = self._tags(node, variant)
            self._of_engines.set("farm_engine_state", EngineState.FAILED, tags)
            self._of_engines.add("farm_engine_failures", 1, tags)

    def record(self, node: str, record: Record) -> None:
        """A cell got its record, and it is durable."""
        tags = self._tags(node, record.variant)
        self._of_engines.add("farm_cell_errors", record.error is not None, tags)
        self._of_engines.add("farm_cached_tokens", record.cached_tokens, tags)
        if record.error is not None:
            return
        self._of_sweep.add("farm_cells_answered", 1, self._sweep)
        _count(self._cells_done, 1, tags | {"workload": record.workload})
        _count(self._decode_tokens, record.decode_tokens, tags)
        _count(self._decode_s, record.decode_s, tags)
        _count(self._ttft_s, record.ttft_s, tags)
        if record.verify_rounds:
            _count(self._speculated, record.completion_tokens - 1, tags)  # the prefill's is of no round
            _count(self._rounds, record.verify_rounds, tags)
        self._record_gpu(record, tags)

    def _record_gpu(self, record: Record, tags: Mapping[str, str]) -> None:
        _count(self._energy_j, record.energy_j, tags)
        if record.power_w is not None:
            self._of_gpus.set("farm_gpu_power_w", record.power_w, tags)
        if record.sm_clock_mhz is not None:
            self._of_gpus.set("farm_gpu_sm_clock_mhz", record.sm_clock_mhz, tags)
        if record.slow_state is not None:
            self._of_gpus.add("farm_gpu_slow_records", record.slow_state, tags)

    def _tags(self, node: str, variant: str) -> dict[str, str]:
        return self._sweep | {"node": node, "variant": variant}


class EngineMeters:
    """A node's account of its engine: a few of SGLang's own numbers, handed on through Ray.

    Engines listen on loopback, each on a port and with a key of its launch alone, so Prometheus cannot ask them. The
    node's worker asks instead, between requests, and neither port nor key leaves it.
    """

    def __init__(self, sweep_id: str, node: str) -> None:
        self._tags = {"sweep": sweep_id, "node": node}
        self._gauges = Gauges({ours: f"SGLang's {name}." for name, ours in ENGINE_GAUGES.items()}, _ENGINE_TAGS)
        self._read_at = -math.inf

    def due(self) -> bool:
        """Whether the engine should be asked again: true at most once in `READ_ENGINE_EVERY_S`."""
        now = time.monotonic()
        if now - self._read_at < READ_ENGINE_EVERY_S:
            return False
        self._read_at = now
        return True

    def export(self, variant: str, metrics: str) -> None:
        """Hand on what an engine answered to `/metrics`; an emulated one has none."""
        for name, value in engine_figures(metrics).items():
            self._gauges.set(ENGINE_GAUGES[name], value, self._tags | {"variant": variant})

    def engine_ended(self) -> None:
        """Its numbers are of the past, and the next engine is asked soon."""
        self._gauges.clear()
        self._read_at = -math.inf


def engine_figures(metrics: str) -> dict[str, float]:
    """Those of `ENGINE_GAUGES` that a text in Prometheus' format holds: counters summed over their labels, else the
    largest, which for a gauge that every rank reports is the one there is. Empty for text that is not in that format:
    what is only shown must not cost a record."""
    found: dict[str, list[float]] = {}
    try:
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                if sample.name in ENGINE_GAUGES:
                    found.setdefault(sample.name, []).append(sample.value)
    except ValueError:
        return {}
    return {name: (sum if name.endswith("_total") else max)(values) for name, values in found.items()}


def _count(counter: Any, value: float | None, tags: Mapping[str, str]) -> None:
    """Count up; Ray refuses to count by nothing."""
    if value and value > 0:
        counter.inc(value, dict(tags))
