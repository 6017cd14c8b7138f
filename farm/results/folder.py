"""A sweep's results folder: the one place that knows its files, finds it, reads it and writes it.

requests.parquet  every record: the table that comparisons are made from
sweep.json        what was asked, see `farm.results.describe`
engines.json      what is known of each engine
items.parquet     what was asked, as a reader of the report sees it
engines/          each engine's log and its GPU's readings
journal.sqlite    the truth; the other files are made from it and can be made again at any time

Every file is replaced at once: a reader sees the old one or the new one, never a part.
"""

from __future__ import annotations

import io
import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pydantic_core import to_json

from farm.errors import InputError, JournalError
from farm.results.journal import JOURNAL, Journal
from farm.results.record import RECORD_SCHEMA
from farm.results.summary import EngineSummary, SweepSummary, engine_summaries, sweep_summary
from farm.types import CellKey, Item

RECORDS: Final = "requests.parquet"
SWEEP: Final = "sweep.json"
ENGINES: Final = "engines.json"
ITEMS: Final = "items.parquet"
_ITEM_COLUMNS: Final = ("workload", "item_id", "prompt", "gold")
SHARED: Final = (RECORDS, SWEEP, ENGINES, ITEMS)
"""What a comparison elsewhere needs; only the records are required."""


@dataclass(frozen=True)
class ResultsFolder:
    """The folder of one sweep; it need not be there yet."""

    path: Path

    @property
    def has_records(self) -> bool:
        """The table of the records is there."""
        return (self.path / RECORDS).is_file()

    @property
    def has_sweep(self) -> bool:
        """It says what was asked."""
        return (self.path / SWEEP).is_file()

    @property
    def has_journal(self) -> bool:
        """The journal is there; results that came from another machine may have none."""
        return (self.path / JOURNAL).is_file()

    def changed_s(self, *names: str) -> float:
        """When the newest of these files was written."""
        return max((self.path / name).stat().st_mtime for name in names if (self.path / name).is_file())

    def sweep(self) -> SweepSummary | None:
        """What was asked.

        Raises:
            InputError: the file is broken; so for the other readers.
        """
        content = self._content(SWEEP)
        return None if content is None else sweep_summary(content, self.path / SWEEP)

    def engines(self) -> list[EngineSummary] | None:
        """What is known of each engine."""
        content = self._content(ENGINES)
        return None if content is None else engine_summaries(content, self.path / ENGINES)

    def items(self) -> pa.Table | None:
        """What was asked, item by item: workload, item_id, prompt, gold."""
        if not (self.path / ITEMS).is_file():
            return None
        table = self._table(ITEMS)
        if missing := [name for name in _ITEM_COLUMNS if name not in table.column_names]:
            raise InputError(f"{self.path / ITEMS} lacks {', '.join(missing)}; it is no sweep's.")
        return table

    def records(self, *, without: Collection[str] = ()) -> pa.Table:
        """All records, apart from some columns."""
        if not self.has_records and self.has_journal:
            raise InputError(self.without_table)
        if not self.has_records:
            raise InputError(
                f"{self.path} holds no {RECORDS}; give --results the folder that a sweep printed at its end."
            )
        return _checked(self._table(RECORDS, without), self.path / RECORDS)

    def log_of(self, engine_id: str) -> Path | None:
        """An engine's log, if it is there and of this folder: a folder that somebody sent may hold links."""
        log = self.path / "engines" / f"{engine_id}.log"
        return log if log.is_file() and log.resolve().is_relative_to(self.path.resolve()) else None

    def record_count(self) -> int:
        """How many records the table holds, without reading them."""
        try:
            return int(pq.read_metadata(self.path / RECORDS).num_rows)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path / RECORDS} is not a readable Parquet table: {error}.") from error

    def first_chunk_tokens(self) -> pa.ChunkedArray | None:
        """Tokens of each answer's first chunk, for tables that have lists of chunks and no such column."""
        table = pq.ParquetFile(self.path / RECORDS)
        names = table.schema_arrow.names
        if "first_chunk_tokens" in names or "chunk_tokens" not in names:
            return None
        batches = (batch.column(0) for batch in table.iter_batches(columns=["chunk_tokens"]))
        return pa.chunked_array([_first(one) for one in batches], pa.int32())

    def first_records(self, columns: Sequence[str], most: int) -> pa.RecordBatch | None:
        """Some columns of the first records: of a table of millions, all would fill the memory."""
        try:
            return next(pq.ParquetFile(self.path / RECORDS).iter_batches(most, columns=list(columns)))
        except (OSError, ValueError) as error:
            raise InputError(f"{self.path / RECORDS} is not a readable Parquet table: {error}.") from error
        except StopIteration:
            return None

    def texts(self, item_ids: Iterable[str]) -> pa.Table:
        """The output texts of a few items: workload, variant, item_id, repeat, output_text."""
        try:
            source = ds.dataset(self.path / RECORDS)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{self.path / RECORDS} is not a readable Parquet table: {error}.") from error
        wanted = ["workload", "variant", "item_id", "repeat", "output_text"]
        if "output_text" not in source.schema.names:
            return pa.table({name: [] for name in wanted})
        chosen = pa.array(list(item_ids), source.schema.field("item_id").type)
        return source.to_table(columns=wanted, filter=ds.field("item_id").isin(chosen))

    def require(self, *names: str) -> None:
        """Raise InputError when one of these files is missing."""
        for name in names:
            if not (self.path / name).is_file():
                raise InputError(f"{self.path / name} is missing: give the results folder of a sweep")

    @property
    def without_table(self) -> str:
        """What to do about a sweep whose journal is there and whose table is not."""
        again = f"python -m farm.tracking sync {self.path.name} writes it again."
        return f"{self.path} holds no {RECORDS}, but its journal: {again}"

    def write_sweep(self, described: SweepSummary) -> None:
        """Write what is asked.

        Raises:
            JournalError: it cannot be written; so for the other writers.
        """
        write_json(self.path / SWEEP, described)

    def set_aside(self, name: str, *belonging: str) -> str:
        """Keep a damaged file, and those that belong to it, under other names; returns that of the file."""
        stamp = f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S}"
        for one in (*belonging, name):
            if (self.path / one).exists():
                (self.path / one).rename(self.path / f"{stamp}-{one}")
        return f"{stamp}-{name}"

    def write_items(self, items: Mapping[str, Sequence[Item]]) -> None:
        """Write what is asked, item by item."""
        rows = [
            {"workload": name, "item_id": item.item_id, "prompt": item.shown_prompt, "gold": item.gold}
            for name, entries in items.items()
            for item in entries
        ]
        schema = pa.schema([(name, pa.string()) for name in _ITEM_COLUMNS])
        content = io.BytesIO()
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), content)
        write_file(self.path / ITEMS, content.getvalue())

    def export(self, journal: Journal, described: SweepSummary) -> None:
        """Bring all derived files up to the journal.

        Raises:
            JournalError: one cannot be written, or the table holds more than the journal.
        """
        with suppress(InputError):  # a broken table is replaced
            if self.has_records and (rows := self.record_count()) > (knows := len(journal)):
                raise JournalError(
                    f"{self.path / RECORDS} holds {rows} records and the journal {knows}: the table is kept as it is; "
                    "submit the sweep again, which rebuilds the journal from it"
                )
        journal.write_parquet(self.path / RECORDS)
        write_json(self.path / ENGINES, journal.engines())
        self.write_sweep(described)

    def write_engine(self, engine_id: str, *, log: str | None, telemetry: bytes | None) -> dict[str, str]:
        """Keep an engine's log and its GPU's readings; returns where, as fields of its report."""
        kept = {"log": (".log", None if log is None else log.encode()), "telemetry": (".telemetry.parquet", telemetry)}
        written: dict[str, str] = {}
        for name, (ending, content) in kept.items():
            if content is not None:
                target = self.path / "engines" / f"{engine_id}{ending}"
                write_file(target, content)
                written[name] = str(target.relative_to(self.path))
        return written

    def share(self, into: Path, sweep: SweepSummary, engines: Sequence[EngineSummary]) -> None:
        """Make a folder that a comparison elsewhere can read: the same tables, with these descriptions."""
        for name in (RECORDS, ITEMS):
            shutil.copyfile(self.path / name, into / name)
        write_json(into / SWEEP, sweep)
        write_json(into / ENGINES, engines)

    def _content(self, name: str) -> bytes | None:
        path = self.path / name
        try:
            return path.read_bytes() if path.is_file() else None
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error}.") from error

    def _table(self, name: str, without: Collection[str] = ()) -> pa.Table:
        path = self.path / name
        try:
            names = [column for column in pq.read_schema(path).names if column not in without]
            return pq.read_table(path, columns=names)
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path} is not a readable Parquet table: {error}.") from error


def _checked(table: pa.Table, path: Path) -> pa.Table:
    """The table with the columns of records in the types of records; the values of the cell keys are there.

    Raises:
        InputError: naming the column.
    """
    for index, field in enumerate(table.schema):
        if field.name not in RECORD_SCHEMA.names:
            continue
        wanted = RECORD_SCHEMA.field(field.name).type
        if field.type != wanted:
            try:
                table = table.set_column(index, field.name, table.column(index).cast(wanted))
            except pa.ArrowException as error:
                raise InputError(f"{path}: {field.name} holds {field.type}, not {wanted}: {error}.") from error
        if field.name in CellKey._fields and table.column(index).null_count:
            raise InputError(f"{path}: {field.name} is missing in {table.column(index).null_count} rows.")
    return table


def sweeps_in(root: Path) -> list[ResultsFolder]:
    """The folders of all sweeps below `root`, or the one that `root` is; the newest is the last."""
    if ResultsFolder(root).has_sweep:
        return [ResultsFolder(root)]
    return sorted((one for one in folders_below(root) if one.has_sweep), key=lambda one: one.changed_s(SWEEP))


def tables_in(root: Path) -> list[ResultsFolder]:
    """The folders below `root` that hold records, whose they may be; the newest is the last."""
    return sorted((one for one in folders_below(root) if one.has_records), key=lambda one: one.changed_s(RECORDS))


def find(root: Path, sweep_id: str | None) -> ResultsFolder | None:
    """The folder of a sweep with records: by id or unique prefix, the newest without one; None when there is none.

    Raises:
        InputError: several are meant, or its table must be written again first.
    """
    folders = [one for one in folders_below(root) if one.has_records]
    if sweep_id is None:
        return max(folders, key=lambda one: one.changed_s(RECORDS, SWEEP), default=None)
    exact = [one for one in folders if one.path.name == sweep_id]
    found = exact or [one for one in folders if begins(one.path.name, sweep_id)]
    if not found and sweep_id and (named := ResultsFolder(root / sweep_id)).has_journal:
        raise InputError(named.without_table)
    if len(found) > 1:
        raise InputError(f"{sweep_id} fits several sweeps: {', '.join(sorted(one.path.name for one in found))}.")
    return found[0] if found else None


def begins(whole: str, begun: str) -> bool:
    """Whether an id is meant by its beginning; the later runs of a sweep, `ID.1` and so on, are other sweeps."""
    return whole.startswith(begun) and not whole[len(begun) :].startswith(".")


def newest_run(root: Path, sweep_id: str) -> int | None:
    """Number of the newest run of a sweep: 0 is the folder of its id, N that with `.N` behind it."""
    found = [re.fullmatch(rf"{re.escape(sweep_id)}(?:\.(\d+))?", one.path.name) for one in folders_below(root)]
    return max((int(match[1] or 0) for match in found if match), default=None)


def write_json(path: Path, value: SweepSummary | Sequence[EngineSummary]) -> None:
    """Replace a JSON file at once. An engine's entry holds what was said of it; a sweep's all that can be."""
    content = to_json(
        value
        if isinstance(value, SweepSummary)
        else [one.model_dump(mode="json", exclude_unset=True) for one in value],
        indent=1,
    )
    write_file(path, content + b"\n")


def write_file(path: Path, content: bytes) -> None:
    """Replace a file at once, its folder made if need be.

    Raises:
        JournalError: it cannot be written.
    """
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(exist_ok=True)
        partial.write_bytes(content)
        os.replace(partial, path)
    except OSError as error:
        raise JournalError(f"{path}: {error.strerror or error}; free the disk or make the folder writable") from error


def folders_below(root: Path) -> list[ResultsFolder]:
    """Every folder right below `root`, whatever it holds."""
    try:
        return [ResultsFolder(path) for path in root.iterdir()]
    except OSError:
        return []  # there is none yet, or it is said when results are to be written


def _first(lists: pa.ListArray) -> pa.Array:
    """The first number of each list, null where it is empty or null."""
    filled = pc.fill_null(pc.greater(pc.list_value_length(lists), 0), False)
    at = pc.if_else(filled, lists.offsets[:-1], pa.scalar(None, pa.int32()))
    return lists.values.take(at).cast(pa.int32())
