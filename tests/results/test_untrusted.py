"""Results folders come from anybody: what they say is checked, and no path is taken from them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from farm.errors import InputError
from farm.results.folder import ITEMS, RECORDS, ResultsFolder
from farm.results.record import RECORD_SCHEMA
from farm.results.summary import engine_summaries, sweep_summary


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sweep_id", "../../escaped"),
        ("sweep_id", ["x"]),
        ("name", "../../escaped"),
        ("name", ".."),
        ("name", "a\x00b"),
        ("created_at", "yesterday"),
        ("created_at", "0001-01-01T00:00:00+00:00"),
        ("created_at", "9999-12-31T23:59:59-12:00"),
        ("variants", 7),
        ("workloads", {"w": {"items": -1}}),
        ("workloads", {"w": {"repeats": "many"}}),
        ("submissions", [{"origin": {"model": 3}}]),
    ],
)
def test_a_wrong_field_is_named(tmp_path, field, value):
    with pytest.raises(InputError, match=f"sweep.json: {field}"):
        sweep_summary(json.dumps({field: value}).encode(), tmp_path / "sweep.json")


@pytest.mark.parametrize("engine_id", ["../../x", "..", "/etc/x", "a/b", ["x"]])
def test_an_engine_is_no_path(tmp_path, engine_id):
    with pytest.raises(InputError, match="engine_id"):
        engine_summaries(json.dumps([{"engine_id": engine_id}]).encode(), tmp_path / "engines.json")


def table(**columns):
    plain = {"variant": "v", "workload": "w", "item_id": "i", "repeat": 0, "latency_s": 1.0}
    return pa.table({name: [value] for name, value in (plain | columns).items()})


@pytest.mark.parametrize(
    ("columns", "named"), [({"latency_s": "long"}, "latency_s"), ({"repeat": None}, "repeat"), ({"node": [1]}, "node")]
)
def test_a_wrong_column_is_named(tmp_path, columns, named):
    pq.write_table(table(**columns), tmp_path / RECORDS)
    with pytest.raises(InputError, match=f"{RECORDS}: {named}"):
        ResultsFolder(tmp_path).records()


def test_columns_have_the_types_of_records_however_they_were_written(tmp_path):
    pq.write_table(table(latency_s=1, mine="kept"), tmp_path / RECORDS)
    read = ResultsFolder(tmp_path).records()
    assert read.schema.field("latency_s").type == RECORD_SCHEMA.field("latency_s").type
    assert read.schema.field("repeat").type == RECORD_SCHEMA.field("repeat").type
    assert read["mine"].to_pylist() == ["kept"]


@pytest.mark.parametrize("content", [b"[" * 100_000, b"\xff{}", json.dumps([1]).encode()])
def test_json_that_is_none_is_said_so(tmp_path, content):
    (tmp_path / "sweep.json").write_bytes(content)
    with pytest.raises(InputError, match=r"sweep\.json"):
        ResultsFolder(tmp_path).sweep()


def test_a_truncated_table_is_said_so(tmp_path):
    pq.write_table(table(), tmp_path / RECORDS)
    whole = (tmp_path / RECORDS).read_bytes()
    folder = ResultsFolder(tmp_path)
    for length in (0, 4, len(whole) // 2, len(whole) - 1):
        (tmp_path / RECORDS).write_bytes(whole[:length])
        for read in (folder.records, folder.record_count, lambda: folder.texts(["i"])):
            with pytest.raises(InputError, match=RECORDS):
                read()
    pq.write_table(pa.table({"workload": ["w"]}), tmp_path / ITEMS)
    with pytest.raises(InputError, match="item_id"):
        folder.items()
