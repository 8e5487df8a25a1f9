"""Kafka messages written by hand from the protocol guide, of the kinds that reading by content goes wrong on.

Bodies hold what looks like the beginning of requests: rows of partitions whose number reads as a length and
whose offset as header and correlation id, and whole requests as record values.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from struct import pack

from tests.intact.conversations import batch, request, response, text

PRODUCE, FETCH, LIST_OFFSETS, METADATA, OFFSET_COMMIT, HEARTBEAT, API_VERSIONS = 0, 1, 2, 3, 8, 12, 18


@dataclass(frozen=True)
class Message:
    """A request and its response, framed; `response` is None where the broker must not answer."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: bytes
    response: bytes | None
    committed: tuple[int, ...] | None = None
    """The offsets that an OffsetCommit commits, in the order of its partitions."""


def array(items: Sequence[bytes]) -> bytes:
    return pack(">i", len(items)) + b"".join(items)


class Writer:
    """Messages of one client, drawn at random."""

    def __init__(self, rng: random.Random, client_id: str | None) -> None:
        self.rng, self.client_id = rng, client_id

    def message(self, kind: str, number: int, **sizes: int) -> Message:
        """A message of a kind (the name of a method) with the correlation id `number`."""
        key, version, asked, answered, committed = getattr(self, kind)(**sizes)
        sent = request(key, version, number, asked, self.client_id)
        given = None if answered is None else response(number, answered)
        return Message(key, version, number, self.client_id, sent, given, committed)

    def versions(self) -> tuple[int, int, bytes, bytes, None]:
        ranges = [pack(">hhh", key, 0, 5 + key % 7) for key in range(self.rng.randint(20, 60))]
        return API_VERSIONS, 0, b"", pack(">h", 0) + array(ranges), None

    def heartbeat(self) -> tuple[int, int, bytes, bytes, None]:
        return HEARTBEAT, 0, text("billing") + pack(">i", 7) + text("member-1"), pack(">h", 0), None

    def metadata(self, topics: int = 0) -> tuple[int, int, bytes, bytes, None]:
        names = [f"orders-{number}" for number in range(topics or self.rng.randint(1, 30))]
        brokers = [
            pack(">i", node) + text(f"node-{node}") + pack(">i", 9092) + text(None) for node in (1, 2, 3)
        ]
        part = [pack(">hii", 0, index, 1) + array([pack(">i", 1)]) * 2 for index in range(6)]
        found = [pack(">h", 0) + text(name) + b"\0" + array(part) for name in names]
        return (
            METADATA,
            1,
            array([text(name) for name in names]),
            array(brokers) + pack(">i", 1) + array(found),
            None,
        )

    def commit(self, partitions: int = 0) -> tuple[int, int, bytes, bytes, tuple[int, ...]]:
        """An OffsetCommit whose rows read as request headers: length, key and version 0, correlation id."""
        count = partitions or self.rng.randint(200, 600)
        start = self.rng.randrange(20_000)
        offsets = tuple(start + self.rng.randrange(2_000) for _ in range(count))
        rows = [pack(">iq", index, offset) + text(None) for index, offset in enumerate(offsets)]
        answers = [pack(">ih", index, 0) for index in range(count)]
        asked = text("billing") + pack(">i", 7) + text("member-1") + pack(">q", -1)
        asked += array([text("orders") + array(rows)])
        return OFFSET_COMMIT, 2, asked, array([text("orders") + array(answers)]), offsets

    def offsets(self, partitions: int = 0) -> tuple[int, int, bytes, bytes, None]:
        count = partitions or self.rng.randint(100, 400)
        rows = [pack(">iq", index, -1) for index in range(count)]
        answers = [pack(">ihqq", index, 0, -1, self.rng.randrange(30_000)) for index in range(count)]
        topic = text("orders")
        return (
            LIST_OFFSETS,
            1,
            pack(">i", -1) + array([topic + array(rows)]),
            array([topic + array(answers)]),
            None,
        )

    def produce(self, size: int = 0, acks: int = 1) -> tuple[int, int, bytes, bytes | None, None]:
        """Records whose values are Kafka requests."""
        data = self.batch(size or self.rng.randint(200, 20_000))
        topic = text("requests")
        asked = (
            text(None)
            + pack(">hi", acks, 30_000)
            + array([topic + array([pack(">ii", 0, len(data)) + data])])
        )
        answered = array([topic + array([pack(">ihqq", 0, 0, self.rng.randrange(1 << 40), -1)])]) + pack(
            ">i", 0
        )
        return PRODUCE, 3, asked, answered if acks else None, None

    def produce_unanswered(self) -> tuple[int, int, bytes, bytes | None, None]:
        return self.produce(acks=0)

    def fetch(self, size: int = 0) -> tuple[int, int, bytes, bytes, None]:
        """What `produce` wrote, read; asked for with a row for each of hundreds of partitions."""
        data = self.batch(size or self.rng.randint(200, 60_000))
        rows = [
            pack(">iqi", index, self.rng.randrange(20_000), 1 << 20)
            for index in range(self.rng.randint(1, 300))
        ]
        asked = pack(">iiiib", -1, 500, 1, 1 << 24, 0) + array([text("requests") + array(rows)])
        part = pack(">ihqqii", 0, 0, 10, 10, -1, len(data)) + data
        return FETCH, 4, asked, pack(">i", 0) + array([text("requests") + array([part])]), None

    def batch(self, size: int) -> bytes:
        """A record batch (version 2) of about `size` bytes, whose CRC tells when a byte of it is wrong."""
        values: list[bytes] = []
        while sum(map(len, values)) < size:
            name = self.rng.choice(["tester", "app", "", None])
            key = self.rng.choice([METADATA, HEARTBEAT, API_VERSIONS, PRODUCE])
            body = self.rng.randbytes(self.rng.randint(0, 300))
            values.append(request(key, 0, self.rng.randrange(3_000), body, name))
        return batch(values)
