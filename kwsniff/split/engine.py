"""The engine of one split: events of what it sees whole, edges of what may reach beyond it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kwsniff.config import Config
from kwsniff.engine import Engine, Events
from kwsniff.engine.block import CallBlock
from kwsniff.engine.bulk import Slice
from kwsniff.engine.bulk.columns import CALL_CONNECTION, CALL_CORRELATION_ID
from kwsniff.engine.connection import Connection
from kwsniff.engine.rows import Endpoints, Rows
from kwsniff.net.columns import ACK, SYN, SegmentColumns
from kwsniff.split import guess as guess_limits
from kwsniff.split.edge import Edge
from kwsniff.split.guess import Guess
from kwsniff.split.state import NoReply, freeze, thaw

ORDER_BITS = 34
"""An order is the number of its split above so many bits, so that orders of all splits can be compared."""


class FreezingEngine(Engine):
    """An engine whose connections can be frozen (`kwsniff.split.state`), and thawed in another one."""

    @property
    def shared(self) -> dict[str, Any]:
        """What frozen connections leave behind."""
        return {
            "config": self.config, "versions": self._versions, "calls": self._events.calls,
            "anomalies": self._events.anomalies,
        }  # fmt: skip

    def thawed(self, frozen: bytes) -> Connection:
        """A frozen connection, with a number of this engine."""
        self.opened += 1
        connection = thaw(frozen, self.shared, self.opened)
        self._by_number[connection.number] = connection
        return connection

    def put(self, connection: Connection) -> None:
        """Let a connection be the one that its endpoints have."""
        self._table[connection.endpoints] = self._by_number[connection.number] = connection


class SplitEngine(FreezingEngine):
    """Follows the connections of split number `split`; with `first`, nothing came before it."""

    def __init__(self, config: Config, split: int, first: bool) -> None:
        super().__init__(config)
        self._split, self._first = split, first
        self._order = split << ORDER_BITS
        self._guesses: dict[Endpoints, Guess] = {}
        self._guess_of: dict[int, Guess] = {}
        """The guess that a connection is followed by, by its number."""
        self._later: dict[Endpoints, list[str]] = {}
        self._kept = 0
        """Bytes of all heads."""

    @property
    def clock(self) -> int:
        """Latest packet time, in nanoseconds."""
        return self._clock

    def feed(self, segments: SegmentColumns) -> Events:
        """See `Engine.feed`."""
        events = super().feed(segments)
        if self._guess_of:
            self._watch(events)
        return events

    def _watch(self, events: Events) -> None:
        for anomaly in events.anomalies:
            if anomaly.code == "frame_size_invalid" and anomaly.connection in self._guess_of:
                self._guess_of[anomaly.connection].edge.watch.odd_length = True
        for call in events.calls:
            guess = self._guess_of.get(call.connection)
            if guess is None:
                continue
            if call.status == "orphan":
                guess.edge.watch.orphans += 1
            else:
                guess.edge.watch.add_requests(call.correlation_id, call.correlation_id)
        for block in events.blocks:
            for number, low, high in _asked(block):
                if number in self._guess_of:
                    self._guess_of[number].edge.watch.add_requests(low, high)

    def edges(self) -> Iterator[Edge]:
        """The split is over: what has to be stitched, in any order."""
        for guess in self._guesses.values():
            edge = guess.edge
            connection = self._table.get(edge.endpoints)
            if connection is not None and connection.number == guess.number:
                if not guess.open:
                    self._keep_guessed(edge, connection)
                del self._table[edge.endpoints]
        tails = dict(self._table)
        for endpoints, guess in self._guesses.items():
            edge = guess.edge
            edge.ids = self._later.get(endpoints, [])
            connection = tails.pop(endpoints, None)
            if connection is not None:
                edge.ids = [*edge.ids, connection.id]
                edge.tail = freeze(connection, self.shared)
            yield edge
        for endpoints, connection in tails.items():
            yield Edge(endpoints, self._split, tail=freeze(connection, self.shared), ids=[connection.id])

    # The way of segments

    def _until_plain(self, rows: Rows, slices: list[Slice]) -> list[Slice]:
        for one in slices:
            one.begin = self._take_head(one.endpoints, rows, one.begin, one.end)
        return super()._until_plain(rows, [one for one in slices if one.begin < one.end])

    def _feed_connection(self, endpoints: Endpoints, rows: Rows, begin: int, end: int) -> None:
        super()._feed_connection(endpoints, rows, self._take_head(endpoints, rows, begin, end), end)

    def _succeeded(self, connection: Connection, rows: Rows, row: int) -> None:
        guess = self._guess_of.get(connection.number)
        if guess is not None and rows.flags[row] & SYN:
            guess.edge.watch.new_start = int(rows.side[row]), int(rows.seq[row])

    def _take_head(self, endpoints: Endpoints, rows: Rows, begin: int, end: int) -> int:
        """Keep segments as long as the connection's state is unknown; return the first that was not kept."""
        if self._first:
            return begin
        guess = self._guesses.get(endpoints)
        if guess is None:
            guess = Guess(endpoints, self._split)
            self._guesses[endpoints] = guess
            if rows.flags[begin] & SYN and not rows.flags[begin] & ACK:
                guess.begins(rows, begin)
        while guess.open and begin < end:
            begin = self._take_one(guess, rows, begin)
        return begin

    def _take_one(self, guess: Guess, rows: Rows, row: int) -> int:
        endpoints = guess.edge.endpoints
        connection = self._table.get(endpoints)
        if connection is None and len(guess.head):  # it was silent too long, and swept
            guess.begins(rows, row)
            return row
        if connection is None:
            connection = self._open(endpoints)
            guess.number = connection.number
            self._guess_of[guess.number] = guess
        with_this = self._marks()
        taken = connection.feed(rows, row, row + 1)
        self._back_to(with_this)
        if taken == row:
            guess.begins(rows, row)
            self._end(connection, "connection_closed")
            return row
        before = guess.head.size
        guess.watch(connection, rows, row)
        self._kept += guess.head.size - before
        if self._kept > guess_limits.MAX_HEADS and guess.open:
            self._kept -= guess.head.size
            guess.give_up(connection)
        return taken

    # Connections that end

    def _end(self, connection: Connection, reason: str) -> None:
        guess = self._guess_of.get(connection.number)
        if guess is None:
            if not self._first:
                self._later.setdefault(connection.endpoints, []).append(connection.id)
            super()._end(connection, reason)
            return
        if guess.edge.counts is not None:
            self._keep_guessed(guess.edge, connection)
            guess.edge.over = True
        connection.release()
        del self._table[connection.endpoints]
        self._gone.append(connection.number)

    def _sweep(self) -> None:
        before = self._marks()
        super()._sweep()
        # What is said of a connection that was not guessed yet is said when its head is fed.
        calls, anomalies = self._events.calls, self._events.anomalies
        calls[before[0] :] = [each for each in calls[before[0] :] if not self._unknown(each.connection)]
        anomalies[before[1] :] = [
            each for each in anomalies[before[1] :] if not self._unknown(each.connection)
        ]

    def _unknown(self, number: int) -> bool:
        guess = self._guess_of.get(number)
        return guess is not None and guess.edge.counts is None

    def _keep_guessed(self, edge: Edge, connection: Connection) -> None:
        if edge.counts is None:
            return
        asked = connection.exchange.conversation.no_reply
        if isinstance(asked, NoReply):
            edge.watch.missed_reply = asked.missed
            connection.exchange.conversation.no_reply = dict(asked)
        edge.guessed = freeze(connection, self.shared)

    def _marks(self) -> tuple[int, int]:
        return len(self._events.calls), len(self._events.anomalies)

    def _back_to(self, marks: tuple[int, int]) -> None:
        """Forget what was said since."""
        del self._events.calls[marks[0] :], self._events.anomalies[marks[1] :]


def _asked(block: CallBlock) -> Iterator[tuple[int, int, int]]:
    """Each connection with calls in the block: its number, lowest and highest correlation id."""
    if not len(block):
        return
    place, asked = block.calls[CALL_CONNECTION], block.calls[CALL_CORRELATION_ID]
    order = np.argsort(place, kind="stable")
    first = np.flatnonzero(np.diff(place[order], prepend=-1))
    lows, highs = np.minimum.reduceat(asked[order], first), np.maximum.reduceat(asked[order], first)
    numbers = block.connections[place[order][first]]
    yield from zip(numbers.tolist(), lows.tolist(), highs.tolist(), strict=True)
