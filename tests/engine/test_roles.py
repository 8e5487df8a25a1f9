"""Which end is the client, where only a port says so, and it says the wrong thing.

A capture that begins in the middle holds no SYN. A client may have taken a port that is named as a broker's,
and of two brokers both ports may be. What the ends say decides, however late it does.
"""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from tests.playbook import (
    BROKER,
    CLIENT,
    Act,
    Play,
    fin,
    from_broker,
    from_client,
    kafka_request,
    kafka_response,
    on_ports,
    play,
    request,
    response,
)

CLIENT_PORT, BROKER_PORT = 41_000, 19_092
WRONG = (CLIENT_PORT,)
BOTH = (CLIENT_PORT, BROKER_PORT)
SEGMENT = 1448
NAMED = [pytest.param(WRONG, id="client"), pytest.param(BOTH, id="both")]


def met(ports: tuple[int, ...], **choices: Any) -> Play:
    """A connection that is met in the middle, with these ports named."""
    return play(ports=ports, **choices) >> on_ports(CLIENT_PORT, BROKER_PORT)


def topics(count: int) -> bytes:
    return b"".join(pack(">h", 240) + b"%0240d" % number for number in range(count))


def many_asked(count: int) -> bytes:
    """The body of a Metadata v0 request for so many topics (protocol guide)."""
    return pack(">i", count) + topics(count)


def many_described(count: int) -> bytes:
    """The body of the Metadata v0 response, no topic of which has a partition."""
    each = (pack(">hh", 0, 240) + b"%0240d" % number + pack(">i", 0) for number in range(count))
    return pack(">ii", 0, count) + b"".join(each)


def cut(frame: bytes) -> list[bytes]:
    return [frame[at : at + SEGMENT] for at in range(0, len(frame), SEGMENT)]


def long_request(corr: int, client_id: str | None = "tester") -> Act:
    return from_client(*cut(kafka_request(3, 0, corr, many_asked(600), client_id)))


def long_response(corr: int) -> Act:
    return from_broker(*cut(kafka_response(corr, many_described(600))))


def told(script: Play) -> list[tuple[Any, ...]]:
    """Of each call: who is the broker, what it was, and how it ended."""
    names = ("broker_port", "api", "correlation_id", "status")
    return [tuple(row[name] for name in names) for row in script.events() if row["event"] == "call"]


def ok(*numbers: int) -> list[tuple[Any, ...]]:
    return [(BROKER_PORT, "Metadata", number, "ok") for number in numbers]


@pytest.mark.parametrize("ports", NAMED)
def test_a_capture_that_begins_with_a_response_that_looks_like_a_produce(ports: tuple[int, ...]) -> None:
    script = met(ports) >> response(corr=4)
    for number in (5, 6, 7):
        script = script >> request(corr=number) >> response(corr=number)
    found = told(script)
    assert [row for row in found if row[2] != 4] == ok(5, 6, 7)
    assert all(row[0] == BROKER_PORT and row[3] == "orphan" for row in found if row[2] == 4)


@pytest.mark.parametrize("ports", NAMED)
def test_one_request_that_decodes_says_more_than_a_port(ports: tuple[int, ...]) -> None:
    found = told(met(ports) >> request(corr=5) >> fin(CLIENT) >> fin(BROKER))
    assert found == [(BROKER_PORT, "Metadata", 5, "unanswered")]


@pytest.mark.parametrize("ports", NAMED)
def test_long_responses_are_those_of_the_end_that_is_asked(ports: tuple[int, ...]) -> None:
    script = met(ports) >> from_broker(*cut(many_described(600)))
    for number in (5, 6, 7):
        script = script >> request(corr=number) >> long_response(number)
    assert told(script) == ok(5, 6, 7)


@pytest.mark.parametrize("ports", NAMED)
def test_long_requests_are_those_of_a_client(ports: tuple[int, ...]) -> None:
    script = met(ports) >> from_client(*cut(many_asked(600)))
    for number in (5, 6, 7):
        script = script >> long_request(number) >> response(corr=number)
    assert told(script) == ok(5, 6, 7)


@pytest.mark.parametrize("ports", NAMED)
def test_long_requests_and_long_responses(ports: tuple[int, ...]) -> None:
    script = met(ports) >> from_broker(*cut(many_described(600)))
    for number in (5, 6, 7):
        script = script >> long_request(number) >> long_response(number)
    assert told(script) == ok(5, 6, 7)


@pytest.mark.parametrize("ports", NAMED)
def test_a_client_without_a_name_is_one_too(ports: tuple[int, ...]) -> None:
    script = met(ports) >> from_broker(*cut(many_described(600)))
    for number in (5, 6, 7):
        script = script >> request(corr=number, client_id=None) >> long_response(number)
    assert told(script) == ok(5, 6, 7)
