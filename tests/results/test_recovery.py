"""A table is never replaced by one that knows less."""

from datetime import UTC, datetime

import pytest

from farm.errors import JournalDamaged, JournalError
from farm.results.folder import RECORDS, ResultsFolder
from farm.results.journal import JOURNAL, Journal, damage
from farm.results.record import Record
from farm.results.recovery import open_journal
from farm.results.summary import EngineSummary, SweepSummary


def record(item):
    return Record(
        sweep_id="s-1", variant="v", workload="w", item_id=item, repeat=0, node="n", engine_id="e",
        engine_kind="sglang", label=None, started_at=datetime(2026, 1, 2, 3, 4, 5, 6, UTC), sequence=0,
        completion_tokens=7, ttft_s=0.5, latency_s=2.0, decode_s=1.5, accept_histogram=[1, 2],
        chunk_times_s=[0.5, 2.0], chunk_tokens=[1, 7],
    )  # fmt: skip


RECORDED = [record("a"), record("b")]


@pytest.fixture
def results(tmp_path):
    folder = ResultsFolder(tmp_path)
    with Journal(tmp_path) as journal:
        journal.add(RECORDED)
        journal.note_engine("e", EngineSummary(engine_id="e", versions={"torch": "2"}))
        folder.export(journal, SweepSummary(sweep_id="s-1"))
    return folder


def loses_its_records(path):
    path.write_bytes(b"")


def is_gone(path):
    path.unlink()


def is_no_database(path):
    path.write_bytes(b"\x7f" * 30_000)


@pytest.mark.parametrize("trouble", [loses_its_records, is_gone, is_no_database])
def test_a_journal_that_knows_less_is_rebuilt_from_the_table(results, trouble):
    trouble(results.path / JOURNAL)
    with open_journal(results) as (journal, notes):
        assert list(journal.records()) == RECORDED
        assert [one.engine_id for one in journal.engines()] == ["e"]
        results.export(journal, SweepSummary(sweep_id="s-1"))
    assert notes
    assert results.record_count() == 2
    assert len(list(results.path.glob("damaged-*"))) == (trouble is is_no_database)


def test_a_whole_journal_is_left_alone_whatever_the_table_is(results):
    (results.path / RECORDS).write_bytes(b"PAR1 cut")
    with open_journal(results) as (journal, notes):
        assert (len(journal), notes) == (2, [])
        results.export(journal, SweepSummary(sweep_id="s-1"))
    assert results.record_count() == 2


def test_where_neither_can_be_read_both_are_kept(results):
    for name in (RECORDS, JOURNAL):
        (results.path / name).write_bytes(b"neither Parquet nor SQLite" * 100)
    before = {path.name: path.read_bytes() for path in results.path.iterdir() if path.name in (RECORDS, JOURNAL)}
    with pytest.raises(JournalError), open_journal(results):
        pass
    assert {name: (results.path / name).read_bytes() for name in before} == before
    assert damage(results.path)
    with pytest.raises(JournalDamaged), Journal(results.path):
        pass


def test_the_table_is_not_written_from_a_journal_that_knows_less(results):
    (results.path / JOURNAL).unlink()
    with Journal(results.path) as journal, pytest.raises(JournalError, match=RECORDS):
        results.export(journal, SweepSummary(sweep_id="s-1"))
    assert results.record_count() == 2
