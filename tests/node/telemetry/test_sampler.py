"""The sampler as an engine slot uses it. On a machine without a GPU every field is null; with one, none is zero."""

import io
import time
from dataclasses import asdict, astuple

import pyarrow.parquet as pq
import pytest

from farm.engines.nvml import open_gpu
from farm.node.telemetry import NO_TELEMETRY, Sample, Telemetry, visible_gpu
from farm.node.telemetry.table import as_parquet
from farm.results.record import RECORD_SCHEMA, Record

HAS_GPU = open_gpu(0) is not None


@pytest.mark.skipif(HAS_GPU, reason="this machine has a GPU")
@pytest.mark.parametrize("gpu", [0, 7, "GPU-8932f937", None])
def test_without_a_gpu_every_field_is_null(gpu):
    telemetry = Telemetry.start(gpu)
    started = time.perf_counter()
    assert telemetry.between(started - 0.1, started) == NO_TELEMETRY
    assert telemetry.stop() == []
    assert set(astuple(NO_TELEMETRY)) == {None}


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_a_gpu_is_read_once_a_second_and_at_the_end_of_a_request():
    telemetry = Telemetry.start(visible_gpu())
    time.sleep(2.5)
    ended = time.perf_counter()
    fields = telemetry.between(ended - 1.2, ended)
    samples = telemetry.stop()
    assert fields.energy_j > 0
    assert fields.sm_clock_mhz > 0
    assert fields.temperature_c > 0
    assert 3 <= len(samples) <= 6
    assert samples[-1].at_s >= ended


@pytest.mark.skipif(not HAS_GPU, reason="needs a GPU")
def test_no_energy_is_told_of_requests_that_share_the_gpu():
    telemetry = Telemetry.start(visible_gpu(), shared=True)
    time.sleep(1.5)
    ended = time.perf_counter()
    fields = telemetry.between(ended - 0.5, ended)
    telemetry.stop()
    assert (fields.energy_j, fields.energy_method) == (None, None)
    assert fields.sm_clock_mhz > 0


def test_a_gpu_that_does_not_exist_is_not_opened():
    assert open_gpu("GPU-00000000-0000-0000-0000-000000000000") is None


@pytest.mark.parametrize(
    ("visible", "expected"), [("3", 3), ("5,1", 5), ("GPU-8932f937,GPU-1", "GPU-8932f937"), ("", 0), (None, 0)]
)
def test_the_gpu_of_this_slot(monkeypatch, visible, expected):
    if visible is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert visible_gpu() == expected


def test_the_table_of_an_engine():
    now = time.perf_counter()
    samples = [Sample(now, power_w=51.5, reasons=0x24), Sample(now + 1, sm_clock_mhz=2400.0)]
    rows = pq.read_table(io.BytesIO(as_parquet(samples))).to_pylist()
    assert [row["power_w"] for row in rows] == [51.5, None]
    assert [row["throttled"] for row in rows] == [True, None]
    assert abs(rows[0]["at"].timestamp() - time.time()) < 60
    assert as_parquet([]) is None


def test_a_record_of_an_older_journal_has_null_telemetry(make_record):
    nulls = asdict(NO_TELEMETRY)
    old = {name: value for name, value in make_record().to_dict().items() if name not in nulls}
    record = Record.from_dict(old)
    assert {name: getattr(record, name) for name in nulls} == nulls
    assert set(nulls) <= set(RECORD_SCHEMA.names)


@pytest.fixture
def make_record():
    from datetime import UTC, datetime

    def make(**values):
        return Record(
            **{
                "sweep_id": "s", "variant": "baseline", "workload": "w", "item_id": "i", "repeat": 0, "node": "n",
                "engine_id": "e", "engine_kind": "sglang", "label": None, "started_at": datetime.now(UTC),
                "sequence": 0,
            } | values
        )  # fmt: skip

    return make
