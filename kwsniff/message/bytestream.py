"""The bytes of messages, put together again from the segments of one connection.

The first copy of a byte counts, as everywhere. A message is found by what its frame begins with (its size,
and key, version and correlation id) and by the packet that completed it. What the capture lacks is zeros,
and told.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.net.address import halves

REQUEST, RESPONSE = "request", "response"
SLACK = 4 << 20
"""Bytes of a stream kept beyond the size of what is looked for."""
Row = dict[str, Any]
End = tuple[str, int]


class FramedMessage(NamedTuple):
    """One frame with its length prefix, as it was captured."""

    data: bytes
    packets: list[int]
    """The packets that its bytes came in."""
    missing: list[tuple[int, int]]
    """Spans of `data` that the capture lacks."""


@dataclass(slots=True)
class Side:
    """One direction of the connection."""

    keep: int
    parts: list[tuple[int, bytes, int]] = field(default_factory=list)
    """Position in the stream, bytes, packet."""
    last_seq: int | None = None
    position: int = 0
    held: int = 0

    def add(self, seq: int, payload: bytes, length: int, packet: int) -> None:
        if self.last_seq is None:
            self.last_seq = seq
        # Sequence numbers wrap: the nearest one is meant.
        self.position += ((seq - self.last_seq + (1 << 31)) & 0xFFFFFFFF) - (1 << 31)
        self.last_seq = seq
        self.parts.append((self.position, payload, packet))
        self.held += len(payload)
        if self.held > 2 * self.keep:
            self._forget(self.position + length - self.keep)

    def _forget(self, before: int) -> None:
        self.parts = [part for part in self.parts if part[0] + len(part[1]) > before]
        self.held = sum(len(part[1]) for part in self.parts)

    def joined(self) -> tuple[bytes, np.ndarray[Any, np.dtype[np.int64]]]:
        """The bytes that are held, and the packet of each, -1 where there is none."""
        if not self.parts:
            return b"", np.empty(0, np.int64)
        first = min(start for start, _, _ in self.parts)
        size = max(start + len(payload) for start, payload, _ in self.parts) - first
        data, owner = np.zeros(size, np.uint8), np.full(size, -1, np.int64)
        for start, payload, packet in self.parts:
            at = slice(start - first, start - first + len(payload))
            fresh = owner[at] < 0
            data[at][fresh] = np.frombuffer(payload, np.uint8)[fresh]
            owner[at][fresh] = packet
        return data.tobytes(), owner


def messages_of(path: str, call: Row, config: Config | None = None) -> dict[str, FramedMessage]:
    """The request and the response of a call of EVENTS, those of them that were captured. Raises
    CaptureError."""
    wanted = {REQUEST: call["request_packet"], RESPONSE: call["response_packet"]}
    wanted = {name: packet for name, packet in wanted.items() if packet is not None}
    sizes = [call[f"{name}_bytes"] or 0 for name in wanted]
    sides = {name: Side(max(sizes, default=0) + SLACK) for name in (REQUEST, RESPONSE)}
    client = (call["client_ip"], call["client_port"])
    broker = (call["broker_ip"], call["broker_port"])
    last = max(wanted.values(), default=0)
    for source, seq, payload, length, packet in _segments_between(path, client, broker, last, config):
        sides[REQUEST if source == client else RESPONSE].add(seq, payload, length, packet)
    found = {name: found_message(sides[name], call, name) for name in wanted}
    return {name: message for name, message in found.items() if message is not None}


def _segments_between(
    path: str, a: End, b: End, last: int, config: Config | None
) -> Iterator[tuple[End, int, bytes, int, int]]:
    """Source, sequence number, payload, length on the wire and packet of each segment with payload between
    two ends, up to packet `last`."""
    ends = {a: halves(a[0]), b: halves(b[0])}
    for batch in segments([path], config):
        for source, target in ((a, b), (b, a)):
            mask = _equal(batch, "src", ends[source], source[1])
            mask &= _equal(batch, "dst", ends[target], target[1])
            yield from _rows(batch, np.flatnonzero(mask), source, last)
        if len(batch) and (batch["packet"][len(batch) - 1].as_py() or 0) > last:
            return


def _equal(batch: pa.RecordBatch, side: str, address: tuple[int, int], port: int) -> Any:
    wanted = {f"{side}_hi": address[0], f"{side}_lo": address[1], f"{side}_port": port}
    mask = np.ones(len(batch), np.bool_)
    for name, value in wanted.items():
        mask &= np.asarray(batch[name].to_numpy(zero_copy_only=False) == value)
    return mask


def _rows(
    batch: pa.RecordBatch, at: Any, source: End, last: int
) -> Iterator[tuple[End, int, bytes, int, int]]:
    columns = [batch[name] for name in ("seq", "payload", "length", "packet")]
    for row in at.tolist():
        seq, payload, length, packet = (column[row].as_py() for column in columns)
        if payload and packet <= last:
            yield source, seq, payload, length, packet


def _pattern(name: str, call: Row) -> bytes:
    """What the frame begins with."""
    size = (call[f"{name}_bytes"] or 4) - 4
    if name == RESPONSE:
        return struct.pack(">ii", size, call["correlation_id"])
    return struct.pack(">ihhi", size, call["api_key"], call["api_version"], call["correlation_id"])


def found_message(side: Side, call: Row, name: str) -> FramedMessage | None:
    """The message that what is held of one direction has of a call, None if it is not in there."""
    pattern = _pattern(name, call)
    data, owner = side.joined()
    packet, size = call[f"{name}_packet"], call[f"{name}_bytes"] or 0
    best, at = -1, data.find(pattern)
    while at >= 0:
        owners = owner[at : at + size]
        if owners.max(initial=-1) == packet:
            best = at
            break
        if owner[at] <= packet:
            best = at
        at = data.find(pattern, at + 1)
    if best < 0:
        return None
    owners = owner[best : best + size]
    frame = data[best : best + size].ljust(size, b"\0")
    return FramedMessage(frame, np.unique(owners[owners >= 0]).tolist(), _gaps(owners, size))


def _gaps(owners: Any, size: int) -> list[tuple[int, int]]:
    there = np.zeros(size + 2, np.int8)
    there[1 : 1 + len(owners)] = owners >= 0
    there[0] = there[-1] = 1
    edges = np.flatnonzero(np.diff(there)).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def ends_of_packet(path: str, packet: int, config: Config | None = None) -> frozenset[End] | None:
    """The two ends of the segment in a packet, None if it holds none. Raises CaptureError."""
    from kwsniff.net.address import text

    for batch in segments([path], config):
        numbers = batch["packet"].to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(numbers == packet).tolist():
            names = ("src_hi", "src_lo", "src_port", "dst_hi", "dst_lo", "dst_port")
            one = [batch[name][row].as_py() for name in names]
            if None not in one:
                return frozenset(((text(one[0], one[1]), one[2]), (text(one[3], one[4]), one[5])))
        if len(numbers) and np.nanmax(numbers) > packet:
            return None
    return None
