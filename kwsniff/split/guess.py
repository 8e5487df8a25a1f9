"""When the state of a connection that is met in the middle is known well enough to be guessed in full.

Theory of operation. A connection followed from the middle comes to the true state by itself: both framers
find a frame, requests that were sent before are answered, and those still waiting are all known. Three things
show that it did: both directions are in step; what waits was sent when nothing unknown was waiting any more
(or its place among the requests in flight would be wrong); and nothing waits behind a hole. Then what is left
over from before the split (responses to unknown requests) is put aside, and the state is taken for the
true one.

When that is does not matter to the result, only to how often guesses are right.
"""

from __future__ import annotations

from kwsniff.engine.connection import Connection
from kwsniff.engine.probe import TLS
from kwsniff.engine.rows import Endpoints, Rows
from kwsniff.split.edge import BEGINS, GIVEN_UP, GUESSED, WHOLE, Edge, Head
from kwsniff.split.state import NO_ID, NoReply, counts, histories, summary
from kwsniff.wire.plausible import is_tls

MAX_HEAD = 8 << 20
"""Bytes of segments kept for one connection ..."""
MAX_HEADS = 96 << 20
"""... and for all of a split."""
SETTLED = 20
"""Packets after which holes from before the split were given up (`Config.reorder_packets`), mostly."""
SILENT = 64
"""Packets with payload from one end only, after which the other is taken to have nothing to say."""
TLS_SEGMENTS = 3
"""Segments that begin as TLS records do, after which a connection without any frame is taken for TLS."""


class Guess:
    """What a split knows of the first connection of two endpoints that it met."""

    def __init__(self, endpoints: Endpoints, split: int) -> None:
        self.edge = Edge(endpoints, split, Head())
        self.edge.provisional = f"~{split}:{self.edge.key}"
        self.number = -1
        """Of the connection in the engine that follows it."""
        self._asked_at = -1
        """Bytes of the broker's stream when the first request was complete."""
        self._all_known = -2
        """What was sent after this order was sent when every waiting request was known; -2 for not yet."""
        self._tls = 0
        self._quiet: list[tuple[int, int]] = [(-1, 0), (-1, 0)]
        """Of each side, while it says nothing: its sequence number, and the other side's packets that had
        payload."""

    @property
    def open(self) -> bool:
        """Whether segments are still being kept."""
        return self.edge.ends == WHOLE

    @property
    def head(self) -> Head:
        """The segments kept."""
        assert self.edge.head is not None
        return self.edge.head

    def begins(self, rows: Rows, row: int) -> None:
        """At this segment a new connection begins."""
        self.head.keep(rows, row)
        self.edge.ends = BEGINS

    def watch(self, connection: Connection, rows: Rows, row: int) -> None:
        """Keep a segment that the connection took, and see whether its state can be guessed now."""
        self._tls += is_tls(self.head.keep(rows, row))
        if self._settles(connection, rows, row):
            self._make(connection)
        elif self.head.size > MAX_HEAD:
            self.give_up(connection)

    def give_up(self, connection: Connection) -> None:
        """Keep nothing: the connection is to be decoded again, so here what follows need not be."""
        self.edge.ends = GIVEN_UP
        self.head.clear()
        connection.exchange.stage, connection.exchange.probe = TLS, None
        connection._id = self.edge.provisional

    def _settles(self, connection: Connection, rows: Rows, row: int) -> bool:
        exchange = connection.exchange
        if connection.closed or connection.reset is not None or connection.backwards:
            return False
        if connection.isn != [None, None] or connection.fin != [None, None]:
            return False
        if exchange.ignored:
            return True
        if not exchange.is_kafka or exchange.client < 0:
            return False
        self._note_silence(connection, rows, row)
        self._note_order(connection)
        if self._tls >= TLS_SEGMENTS and not any(framer.counters.frames for framer in exchange.framers):
            exchange.stage = TLS
            return True
        return self._in_step(connection)

    def _in_step(self, connection: Connection) -> bool:
        exchange = connection.exchange
        conversation = exchange.conversation
        for stream, framer in zip(connection.streams, exchange.framers, strict=True):
            if stream.waiting or stream.far or stream.next_seq < 0:
                return False
            if not framer.synchronised or framer.pending is not None:
                return False
        if conversation.raw_tokens or conversation.raw_waiting or conversation.outstanding.repeated:
            return False
        if conversation.response_gap and any(stream.missing for stream in connection.streams):
            return False
        oldest = conversation.outstanding.oldest()
        if len(self.head) < SETTLED:
            return False
        known = self._all_known > -2 and (oldest is None or oldest.order > self._all_known)
        return known and any(framer.counters.frames for framer in exchange.framers)

    def _note_order(self, connection: Connection) -> None:
        """A broker answers in order: with the first response to a known request, all are known that wait."""
        exchange = connection.exchange
        requests, responses = exchange.framers
        if self._asked_at < 0 and requests.counters.frames:
            self._asked_at = connection.streams[1 - exchange.client].offset
        if self._all_known == -2 and responses.synchronised:
            # If it is the first that the broker said after the request, that was the only one.
            at_once = responses.counters.skipped == self._asked_at
            self._all_known = -1 if at_once else connection.last_order

    def _note_silence(self, connection: Connection, rows: Rows, row: int) -> None:
        """A side that only acknowledges tells by its sequence number where its stream stands."""
        side, exchange = int(rows.side[row]), connection.exchange
        if connection.streams[side].next_seq < 0:
            self._quiet[side] = int(rows.seq[row]), self._quiet[side][1]
        if not rows.length[row]:
            return
        other = 1 - side
        seq, heard = self._quiet[other]
        self._quiet[other] = seq, heard + 1
        stream = connection.streams[other]
        if stream.next_seq < 0 <= seq and heard > SILENT and other != exchange.client:
            stream.next_seq = seq
            exchange.framers[1].synchronised = True

    def _make(self, connection: Connection) -> None:
        """Put aside what is left over from before, and take what remains for the true state."""
        edge = self.edge
        if not connection.exchange.ignored:
            conversation = connection.exchange.conversation
            conversation.early = []
            conversation.response_gap = False
            conversation.no_reply = NoReply({NO_ID: None})
        edge.guess = summary(connection)
        edge.latest, edge.counts = histories(connection), counts(connection)
        edge.ends = GUESSED
        connection._id = edge.provisional
