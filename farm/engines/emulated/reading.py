"""An emulated answer as the farm keeps it: the model's own seconds, whatever the speed at which it was given. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from farm.engines.base import Generation, GpuState
from farm.engines.sglang.facts import Dialect
from farm.engines.sglang.server_info import ServerInfo
from farm.engines.sglang.stream import Answer, generation_of

SOURCE: Final = "emulated"


def emulated_generation(answer: Answer) -> Generation:
    """What the words of an emulated engine's answer mean."""
    meta, generation = answer.meta, generation_of(answer)
    if "emulation_latency_s" in meta:
        generation = replace(
            generation,
            ttft_s=meta["emulation_ttft_s"],
            latency_s=meta["emulation_latency_s"],
            chunk_times_s=meta["emulation_chunk_times_s"],
            chunk_tokens=meta["emulation_chunk_tokens"],
        )
    if "emulation_power_w" in meta:
        clocks = meta["emulation_sm_clock_mhz"], meta["emulation_max_sm_clock_mhz"]
        generation = replace(generation, gpu=GpuState(SOURCE, meta["emulation_power_w"], *clocks))
    return generation


def emulated_start_s(server_info: ServerInfo, start_s: float) -> float:
    """Seconds of a start on the model's clock, `start_s` being those on the wall's."""
    started = server_info.startup_time
    return start_s if started is None or started.tokenizer_e2e is None else started.tokenizer_e2e


DIALECT: Final = Dialect(emulated_generation, emulated_start_s)
