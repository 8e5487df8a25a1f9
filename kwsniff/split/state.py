"""The state of a connection: as bytes, to be compared, and to be put behind another.

Theory of operation. What an engine yields for a connection from some segment on depends on the connection's
state there. `summary` holds all of that state that can matter to what follows, in a form that does not depend
on when following began: offsets count from the next byte wanted, counters are left out. Two connections with
equal summaries that are fed the same segments yield the same events, but for what `carry` puts right.

What a summary leaves out on purpose, because only a rare event asks for it, is watched for instead, see
`Watch`: the decoder of a split notes that it was asked for, and the guess counts as wrong if it mattered.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from kwsniff.engine.connection import Connection
from kwsniff.net.reassembly import HISTORY, Stream
from kwsniff.wire.bodies import Codec, codec_of
from kwsniff.wire.conversation import MAX_EARLY, MAX_NO_REPLY, Conversation
from kwsniff.wire.framer import TOKEN_FRAMES, Framer

Summary = tuple[Any, ...]

NO_ID = -(1 << 40)
"""Stands for correlation ids of requests before the split that want no response: no real one is so low."""
_MASK = 0xFFFFFFFF


class NoReply(dict[int, None]):
    """Correlation ids of requests that want no response, as far as a split knows them."""

    missed = False
    """It was asked for one that is not there."""

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        if not found:
            self.missed = True
        return found


# As bytes


class _Pickler(pickle.Pickler):
    """Leaves out what every engine has of its own."""

    def __init__(self, file: io.BytesIO, shared: dict[int, str]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._shared = shared

    def persistent_id(self, obj: object) -> str | None:
        return self._shared.get(id(obj))

    def reducer_override(self, obj: object) -> Any:
        if isinstance(obj, Codec):  # it holds compiled decoders
            return codec_of, (obj.api_key, obj.version)
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, shared: dict[str, Any]) -> None:
        super().__init__(file)
        self._shared = shared

    def persistent_load(self, name: str) -> Any:
        return self._shared[name]


def freeze(connection: Connection, shared: dict[str, Any]) -> bytes:
    """A connection as bytes; `shared` names the objects that stay behind."""
    file = io.BytesIO()
    _Pickler(file, {id(value): name for name, value in shared.items()}).dump(connection)
    return file.getvalue()


def thaw(frozen: bytes, shared: dict[str, Any], number: int) -> Connection:
    """The connection again, in another engine, where it has that number."""
    connection: Connection = _Unpickler(io.BytesIO(frozen), shared).load()
    connection.number = number
    exchange = connection.exchange
    exchange._sinks = (number, shared["calls"], shared["anomalies"])
    exchange.conversation.connection = number
    return connection


# To compare


def summary(connection: Connection) -> Summary:
    """All of the state that can matter later."""
    exchange = connection.exchange
    pending = connection.syn_ack and connection.handshake < 0
    common = (connection.closed, connection.reset, connection.backwards, connection.last_time)
    if exchange.ignored:
        return ("ignored", *common)
    if not exchange.is_kafka:
        return ("not judged",)
    streams = tuple(
        _stream(stream, fin) for stream, fin in zip(connection.streams, connection.fin, strict=True)
    )
    framers = tuple(_framer(framer) for framer in exchange.framers)
    said = (exchange.client, exchange.spoken[exchange.client])
    return ("kafka", *common, pending, *said, streams, framers, _conversation(exchange.conversation))


def _stream(stream: Stream, fin: int | None) -> Summary:
    # That less was acknowledged than delivered says nothing of holes to come.
    ahead = max(stream.acked - stream.offset, 0)
    settled = not stream.waiting and stream.far is None
    return (stream.next_seq, ahead, settled, None if fin is None else fin - stream.offset)


def _framer(framer: Framer) -> Summary:
    chunks, position = [], 0
    digest = blake2b(digest_size=16)
    for part in framer.parts:
        chunks += [
            (start + position, *rest)
            for start, *rest in zip(part.starts, part.packets, part.times, part.orders, strict=True)
        ]
        digest.update(part.data)
        position += len(part.data)
    # Segments to come have a higher order than all before: this one matters only to a frame that they don't
    # complete.
    latest = max((order for *_, order in chunks), default=framer.last_order)
    order = max(framer.last_order, latest) - latest
    skipped = framer.counters.skipped - framer.skipped_before
    return (
        framer.synchronised, framer.pending is None, framer.have, framer.need, order, framer.lost, skipped,
        tuple(chunks), digest.digest(),
    )  # fmt: skip


def _conversation(conversation: Conversation) -> Summary:
    requests = conversation.outstanding.requests.values()
    # Where record data lay in the buffer is asked for no more.
    said = [
        body and (body.facts._replace(partitions=None), *body[1:])
        for body in (request.body for request in requests)
    ]
    digest = blake2b(repr(said).encode(), digest_size=16)
    return (
        tuple(request[:11] for request in requests), digest.digest(),
        len(conversation.outstanding.repeated), conversation.raw_tokens, conversation.raw_waiting,
        conversation.response_gap,
    )  # fmt: skip


def tail_matches(known: Connection, history: tuple[tuple[bytes, bool], ...]) -> bool:
    """Whether the latest bytes of both streams are those kept here, see `histories`."""
    for stream, (latest, whole) in zip(known.streams, history, strict=True):
        if not stream.history.endswith(latest) or (whole and len(stream.history) != len(latest)):
            return False
    return True


def histories(connection: Connection) -> tuple[tuple[bytes, bool], ...]:
    """For both streams, the latest bytes, and whether no stream could have kept more of them."""
    return tuple((stream.history, len(stream.history) != stream.offset) for stream in connection.streams)


# To put behind another


@dataclass(frozen=True, slots=True)
class Counts:
    """What had been counted of a guessed connection when the guess was made."""

    packets: tuple[int, int]
    bytes: tuple[int, int]
    offset: tuple[int, int]
    missing: tuple[int, int]
    history: tuple[int, int]
    """Bytes of each stream kept for comparison."""
    framing: tuple[tuple[int, int, int], ...]
    """Frames, resynchronisations and skipped bytes of requests and responses."""
    undecoded: int
    tokens: int


def counts(connection: Connection) -> Counts:
    """The counters of a connection as they are."""
    a, b = connection.streams
    framers = () if connection.exchange.ignored else connection.exchange.framers
    conversation = connection.exchange.conversation
    return Counts(
        (connection.packets[0], connection.packets[1]),
        (connection.bytes[0], connection.bytes[1]),
        (a.offset, b.offset),
        (a.missing, b.missing),
        (len(a.history), len(b.history)),
        tuple(
            (each.counters.frames, each.counters.resynchronisations, each.counters.skipped)
            for each in framers
        ),
        conversation.undecoded,
        conversation.tokens,
    )


def carry(later: Connection, known: Connection, since: Counts) -> Connection:
    """The true connection where `later` is: `known` was true, and equal to it but for its counters, `since`.

    Changes and returns one of the two.
    """
    if known.exchange.ignored:
        return _carry_ignored(later, known, since)
    for name in ("number", "first_time", "_id", "isn", "syn_time", "handshake", "syn_ack"):
        setattr(later, name, getattr(known, name))
    later.syn, later.rst = known.syn or later.syn, known.rst or later.rst
    before = sum(known.packets) - sum(since.packets)
    _add_counts(later, known, since)
    for k in (0, 1):
        _carry_stream(later, k, known.streams[k], since, before)
    exchange, was = later.exchange, known.exchange
    exchange.stage, exchange._sinks = was.stage, was._sinks
    exchange.spoken = [mine or its for mine, its in zip(exchange.spoken, was.spoken, strict=True)]
    for framer, old, base in zip(exchange.framers, was.framers, since.framing, strict=True):
        framer.tokens = old.tokens
        framer.skipped_before += old.counters.skipped - base[2]
        framer.counters.frames += old.counters.frames - base[0]
        framer.counters.resynchronisations += old.counters.resynchronisations - base[1]
        framer.counters.skipped += old.counters.skipped - base[2]
    _carry_conversation(exchange.conversation, was.conversation, since)
    return later


def _add_counts(later: Connection, known: Connection, since: Counts) -> None:
    for k in (0, 1):
        later.packets[k] += known.packets[k] - since.packets[k]
        later.bytes[k] += known.bytes[k] - since.bytes[k]


def _carry_ignored(later: Connection, known: Connection, since: Counts) -> Connection:
    _add_counts(later, known, since)
    known.packets, known.bytes = later.packets, later.bytes
    for name in ("backwards", "capture", "last_time", "last_packet", "last_order"):
        setattr(known, name, getattr(later, name))
    return known


def _carry_stream(later: Connection, k: int, known: Stream, since: Counts, packets: int) -> None:
    stream = later.streams[k]
    ahead = known.offset - since.offset[k]
    kept = stream.history
    delivered = stream.offset - since.offset[k]
    if len(kept) == min(since.history[k] + delivered, HISTORY):
        older = known.history[: len(known.history) - since.history[k]]
        stream.history = (older + kept)[-HISTORY:]
    stream.acked = max(known.acked, stream.acked + ahead if stream.acked >= 0 else -1)
    stream.offset += ahead
    for segment in (*stream.waiting, stream.far):
        if segment is not None:
            segment.start += ahead
            segment.end += ahead
    fin = later.fin[k]
    later.fin[k] = None if fin is None else fin + ahead
    stream.from_start = known.from_start
    stream.missing += known.missing - since.missing[k]
    stream.hole_since_packets += packets


def _carry_conversation(later: Conversation, known: Conversation, since: Counts) -> None:
    later.connection = known.connection
    later.undecoded += known.undecoded - since.undecoded
    later.tokens += known.tokens - since.tokens
    later.mechanism = known.mechanism if later.mechanism is None else later.mechanism
    later.user = later.user if known.user is None else known.user
    if later.software_name is None:
        later.software_name, later.software_version = known.software_name, known.software_version
    asked = dict(known.no_reply)
    for correlation_id in dict.keys(later.no_reply):
        if correlation_id != NO_ID:
            asked[correlation_id] = None
    while len(asked) > MAX_NO_REPLY:
        del asked[next(iter(asked))]
    later.no_reply = asked


@dataclass(slots=True)
class Watch:
    """What a split met after a guess was made that its summary does not cover."""

    odd_length: bool = False
    """A frame of impossible length: the first frames of a connection may have lengths that later ones may
    not."""
    new_start: tuple[int, int] | None = None
    """Side and sequence number of the SYN that was taken for that of a new connection."""
    missed_reply: bool = False
    """A response that no request was known for."""
    asked: tuple[int, int] | None = None
    """Lowest and highest correlation id of the requests."""
    orphans: int = 0
    """Responses whose requests were not captured."""

    def add_requests(self, lowest: int, highest: int) -> None:
        """Note correlation ids of requests."""
        low, high = self.asked or (lowest, highest)
        self.asked = min(low, lowest), max(high, highest)

    def refutes(self, later: Connection, known: Connection, since: Counts) -> str | None:
        """Why the guess cannot stand for `known`, if it was followed up to `later`; None if it can."""
        if later.isn != [None, None]:
            return "a SYN within the connection"
        if known.exchange.ignored:
            return "a SYN" if self.new_start and not _begins_new(known, *self.new_start) else None
        checks: tuple[tuple[str, Callable[[], bool]], ...] = (
            ("framing", lambda: later.exchange.stage != "kafka"),
            ("retransmission", lambda: any(stream.reached_back for stream in later.streams)),
            ("length", lambda: self.odd_length and any(map(_takes_tokens, known.exchange.framers))),
            ("no reply", lambda: self.missed_reply and bool(known.exchange.conversation.no_reply)),
            ("user", lambda: _user_unknown(later, known, since)),
            ("early", lambda: self._may_meet(later.exchange.conversation, known.exchange.conversation)),
            ("SYN", lambda: self.new_start is not None and not _begins_new(known, *self.new_start)),
        )
        return next((name for name, failed in checks if failed()), None)

    def _may_meet(self, later: Conversation, known: Conversation) -> bool:
        """Whether a response that still waited for its request may have found it, or been said of another
        client."""
        if not known.early:
            return False
        many = len(known.early) + self.orphans > MAX_EARLY
        if many or later.software_name is not None or later.outstanding.repeated:
            return True
        asked = [*later.outstanding.requests, *(self.asked or ())]
        low, high = min(asked, default=0), max(asked, default=-1)
        return any(low <= early.correlation_id <= high for early in known.early)


def _takes_tokens(framer: Framer) -> bool:
    return framer.tokens and framer.counters.frames < TOKEN_FRAMES


def _user_unknown(later: Connection, known: Connection, since: Counts) -> bool:
    told = known.exchange.conversation
    read = later.exchange.conversation.tokens > since.tokens
    return read and told.user is None and told.mechanism is not None


def _begins_new(known: Connection, k: int, isn: int) -> bool:
    first, stream = known.isn[k], known.streams[k]
    if first is not None:
        return first != isn
    return stream.next_seq >= 0 and (stream.next_seq - stream.offset - isn - 1) & _MASK != 0
