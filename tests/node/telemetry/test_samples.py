"""Energy, clock, throttled seconds and the slow state, from readings whose answers are known."""

import itertools

import pytest

from farm.node.telemetry.samples import NO_TELEMETRY, Sample, enclosing, energy_j, of_request, slow_state, throttled_s

THERMAL, POWER_CAP, IDLE, USER_CLOCKS, UNSEEN = 0x20, 0x4, 0x1, 0x2, None


def readings(*, powers=None, counter=None, clocks=None, reasons=None, utilisation=0.96, count=11, step_s=1.0):
    """One reading a second from 0 s; each argument is a function of time, or a constant, or None."""

    def of(what, at_s):
        return what(at_s) if callable(what) else what

    return [
        Sample(
            at_s=at_s,
            power_w=of(powers, at_s),
            counter_j=of(counter, at_s),
            sm_clock_mhz=of(clocks, at_s),
            max_sm_clock_mhz=3003.0,
            temperature_c=of(lambda s: 40 + s, at_s),
            utilisation=of(utilisation, at_s),
            reasons=of(reasons, at_s),
        )
        for at_s in (index * step_s for index in range(count))
    ]


def test_energy_of_constant_power():
    assert energy_j(readings(powers=50.0), 2.0, 7.0) == (pytest.approx(250.0), "power-integral")


def test_energy_of_rising_power_is_exact_between_readings_too():
    # 10 W a second from zero: the integral is 5 t^2.
    joules, _ = energy_j(readings(powers=lambda s: 10 * s), 2.3, 7.9)
    assert joules == pytest.approx(5 * (7.9**2 - 2.3**2), rel=0.005)


def test_a_span_between_two_readings():
    joules, _ = energy_j(readings(powers=lambda s: 10 * s), 3.25, 3.75)
    assert joules == pytest.approx(0.5 * 35.0)


def test_the_boards_counter_wins_over_power():
    both = readings(powers=50.0, counter=lambda s: 1000 + 60 * s)
    assert energy_j(both, 2.5, 7.25) == (pytest.approx(60 * 4.75), "board-counter")


def test_a_counter_that_was_reset_is_not_used():
    reset = readings(powers=50.0, counter=lambda s: 1000 + 60 * s if s < 5 else 60 * s)
    assert energy_j(reset, 2.0, 7.0) == (pytest.approx(250.0), "power-integral")


def test_adjacent_spans_add_up():
    bumpy = readings(powers=lambda s: 30 + 17 * (s % 3))
    cuts = [0.4, 1.7, 3.0, 6.2, 9.9]
    parts = [energy_j(bumpy, start, end)[0] for start, end in itertools.pairwise(cuts)]
    assert sum(parts) == pytest.approx(energy_j(bumpy, cuts[0], cuts[-1])[0])


@pytest.mark.parametrize(("start_s", "end_s"), [(-0.5, 3.0), (8.0, 10.5), (5.0, 5.0), (12.0, 15.0)])
def test_a_span_that_readings_do_not_enclose_has_no_figures(start_s, end_s):
    watched = readings(powers=50.0, clocks=2400.0, reasons=0)
    assert enclosing(watched, start_s, end_s) == []
    assert of_request(watched, start_s, end_s) == NO_TELEMETRY


def test_energy_is_not_made_up_across_a_gap():
    gap = [sample for sample in readings(powers=50.0, count=20) if not 4 < sample.at_s < 11]
    assert energy_j(gap, 3.0, 12.0) == (None, None)
    assert energy_j(gap, 11.0, 12.0)[0] == pytest.approx(50.0)


def test_a_missing_reading_is_passed_over_and_is_no_zero():
    holes = readings(powers=lambda s: None if s == 5 else 50.0)
    assert energy_j(holes, 2.0, 8.0)[0] == pytest.approx(300.0)


def test_a_board_without_power_has_no_energy_and_keeps_its_clock():
    fields = of_request(readings(clocks=2400.0, reasons=0), 2.0, 7.0)
    assert (fields.energy_j, fields.energy_method, fields.power_w) == (None, None, None)
    assert fields.sm_clock_mhz == pytest.approx(2400.0)


def test_fields_of_a_record():
    fields = of_request(readings(powers=50.0, clocks=lambda s: 2000.0 if s < 5 else 2400.0, reasons=IDLE), 2.5, 6.5)
    assert fields.energy_j == pytest.approx(200.0)
    assert fields.power_w == pytest.approx(50.0)
    # The change lies between 4 s and 5 s and is taken to be in the middle.
    assert fields.sm_clock_mhz == pytest.approx(2200.0)
    assert fields.temperature_c == 47
    assert fields.throttled_s == 0.0
    assert fields.slow_state is False


def test_throttled_seconds_count_slow_downs_and_not_idling():
    hot = readings(reasons=lambda s: THERMAL if 3 <= s <= 5 else IDLE)
    assert throttled_s(hot, 0.0, 10.0) == pytest.approx(3.0)
    assert throttled_s(hot, 4.0, 4.5) == pytest.approx(0.5)
    assert throttled_s(readings(reasons=POWER_CAP), 2.0, 8.0) == pytest.approx(6.0)


def test_reasons_that_are_not_told_are_null_and_not_zero():
    assert throttled_s(readings(reasons=lambda s: UNSEEN if s == 5 else 0), 2.0, 8.0) is None


def test_the_hidden_slow_state_of_a_spark():
    hidden = readings(clocks=799.0, reasons=0, utilisation=0.96)
    assert slow_state(hidden, 2.0, 8.0) is True


@pytest.mark.parametrize("clocks", [2418.0, 1600.0])
def test_an_ordinary_clock_is_no_slow_state(clocks):
    assert slow_state(readings(clocks=clocks, reasons=0), 2.0, 8.0) is False


def test_a_low_clock_at_rest_says_nothing():
    assert slow_state(readings(clocks=208.0, reasons=IDLE, utilisation=0.03), 2.0, 8.0) is None


def test_a_clock_that_the_user_has_set_is_no_slow_state():
    assert slow_state(readings(clocks=900.0, reasons=USER_CLOCKS), 2.0, 8.0) is None


def test_heat_for_a_large_share_is_a_slow_state_and_a_power_cap_is_none():
    assert slow_state(readings(clocks=2400.0, reasons=lambda s: THERMAL if s < 5 else 0), 0.0, 10.0) is True
    assert slow_state(readings(clocks=2400.0, reasons=lambda s: THERMAL if s < 2 else 0), 0.0, 10.0) is False
    assert slow_state(readings(clocks=2400.0, reasons=POWER_CAP), 0.0, 10.0) is False
