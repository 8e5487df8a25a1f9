"""The connection table: batches of segments in, events out.

Theory of operation. Each batch is sorted by connection with one stable sort, so that a connection's segments
lie together and keep their order; each connection then takes its slice (see `kwsniff.engine.connection`).
Whatever a connection emits carries the place in the input (`order`) of the packet that caused it, so that a
batch's events come out in the order of capture, however they were grouped.

Invariants. A connection's events depend on its own segments alone: its own packet times decide whether it
was silent too long, and the clock of the whole input only decides how early that is noticed. Only a limit
(`max_connections`, `max_buffered_bytes`) breaks this, and leaves an anomaly.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine.block import ROUND, CallBlock
from kwsniff.engine.bulk import PlainPath, Slice
from kwsniff.engine.connection import Connection
from kwsniff.engine.rows import Endpoints, Rows
from kwsniff.events import Anomaly, Call, ConnectionEnd
from kwsniff.net.columns import Ints, SegmentColumns
from kwsniff.spec.load import catalog
from kwsniff.wire.plausible import Versions

_MIX = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9)
_SECOND = 1_000_000_000
STEPS = 8
"""Segments fed exactly before it is asked again whether the plain path could take over."""


@dataclass(slots=True)
class Events:
    """What a batch of segments brought to light."""

    calls: list[Call] = field(default_factory=list)
    anomalies: list[Anomaly] = field(default_factory=list)
    ends: list[ConnectionEnd] = field(default_factory=list)
    blocks: list[CallBlock] = field(default_factory=list)
    """Further calls, as columns."""
    places: dict[int, int] = field(default_factory=dict)
    """For those of `calls` that a round made, by index: their place in the round."""
    rounds: list[int] = field(default_factory=list)
    """How many `calls` there were when each round began."""
    connections: dict[int, Connection] = field(default_factory=dict)
    """The connections that the events refer to, by number, and others."""

    def sequence(self) -> Ints:
        """Numbers that put calls which the same packet completed in the order they were made in, comparable
        with those in `blocks`."""
        index = np.arange(len(self.calls))
        after = np.searchsorted(np.array(self.rounds, np.int64), index, side="right")
        numbers = (after << ROUND) + (1 << ROUND - 1)
        made = np.array(list(self.places), np.int64)
        numbers[made] += np.array(list(self.places.values()), np.int64) - (1 << ROUND - 1)
        return numbers


class Engine:
    """All connections of one input."""

    def __init__(self, config: Config, shard: tuple[int, int] | None = None) -> None:
        """`shard` is (index, count): follow only the connections whose hash falls to this share."""
        self.config = config
        self._shard = shard
        self._table: dict[Endpoints, Connection] = {}
        self._by_number: dict[int, Connection] = {}
        self._gone: list[int] = []
        self._events = Events(connections=self._by_number)
        self._order = 0
        self._clock = 0
        self._swept = 0
        self.opened = 0
        """Connections so far; each has its number from here."""
        self.load = 0
        """Requests that wait for a response, and the topics and partitions they name, in all."""
        self._versions = known_versions()
        self._plain = PlainPath(config)

    def feed(self, segments: SegmentColumns) -> Events:
        """Take a batch of segments in capture order; return the events it completes."""
        # Notes on packets belong to no connection; the first share tells them.
        for order, code, detail, packet, time in (
            segments.notes if not self._shard or not self._shard[0] else ()
        ):
            self._events.anomalies.append(Anomaly(self._order + order, -1, code, detail, packet, time))
        if len(segments):
            self._feed_groups(segments)
            self._order += len(segments)
            self._clock = max(self._clock, int(segments.time.max()))
            self._sweep()
        return self._take_events()

    @property
    def taken(self) -> int:
        """Segments so far, of other shares too: orders of events to come are no lower, but for late ones."""
        return self._order

    def tick(self, now: int) -> Events:
        """No segment before `now` (nanoseconds since 1970) is still to come: return what that settles.

        For sources that go on for ever, in which a quiet connection must not keep its news to itself.
        """
        self._clock = max(self._clock, now)
        for connection in self._table.values():
            connection.tick(now)
        self._sweep()
        return self._take_events()

    @property
    def connections(self) -> int:
        """Connections followed at present."""
        return len(self._table)

    def followed(self, segments: SegmentColumns) -> NDArray[np.bool_]:
        """For each of some segments that were fed, whether its connection is Kafka, or may yet be."""
        forward, group = _flow_hash(segments)
        _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
        rows = Rows(segments, first, forward, 0, self.config)
        known = []
        for row in range(len(first)):
            ((_, _, endpoints),) = rows.split(row, row + 1)
            connection = self._table.get(endpoints)
            known.append(connection is None or not connection.exchange.ignored)
        return np.array(known, np.bool_)[inverse]

    def finish(self) -> Events:
        """The input is over: report what is still open, oldest connection first."""
        for connection in list(self._table.values()):
            # What was silent too long is closed, whether or not a sweep came by since.
            expired = connection.expired(self._clock)
            self._end(connection, "connection_closed" if expired else "capture_ended")
        self._plain.done()
        return self._take_events()

    def _feed_groups(self, segments: SegmentColumns) -> None:
        forward, group = _flow_hash(segments)
        perm = self._share(np.argsort(group, kind="stable"), group)
        if not len(perm):
            return
        rows = Rows(segments, perm, forward, self._order, self.config)
        sorted_group = group[perm]
        bounds = np.flatnonzero(sorted_group[1:] != sorted_group[:-1]) + 1
        edges = [0, *bounds.tolist(), len(perm)]
        slices = [
            Slice(endpoints, begin, end)
            for first, last in itertools.pairwise(edges)
            for begin, end, endpoints in rows.split(first, last)
        ]
        if not self._plain.wanted(len(rows.time)):
            for one in slices:
                self._feed_connection(one.endpoints, rows, one.begin, one.end)
            return
        while slices:
            slices = self._plain.take(rows, self._until_plain(rows, slices), self._events)

    def _share(self, perm: Ints, group: Ints) -> Ints:
        """Those of the segments `perm` whose connections are followed, by the hashes of all in `group`."""
        if self._shard is None:
            return perm
        index, count = self._shard
        mine: Ints = perm[group[perm].view(np.uint64) % np.uint64(count) == index]
        return mine

    def _until_plain(self, rows: Rows, slices: list[Slice]) -> list[Slice]:
        """Feed connections exactly until the plain path could go on; those for which segments are left."""
        left = []
        for one in slices:
            while one.begin < one.end:
                one.connection = self._table.get(one.endpoints)
                if one.connection is not None and one.due <= one.begin and self._plain.ready(one.connection):
                    left.append(one)
                    break
                whole = one.connection is not None and one.connection.exchange.ignored
                stop = one.end if whole else min(max(one.due, one.begin + STEPS), one.end)
                self._feed_connection(one.endpoints, rows, one.begin, stop)
                one.begin = stop
        return left

    def _feed_connection(self, endpoints: Endpoints, rows: Rows, begin: int, end: int) -> None:
        while begin < end:
            connection = self._table.get(endpoints)
            if connection is None:
                connection = self._open(endpoints)
            begin = connection.feed(rows, begin, end)
            if begin < end:
                self._succeeded(connection, rows, begin)
                self._end(connection, "connection_closed")

    def _succeeded(self, connection: Connection, rows: Rows, row: int) -> None:
        """A hook: another connection of the same ends begins in a row, so this one ends."""

    def _open(self, endpoints: Endpoints) -> Connection:
        if len(self._table) >= self.config.max_connections:
            self._close_most_silent()
        self.opened += 1
        connection = Connection(
            self.config, self.opened, endpoints, self._events.calls, self._events.anomalies, self._versions
        )
        self._table[endpoints] = self._by_number[self.opened] = connection
        return connection

    def _end(self, connection: Connection, reason: str) -> None:
        end = connection.finish(reason)
        if end is not None:
            self._events.ends.append(end)
        connection.release()
        del self._table[connection.endpoints]
        self._gone.append(connection.number)

    def _sweep(self) -> None:
        """End what has been silent too long, and keep buffers within their limit."""
        buffered = sum([connection.buffered for connection in self._table.values()])
        if buffered > self.config.max_buffered_bytes:
            self._drop_buffers(buffered)
        self.load = sum([connection.load for connection in self._table.values()])
        if self.load > self.config.max_outstanding_total:
            self._drop_outstanding()
        if self._clock - self._swept < min(self.config.idle_timeout * _SECOND / 8, 10 * _SECOND):
            return
        self._swept = self._clock
        for connection in self._table.values():
            connection.close_if_reset(self._clock)
        for connection in [c for c in self._table.values() if c.expired(self._clock)]:
            self._end(connection, "connection_closed")

    def _drop_buffers(self, buffered: int) -> None:
        for connection in sorted(self._table.values(), key=lambda c: -c.buffered):
            if buffered <= self.config.max_buffered_bytes:
                return
            buffered -= connection.buffered
            connection.drop_buffers()

    def _drop_outstanding(self) -> None:
        """Give up the requests of the connections that have most of them, down to half of the limit."""
        for connection in sorted(self._table.values(), key=lambda c: -c.load):
            if self.load <= self.config.max_outstanding_total // 2:
                return
            self.load -= connection.load
            connection.drop_outstanding()

    def _close_most_silent(self) -> None:
        """Make room by closing a tenth of the connections, so that this is rare."""
        oldest = sorted(self._table.values(), key=lambda c: c.last_time)
        for connection in oldest[: max(len(oldest) // 10, 1)]:
            connection.note(
                "connection_limit", f"silent for {(self._clock - connection.last_time) / 1e9:.1f} s"
            )
            self._end(connection, "connection_closed")

    def _take_events(self) -> Events:
        events = self._events
        calls, anomalies, ends = events.calls, events.anomalies, events.ends
        taken = Events(
            list(calls), list(anomalies), list(ends), events.blocks, events.places, events.rounds,
            self._by_number,
        )  # fmt: skip
        events.blocks, events.places, events.rounds = [], {}, []
        # The connections keep references to these lists.
        calls.clear()
        anomalies.clear()
        ends.clear()
        if self._gone:
            taken.connections = dict(self._by_number)
            for number in self._gone:
                self._by_number.pop(number, None)
            self._gone = []
        return taken


def known_versions() -> Versions:
    """Lowest and highest version of each API, for judging whether bytes are a request."""
    return {key: (api.min_version, api.max_version) for key, api in catalog().apis.items()}


def _flow_hash(segments: SegmentColumns) -> tuple[np.ndarray[tuple[int], np.dtype[np.bool_]], Ints]:
    """For each segment, whether it goes from the lower to the higher endpoint, and its connection's hash."""
    a, b, c = (np.uint64(mix) for mix in _MIX)

    def endpoint(hi: Ints, lo: Ints, port: Ints) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        mixed = hi.view(np.uint64) * a ^ (lo.view(np.uint64) + port.astype(np.uint64) * c) * b
        return mixed ^ mixed >> np.uint64(29)

    source = endpoint(segments.src_hi, segments.src_lo, segments.src_port)
    target = endpoint(segments.dst_hi, segments.dst_lo, segments.dst_port)
    low, high = np.minimum(source, target), np.maximum(source, target)
    mixed = (low ^ high * a) * b
    return source <= target, (mixed ^ mixed >> np.uint64(32)).view(np.int64)
