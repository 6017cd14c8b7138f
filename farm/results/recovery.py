"""Opens a sweep's journal, and rebuilds it from the table where the table knows more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from farm.errors import InputError, JournalDamaged, JournalError
from farm.results.folder import RECORDS, ResultsFolder
from farm.results.journal import JOURNAL, Journal
from farm.results.record import Record

_BATCH = 2000


@contextmanager
def open_journal(results: ResultsFolder) -> Iterator[tuple[Journal, list[str]]]:
    """The sweep's journal, knowing all that its table knows, and what had to be done for that, as sentences.

    Raises:
        JournalError: it cannot be had, and nothing was changed.
    """
    notes: list[str] = []
    try:
        journal = Journal(results.path)
    except JournalDamaged as error:
        if not results.has_records:
            raise
        _readable(results)
        aside = results.set_aside(JOURNAL, f"{JOURNAL}-wal", f"{JOURNAL}-shm")
        notes.append(f"{error.__cause__}: the damaged journal is kept as {aside}")
        journal = Journal(results.path)
    with journal:
        if results.has_records and (rows := _rows(results, journal)) > (had := len(journal)):
            _rebuild(results, journal)
            notes.append(f"the journal held {had} records and {RECORDS} {rows}: the journal was rebuilt from the table")
        yield journal, notes


def _rows(results: ResultsFolder, journal: Journal) -> int:
    """How many records the table holds; a broken one beside a journal that holds some is only to be written again."""
    try:
        return _readable(results)
    except JournalError:
        if len(journal):
            return 0
        raise


def _readable(results: ResultsFolder) -> int:
    try:
        return results.record_count()
    except InputError as error:
        raise JournalError(
            f"{error} Its journal holds nothing either, so both are kept as they are: bring one of them back from "
            "another copy, or submit with --fresh"
        ) from error


def _rebuild(results: ResultsFolder, journal: Journal) -> None:
    table = results.path / RECORDS
    try:
        for batch in pq.ParquetFile(table).iter_batches(_BATCH):
            rows = batch.to_pylist()
            journal.add(Record.from_dict(row | {"started_at": row["started_at"].isoformat()}) for row in rows)
    except (pa.ArrowException, OSError, TypeError, KeyError, ValueError, AttributeError) as error:
        raise JournalError(
            f"{table} holds more than the journal, which cannot be rebuilt from it: {error}; both are kept as they "
            "are: submit with --fresh"
        ) from error
    known = {one.engine_id for one in journal.engines()}
    for report in results.engines() or []:
        if report.engine_id and report.engine_id not in known:
            journal.note_engine(report.engine_id, report)
