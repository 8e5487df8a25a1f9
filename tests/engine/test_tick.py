"""What is told because time passed, although nothing came: for sources that go on for ever."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from struct import pack
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine.analyze import analyze, keyed
from kwsniff.net.segments import at_time
from tests.playbook import (
    BODIES,
    BROKER,
    CLIENT,
    START,
    Play,
    ack,
    batch,
    from_client,
    handshake,
    kafka_request,
    lost_from_client,
    play,
    request,
    response,
    rst,
    wait,
)
from tests.samples import names, sample

SECOND = 1_000_000_000


def then(script: Play, *seconds: float) -> list[list[dict[str, Any]]]:
    """The events of a play, and those of each tick after so many seconds of the play's end; what finishing
    adds is left out."""
    given = [batch(script.segments), *(at_time(script.clock + int(each * SECOND)) for each in seconds)]
    told = []
    for parts in itertools.islice(keyed(given, script.config), len(given)):
        told.append([row for events, _ in parts if events is not None for row in events.to_pylist()])
    return told


def calls(rows: list[dict[str, Any]]) -> list[tuple[int, str, str | None]]:
    return [
        (row["correlation_id"], row["status"], row["unanswered_because"])
        for row in rows
        if row["event"] == "call"
    ]


def test_a_request_is_reported_when_it_waited_too_long() -> None:
    script = play(request_timeout=30) >> handshake() >> request(corr=7)
    _, early, late, later = then(script, 29, 31, 60)
    assert calls(early) == []
    assert calls(late) == [(7, "unanswered", "timeout")]
    assert calls(later) == []


def test_a_request_whose_end_is_missing_waits_as_long_from_its_beginning() -> None:
    whole = kafka_request(3, 0, 7, pack(">i", 0))
    script = play(request_timeout=60) >> handshake()
    script = script >> from_client(whole[:-2]) >> lost_from_client(whole[-2:])
    script = script >> request(corr=8) >> wait(11) >> ack(BROKER)  # of what is missing, too: it is given up
    _, early, late = then(script, 48, 61)
    assert calls(early) == []
    assert calls(late) == [(7, "truncated", None), (8, "unanswered", "timeout")]


def test_what_lies_behind_a_hole_waits_from_when_it_came() -> None:
    whole = kafka_request(3, 0, 7, pack(">i", 0))
    script = play(request_timeout=60) >> handshake()
    script = script >> from_client(whole[:-2]) >> lost_from_client(whole[-2:])
    script = script >> request(corr=8) >> wait(30) >> ack(BROKER)
    _, given_up, early, late = then(script, 2, 29, 31)
    assert calls(given_up) == calls(early) == []
    assert calls(late) == [(7, "truncated", None), (8, "unanswered", "timeout")]


def test_without_a_timeout_it_waits_until_the_connection_ends() -> None:
    script = play(idle_timeout=600) >> handshake() >> request(corr=7)
    _, early, late = then(script, 599, 612)
    assert calls(early) == []
    assert calls(late) == [(7, "unanswered", "connection_closed")]


def test_what_a_fetch_lets_the_broker_wait_comes_on_top() -> None:
    # Fetch v0: replica -1, max wait 60 s, min bytes 1, no topics (protocol guide)
    body = pack(">iiii", -1, 60_000, 1, 0)
    script = play(request_timeout=30) >> handshake()
    script.send(CLIENT, kafka_request(1, 0, 9, body))
    _, early, late = then(script, 89, 91)
    assert calls(early) == []
    assert calls(late) == [(9, "unanswered", "timeout")]


def test_members_of_a_group_may_wait_for_each_other() -> None:
    # JoinGroup v0: group, session timeout, member, protocol type, no protocols (protocol guide)
    body = pack(">h1sih", 1, b"g", 30_000, 0) + pack(">h8si", 8, b"consumer", 0)
    script = play(request_timeout=30) >> handshake()
    script.send(CLIENT, kafka_request(11, 0, 9, body))
    _, early, late = then(script, 60, 331)
    assert calls(early) == []
    assert calls(late) == [(9, "unanswered", "timeout")]


def test_a_response_after_the_timeout_is_an_orphan() -> None:
    script = play(request_timeout=30) >> handshake() >> request(corr=7)
    asked = batch(script.segments)
    late = script >> wait(40) >> response(corr=7)
    given = [asked, at_time(START + 35 * SECOND), batch(late.segments[len(asked) :])]
    rows = [row for events in analyze(given, script.config) for row in events.to_pylist()]
    assert calls(rows) == [(7, "unanswered", "timeout"), (7, "orphan", None)]


def test_a_response_whose_request_never_comes_is_told_after_a_while() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1) >> response(corr=2)
    first, early, late = then(script, 0.5, 2)
    assert calls(first) == [(1, "ok", None)]
    assert calls(early) == []
    assert calls(late) == [(2, "orphan", None)]


def test_a_hole_that_the_broker_acknowledged_is_given_up() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1)
    script = script >> lost_from_client(bytes(24)) >> request(corr=3) >> ack(BROKER)
    _, early, late = then(script, 0.5, 2)
    assert not early
    assert [row["code"] for row in late if row["event"] == "anomaly"] == ["gap", "resynchronised"]


def test_a_hole_that_the_broker_did_not_acknowledge_may_be_filled_at_any_time() -> None:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1)
    missing = kafka_request(3, 0, 2, BODIES[3, 0][0])
    before = script.next_seq[CLIENT]
    script = script >> lost_from_client(missing) >> request(corr=3)
    _, *rows = then(script, 40, 400)
    assert not any(rows)
    script >> wait(500) >> from_client(missing, seq=before) >> response(corr=2) >> response(corr=3)
    assert calls(script.events()) == [(1, "ok", None), (2, "ok", None), (3, "ok", None)]


def test_a_hole_ends_by_time_alone_where_nothing_of_the_broker_was_captured() -> None:
    script = play() >> request(corr=1) >> lost_from_client(bytes(24)) >> request(corr=3)
    _, early, late = then(script, 20, 40)
    assert not early
    assert "gap" in [row["code"] for row in late if row["event"] == "anomaly"]


def test_a_reset_connection_ends_although_nothing_follows() -> None:
    script = play() >> handshake() >> request(corr=1) >> rst(1)
    _, late, later = then(script, 2, 200)
    assert calls(late) == [(1, "unanswered", "connection_reset")]
    assert [row["event"] for row in later] == ["connection"]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", names())
def test_ticks_change_no_call_of_a_sample(name: str) -> None:
    no_call_is_changed_by_ticks(name, "auto")


@pytest.mark.one_of(10)
@pytest.mark.parametrize("name", names())
def test_nor_do_they_when_kernels_are_interpreted(name: str) -> None:
    no_call_is_changed_by_ticks(name, "never")


def no_call_is_changed_by_ticks(name: str, kernels: str) -> None:
    config = Config(block_packets=50, kernels=kernels)

    def ticking() -> Iterator[pa.RecordBatch]:
        for each in segments(sample(name).paths, config):
            yield each
            times = each.column("time").drop_null()
            if len(times):
                yield at_time(times[-1].as_py())

    ticked = [row for events in analyze(ticking(), config) for row in events.to_pylist()]
    plain = sample(name).events()

    def key(row: dict[str, Any]) -> str:
        return str(sorted((name, value) for name, value in row.items() if value is not None))

    assert sorted(key(row) for row in ticked if row["event"] == "call") == sorted(
        key(row) for row in plain if row["event"] == "call"
    )
