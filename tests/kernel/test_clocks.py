"""Captures of which the two directions were stamped by clocks that differ."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from kwsniff.config import Config
from tests.playbook import BROKER, CLIENT, Segment, handshake, play, request, response, run

TABLES = Config()


def conversation(calls: int) -> list[Segment]:
    script = play() >> handshake()
    for corr in range(1, calls + 1):
        script >> request(corr=corr) >> response(corr=corr)
    return script.segments


def skewed(segments: list[Segment], side: int, seconds: float, *, by_time: bool) -> list[Segment]:
    """The clock of one side is ahead; `by_time`: both captures were merged by packet time."""
    moved = [
        replace(each, time=each.time + int(seconds * 1e9)) if each.side == side else each for each in segments
    ]
    return sorted(moved, key=lambda each: each.time) if by_time else moved


@pytest.mark.parametrize("by_time", [True, False])
@pytest.mark.parametrize("seconds", [0.05, 0.9, 2.0, 20.0])
@pytest.mark.parametrize("side", [CLIENT, BROKER])
def test_calls_are_paired_all_the_same(side: int, seconds: float, by_time: bool) -> None:
    rows = run(skewed(conversation(30), side, seconds, by_time=by_time), TABLES)
    calls = [(row["correlation_id"], row["status"]) for row in rows if row["event"] == "call"]
    assert sorted(calls) == [(corr, "ok") for corr in range(1, 31)]


@pytest.mark.parametrize("by_time", [True, False])
@pytest.mark.parametrize("seconds", [0.05, 2.0])
def test_a_response_earlier_than_its_request_is_said_once(seconds: float, by_time: bool) -> None:
    rows = run(skewed(conversation(5), CLIENT, seconds, by_time=by_time), TABLES)
    (found,) = [row for row in rows if row["code"] == "clocks_differ"]
    assert f"{seconds:.2f}"[:3] in found["detail"] or f"{seconds - 0.001:.3f}" in found["detail"]
    assert all(row["latency_us"] is None or row["latency_us"] >= 0 for row in rows if row["event"] == "call")


def test_an_ack_of_the_client_before_the_syn_ack_shows_a_broker_whose_clock_is_ahead() -> None:
    rows = run(skewed(conversation(5), BROKER, 2.0, by_time=True), TABLES)
    assert Counter(row["code"] for row in rows if row["event"] == "anomaly") == {"clocks_differ": 1}


def test_packets_that_changed_places_on_their_way_show_no_clock() -> None:
    segments = conversation(5)
    segments[3:5] = [replace(segments[4], time=segments[3].time - 100_000), segments[3]]
    assert not [row for row in run(segments, TABLES) if row["code"] == "clocks_differ"]


def test_a_response_without_request_does_not_wait_long_where_the_others_came_in_order() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1) >> response(corr=7)
    for corr in range(2, 4):
        script.clock += 2_000_000_000
        script >> response(corr=corr)
    script >> request(corr=40)
    orphans = [row["correlation_id"] for row in run(script.segments, TABLES) if row["status"] == "orphan"]
    assert orphans[0] == 7


def test_one_packet_a_year_ahead_splits_no_connection() -> None:
    segments = conversation(10)
    for place in (3, 8, 11):
        far = [*segments]
        far[place] = replace(far[place], time=far[place].time + 365 * 86_400 * 10**9)
        rows = run(far, TABLES)
        assert len([row for row in rows if row["event"] == "connection"]) == 1
        calls = [(row["correlation_id"], row["status"]) for row in rows if row["event"] == "call"]
        assert sorted(calls) == [(corr, "ok") for corr in range(1, 11)]
