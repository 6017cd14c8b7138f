"""How long an engine takes to start, by phase, on the model's clock. Pure.

Published are 342 to 382 s for the weights and about 480 s for a cold start. The rest is split by assumption. A start is
warm when the node has started an engine before: compiled kernels and capture plans are on disk then, and the weights,
larger than what the page cache may keep on a unified memory, load as slowly as before.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from typing_extensions import TypedDict

from farm.engines.emulated.model import Setup

LOAD_WEIGHT_S: Final = (342.0, 382.0)
IMPORTS_S: Final = 28.0
TOKENIZER_S: Final = 4.0
KV_CACHE_S: Final = 2.0
KERNELS_COLD_S: Final = 72.0
KERNELS_WARM_S: Final = 6.0
GRAPH_S: Final = 8.0  # one capture


class StartupTime(TypedDict):
    """Seconds by SGLang's names."""

    load_weight: float
    kv_cache_allocation: float
    scheduler_e2e: float
    cuda_graph: dict[str, float]
    tokenizer_e2e: float


@dataclass(frozen=True)
class Startup:
    """Seconds of each phase."""

    imports_s: float
    load_weight_s: float
    kernels_s: float
    graphs_s: dict[str, float]

    @property
    def total_s(self) -> float:
        """From launch to the first request that could be answered."""
        return self.imports_s + TOKENIZER_S + self.scheduler_s

    @property
    def scheduler_s(self) -> float:
        """The share of the scheduler process."""
        return self.load_weight_s + KV_CACHE_S + self.kernels_s + sum(self.graphs_s.values())

    def report(self) -> StartupTime:
        """`startup_time` of `/server_info`."""
        return StartupTime(
            load_weight=round(self.load_weight_s, 2),
            kv_cache_allocation=KV_CACHE_S,
            scheduler_e2e=round(self.scheduler_s, 2),
            cuda_graph=self.graphs_s,
            tokenizer_e2e=round(self.total_s, 2),
        )


def startup(setup: Setup, *, launch: int, node: str) -> Startup:
    """The phases of one start; a node's first launch is its number 0."""
    rng = random.Random(f"{node}/{launch}")  # noqa: S311 - reproducible draws, no secret
    graphs = dict.fromkeys(("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend"), 0.0)
    captured = ("decode",) if setup.speculation is None else ("target_verify", "draft_decode", "draft_extend")
    graphs |= dict.fromkeys(captured, GRAPH_S)
    return Startup(
        imports_s=IMPORTS_S,
        load_weight_s=rng.uniform(*LOAD_WEIGHT_S),
        kernels_s=KERNELS_WARM_S if launch else KERNELS_COLD_S,
        graphs_s=graphs,
    )
