"""The state of a connection as integers for a round, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kwsniff.engine.bulk import columns as c
from kwsniff.net.reassembly import HISTORY, Run

if TYPE_CHECKING:
    from kwsniff.engine.bulk.texts import Ints
    from kwsniff.engine.connection import Connection
    from kwsniff.wire.framer import Framer

MAX_HELD = 1 << 20
"""Bytes of an unfinished frame beyond which copying them for every round costs more than it saves."""


def ready(connection: Connection) -> bool:
    """Whether nothing is open that only the exact path can settle."""
    exchange = connection.exchange
    if connection.closed or not exchange.is_kafka or exchange.client < 0 or connection.reset is not None:
        return False
    if connection.syn_ack and connection.handshake < 0:
        return False
    conversation = exchange.conversation
    if conversation.early or conversation.raw_tokens or conversation.raw_waiting:
        return False
    if conversation.outstanding.repeated:
        return False
    for stream, framer in zip(connection.streams, exchange.framers, strict=True):
        if stream.waiting or framer.pending is not None or framer.have > MAX_HELD:
            return False
    return True


class Held:
    """The unfinished frames of the connections of a round, and the requests that wait: flat, by place."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._chunks: list[list[tuple[int, int, int, int]]] = []
        self._ids: list[int] = []
        self._bytes_at = self._chunks_at = 0

    def load(self, connection: Connection, link: Ints, begin: int, end: int) -> None:
        """Fill the row of one connection, whose segments lie from `begin` to `end`."""
        exchange = connection.exchange
        conversation = exchange.conversation
        client = exchange.client
        link[c.BEGIN], link[c.END], link[c.CLIENT], link[c.CLOCK] = begin, end, client, connection.last_time
        link[c.GAP] = conversation.response_gap
        link[c.WAITING_FIRST], link[c.WAITING] = len(self._ids), conversation.outstanding.count
        self._ids += conversation.outstanding.requests
        for k in (0, 1):
            framer = exchange.framers[k ^ client]
            next_seq = connection.streams[k].next_seq
            link[c.NEXT_A + k], link[c.SYNC_A + k] = next_seq, framer.synchronised and next_seq >= 0
            link[c.LAST_ORDER_A + k] = framer.last_order
            link[c.HELD_A + k], link[c.CHUNK_A + k] = self._bytes_at, self._chunks_at
            size = framer.have if framer.synchronised else 0
            link[c.HELD_BYTES_A + k] = size
            link[c.CHUNKS_A + k] = self._hold(framer) if size else 0

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

    def arrays(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # type: ignore[type-arg]
        """Bytes, chunks and correlation ids."""
        rows = [row for chunk in self._chunks for row in chunk]
        return (
            np.frombuffer(b"".join(self._data), np.uint8),
            np.array(rows, np.int64).reshape(len(rows), c.CHUNK_COLUMNS),
            np.array(self._ids, np.int64),
        )


def store(connection: Connection, link: Ints, buf: memoryview, chunks: Ints) -> None:
    """Put what a round did to the streams and framers back into the connection."""
    exchange = connection.exchange
    connection.last_time = int(link[c.CLOCK])
    for k in (0, 1):
        connection.packets[k] += int(link[c.PACKETS_A + k])
        connection.bytes[k] += int(link[c.BYTES_A + k])
        delivered = int(link[c.BYTES_A + k])
        if delivered:
            exchange.spoken[k] = True
            end = int(link[c.WRITTEN_A + k])
            latest = bytes(buf[end - min(delivered, HISTORY) : end])
            stream = connection.streams[k]
            stream.offset += delivered
            stream.next_seq = int(link[c.NEXT_A + k])
            stream.history = (stream.history + latest)[-HISTORY:]
            _store_framer(exchange.framers[k ^ exchange.client], link, k, buf, chunks)
    for k in (0, 1):
        if link[c.ACK_A + k] >= 0:
            connection.streams[k].acknowledge(int(link[c.ACK_A + k]))
    exchange.conversation.response_gap = bool(link[c.GAP])


def _store_framer(framer: Framer, link: Ints, k: int, buf: memoryview, chunks: Ints) -> None:
    first, end = int(link[c.REST_A + k]), int(link[c.WRITTEN_A + k])
    framer.counters.frames += int(link[c.FRAMES_A + k])
    framer.last_order = int(link[c.LAST_ORDER_A + k])
    framer.have = end - first
    framer.parts, framer.need = [], 4
    if framer.have:
        rest = chunks[link[c.REST_CHUNK_A + k] : link[c.TABLE_END_A + k]]
        starts = np.maximum(rest[:, c.CHUNK_START] - first, 0).tolist()
        packets, times, orders = (
            rest[:, column].tolist() for column in (c.CHUNK_PACKET, c.CHUNK_TIME, c.CHUNK_ORDER)
        )
        data = bytes(buf[first:end])
        framer.parts = [Run(data, starts, packets, times, orders)]
        if framer.have >= 4:
            framer.need = 4 + int.from_bytes(data[:4], "big", signed=True)
