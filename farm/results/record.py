"""What came back: one `Record` for each cell, and its table schema.

A cell is one (variant, workload, item, repeat). The names and meanings of the columns are a contract with other tools:
columns may be added, never renamed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, Final

import pyarrow as pa

from farm.types import CellKey

REQUIRED_COLUMNS: Final = (
    "variant",
    "workload",
    "item_id",
    "repeat",
    "completion_tokens",
    "ttft_s",
    "latency_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """The answer to one cell. Seconds are of the client's monotonic clock, token counts are the engine's.

    A cell that got no answer has `error` set, zero tokens and null times; it takes part in no timing figure.
    """

    sweep_id: str
    variant: str
    workload: str
    item_id: str
    repeat: int
    node: str
    engine_id: str
    engine_kind: str  # sglang | emulated, or the name of another engine
    label: str | None  # emulated | dummy-weights | demo-model
    started_at: datetime  # UTC, wall clock: for display, never for durations
    sequence: int  # position among the measured requests of its engine, from 0
    attempts: int = 1  # the record is of the last, whole attempt
    moved: bool = False  # answered on another node than its partner cells

    prompt_sha256: str | None = None  # of the token ids that were sent: equal for all variants
    seed: int | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    ttft_s: float | None = None
    latency_s: float | None = None
    decode_s: float | None = None  # latency_s - ttft_s
    finish_reason: str | None = None
    truncated: bool = False  # stopped by the token limit where a natural end was wanted

    verify_rounds: int | None = None  # null without speculation
    draft_tokens_proposed: int | None = None
    draft_tokens_accepted: int | None = None
    accept_histogram: list[int] | None = None  # rounds by number of accepted drafts: index 0, 1, 2, ...

    engine_latency_s: float | None = None  # the engine's own account of the same request
    engine_ttft_s: float | None = None

    # The GPU from sending to the last chunk, see `farm.node.telemetry`; null where there is none or it does not answer.
    energy_j: float | None = None  # null too where requests run side by side
    energy_method: str | None = None  # board-counter | power-integral | emulated
    power_w: float | None = None  # mean
    sm_clock_mhz: float | None = None  # mean
    temperature_c: float | None = None  # highest
    throttled_s: float | None = None  # seconds under a clock-event reason that slows the GPU down
    slow_state: bool | None = None  # taken in a slow state of the GPU

    output_text: str = ""
    answer: str | None = None
    gold: str | None = None
    correct: bool | None = None
    error: str | None = None

    chunk_times_s: list[float] = field(default_factory=list)  # arrival of each chunk after the request was sent
    chunk_tokens: list[int] = field(default_factory=list)  # completion tokens received up to and with each chunk
    first_chunk_tokens: int | None = None  # of them, those of the first: they are no decode steps

    @property
    def key(self) -> CellKey:
        """The cell this record answers."""
        return CellKey(self.variant, self.workload, self.item_id, self.repeat)

    @property
    def decode_tokens(self) -> int:
        """Tokens after those of the first chunk: what `decode_s` was for."""
        return decode_tokens(self.completion_tokens, self.first_chunk_tokens)

    @property
    def round_tokens(self) -> int | None:
        """Tokens of its verify rounds, the prefill's token left out; None without speculation."""
        return self.completion_tokens - 1 if self.verify_rounds else None

    def to_dict(self) -> dict[str, Any]:
        """A JSON-ready dictionary; `from_dict` is its inverse."""
        # Not `asdict`, which copies every number of the lists: most of what a record would cost.
        return {name: getattr(self, name) for name in _NAMES} | {"started_at": self.started_at.isoformat()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Record:
        """Rebuild a record from `to_dict`; fields of newer versions are ignored."""
        known = {name: values[name] for name in _NAMES if name in values}
        return cls(**known | {"started_at": datetime.fromisoformat(known["started_at"])})


def decode_tokens(completion_tokens: int, first_chunk_tokens: int | None) -> int:
    """Tokens of an answer after those of its first chunk, which has one where it is not known."""
    return max(0, completion_tokens - max(first_chunk_tokens or 1, 1))


_NAMES: Final = tuple(field.name for field in fields(Record))

RECORD_SCHEMA: Final = pa.schema(
    [
        ("sweep_id", pa.string()),
        ("variant", pa.string()),
        ("workload", pa.string()),
        ("item_id", pa.string()),
        ("repeat", pa.int32()),
        ("node", pa.string()),
        ("engine_id", pa.string()),
        ("engine_kind", pa.string()),
        ("label", pa.string()),
        ("started_at", pa.timestamp("us", tz="UTC")),
        ("sequence", pa.int32()),
        ("attempts", pa.int32()),
        ("moved", pa.bool_()),
        ("prompt_sha256", pa.string()),
        ("seed", pa.int64()),
        ("prompt_tokens", pa.int32()),
        ("completion_tokens", pa.int32()),
        ("cached_tokens", pa.int32()),
        ("reasoning_tokens", pa.int32()),
        ("ttft_s", pa.float64()),
        ("latency_s", pa.float64()),
        ("decode_s", pa.float64()),
        ("finish_reason", pa.string()),
        ("truncated", pa.bool_()),
        ("verify_rounds", pa.int32()),
        ("draft_tokens_proposed", pa.int32()),
        ("draft_tokens_accepted", pa.int32()),
        ("accept_histogram", pa.list_(pa.int32())),
        ("engine_latency_s", pa.float64()),
        ("engine_ttft_s", pa.float64()),
        ("energy_j", pa.float64()),
        ("energy_method", pa.string()),
        ("power_w", pa.float64()),
        ("sm_clock_mhz", pa.float64()),
        ("temperature_c", pa.float64()),
        ("throttled_s", pa.float64()),
        ("slow_state", pa.bool_()),
        ("output_text", pa.string()),
        ("answer", pa.string()),
        ("gold", pa.string()),
        ("correct", pa.bool_()),
        ("error", pa.string()),
        ("chunk_times_s", pa.list_(pa.float64())),
        ("chunk_tokens", pa.list_(pa.int32())),
        ("first_chunk_tokens", pa.int32()),
    ]
)
