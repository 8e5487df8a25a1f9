"""Scripts of TCP segments: this arrives, that is reported.

    play() >> syn() >> request(api=3, corr=7) >> response(corr=7) << call(api="Metadata", status="ok")

A play keeps sequence numbers, packet numbers and a clock that moves one millisecond a packet. Acts that
begin with `lost_` move the stream without a packet. `<<` takes the next event of its kind, in order, and
compares the fields that are named.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from struct import pack
from typing import Any

import pyarrow as pa

from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from kwsniff.net.segments import SEGMENTS

FIN, SYN, RST, ACK = 1, 2, 4, 16
CLIENT, BROKER = 0, 1
MILLISECOND = 1_000_000
START = 1_700_000_000_000_000_000


@dataclass(frozen=True)
class Segment:
    """One packet of the play."""

    side: int
    packet: int
    time: int
    seq: int
    ack: int
    flags: int
    data: bytes
    length: int
    """On the wire; more than `data` if the snap length cut it."""
    ports: tuple[int, int] = (50_000, 9092)
    hosts: tuple[int, int] = (0x0A000001, 0x0A000002)
    tsval: int = -1
    """TCP timestamp of its sender."""


def kafka_request(api: int, version: int, corr: int, body: bytes, client_id: str | None = "tester") -> bytes:
    """A request with header version 1 (protocol guide, "Request Header v1")."""
    name = b"\xff\xff" if client_id is None else pack(">h", len(client_id)) + client_id.encode()
    frame = pack(">hhi", api, version, corr) + name + body
    return pack(">i", len(frame)) + frame


def kafka_response(corr: int, body: bytes) -> bytes:
    """A response with header version 0."""
    return pack(">ii", len(body) + 4, corr) + body


class Play:
    """The script so far, and the events it led to."""

    def __init__(self, config: Config | None = None, **choices: Any) -> None:
        self.config = config or Config(**choices)
        self.segments: list[Segment] = []
        self.clock = START
        self.next_seq = [1000, 2000]
        self.ports = (50_000, 9092)
        self._events: list[dict[str, Any]] | None = None
        self._taken: dict[str, int] = {"call": 0, "anomaly": 0, "connection": 0}

    def __rshift__(self, act: Callable[[Play], None]) -> Play:
        act(self)
        self._events = None
        return self

    def __lshift__(self, expected: Expected) -> Play:
        rows = [row for row in self.events() if row["event"] == expected.kind]
        index = self._taken[expected.kind]
        assert index < len(rows), f"no more {expected.kind}: {rows}"
        self._taken[expected.kind] += 1
        seen = {name: rows[index][name] for name in expected.fields}
        assert seen == expected.fields, rows[index]
        return self

    def nothing_more(self) -> Play:
        """Assert that every call and anomaly was expected."""
        for kind in ("call", "anomaly"):
            rows = [row for row in self.events() if row["event"] == kind]
            assert rows[self._taken[kind] :] == [], kind
        return self

    def send(
        self, side: int, data: bytes, flags: int = ACK, length: int | None = None, seq: int | None = None
    ) -> None:
        """Append one segment of `side`; without `seq` it continues the stream."""
        length = len(data) if length is None else length
        seq_now = self.next_seq[side] if seq is None else seq
        packet = self.segments[-1].packet + 1 if self.segments else 1
        self.segments.append(
            Segment(
                side,
                packet,
                self.clock,
                seq_now % 2**32,
                self.next_seq[1 - side] % 2**32,
                flags,
                data,
                length,
                self.ports,
            )
        )
        self.clock += MILLISECOND
        if seq is None:
            self.next_seq[side] += length + (1 if flags & (SYN | FIN) else 0)

    def events(self) -> list[dict[str, Any]]:
        """All events, in order."""
        if self._events is None:
            self._events = run(self.segments, self.config)
        return self._events


@dataclass(frozen=True)
class Expected:
    """An event to come, with some of its fields."""

    kind: str
    fields: dict[str, Any]


def call(**fields: Any) -> Expected:
    return Expected("call", fields)


def anomaly(code: str, **fields: Any) -> Expected:
    return Expected("anomaly", {"code": code, **fields})


def connection(**fields: Any) -> Expected:
    return Expected("connection", fields)


def play(**choices: Any) -> Play:
    return Play(**choices)


Act = Callable[[Play], None]

BODIES: dict[tuple[int, int], tuple[bytes, bytes]] = {
    (3, 0): (pack(">i", 0), pack(">ii", 0, 0)),
    (18, 0): (b"", pack(">hi", 0, 0)),
    (12, 0): (pack(">h1sih1s", 1, b"g", 1, 1, b"m"), pack(">h", 0)),
    (17, 0): (pack(">h5s", 5, b"PLAIN"), pack(">hi", 0, 0)),
}
"""Minimal request and response bodies by API key and version, written by hand from the protocol guide."""


def handshake() -> Act:
    """SYN, SYN-ACK, ACK."""

    def act(script: Play) -> None:
        script.send(CLIENT, b"", SYN)
        script.send(BROKER, b"", SYN | ACK)
        script.send(CLIENT, b"", ACK)

    return act


def request(
    api: int = 3, corr: int = 1, version: int = 0, body: bytes | None = None, client_id: str | None = "tester"
) -> Act:
    body = BODIES[api, version][0] if body is None else body
    return from_client(kafka_request(api, version, corr, body, client_id))


def response(corr: int = 1, api: int = 3, version: int = 0, body: bytes | None = None) -> Act:
    return from_broker(kafka_response(corr, BODIES[api, version][1] if body is None else body))


def stamped(segments: Sequence[Segment], begin: int = 1000) -> list[Segment]:
    """The segments with TCP timestamps, one tick each."""
    return [replace(each, tsval=(begin + at) % 2**32) for at, each in enumerate(segments)]


def from_client(*pieces: bytes, **how: Any) -> Act:
    """Segments of the client, one a piece."""
    return lambda script: [script.send(CLIENT, piece, **how) for piece in pieces] and None


def from_broker(*pieces: bytes, **how: Any) -> Act:
    return lambda script: [script.send(BROKER, piece, **how) for piece in pieces] and None


def lost_from_client(data: bytes) -> Act:
    """Bytes that were sent but not captured."""

    def act(script: Play) -> None:
        script.next_seq[CLIENT] += len(data)

    return act


def lost_from_broker(data: bytes) -> Act:
    def act(script: Play) -> None:
        script.next_seq[BROKER] += len(data)

    return act


def fin(side: int) -> Act:
    return lambda script: script.send(side, b"", FIN | ACK)


def rst(side: int) -> Act:
    return lambda script: script.send(side, b"", RST | ACK)


def ack(side: int) -> Act:
    return lambda script: script.send(side, b"", ACK)


def wait(seconds: float) -> Act:
    def act(script: Play) -> None:
        script.clock += int(seconds * 1e9)

    return act


def on_ports(client: int, broker: int) -> Act:
    def act(script: Play) -> None:
        script.ports = (client, broker)

    return act


def batch(segments: Sequence[Segment]) -> pa.RecordBatch:
    """SEGMENTS of a part of a play."""
    rows: dict[str, list[Any]] = {name: [] for name in SEGMENTS.names}
    for segment in segments:
        source, target = segment.side, 1 - segment.side
        values = {
            "capture": "play", "packet": segment.packet, "time": segment.time,
            "src_hi": 0, "src_lo": 0xFFFF00000000 | segment.hosts[source],
            "dst_hi": 0, "dst_lo": 0xFFFF00000000 | segment.hosts[target],
            "src_port": segment.ports[source], "dst_port": segment.ports[target],
            "seq": segment.seq, "ack": segment.ack, "flags": segment.flags,
            "tsval": segment.tsval,
            "length": segment.length, "payload": segment.data, "anomaly": None, "detail": None,
        }  # fmt: skip
        for name, value in values.items():
            rows[name].append(value)
    return pa.RecordBatch.from_pydict(rows, schema=SEGMENTS)


def run(
    segments: Sequence[Segment], config: Config | None = None, cuts: Iterable[int] = ()
) -> list[dict[str, Any]]:
    """Events of segments, given to `analyze` in batches that are cut at `cuts`."""
    edges = sorted({0, len(segments), *(cut for cut in cuts if 0 < cut < len(segments))})
    batches = [batch(segments[a:b]) for a, b in itertools.pairwise(edges)]
    return [row for events in analyze(batches, config or Config()) for row in events.to_pylist()]
