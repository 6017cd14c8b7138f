"""The rules by which what was measured becomes a verdict."""

import pytest

from farm.doctor.machine import clock_offset
from farm.doctor.probe import bandwidth_verdict
from farm.doctor.verdict import Verdict
from farm.node.preflight.check import Check
from farm.node.telemetry.samples import RequestTelemetry


def fields(clock, slow):
    return RequestTelemetry(sm_clock_mhz=clock, slow_state=slow)


@pytest.mark.parametrize(
    ("gb_per_s", "seen", "is_gb10", "status", "reported"),
    [
        (228.0, fields(2418.0, False), True, "pass", "2418 MHz"),
        (228.0, fields(799.0, True), True, "fail", "799 MHz"),
        (134.0, fields(2418.0, False), True, "fail", "273 nominal"),
        (134.0, fields(None, None), True, "fail", "134 GB/s"),
        (228.0, fields(None, None), True, "warn", "cannot be judged"),
        (4100.0, fields(1980.0, False), False, "pass", "4100 GB/s"),
        (1500.0, fields(345.0, True), False, "fail", "slow state"),
    ],
)
def test_bandwidth_and_clock(gb_per_s, seen, is_gb10, status, reported):
    check = bandwidth_verdict(gb_per_s, seen, is_gb10=is_gb10)
    assert check.status == status
    assert reported in check.found
    assert (check.do is None) == (status == "pass")


def test_a_clock_that_is_off_is_a_warning_and_not_within_the_round_trip():
    assert clock_offset(0.002, 0.001).status == "pass"
    assert clock_offset(-5.0, 0.001).status == "warn"
    # A trip of 8 s could be all on one side.
    assert clock_offset(3.0, 8.0).status == "pass"


def test_a_verdict_follows_from_its_checks():
    def verdict(*statuses):
        return Verdict("spark-1", [Check(str(index), status, "", "this") for index, status in enumerate(statuses)])

    assert verdict("pass", "warn", "not applicable", "skipped").can_run
    assert not verdict("pass", "fail").can_run
    assert verdict("fail", "pass", "fail").as_json()["to_do"] == ["0: this", "2: this"]
