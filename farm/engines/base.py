"""What an engine is, in plain values: the seam between the farm and whatever serves a model.

An engine is a folder beside this file, or anybody's package. It has one `Engine`, which says what it needs and how a
variant of it is started and proven active, and whose `start` gives a `RunningEngine`, which is asked until it is
stopped. `farm.engines` knows all of them by name: `engine.kind` in a sweep.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuState:
    """The GPU of an engine that tells its own power and clock, where nobody else can read them.

    Attributes:
        source: how energy that follows from it is named in records.
    """

    source: str
    power_w: float
    sm_clock_mhz: float
    max_sm_clock_mhz: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """One whole answer, checked. Seconds count from the sending of the request; token counts are the engine's.

    Attributes:
        finish_reason: `stop`, or `length` when the token limit ended it.
        asked_s: what the request took on the farm's own clock; other than `latency_s` where an engine's clock is not
            the wall's.
        chunk_times_s: arrival of each chunk.
        chunk_tokens: completion tokens received up to and with each chunk.
        verify_rounds: null without speculation, as are the drafts.
        accept_histogram: rounds by number of accepted drafts: index 0, 1, 2, ...
        engine_latency_s: the engine's own account of the same request; null where it keeps none.
    """

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    ttft_s: float
    latency_s: float
    asked_s: float
    chunk_times_s: list[float]
    chunk_tokens: list[int]
    verify_rounds: int | None = None
    draft_tokens_proposed: int | None = None
    draft_tokens_accepted: int | None = None
    accept_histogram: list[int] | None = None
    engine_latency_s: float | None = None
    engine_ttft_s: float | None = None
    gpu: GpuState | None = None

    @property
    def decode_s(self) -> float:
        """From the first chunk to the last."""
        return self.latency_s - self.ttft_s


@dataclass(frozen=True)
class Phase:
    """One step of an engine's start; `share` is how much of it is done, 0 to 1, null where the engine does not tell."""

    name: str
    share: float | None = None

    def __str__(self) -> str:
        return self.name if self.share is None else f"{self.name}, {self.share:.0%}"


OnPhase = Callable[[Phase], None]
