"""What an engine's words mean: its answers and start times as fields of records and reports. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from farm.engines.sglang.stream import Answer
from farm.node.telemetry.samples import NO_FIELDS, emulated_fields
from farm.types import Item
from farm.workloads.grading import grade


def start_times(server_info: Mapping[str, Any], start_s: float, *, emulated: bool) -> dict[str, Any]:
    """How long a start took and where the time went, as fields of an engine report; null where the engine is silent."""
    phases = server_info.get("startup_time") or {}
    graphs = phases.get("cuda_graph")
    return {
        # An emulated engine may start faster than real time; its model's seconds are the ones to keep.
        "start_s": phases["tokenizer_e2e"] if emulated else start_s,
        "startup": {
            "weights_s": phases.get("load_weight"),
            "graphs_s": sum(graphs.values()) if isinstance(graphs, dict) else None,
        },
    }


def surroundings(evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Versions and GPU as the engine's own processes saw them, as fields of an engine report; empty where unknown."""
    processes = evidence.get("processes") or []
    versions: dict[str, str] = {}
    for process in processes:
        versions |= {name: version for name, version in process.get("versions", {}).items() if version}
    gpu: Mapping[str, Any] = next((process["gpu"] for process in processes if process.get("gpu")), {})
    return {"versions": versions, "hardware": {key: value for key, value in gpu.items() if value is not None}}


def measured(answer: Answer, *, ends_by_itself: bool) -> dict[str, Any]:
    """The figures of an answer, as fields of a `Record`."""
    meta = answer.meta
    telemetry = NO_FIELDS
    times, tokens, ttft_s, latency_s = answer.chunk_times_s, answer.chunk_tokens, answer.ttft_s, answer.latency_s
    if "emulation_latency_s" in meta:
        # An emulated engine may run faster than real time; its model's times are the ones to keep.
        times, tokens = meta["emulation_chunk_times_s"], meta["emulation_chunk_tokens"]
        ttft_s, latency_s = meta["emulation_ttft_s"], meta["emulation_latency_s"]
    if "emulation_power_w" in meta:
        clocks = meta["emulation_sm_clock_mhz"], meta["emulation_max_sm_clock_mhz"]
        telemetry = emulated_fields(meta["emulation_power_w"], *clocks, latency_s)
    reason = meta["finish_reason"]["type"]
    return {
        "prompt_tokens": meta["prompt_tokens"],
        "completion_tokens": answer.completion_tokens,
        "cached_tokens": meta["cached_tokens"],
        "reasoning_tokens": meta.get("reasoning_tokens") or 0,
        "ttft_s": ttft_s,
        "latency_s": latency_s,
        "decode_s": latency_s - ttft_s,
        "finish_reason": reason,
        "truncated": reason == "length" and ends_by_itself,
        "verify_rounds": meta.get("spec_verify_ct"),
        "draft_tokens_proposed": meta.get("spec_num_proposed_drafts"),
        "draft_tokens_accepted": meta.get("spec_num_correct_drafts"),
        "accept_histogram": meta.get("spec_correct_drafts_histogram"),
        "engine_latency_s": meta.get("e2e_latency"),
        "engine_ttft_s": meta.get("first_token_latency"),
        **telemetry,
        "output_text": answer.text,
        "chunk_times_s": times,
        "chunk_tokens": tokens,
    }


def graded(answer: Answer, item: Item, *, prompt_opens_think: bool) -> dict[str, Any]:
    """Answer and correctness, as fields of a `Record`; an answer cut short by the token limit is no answer."""
    if item.gold is None:
        return {}
    if answer.meta["finish_reason"]["type"] == "length":
        return {"answer": None, "correct": False}
    grade_ = grade(answer.text, item.gold, thinking=prompt_opens_think)
    return {"answer": grade_.answer, "correct": grade_.correct}
