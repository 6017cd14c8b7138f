"""The comparison as CSV: one row for each variant and each contrast it takes part in."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Final

from farm.compare.model import Comparison
from farm.report.columns import CONTRAST_COLUMNS, VARIANT_COLUMNS, Column, Source
from farm.text import for_csv

Cell = str | float | None
Row = dict[str, Cell]

_HEAD: Final = ("sweep_id", "label", "complete", "workload", "variant")
_OF_REQUESTS: Final = "_per_request"  # figures that are not weighted by tokens are the report's alone


def render(comparison: Comparison) -> str:
    """Comma-separated, text cells safe to open in a spreadsheet."""
    out = io.StringIO()
    writer = csv.DictWriter(out, fieldnames=_COLUMNS, lineterminator="\r\n")
    writer.writeheader()
    sweep = comparison.sweep
    head: Row = {"sweep_id": sweep.sweep_id, "label": sweep.label, "complete": sweep.complete}
    for name, workload in comparison.workloads.items():
        for variant, figures in workload.variants.items():
            row = head | {"workload": name, "variant": variant} | _row(_VARIANT, figures)
            own = [
                Row(against=c.against) | _row(CONTRAST_COLUMNS, c) for c in workload.contrasts if c.variant == variant
            ]
            for contrast in own or [Row()]:
                writer.writerow({key: _safe(value) for key, value in (row | contrast).items()})
    return out.getvalue()


def _safe(value: Cell) -> Cell:
    return for_csv(value) if isinstance(value, str) else "" if value is None else value


def _row(columns: Sequence[Column[Source]], source: Source) -> Row:
    out: Row = {}
    for column in columns:
        reading = column.of(source)
        out[column.key] = reading.value
        if column.ranged:
            out[f"{column.key}_low"], out[f"{column.key}_high"] = reading.ci or (None, None)
    return out


def _names(columns: Iterable[Column[Source]]) -> list[str]:
    ranged = ("", "_low", "_high")
    return [f"{column.key}{end}" for column in columns for end in (ranged if column.ranged else ("",))]


_VARIANT: Final = [column for column in VARIANT_COLUMNS if _OF_REQUESTS not in column.key or column.telemetry]
_COLUMNS: Final = [
    *_HEAD,
    *_names(column for column in _VARIANT if not column.telemetry),
    "against",
    *_names(column for column in CONTRAST_COLUMNS if not column.telemetry),
    *_names(column for column in _VARIANT if column.telemetry),
    *_names(column for column in CONTRAST_COLUMNS if column.telemetry),
]
