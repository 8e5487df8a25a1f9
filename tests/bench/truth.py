"""What really went over the connections of an undamaged capture, for comparison; nothing of kwsniff is used.

`tests.intact` puts each direction's bytes in order, the four bytes of length cut them into frames, and a
request and a response of the same connection and correlation id are a call. It needs connections recorded
from their SYN on, without a packet lost. The brokers' log of handled requests is a second witness.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

import orjson

from tests.intact.packets import packets
from tests.intact.reading import LAST_API, NotKafkaError
from tests.intact.reading import frames as cut
from tests.intact.tcp import Stream, connections

REQUEST_HEADER, RESPONSE_HEADER = 8, 4
"""Bytes of a frame up to the end of its correlation id."""
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


def frames(path: Path, ports: list[int]) -> Frames:
    """Cut the streams of an undamaged capture with brokers on `ports`."""
    found, seen = Frames(), set()
    for one in connections(packets(path)):
        client = 0 if one.ends[1][1] in ports else 1
        (host, port), (broker, broker_port) = one.ends[client], one.ends[1 - client]
        ends = Ends(str(ip_address(host)), port, str(ip_address(broker)), broker_port)
        if ends in seen:
            found.unclear.add(ends)
        seen.add(ends)
        try:
            for body, numbers in _frames(one.streams[client], REQUEST_HEADER):
                key = Key(ends, int.from_bytes(body[4:8], "big", signed=True))
                found.api_keys[key] = int.from_bytes(body[:2], "big")
                if found.api_keys[key] > LAST_API:
                    raise NotKafkaError("no such API")
                if numbers:
                    found.requests[key] = numbers
            for body, numbers in _frames(one.streams[1 - client], RESPONSE_HEADER):
                key = Key(ends, int.from_bytes(body[:4], "big", signed=True))
                found.begun.add(key)
                if numbers:
                    found.responses[key] = numbers
        except NotKafkaError:
            found.unclear.add(ends)
    return found


def _frames(stream: Stream, header: int) -> Iterator[tuple[memoryview, list[int]]]:
    """Each frame's bytes behind its length, and the packets it came in: none for a last one cut short.
    One of which the `header` is not all there is left out."""
    there, behind = cut(stream)
    for frame in there:
        first, last = bisect_right(stream.starts, frame.start) - 1, bisect_right(stream.starts, frame.end - 1)
        yield frame.body, [number - 1 for number in stream.owners[first:last]]
    if behind >= 4 + header:
        yield memoryview(bytes(stream.data[-behind + 4 :])), []


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
