"""The readings of one engine as a table, kept beside its log."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from farm.node.telemetry.samples import SLOW_DOWN, Sample

SCHEMA: Final = pa.schema(
    [
        ("at", pa.timestamp("ms", tz="UTC")),  # wall clock, to set it beside `started_at` of the records
        ("at_s", pa.float64()),
        ("power_w", pa.float32()),
        ("counter_j", pa.float64()),
        ("sm_clock_mhz", pa.float32()),
        ("max_sm_clock_mhz", pa.float32()),
        ("temperature_c", pa.float32()),
        ("utilisation", pa.float32()),
        ("reasons", pa.int64()),
        ("throttled", pa.bool_()),
        ("memory_bytes", pa.int64()),
        ("memory_source", pa.string()),
    ]
)


def as_parquet(samples: Sequence[Sample]) -> bytes | None:
    """The table as a Parquet file's content; None without readings."""
    if not samples:
        return None
    wall_s = time.time() - time.perf_counter()  # of the zero of `at_s`
    rows = [
        asdict(sample)
        | {
            "at": datetime.fromtimestamp(wall_s + sample.at_s, UTC),
            "throttled": None if sample.reasons is None else bool(sample.reasons & SLOW_DOWN),
        }
        for sample in samples
    ]
    out = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist(rows, schema=SCHEMA), out, compression="zstd")
    content: bytes = out.getvalue().to_pybytes()
    return content
