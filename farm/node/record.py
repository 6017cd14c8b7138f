"""What an engine's words mean: its answers as records, its start times as fields of a report. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from farm.engines.base import Generation
from farm.node.telemetry.samples import RequestTelemetry
from farm.results.record import Record
from farm.types import Item
from farm.workloads.grading import Grade, grade


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


def with_answer(record: Record, answer: Generation, item: Item, *, prompt_opens_think: bool) -> Record:
    """The record of a cell with what came back for it, graded."""
    graded = grade_of(answer, item, prompt_opens_think=prompt_opens_think)
    return replace(
        record,
        prompt_tokens=answer.prompt_tokens,
        completion_tokens=answer.completion_tokens,
        cached_tokens=answer.cached_tokens,
        reasoning_tokens=answer.reasoning_tokens,
        ttft_s=answer.ttft_s,
        latency_s=answer.latency_s,
        decode_s=answer.decode_s,
        finish_reason=answer.finish_reason,
        truncated=is_truncated(answer, ends_by_itself=not item.sampling.get("ignore_eos", False)),
        verify_rounds=answer.verify_rounds,
        draft_tokens_proposed=answer.draft_tokens_proposed,
        draft_tokens_accepted=answer.draft_tokens_accepted,
        accept_histogram=answer.accept_histogram,
        engine_latency_s=answer.engine_latency_s,
        engine_ttft_s=answer.engine_ttft_s,
        output_text=answer.text,
        answer=graded.answer if graded else None,
        correct=graded.correct if graded else None,
        chunk_times_s=answer.chunk_times_s,
        chunk_tokens=answer.chunk_tokens,
    )


def with_telemetry(record: Record, telemetry: RequestTelemetry) -> Record:
    """The record with what the GPU did meanwhile."""
    return replace(
        record,
        energy_j=telemetry.energy_j,
        energy_method=telemetry.energy_method,
        power_w=telemetry.power_w,
        sm_clock_mhz=telemetry.sm_clock_mhz,
        temperature_c=telemetry.temperature_c,
        throttled_s=telemetry.throttled_s,
        slow_state=telemetry.slow_state,
    )


def is_truncated(answer: Generation, *, ends_by_itself: bool) -> bool:
    """Whether the token limit ended an answer that was to end by itself."""
    return answer.finish_reason == "length" and ends_by_itself


def grade_of(answer: Generation, item: Item, *, prompt_opens_think: bool) -> Grade | None:
    """Answer and correctness, None where nothing is graded; an answer cut short by the token limit is no answer."""
    if item.gold is None:
        return None
    if answer.finish_reason == "length":
        return Grade(answer=None, correct=False)
    return grade(answer.text, item.gold, thinking=prompt_opens_think)
