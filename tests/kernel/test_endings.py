"""Messages cut short: whether the capture lacks their end, or it was never sent."""

from __future__ import annotations

import pytest

from kwsniff.config import Config
from tests.playbook import (
    BODIES,
    BROKER,
    CLIENT,
    Act,
    Play,
    ack,
    fin,
    from_broker,
    handshake,
    kafka_response,
    play,
    request,
    response,
    rst,
    run,
)  # fmt: skip

TABLES = Config()
ANSWER = kafka_response(2, BODIES[3, 0][1])


def cut_off(*endings: Act) -> Play:
    script = play() >> handshake() >> request(corr=1) >> response(corr=1) >> request(corr=2)
    script >> from_broker(ANSWER[:10])
    for ending in endings:
        script >> ending
    return script


@pytest.mark.parametrize(
    ("endings", "closed_by", "words"),
    [
        ([rst(CLIENT)], "client_rst", "the client reset the connection first"),
        ([rst(BROKER)], "broker_rst", "the broker reset the connection first"),
        ([fin(BROKER), fin(CLIENT)], "broker_fin", "the broker closed the connection first"),
    ],
)
def test_who_ended_the_connection_inside_a_response_is_said(
    endings: list[Act], closed_by: str, words: str
) -> None:
    rows = run(cut_off(*endings).segments, TABLES)
    (cut,) = [row for row in rows if row["status"] == "truncated"]
    assert (cut["correlation_id"], cut["closed_by"]) == (2, closed_by)
    (found,) = [row for row in rows if row["code"] == "frame_incomplete"]
    assert found["detail"].endswith(words)


def test_what_was_acknowledged_is_missing_from_the_capture() -> None:
    script = cut_off()
    script.next_seq[BROKER] += len(ANSWER) - 10
    rows = run((script >> ack(CLIENT) >> rst(CLIENT)).segments, TABLES)
    (cut,) = [row for row in rows if row["status"] == "truncated"]
    assert cut["closed_by"] is None
    (found,) = [row for row in rows if row["code"] == "frame_incomplete"]
    assert found["detail"].endswith("captured")


def test_a_capture_that_ends_inside_a_response_blames_nobody() -> None:
    (cut,) = [row for row in run(cut_off().segments, TABLES) if row["status"] == "truncated"]
    assert cut["closed_by"] is None


def test_a_reset_connection_gives_up_its_requests_as_soon_as_stragglers_had_time_to_come() -> None:
    script = play(max_outstanding_total=30) >> handshake()
    for corr in range(20):
        script >> request(corr=corr)
    script >> rst(CLIENT)
    first = [*script.segments]
    other = play()
    other.ports = (50_001, 9092)
    other.clock = script.clock + 3_000_000_000
    other >> handshake()
    for corr in range(20):
        other >> request(corr=corr)
    rows = run([*first, *other.segments], script.config)
    assert not [row for row in rows if row["code"] == "outstanding_limit"]
    because = [row["unanswered_because"] for row in rows if row["status"] == "unanswered"]
    assert because == ["connection_reset"] * 20 + ["capture_ended"] * 20
