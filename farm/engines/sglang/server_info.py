"""SGLang's account of itself in `/server_info`."""

from __future__ import annotations

from pydantic import ConfigDict

from farm.engines.base import OwnWords


class StartPhases(OwnWords):
    """Seconds of a start."""

    load_weight: float | None = None
    tokenizer_e2e: float | None = None
    cuda_graph: dict[str, float] | None = None


class ServerInfo(OwnWords):
    """`/server_info`: the resolved arguments that the farm reads, and all others beside them."""

    model_config = ConfigDict(protected_namespaces=())

    version: str | None = None
    startup_time: StartPhases | None = None
    moe_runner_backend: str | None = None
    enable_fp32_lm_head: bool | None = None
    speculative_algorithm: str | None = None
    speculative_num_steps: int | None = None
    speculative_num_draft_tokens: int | None = None
