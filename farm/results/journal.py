"""The journal: every record of a sweep, durable on the driver's disk, each cell once. Tables are made from it.

One SQLite file in WAL mode. A batch of records is one transaction that reaches the disk before `add` returns, so a
killed driver or a power cut loses at most what was not yet handed over, and SQLite rolls a torn tail back.
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import socket
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import IO, Final

import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from farm.errors import JournalDamaged, JournalError, SweepHeld
from farm.results.record import RECORD_SCHEMA, Record
from farm.results.summary import EngineSummary
from farm.types import CellKey

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS record (
    variant TEXT NOT NULL, workload TEXT NOT NULL, item_id TEXT NOT NULL, repeat INTEGER NOT NULL,
    node TEXT NOT NULL, failed INTEGER NOT NULL, body TEXT NOT NULL,
    PRIMARY KEY (variant, workload, item_id, repeat)
);
-- What a resumed sweep asks first; it would else read past every text.
CREATE INDEX IF NOT EXISTS answered ON record (variant, workload, item_id, repeat, node, failed) WHERE NOT failed;
CREATE TABLE IF NOT EXISTS engine (engine_id TEXT PRIMARY KEY, body TEXT NOT NULL);
"""

# A cell is answered once: a later record replaces an earlier one only if that one was an error.
_INSERT: Final = """
INSERT INTO record VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (variant, workload, item_id, repeat) DO UPDATE
SET node = excluded.node, failed = excluded.failed, body = excluded.body WHERE record.failed
"""
JOURNAL: Final = "journal.sqlite"
_DAMAGED: Final = ("malformed", "not a database")  # in SQLite's words
_ROWS_PER_GROUP: Final = 5000
_FROM_JSON: Final = pj.ParseOptions(explicit_schema=RECORD_SCHEMA, unexpected_field_behavior="ignore")
_BLOCK_BYTES: Final = 1 << 20
# SQLite's file format: a log's header, and each frame's before its page.
_WAL_HEADER: Final = 32
_FRAME_HEADER: Final = 24


class Journal:
    """The records and engine reports of one sweep. Use it as a context manager; one writer at a time.

    Attributes:
        rolled_back: a driver was ended while it wrote; its last batch, which no cell counted as done, is not there.
    """

    def __init__(self, folder: Path) -> None:
        """Open or create the journal in `folder`, and hold the sweep's lock until closed.

        Raises:
            JournalError: the folder cannot be written, or the journal is damaged.
            SweepHeld: another driver works on the sweep.
        """
        self._folder = folder
        with _explained(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = _lock(folder / "lock")
        self.rolled_back = _is_torn(folder / f"{JOURNAL}-wal")
        try:
            with _explained(folder):
                self._db = sqlite3.connect(folder / JOURNAL, isolation_level=None)
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.executescript(_TABLES)
        except JournalError:
            self._lock.close()
            raise

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and give the sweep free for another driver."""
        with suppress(sqlite3.Error):
            self._db.close()
        self._lock.close()

    def add(self, records: Iterable[Record]) -> None:
        """Make records durable, all or none of them."""
        rows = [
            (*record.key, record.node, record.error is not None, json.dumps(record.to_dict(), ensure_ascii=False))
            for record in records
        ]
        with self._transaction():
            self._db.executemany(_INSERT, rows)

    def note_engine(self, engine_id: str, report: EngineSummary) -> None:
        """Keep what is known of one engine; a later note replaces an earlier one."""
        with self._transaction():
            self._db.execute(
                "INSERT OR REPLACE INTO engine VALUES (?, ?)", (engine_id, report.model_dump_json(exclude_unset=True))
            )

    def answered(self) -> dict[CellKey, str]:
        """The cells that have an answer, each with the node that gave it."""
        with _explained(self._folder):
            rows = self._db.execute("SELECT variant, workload, item_id, repeat, node FROM record WHERE NOT failed")
            # One string for each name, whatever the number of rows that hold it: a third of the memory.
            one: dict[str, str] = {}
            same = one.setdefault
            return {
                CellKey(same(variant, variant), same(workload, workload), same(item, item), repeat): same(node, node)
                for variant, workload, item, repeat, node in rows
            }

    def __len__(self) -> int:
        """How many records there are, those of errors included."""
        with _explained(self._folder):
            [(count,)] = self._db.execute("SELECT count(*) FROM record")
            return int(count)

    def records(self) -> Iterator[Record]:
        """All records in the order of their cells."""
        for body in self._bodies():
            yield Record.from_dict(json.loads(body))

    def engines(self) -> list[EngineSummary]:
        """The engine reports, by engine id."""
        with _explained(self._folder):
            rows = self._db.execute("SELECT body FROM engine ORDER BY engine_id")
            return [EngineSummary.model_validate_json(body) for (body,) in rows]

    def write_parquet(self, path: Path) -> int:
        """Write all records as `requests.parquet`, replacing the file at once; returns the number of rows."""
        rows = 0
        partial = path.with_suffix(".partial")
        bodies = self._bodies()
        with _explained(self._folder), pq.ParquetWriter(partial, RECORD_SCHEMA, compression="zstd") as writer:
            while batch := list(islice(bodies, _ROWS_PER_GROUP)):
                writer.write_table(_table(batch))
                rows += len(batch)
        os.replace(partial, path)
        return rows

    def _bodies(self) -> Iterator[str]:
        with _explained(self._folder):
            for (body,) in self._db.execute("SELECT body FROM record ORDER BY workload, variant, repeat, item_id"):
                yield body

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with _explained(self._folder):
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._db.execute("ROLLBACK")
                raise


def damage(folder: Path) -> str | None:
    """What is wrong with the journal's file, as far as can be seen without its lock; None where nothing is."""
    if not (folder / JOURNAL).is_file():
        return None
    try:
        with closing(sqlite3.connect(f"{(folder / JOURNAL).absolute().as_uri()}?mode=ro", uri=True)) as db:
            db.execute("SELECT 1 FROM sqlite_master").fetchall()
    except sqlite3.DatabaseError as error:  # a folder that is not writable is no damage
        return str(error) if any(words in str(error) for words in _DAMAGED) else None
    return None


def _table(bodies: Sequence[str]) -> pa.Table:
    """Records as a table, without a Python object for each of their values."""
    lines = "\n".join(bodies).encode()
    # A row must lie within one block; a character is 4 bytes at most.
    longest = 4 * max(map(len, bodies))
    options = pj.ReadOptions(use_threads=False, block_size=max(_BLOCK_BYTES, longest))
    try:
        table = pj.read_json(io.BytesIO(lines), read_options=options, parse_options=_FROM_JSON)
    except pa.ArrowInvalid:  # NaN and infinity, which Python writes and JSON does not have
        records = [Record.from_dict(json.loads(body)) for body in bodies]
        rows = [{name: getattr(record, name) for name in RECORD_SCHEMA.names} for record in records]
        return pa.Table.from_pylist(rows, schema=RECORD_SCHEMA)
    return table.select(RECORD_SCHEMA.names)


def _lock(path: Path) -> IO[str]:
    """An exclusive lock that the kernel releases when its holder dies, and who holds it."""
    with _explained(path.parent):
        handle = path.open("a+", encoding="utf-8")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        handle.seek(0)
        holder = handle.read().strip() or "an unknown process"
        handle.close()
        raise SweepHeld(
            f"another driver works on this sweep: {holder}; wait for it or stop it, then submit again"
        ) from error
    with _explained(path.parent):
        handle.seek(0)
        handle.truncate()
        handle.write(
            f"process {os.getpid()} on {socket.gethostname()} since {datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n"
        )
        handle.flush()
    return handle


def _is_torn(wal: Path) -> bool:
    """Whether SQLite's write-ahead log ends in a transaction without its commit, which SQLite rolls back in silence."""
    try:
        content = wal.read_bytes()
    except OSError:
        return False
    if len(content) < _WAL_HEADER:
        return False
    page_size, salts = int.from_bytes(content[8:12]), content[16:24]
    open_transaction = False
    # Frames with other salts are of an earlier round of the same file.
    for start in range(_WAL_HEADER, len(content), _FRAME_HEADER + page_size):
        frame = content[start : start + _FRAME_HEADER + page_size]
        if frame[8:16] != salts[: len(frame[8:16])]:
            break
        whole = len(frame) == _FRAME_HEADER + page_size
        commits = whole and int.from_bytes(frame[4:8]) > 0
        open_transaction = not commits
    return open_transaction


@contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn disk and SQLite errors into a `JournalError` that says what to do."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        said = str(error)
        if any(words in said for words in _DAMAGED):
            hint = "check the disk; to start anew beside it, submit with --fresh"
            raise JournalDamaged(f"{folder}: the journal failed: {error}; {hint}") from error
        if "readonly" in said or "unable to open" in said:
            hint = "make the folder writable, or choose another with --results or FARM_HOME"
        else:
            hint = "free some disk space, or check the disk, and submit the sweep again"
        raise JournalError(f"{folder}: the journal failed: {error}; {hint}") from error
    except OSError as error:
        raise JournalError(
            f"{folder}: {error.strerror or error}; make the folder writable, free its disk, or choose another "
            "with --results or FARM_HOME"
        ) from error
