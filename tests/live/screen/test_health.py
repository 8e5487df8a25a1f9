from __future__ import annotations

import pytest

from kwsniff.live.screen.lastminute import Monitor, Vitals
from tests.live.screen.events import START_NS, batch, health


def anomalies(code: str, number: int) -> list[dict[str, object]]:
    return [{"event": "anomaly", "code": code}] * number


def vitals(monitor: Monitor) -> Vitals:
    found = monitor.vitals()
    assert found is not None
    return found


def test_before_the_first_tick_nothing_is_known() -> None:
    assert Monitor().vitals() is None


def test_packets_each_second_are_those_of_the_last_ten_seconds() -> None:
    monitor = Monitor()
    for second in range(1, 31):
        monitor.tick(health(second, packets=100 * second + 400 * max(second - 20, 0), bytes=10 * second))
    assert vitals(monitor).packets_per_s == pytest.approx(500)
    assert vitals(monitor).bytes_per_s == pytest.approx(10)


def test_at_first_packets_each_second_are_those_since_the_start() -> None:
    monitor = Monitor()
    monitor.tick(health(2, packets=50))
    assert vitals(monitor).packets_per_s == pytest.approx(25)
    monitor.tick(health(4, packets=150))
    assert vitals(monitor).packets_per_s == pytest.approx(37.5)


def test_drops_count_as_recent_for_a_minute() -> None:
    monitor = Monitor()
    for second in range(130):
        monitor.tick(health(second, kernel_dropped=5 * (second > 3), own_dropped=2 * (second > 99)))
        recent = 5 * (3 < second < 64) + 2 * (second > 99)
        assert vitals(monitor).dropped_lately == pytest.approx(recent, abs=5 * (60 <= second <= 65))
    assert vitals(monitor).health.dropped == 7


def test_anomalies_count_from_the_start_and_lately() -> None:
    monitor = Monitor()
    monitor.add(batch([*anomalies("gap", 3), *anomalies("overlap_differs", 1)]), START_NS)
    monitor.tick(health(1))
    assert vitals(monitor).anomalies == (("gap", 3, 3), ("overlap_differs", 1, 1))
    monitor.add(batch(anomalies("overlap_differs", 1)), START_NS + 80 * 10**9)
    monitor.tick(health(80))
    assert vitals(monitor).anomalies == (("overlap_differs", 2, 1), ("gap", 3, 0))


def test_a_clock_set_back_leaves_rates_that_make_sense() -> None:
    monitor = Monitor()
    for second in range(100, 120):
        monitor.tick(health(second, packets=10 * second))
    for second in range(50, 70):
        monitor.tick(health(second, packets=1200 + 10 * (second - 50)))
    assert vitals(monitor).packets_per_s == pytest.approx(10, rel=0.1)


def test_hours_of_ticks_keep_a_minute_of_them() -> None:
    monitor = Monitor()
    gap, nothing = batch(anomalies("gap", 1)), batch([])
    for tick in range(20_000):
        monitor.tick(health(tick / 50, packets=tick))
        monitor.add(gap if tick % 500 == 0 else nothing, START_NS + tick * 20_000_000)
    assert len(vars(monitor)["_healths"]) <= 1200
    assert len(vars(monitor)["_slots"]) <= 25
    assert vitals(monitor).packets_per_s == pytest.approx(50, rel=0.05)
