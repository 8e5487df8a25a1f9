"""The state of a connection as integers for a round, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.net.reassembly import HISTORY, Run

if TYPE_CHECKING:
    from kwsniff.engine.connection import Connection
    from kwsniff.engine.rows import Rows
    from kwsniff.net.reassembly import Stream
    from kwsniff.wire.framer import Framer

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]

NEVER = -(1 << 60)
"""Offset acknowledged, if none ever was."""
MAX_EARLY = 64
MAX_HELD = 1 << 20
"""Bytes of an unfinished frame beyond which copying them for every round costs more than it saves ..."""
MAX_PARTS = 1024
"""... and pieces that it came in."""


def ready(connection: Connection) -> bool:
    """Whether nothing is open that only the exact path can settle."""
    exchange = connection.exchange
    if connection.closed or not exchange.is_kafka or exchange.client < 0 or connection.reset is not None:
        return False
    if connection.syn_ack and connection.handshake < 0:
        return False
    conversation = exchange.conversation
    if (
        len(conversation.early) > MAX_EARLY
        or conversation.raw_tokens
        or conversation.raw_waiting
        or exchange.aside
    ):
        return False
    if conversation.outstanding.repeated:
        return False
    for stream, framer in zip(connection.streams, exchange.framers, strict=True):
        if stream.waiting or framer.pending is not None or framer.have > MAX_HELD:
            return False
        if len(framer.parts) > MAX_PARTS:
            return False
    return True


class Held:
    """What the connections of a round bring with them: flat arrays, and where in them each has its part."""

    def __init__(self, count: int) -> None:
        self.links = np.zeros((count, c.LINK_COLUMNS), np.int64)
        self.sides = np.zeros((count, 2, c.SIDE_COLUMNS), np.int64)
        self.holes = np.zeros((count, 2, c.MAX_WAITING, 3), np.int64)
        self._data: list[bytes] = []
        self._chunks: list[list[tuple[int, int, int, int]]] = []
        self._waiting: list[tuple[int, int]] = []
        self._early: list[tuple[int, int]] = []
        self._bytes_at = self._chunks_at = 0

    def load(self, index: int, connection: Connection, begin: int, end: int) -> None:
        """Fill the rows of one connection, whose segments lie from `begin` to `end`."""
        exchange, link = connection.exchange, self.links[index]
        conversation = exchange.conversation
        waiting = conversation.outstanding
        link[: c.TAKEN] = (
            begin, end, exchange.client, connection.last_time, conversation.response_gap,
            len(self._waiting), waiting.count, len(self._early), len(conversation.early),
            sum(connection.packets), bool(conversation.no_reply),
        )  # fmt: skip
        self._waiting += [(request.correlation_id, request.order) for request in waiting.requests.values()]
        self._early += [(early.correlation_id, early.frame.last_time) for early in conversation.early]
        for k in (0, 1):
            framer, stream = exchange.framers[k ^ exchange.client], connection.streams[k]
            warm = framer.synchronised and stream.next_seq >= 0
            size = framer.have if warm else 0
            self.sides[index, k, : c.REGION] = (
                stream.next_seq, warm, self._bytes_at, size, self._chunks_at,
                self._hold(framer) if size else 0, framer.last_order, framer.counters.frames,
                stream.acked - stream.offset if stream.acked >= 0 else NEVER,
                framer.counters.skipped - framer.skipped_before, framer.latest,
            )  # fmt: skip

    def _hold(self, framer: Framer) -> int:
        position = count = 0
        for part in framer.parts:
            self._data.append(part.data)
            starts = [start + position for start in part.starts]
            self._chunks.append(list(zip(starts, part.packets, part.times, part.orders, strict=True)))
            position += len(part.data)
            count += len(starts)
        self._bytes_at += position
        self._chunks_at += count
        return count

    def arrays(self) -> tuple[Bytes, Ints, Ints, Ints]:
        """Bytes, chunks, correlation ids and orders of requests, and ids and times of early responses."""
        rows = [row for chunk in self._chunks for row in chunk]
        return (
            np.frombuffer(b"".join(self._data), np.uint8),
            np.array(rows, np.int64).reshape(len(rows), c.CHUNK_COLUMNS),
            np.array(self._waiting, np.int64).reshape(len(self._waiting), 2),
            np.array(self._early, np.int64).reshape(len(self._early), 2),
        )


def store(
    connection: Connection, link: Ints, sides: Ints, holes: Ints, buf: memoryview, chunks: Ints, rows: Rows
) -> None:
    """Put what a round did to the streams and framers back into the connection."""
    exchange = connection.exchange
    connection.last_time = int(link[c.CLOCK])
    for k, side in enumerate(sides):
        connection.packets[k] += int(side[c.PACKETS])
        connection.bytes[k] += int(side[c.BYTES])
        stream = connection.streams[k]
        if side[c.ACKED] > NEVER:
            stream.acked = stream.offset + int(side[c.ACKED])
        base = stream.offset
        stream.offset += int(side[c.OFFSET])
        stream.next_seq = int(side[c.WANTED])
        stream.missing += int(side[c.MISSING])
        if side[c.HOLES]:
            _store_holes(stream, side, holes[k], base, rows)
        begun = side[c.REGION] + side[c.HELD_BYTES]
        if side[c.WRITE] > begun:
            exchange.spoken[k] = True
            _store_history(stream, side, int(begun), buf)
            _store_framer(exchange.framers[k ^ exchange.client], side, buf, chunks)


def _store_history(stream: Stream, side: Ints, begun: int, buf: memoryview) -> None:
    end, since = int(side[c.WRITE]), int(side[c.HISTORY_FROM])
    latest = bytes(buf[max(end - HISTORY, begun, since) : end])
    stream.history = latest if since >= 0 else (stream.history + latest)[-HISTORY:]


def _store_holes(stream: Stream, side: Ints, waiting: Ints, base: int, rows: Rows) -> None:
    stream.hole_since_packets, stream.hole_since_time = int(side[c.HOLE_SEGMENTS]), int(side[c.HOLE_TIME])
    stream.waiting_bytes += int(side[c.HOLE_BYTES])
    for begin, end, row in waiting[: side[c.HOLES]].tolist():
        stream.put_behind(
            base + begin, base + end, rows.payload(row), int(rows.packet[row]), int(rows.time[row]),
            int(rows.order[row]),
        )  # fmt: skip


def _store_framer(framer: Framer, side: Ints, buf: memoryview, chunks: Ints) -> None:
    first, end = int(side[c.READ]), int(side[c.WRITE])
    framer.counters.frames += int(side[c.CUT])
    framer.counters.resynchronisations += int(side[c.RESYNCHRONISED])
    framer.counters.skipped += int(side[c.SKIPPED])
    framer.skipped_before = framer.counters.skipped - int(side[c.UNTOLD])
    framer.last_order = int(side[c.LAST_ORDER])
    framer.latest = int(side[c.LATEST])
    framer.have = end - first
    framer.parts, framer.need = [], 4
    if framer.have:
        rest = chunks[side[c.CHUNK] : side[c.CHUNK_END]]
        starts = np.maximum(rest[:, c.CHUNK_START] - first, 0).tolist()
        packets, times, orders = (
            rest[:, column].tolist() for column in (c.CHUNK_PACKET, c.CHUNK_TIME, c.CHUNK_ORDER)
        )
        data = bytes(buf[first:end])
        framer.parts = [Run(data, starts, packets, times, orders)]
        if framer.have >= 4:
            framer.need = 4 + int.from_bytes(data[:4], "big", signed=True)
