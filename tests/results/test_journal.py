"""The journal: durable, each cell once, one driver at a time, and readable as a table."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from farm.errors import JournalError
from farm.results.journal import Journal
from farm.results.record import RECORD_SCHEMA, REQUIRED_COLUMNS, Record
from farm.results.summary import EngineSummary


def record(item="q1", variant="v", **changes):
    values = {
        "sweep_id": "s-1",
        "variant": variant,
        "workload": "w",
        "item_id": item,
        "repeat": 0,
        "node": "n",
        "engine_id": "e",
        "engine_kind": "sglang",
        "label": None,
        "started_at": datetime(2026, 1, 2, 3, 4, 5, 6, UTC),
        "sequence": 0,
        "completion_tokens": 7,
        "ttft_s": 0.5,
        "latency_s": 2.0,
        "decode_s": 1.5,
        "accept_histogram": [1, 2, 0, 3],
        "chunk_times_s": [0.5, 2.0],
        "chunk_tokens": [1, 7],
        "output_text": "é\x00 18",
    }
    return Record(**values | changes)


def test_records_come_back_as_they_were(tmp_path):
    with Journal(tmp_path) as journal:
        journal.add([record(), record("q2", correct=True)])
    with Journal(tmp_path) as journal:
        assert list(journal.records()) == [record(), record("q2", correct=True)]
        assert set(journal.answered()) == {record().key, record("q2").key}


def test_a_cell_is_answered_once_and_an_error_is_replaced_by_its_answer(tmp_path):
    with Journal(tmp_path) as journal:
        journal.add([record(error="engine died", completion_tokens=0)])
        assert journal.answered() == {}
        journal.add([record(completion_tokens=7)])
        journal.add([record(completion_tokens=99)])
        journal.add([record(error="late failure")])
        assert [r.completion_tokens for r in journal.records()] == [7]
        assert journal.answered() == {record().key: "n"}


def test_a_failed_batch_leaves_nothing(tmp_path):
    with Journal(tmp_path) as journal:
        with pytest.raises(TypeError):
            journal.add([record(), record("q2", output_text={1})])
        assert list(journal.records()) == []


def test_parquet_has_the_contract_columns(tmp_path):
    with Journal(tmp_path) as journal:
        journal.add([record(), record("q2", error="x", ttft_s=None, latency_s=None, decode_s=None)])
        assert journal.write_parquet(tmp_path / "requests.parquet") == 2
    table = pq.read_table(tmp_path / "requests.parquet")
    assert table.schema.equals(RECORD_SCHEMA)
    assert set(REQUIRED_COLUMNS) <= set(table.column_names)
    assert table.to_pylist()[0]["accept_histogram"] == [1, 2, 0, 3]
    assert table.to_pylist()[0]["started_at"] == record().started_at


@pytest.mark.parametrize("seconds", [2.0, 2, float("nan"), float("inf")])
def test_a_table_says_what_the_records_say(tmp_path, seconds):
    long = record("q2", output_text="\u20ac" * 600_000 + '\n"', latency_s=seconds, accept_histogram=None, correct=False)
    with Journal(tmp_path) as journal:
        journal.add([record(), long])
        journal.write_parquet(tmp_path / "requests.parquet")
    for row, expected in zip(pq.read_table(tmp_path / "requests.parquet").to_pylist(), [record(), long], strict=True):
        wanted = {name: getattr(expected, name) for name in RECORD_SCHEMA.names}
        assert row | {"latency_s": 0} == wanted | {"latency_s": 0}
        assert row["latency_s"] == pytest.approx(expected.latency_s, nan_ok=True)


def test_an_empty_journal_gives_an_empty_table(tmp_path):
    with Journal(tmp_path) as journal:
        assert journal.write_parquet(tmp_path / "requests.parquet") == 0
    assert pq.read_table(tmp_path / "requests.parquet").schema.equals(RECORD_SCHEMA)


def test_a_second_driver_is_refused_and_told_who_holds_it(tmp_path):
    with Journal(tmp_path):
        code = f"from farm.results.journal import Journal; from pathlib import Path; Journal(Path({str(tmp_path)!r}))"
        second = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert second.returncode != 0
        assert f"process {os.getpid()} on" in second.stderr
    Journal(tmp_path).close()


def test_a_killed_driver_loses_nothing_and_frees_the_sweep(tmp_path):
    code = (
        f"import os, sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); from pathlib import Path\n"
        "from farm.results.journal import Journal; from test_journal import record\n"
        f"journal = Journal(Path({str(tmp_path)!r})); journal.add([record(f'q{{i}}') for i in range(50)])\n"
        "os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == -9
    with Journal(tmp_path) as journal:
        assert not journal.rolled_back
        assert len(journal.answered()) == 50


def test_a_torn_tail_loses_only_what_was_being_written(tmp_path):
    with Journal(tmp_path) as journal:
        journal.add([record("q1")])
        journal.add([record("q2")])
        wal = (tmp_path / "journal.sqlite-wal").read_bytes()
        db = (tmp_path / "journal.sqlite").read_bytes()
    torn = tmp_path / "torn"
    torn.mkdir()
    (torn / "journal.sqlite").write_bytes(db)
    (torn / "journal.sqlite-wal").write_bytes(wal[:-100])
    with Journal(torn) as journal:
        assert journal.rolled_back
        assert {cell.item_id for cell in journal.answered()} == {"q1"}


def test_damage_and_unwritable_folders_are_said_clearly(tmp_path):
    (tmp_path / "journal.sqlite").write_bytes(b"not a database at all" * 100)
    with pytest.raises(JournalError, match="--fresh"):
        Journal(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(JournalError, match="FARM_HOME"):
        Journal(tmp_path / "file" / "sweep")


def test_engine_notes_replace_each_other(tmp_path):
    with Journal(tmp_path) as journal:
        journal.note_engine("e1", EngineSummary(engine_id="e1", status="started"))
        journal.note_engine("e1", EngineSummary(engine_id="e1", status="stopped", pid=7))
        (kept,) = journal.engines()
        assert kept.model_dump(exclude_unset=True) == {"engine_id": "e1", "status": "stopped", "pid": 7}
