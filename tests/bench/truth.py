"""What really went over the connections of an undamaged capture, for comparison; nothing of kwsniff is used.

Sequence numbers put each direction's bytes in order, the four bytes of length cut them into frames, and a
request and a response of the same connection and correlation id are a call. It needs connections recorded
from their SYN on, without a packet lost. The brokers' log of handled requests is a second witness.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from socket import inet_ntoa
from typing import NamedTuple

import orjson
import pcapfile

Address = tuple[str, int]
Pair = tuple[Address, Address]

REQUEST_HEADER, RESPONSE_HEADER = 12, 8
"""Bytes from a frame's length to its correlation id."""
LENGTHS, ETHERNET, WRAP = 8, 14, 1 << 32
SYN = 0x02
NEWEST_API = 200  # well above what there is
LOG_LINE = b"Completed request:"


class Ends(NamedTuple):
    """A connection by its two ends."""

    client_ip: str
    client_port: int
    broker_ip: str
    broker_port: int


class Key(NamedTuple):
    """A call; no client uses a correlation id twice on a connection."""

    ends: Ends
    correlation_id: int


@dataclass
class Frames:
    """All frames of a capture; packets are counted from 0."""

    api_keys: dict[Key, int] = field(default_factory=dict)
    """Of each request, those too of which the end is missing."""
    requests: dict[Key, list[int]] = field(default_factory=dict)
    """The packets that carry bytes of the request."""
    responses: dict[Key, list[int]] = field(default_factory=dict)
    """The packets that carry bytes of the response."""
    begun: set[Key] = field(default_factory=set)
    """Each response, those too of which the end is missing, as where the capture ends."""
    unclear: set[Ends] = field(default_factory=set)
    """Left out: two connections had the same ends, or what a client sent is no sequence of frames."""


class Segment(NamedTuple):
    """A packet's bytes and their place in the stream."""

    place: int
    packet: int
    payload: bytes


class Direction:
    """One direction of a connection."""

    def __init__(self, sequence: int) -> None:
        self.first = (sequence + 1) % WRAP
        self.segments: list[Segment] = []

    def add(self, sequence: int, packet: int, payload: bytes) -> None:
        self.segments.append(Segment((sequence - self.first) % WRAP, packet, payload))

    def frames(self, header: int) -> Iterator[tuple[bytes, list[int]]]:
        """Each frame's bytes behind its length, and the packets it came in: none for a last one cut short.
        One of which the `header` is not all there is left out."""
        stream, starts, packets = self._joined()
        at = 0
        while at + header <= len(stream):
            end = at + 4 + int.from_bytes(stream[at : at + 4], "big")
            first, last = bisect_right(starts, at) - 1, bisect_right(starts, end - 1)
            yield bytes(stream[at + 4 : end]), packets[first:last] if end <= len(stream) else []
            at = end

    def _joined(self) -> tuple[bytearray, list[int], list[int]]:
        """The bytes up to the first hole; where new ones begin, and the packet that brought them."""
        stream, starts, packets = bytearray(), [], []
        for place, packet, payload in sorted(self.segments):
            if place > len(stream):
                break
            if fresh := payload[len(stream) - place :]:
                starts.append(len(stream))
                packets.append(packet)
                stream += fresh
        return stream, starts, packets


def frames(path: Path, ports: list[int]) -> Frames:
    """Cut the streams of a capture of loopback (Ethernet, IPv4), undamaged and with brokers on `ports`."""
    directions, twice = _directions(path)
    found = Frames(unclear={ends for pair in twice if (ends := _ends(*pair, ports))})
    for (source, target), direction in directions.items():
        ends = _ends(source, target, ports)
        if ends is None:
            _responses(Ends(*target, *source), direction, found)
        elif ends not in found.unclear:
            _requests(ends, direction, found)
    return found


def _ends(source: Address, target: Address, ports: list[int]) -> Ends | None:
    """The ends of a connection in the direction of requests, else None."""
    return Ends(*source, *target) if target[1] in ports else None


def _requests(ends: Ends, direction: Direction, found: Frames) -> None:
    for body, packets in direction.frames(REQUEST_HEADER):
        key = Key(ends, int.from_bytes(body[4:8], "big", signed=True))
        found.api_keys[key] = int.from_bytes(body[:2], "big")
        if found.api_keys[key] > NEWEST_API:
            found.unclear.add(ends)
            return
        if packets:
            found.requests[key] = packets


def _responses(ends: Ends, direction: Direction, found: Frames) -> None:
    if ends in found.unclear:
        return
    for body, packets in direction.frames(RESPONSE_HEADER):
        key = Key(ends, int.from_bytes(body[:4], "big", signed=True))
        found.begun.add(key)
        if packets:
            found.responses[key] = packets


def _directions(path: Path) -> tuple[dict[Pair, Direction], set[Pair]]:
    """The directions, and those that were begun twice."""
    directions: dict[Pair, Direction] = {}
    twice: set[Pair] = set()
    for packet, (_, record) in enumerate(pcapfile.packets(path)):
        ip = record[LENGTHS + ETHERNET :]
        tcp = ip[(ip[0] & 15) * 4 : int.from_bytes(ip[2:4], "big")]
        source_port, target_port, sequence, _, offset, flags = struct.unpack_from(">HHIIBB", tcp)
        pair = ((inet_ntoa(ip[12:16]), source_port), (inet_ntoa(ip[16:20]), target_port))
        if flags & SYN:
            if directions.setdefault(pair, Direction(sequence)).first != (sequence + 1) % WRAP:
                twice.add(pair)
        elif payload := tcp[(offset >> 4) * 4 :]:
            directions[pair].add(sequence, packet, payload)
    return directions, twice


def logged(path: Path) -> dict[Key, int]:
    """The API key of each request that the brokers handled, by their log (kafka.request.logger at debug).

    Without what a broker forwarded to the controller: it is logged as the client's request, but was inside an
    Envelope (KIP-590).
    """
    found = {}
    with path.open("rb") as lines:
        for line in lines:
            if line.startswith(LOG_LINE):
                entry = orjson.loads(line[len(LOG_LINE) :])
                if entry.get("isForwarded"):
                    continue
                header = entry["requestHeader"]
                found[Key(_named(entry["connection"]), header["correlationId"])] = header["requestApiKey"]
    return found


def _named(connection: str) -> Ends:
    """Of a broker's name for a connection: 127.0.0.1:9092-127.0.0.1:51234-0-7."""
    broker, client = (each.rsplit(":", 1) for each in connection.split("-")[:2])
    return Ends(client[0], int(client[1]), broker[0], int(broker[1]))
