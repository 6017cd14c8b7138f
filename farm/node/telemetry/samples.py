"""Readings of one GPU, and what they say about a span of time. Pure.

All times are seconds of `time.perf_counter`, the clock that requests are timed with. A span has figures only when
readings enclose it, and an energy only without a gap above `MAX_GAP_S` between them: what was not watched is not made
up.

The rule of the slow state, the one place for it (`slow_state`): a GPU is in a slow state when

- heat, the hardware or a power brake slowed it down for more than `THROTTLED_SHARE` of the span, or
- under load (utilisation of `LOADED` and above) its SM clock was on average under `LOW_CLOCK` of its maximum, whatever
  reason it gives. A DGX Spark has a state at 799 MHz and 96 % utilisation for which it gives none. Readings at a clock
  that the user has set are left out.

A power cap alone is counted in the throttled seconds and marks nothing: boards reach theirs in normal work.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from farm.engines.base import GpuState

MAX_GAP_S: Final = 5.0
LOADED: Final = 0.8
LOW_CLOCK: Final = 0.5
THROTTLED_SHARE: Final = 0.25

# NVML's clock-event reasons (nvmlClocksEventReason*). Idle, synchronised boost and display clocks are no slow-down.
USER_CLOCKS: Final = 0x2
POWER_CAP: Final = 0x4
HARDWARE: Final = 0x8 | 0x20 | 0x40 | 0x80  # hardware slow-down, heat by software and by hardware, power brake
SLOW_DOWN: Final = POWER_CAP | HARDWARE

BOARD_COUNTER: Final = "board-counter"
POWER_INTEGRAL: Final = "power-integral"


@dataclass(frozen=True, slots=True)
class RequestTelemetry:
    """What the GPU did during one request; null where there is none, or it does not answer."""

    energy_j: float | None = None
    energy_method: str | None = None
    power_w: float | None = None  # mean
    sm_clock_mhz: float | None = None  # mean
    temperature_c: float | None = None  # highest
    throttled_s: float | None = None  # under a clock-event reason that slows the GPU down
    slow_state: bool | None = None


NO_TELEMETRY: Final = RequestTelemetry()


@dataclass(frozen=True, slots=True)
class Sample:
    """One reading; None where the GPU does not answer."""

    at_s: float  # time.perf_counter
    power_w: float | None = None
    counter_j: float | None = None  # the board's own energy counter, from an arbitrary zero
    sm_clock_mhz: float | None = None
    max_sm_clock_mhz: float | None = None
    temperature_c: float | None = None
    utilisation: float | None = None  # 0 to 1, the driver's average over its last period
    reasons: int | None = None  # NVML's clock-event reasons, a bit mask
    memory_bytes: int | None = None
    memory_source: str | None = None  # gpu-processes | gpu | host


def of_request(samples: Sequence[Sample], start_s: float, end_s: float) -> RequestTelemetry:
    """The telemetry of one request, from sending to the last chunk."""
    window = enclosing(samples, start_s, end_s)
    if not window:
        return NO_TELEMETRY
    joules, method = energy_j(window, start_s, end_s)
    clocks = [(sample.sm_clock_mhz, share) for sample, share in _shares(window, start_s, end_s)]
    temperatures = [sample.temperature_c for sample in window if sample.temperature_c is not None]
    return RequestTelemetry(
        energy_j=joules,
        energy_method=method,
        power_w=None if joules is None else joules / (end_s - start_s),
        sm_clock_mhz=_mean(clocks),
        temperature_c=max(temperatures, default=None),
        throttled_s=throttled_s(window, start_s, end_s),
        slow_state=slow_state(window, start_s, end_s),
    )


def enclosing(samples: Sequence[Sample], start_s: float, end_s: float) -> list[Sample]:
    """From the last reading at or before the start to the first one at or after the end; empty without both."""
    before = [index for index, sample in enumerate(samples) if sample.at_s <= start_s]
    after = next((index for index, sample in enumerate(samples) if sample.at_s >= end_s), None)
    if not before or after is None or end_s <= start_s:
        return []
    return list(samples[before[-1] : after + 1])


def energy_j(samples: Sequence[Sample], start_s: float, end_s: float) -> tuple[float | None, str | None]:
    """Energy between two times in joules, and how it was measured: by the board's counter where it has one, else by
    power.

    Readings at the edges are interpolated. The integral is the trapezoid rule over power, which recent boards give as
    the mean of the last second: of a request of a few seconds the counter knows more than the integral.
    """
    counts = _points(samples, "counter_j", start_s, end_s)
    # A counter that went back was reset, by a reload of the driver for one.
    if counts and all(one <= two for (_, one), (_, two) in itertools.pairwise(counts)):
        return counts[-1][1] - counts[0][1], BOARD_COUNTER
    powers = _points(samples, "power_w", start_s, end_s)
    if powers:
        return sum((b - a) * (p + q) / 2 for (a, p), (b, q) in itertools.pairwise(powers)), POWER_INTEGRAL
    return None, None


def throttled_s(samples: Sequence[Sample], start_s: float, end_s: float, mask: int = SLOW_DOWN) -> float | None:
    """Seconds under a clock-event reason that means a slow-down; None where a reading gives no reasons."""
    seconds = 0.0
    for sample, share in _shares(samples, start_s, end_s):
        if sample.reasons is None:
            return None
        seconds += share if sample.reasons & mask else 0.0
    return seconds


def slow_state(samples: Sequence[Sample], start_s: float, end_s: float) -> bool | None:
    """Whether the GPU was in a slow state, by the rule of this module; None where its readings cannot tell."""
    braked_s = throttled_s(samples, start_s, end_s, HARDWARE)
    if braked_s is not None and braked_s > THROTTLED_SHARE * (end_s - start_s):
        return True
    ratios = [
        (sample.sm_clock_mhz / sample.max_sm_clock_mhz, share)
        for sample, share in _shares(samples, start_s, end_s)
        if sample.sm_clock_mhz is not None
        and sample.max_sm_clock_mhz
        and sample.utilisation is not None
        and sample.utilisation >= LOADED
        and not (sample.reasons or 0) & USER_CLOCKS
    ]
    ratio = _mean(ratios)
    return None if ratio is None else ratio < LOW_CLOCK


def as_told(gpu: GpuState, seconds: float) -> RequestTelemetry:
    """The same for a request of an engine that tells its GPU's power and clock itself."""
    return RequestTelemetry(
        energy_j=gpu.power_w * seconds,
        energy_method=gpu.source,
        power_w=gpu.power_w,
        sm_clock_mhz=gpu.sm_clock_mhz,
        slow_state=gpu.sm_clock_mhz / gpu.max_sm_clock_mhz < LOW_CLOCK,
    )


def _shares(samples: Sequence[Sample], start_s: float, end_s: float) -> Iterator[tuple[Sample, float]]:
    """Each reading with the seconds of the span that are nearest to it."""
    middles = [(one.at_s + two.at_s) / 2 for one, two in itertools.pairwise(samples)]
    for sample, low, high in zip(samples, [start_s, *middles], [*middles, end_s], strict=True):
        share = min(high, end_s) - max(low, start_s)
        if share > 0:
            yield sample, share


def _mean(values: Sequence[tuple[float | None, float]]) -> float | None:
    known = [(value, share) for value, share in values if value is not None]
    total = sum(share for _, share in known)
    return sum(value * share for value, share in known) / total if total > 0 else None


def _points(samples: Sequence[Sample], name: str, start_s: float, end_s: float) -> list[tuple[float, float]]:
    """What is known of one figure, as (time, value) from start to end, both interpolated; empty across a gap."""
    known = enclosing([sample for sample in samples if getattr(sample, name) is not None], start_s, end_s)
    times = [sample.at_s for sample in known]
    if not known or any(two - one > MAX_GAP_S for one, two in itertools.pairwise(times)):
        return []
    values = [float(getattr(sample, name)) for sample in known]
    inside = [(at_s, value) for at_s, value in zip(times, values, strict=True) if start_s < at_s < end_s]
    first, last = (float(value) for value in np.interp([start_s, end_s], times, values))
    return [(start_s, first), *inside, (end_s, last)]
