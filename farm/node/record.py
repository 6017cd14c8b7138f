"""What came back for a cell as its record. Pure."""

from __future__ import annotations

from dataclasses import replace

from farm.engines.base import Generation
from farm.node.telemetry.samples import RequestTelemetry
from farm.results.record import Record
from farm.types import Item
from farm.workloads.grading import Grade, grade


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
        first_chunk_tokens=answer.chunk_tokens[0] if answer.chunk_tokens else None,
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
