"""What a search for frames takes for one, where a capture begins among the bytes of a long request."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from tests.playbook import (
    Play,
    from_broker,
    from_client,
    kafka_request,
    kafka_response,
    lost_from_client,
    play,
)

SEGMENT = 1448
BATCH_LENGTHS = (0x120, 0x17A, 0x17E)
"""Lengths of batches, the bytes of which read like a client id of one letter."""


def produce(corr: int, length: int) -> bytes:
    """A Produce v3 request of 40 partitions, each with a batch of this length (protocol guide; the batches of
    KIP-98: base offset, length, leader epoch, magic, ...): a producer's base offsets are 0."""
    batch = pack(">qiib", 0, length, -1, 2) + bytes(3) + b"\xa7" * (length - 8)
    records = [pack(">ii", number, len(batch)) + batch for number in range(40)]
    body = pack(">hhii", -1, 1, 1000, 1) + pack(">h6s", 6, b"orders") + pack(">i", len(records))
    return kafka_request(0, 3, corr, body + b"".join(records), "producer")


def acknowledged(corr: int) -> bytes:
    """The answer, for no topic."""
    return kafka_response(corr, pack(">ii", 0, 0))


def told(script: Play) -> list[tuple[Any, ...]]:
    rows = [row for row in script.events() if row["event"] == "call"]
    return [(row["api"], row["correlation_id"], row["request_packet"] is not None) for row in rows]


@pytest.mark.parametrize("length", BATCH_LENGTHS)
@pytest.mark.parametrize("start", [700, 1000, 1448])
def test_the_head_of_a_batch_is_no_request(length: int, start: int) -> None:
    """Behind the answers of a broker the client's bytes begin inside a request, before a batch."""
    script = play() >> from_broker(acknowledged(3)) >> from_broker(acknowledged(4))
    script = script >> lost_from_client(produce(6, length)[:start])
    stream = produce(6, length)[start:] + b"".join(produce(corr, length) for corr in range(7, 12))
    script = script >> from_client(*(stream[at : at + SEGMENT] for at in range(0, len(stream), SEGMENT)))
    for corr in range(5, 12):
        script = script >> from_broker(acknowledged(corr))
    assert [each for each in told(script) if each[2]] == [("Produce", corr, True) for corr in range(7, 12)]
    assert [each[1] for each in told(script) if not each[2]] == [3, 4, 5, 6]


@pytest.mark.parametrize("length", BATCH_LENGTHS)
def test_a_segment_that_begins_before_the_head_of_a_batch_is_no_request(length: int) -> None:
    stream = produce(6, length)
    start = stream.index(pack(">ii", 1, length + 12)) + 5
    script = play() >> from_broker(acknowledged(3)) >> from_broker(acknowledged(4))
    script = script >> lost_from_client(stream[:start])
    stream = stream[start:] + produce(7, length) + produce(8, length)
    script = script >> from_client(*(stream[at : at + SEGMENT] for at in range(0, len(stream), SEGMENT)))
    script = script >> from_broker(acknowledged(7)) >> from_broker(acknowledged(8))
    assert [each[1] for each in told(script) if each[2]] == [7, 8]
