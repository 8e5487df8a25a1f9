"""Stitching: the edges of two endpoints, in the order of the splits, to what is true of their connections."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kwsniff.arrow import events_batch
from kwsniff.config import Config
from kwsniff.engine import Events
from kwsniff.engine.connection import Connection
from kwsniff.engine.rows import Endpoints, Rows
from kwsniff.pipeline import Part
from kwsniff.split.edge import BEGINS, GIVEN_UP, GUESSED, Edge, Head
from kwsniff.split.engine import FreezingEngine
from kwsniff.split.packed import Packed
from kwsniff.split.state import carry, freeze, summary, tail_matches


@dataclass(frozen=True, slots=True)
class Naming:
    """Whose events those of a guessed connection are, and what they don't say of its client."""

    split: int
    provisional: str
    connection: str
    software_name: str | None
    software_version: str | None


@dataclass(slots=True)
class Again(Packed):
    """A pair of endpoints whose connections have to be decoded again in a split."""

    endpoints: Endpoints
    split: int
    why: str
    state: bytes | None
    """The connection at that split's beginning, frozen; None if there was none."""
    wrong: list[str]
    """Ids of connections whose events, as the split has them, are not to be believed."""


@dataclass(slots=True)
class Stitched:
    """What came of one pair of endpoints."""

    parts: list[Part]
    """EVENTS that cross splits, and those of the ends of connections, with keys that order them."""
    names: list[Naming]
    again: Again | None = None
    """If the edges contradict each other: nothing was made of this split and those behind it."""
    guesses: int = 0
    """Guesses that had to be judged."""
    state: bytes | None = None
    """After one edge: the connection behind it, frozen; None if there is none."""


class FlowEngine(FreezingEngine):
    """An engine whose connections can be taken out and put in."""

    def __init__(self, config: Config) -> None:
        super().__init__(replace(config, kernels="never"))

    def get(self, endpoints: Endpoints) -> Connection | None:
        """The connection that the endpoints have."""
        return self._table.get(endpoints)

    def drop(self, endpoints: Endpoints) -> None:
        """Forget the connection that the endpoints have, without a word."""
        self._table.pop(endpoints, None)

    def take(self, endpoints: Endpoints, rows: Rows, count: int) -> None:
        """Feed the first `count` segments."""
        self._feed_connection(endpoints, rows, 0, count)

    def end(self, connection: Connection) -> None:
        """A new connection begins, or this one was silent too long."""
        self._end(connection, "connection_closed")

    def forget(self) -> None:
        """Forget what was said since it was last asked for."""
        for said in (self._events.calls, self._events.anomalies, self._events.ends):
            said.clear()

    def clear(self) -> None:
        """Let go of all connections, of which everything has been told."""
        self._table.clear()
        self._by_number.clear()
        self._gone.clear()

    def over(self, clock: int) -> Events:
        """The input is over, at that time."""
        self._clock = clock
        return self.finish()

    def so_far(self) -> Events:
        """What has been said."""
        return self._take_events()


class Stitcher:
    """Stitches one pair of endpoints after the other."""

    def __init__(self, config: Config, clock: int) -> None:
        """`clock` is the latest packet time of the whole input, in nanoseconds."""
        self._config, self._clock = config, clock
        self._engine = FlowEngine(config)
        self._parts: list[Part] = []
        self._file: str | None = None
        """What is said is said of this file; a connection knows only the one of its last segment."""

    def stitch(self, edges: Iterable[Edge]) -> Stitched:
        """Take the edges of one pair of endpoints in the order of their splits."""
        done = Stitched([], [])
        for edge in edges:
            if done.again is None:
                self._take(edge, done)
        if done.again is None:
            self._parts.append(events_batch(self._engine.over(self._clock), None, self._config))
        return self._taken(done)

    def step(self, state: bytes | None, edge: Edge) -> Stitched:
        """Take one edge; `state` is the connection before it, frozen, if there is one."""
        self._put(state)
        done = Stitched([], [])
        self._take(edge, done)
        known = self._engine.get(edge.endpoints)
        if known is not None:
            done.state = freeze(known, self._engine.shared)
        return self._taken(done)

    def end(self, state: bytes | None) -> Stitched:
        """The input is over."""
        self._put(state)
        self._parts.append(events_batch(self._engine.over(self._clock), None, self._config))
        return self._taken(Stitched([], []))

    def _put(self, state: bytes | None) -> None:
        if state is not None:
            self._engine.put(self._engine.thawed(state))

    def _take(self, edge: Edge, done: Stitched) -> None:
        done.guesses += edge.ends in (GUESSED, GIVEN_UP)
        done.again, naming = self._advance(edge)
        if naming is not None:
            done.names.append(naming)

    def _taken(self, done: Stitched) -> Stitched:
        """What was said meanwhile, and forget the endpoints."""
        self._tell()
        done.parts = [part for part in self._parts if part[0] is not None]
        self._parts = []
        self._engine.clear()
        return done

    def _tell(self) -> None:
        """Make rows of what has been said so far."""
        part = events_batch(self._engine.so_far(), None, self._config)
        if part[0] is not None:
            self._parts.append(part)

    def _turn_to(self, file: str | None) -> None:
        if file != self._file:
            self._tell()
            self._file = file

    def _advance(self, edge: Edge) -> tuple[Again | None, Naming | None]:
        """From the true state before a split to that behind it."""
        engine, endpoints = self._engine, edge.endpoints
        naming = None
        if edge.head is not None:
            self._tell()
            told = len(self._parts)
            known = engine.get(endpoints)
            state = None
            if known is not None and edge.ends in (GUESSED, BEGINS, GIVEN_UP):
                state = freeze(known, engine.shared)
            why, naming = self._judged(edge, edge.head)
            if why is not None:
                engine.forget()
                engine.drop(endpoints)
                del self._parts[told:]
                return Again(endpoints, edge.split, why, state, edge.ids), None
        if edge.tail is not None:
            tail = engine.thawed(edge.tail)
            engine.put(tail)
            self._turn_to(tail.capture)
        return None, naming

    def _judged(self, edge: Edge, head: Head) -> tuple[str | None, Naming | None]:
        """Feed the head; why the split's guess was wrong, if so, and whose events it has, if not."""
        engine, endpoints = self._engine, edge.endpoints
        if edge.ends == GIVEN_UP:
            return "too long", None
        left = len(head) - (edge.ends == BEGINS)
        for rows in head.runs():
            count = min(len(rows.time), left)
            left -= count
            if count:
                self._turn_to(rows.capture)
                engine.take(endpoints, rows, count)
            known = engine.get(endpoints)
            if count < len(rows.time) and known is not None:
                if not known._is_new_connection(rows, count):
                    return "no new connection", None
                engine.end(known)
        return self._compared(edge, engine.get(endpoints)) if edge.ends == GUESSED else (None, None)

    def _compared(self, edge: Edge, known: Connection | None) -> tuple[str | None, Naming | None]:
        engine = self._engine
        assert edge.guessed is not None
        assert edge.counts is not None
        if known is None or summary(known) != edge.guess:
            return "another state", None
        if not known.exchange.ignored and not tail_matches(known, edge.latest):
            return "other bytes", None
        later = engine.thawed(edge.guessed)
        why = edge.watch.refutes(later, known, edge.counts)
        if why is not None:
            return why, None
        conversation = known.exchange.conversation
        for early in conversation.early:  # its request did not come any more
            conversation.orphan(early)
        software = conversation.software_name, conversation.software_version
        naming = Naming(edge.split, edge.provisional, known.id, *software)
        self._turn_to(later.capture)
        true = carry(later, known, edge.counts)
        engine.put(true)
        if edge.over:
            engine.end(true)
        return None, naming
