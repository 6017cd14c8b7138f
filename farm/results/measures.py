"""What each answer adds to the figures: name, unit and definition, declared once.

A running sweep exports them to Prometheus under `series`, as sums, so that a query can form a figure over any span. The
figures of a comparison (`farm.report.columns`) take their words from here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from farm.results.record import Record


class Kept(Enum):
    """What stands in Prometheus."""

    COUNTER = "counter"  # the sum, absent until there is something
    TOTAL = "total"  # the sum, 0 from the first record on
    LAST = "last"  # the value of the last record that has one


@dataclass(frozen=True)
class Measure:
    """One measure of an answer.

    Attributes:
        name: its name for readers, followed by `unit`.
        definition: what it is, in a line.
        series: its name in Prometheus; Ray puts `ray_` before it, and `_total` after a counter.
        of: where it comes from; null where the record does not carry it.
    """

    name: str
    unit: str
    definition: str
    series: str
    kept: Kept
    of: Callable[[Record], float | None]

    @property
    def description(self) -> str:
        """All of it in a sentence."""
        in_unit = f" in {self.unit}" if self.unit else ""
        return f"{self.name}{in_unit}: {self.definition}{', of the last one' if self.kept is Kept.LAST else ''}."


ANSWERS: Final = Measure("answers", "", "cells with an answer", "farm_cells_done", Kept.COUNTER,
                         lambda record: record.error is None)  # fmt: skip
ERRORS: Final = Measure("errors", "", "cells without an answer", "farm_cell_errors", Kept.TOTAL,
                        lambda record: record.error is not None)  # fmt: skip
DECODE_TOKENS: Final = Measure("decoded", "tokens", "tokens after the first chunk", "farm_decode_tokens", Kept.COUNTER,
                               lambda record: record.decode_tokens)  # fmt: skip
DECODE_S: Final = Measure("decode", "s", "seconds from first to last token", "farm_decode_seconds", Kept.COUNTER,
                          lambda record: record.decode_s)  # fmt: skip
TTFT: Final = Measure("TTFT", "s", "from sending a request to its first token", "farm_ttft_seconds", Kept.COUNTER,
                      lambda record: record.ttft_s)  # fmt: skip
SPECULATED: Final = Measure("speculated", "tokens", "tokens of verify rounds", "farm_speculated_tokens",
                            Kept.COUNTER,
                            lambda record: record.round_tokens)  # fmt: skip
VERIFY_ROUNDS: Final = Measure("verify rounds", "", "rounds in which drafts were verified", "farm_verify_rounds",
                               Kept.COUNTER, lambda record: record.verify_rounds)  # fmt: skip
CACHED_TOKENS: Final = Measure("cached", "tokens", "prompt tokens that came from a prefix cache", "farm_cached_tokens",
                               Kept.TOTAL, lambda record: record.cached_tokens)  # fmt: skip
ENERGY: Final = Measure("energy", "J", "energy of the GPU during answers", "farm_gpu_energy_joules", Kept.COUNTER,
                        lambda record: record.energy_j)  # fmt: skip
POWER: Final = Measure("mean power", "W", "power of the GPU during answers", "farm_gpu_power_w", Kept.LAST,
                       lambda record: record.power_w)  # fmt: skip
SM_CLOCK: Final = Measure("mean SM clock", "MHz", "clock of the GPU's cores during answers", "farm_gpu_sm_clock_mhz",
                          Kept.LAST, lambda record: record.sm_clock_mhz)  # fmt: skip
SLOW_ANSWERS: Final = Measure("answers in a slow state", "",
                              "answers taken while the GPU was slower than it should be", "farm_gpu_slow_records",
                              Kept.TOTAL, lambda record: record.slow_state)  # fmt: skip

OF_ANSWERS: Final = (
    DECODE_TOKENS, DECODE_S, TTFT, SPECULATED, VERIFY_ROUNDS, CACHED_TOKENS, ENERGY, POWER, SM_CLOCK, SLOW_ANSWERS,
)  # fmt: skip
"""All that an answer is counted by, beside that it is one."""
