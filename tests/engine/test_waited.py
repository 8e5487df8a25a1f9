"""What of a call's time was waiting on purpose, and how much of the rest was the broker for certain: by the
protocol guide and KIP-74's and KIP-227's words on max_wait_ms and min_bytes, worked out by hand."""

from __future__ import annotations

from struct import pack
from typing import Any

import pytest

from tests.playbook import call, play, request, response, wait
from tests.spec.record_bytes import batch, record

TOPIC = pack(">h", 1) + b"t"


def after(milliseconds: float) -> Any:
    """The next packet comes so much later."""
    return wait((milliseconds - 1) / 1000)  # each packet takes one


def asked(max_wait: int, min_bytes: int) -> bytes:
    """Fetch v4 of one partition from offset 0."""
    partition = pack(">iiqi", 1, 0, 0, 1 << 20)
    return pack(">iiiib", -1, max_wait, min_bytes, 1 << 20, 0) + pack(">i", 1) + TOPIC + partition


def answered(*batches: bytes, error: int = 0, end: int | None = None) -> bytes:
    """Its response; `end` is the high watermark, without it that of the last batch."""
    data = b"".join(batches)
    watermark = len(batches) if end is None else end
    partition = pack(">iihqqi", 1, 0, error, watermark, watermark, 0) + pack(">i", len(data)) + data
    return pack(">ii", 0, 1) + TOPIC + partition


ONE = batch(record(), 1, base_offset=0)
SIZE = len(ONE)


def batches(count: int) -> list[bytes]:
    """Batches of one record each, of `SIZE` bytes, from offset 0 on."""
    return [pack(">q", at) + ONE[8:] for at in range(count)]


@pytest.mark.parametrize(
    ("max_wait", "min_bytes", "latency", "body", "waited", "least"),
    [
        # Nothing came: it waited as long as it might, and the broker took the rest.
        (500, 1, 500, answered(), 500, 0),
        (500, 1, 503, answered(), 500, 3),
        (500, 0, 503, answered(), 500, 3),
        (500, 1, 499, answered(), 499, 0),
        (500, 1, 498, answered(), 0, 0),
        (0, 1, 20, answered(), 0, 20),
        (1, 1, 0.6, answered(), 0.6, 0),
        (1, 1, 0.4, answered(), 0, 0),
        # Less came than was asked for: the same.
        (500, SIZE + 1, 504, answered(*batches(1)), 500, 4),
        (500, 3 * SIZE, 504, answered(*batches(2), end=9), 500, 4),
        (500, 100 * SIZE, 300, answered(*batches(2), end=9), 0, 0),
        # As much came as was asked for, at last: it may have waited until then.
        (500, 2 * SIZE, 300, answered(*batches(2)), 300, 0),
        (500, 1, 300, answered(*batches(1)), 300, 0),
        (500, 1, 0.5, answered(*batches(1)), 0, 0),
        # More was there, or had been for long: nobody knows.
        (500, 2 * SIZE, 300, answered(*batches(4)), 0, 0),
        (500, 1, 300, answered(*batches(2)), 0, 0),
        (500, 1, 300, answered(*batches(1), end=9), 0, 0),
        (500, 1, 800, answered(*batches(2)), 0, 300),
        # A change of leader may have ended a wait, too.
        (500, 1, 300, answered(error=6), 0, 0),
        (500, 1, 700, answered(error=6), 0, 200),
    ],
)
def test_a_fetch_waited_no_longer_than_it_might(
    max_wait: int, min_bytes: int, latency: float, body: bytes, waited: float, least: float
) -> None:
    script = play() >> request(1, 1, version=4, body=asked(max_wait, min_bytes))
    script = script >> after(latency) >> response(1, body=body)
    (fetch,) = (row for row in script.events() if row["event"] == "call")
    assert (fetch["max_wait_ms"], fetch["min_bytes"]) == (max_wait, min_bytes)
    assert fetch["latency_us"] == pytest.approx(1000 * latency)
    assert fetch["waited_us"] == pytest.approx(1000 * waited)
    assert fetch["broker_us"] == pytest.approx(1000 * (latency - waited))
    assert fetch["broker_least_us"] == pytest.approx(1000 * least)


def group_member(error: int) -> bytes:
    """A SyncGroup v0 response."""
    return pack(">hi", error, 0)


@pytest.mark.parametrize(("error", "waits"), [(0, True), (27, True), (25, False)])
def test_a_member_waits_for_the_others_unless_it_is_refused(error: int, waits: bool) -> None:
    body = pack(">h1sih1si", 1, b"g", 1, 1, b"m", 0)
    script = (
        play() >> request(14, 1, version=0, body=body) >> after(900) >> response(1, body=group_member(error))
    )
    own = 0.0 if waits else 900_000.0
    script << call(api="SyncGroup", waited_us=900_000.0 - own, broker_us=own, broker_least_us=own)


def test_what_no_request_allows_is_the_brokers_own_time() -> None:
    script = play() >> request(3, 1) >> after(900) >> response(1)
    script << call(api="Metadata", waited_us=0.0, broker_us=900_000.0, broker_least_us=900_000.0)
