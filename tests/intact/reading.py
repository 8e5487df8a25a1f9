"""What went over whole connections: frames by their lengths, calls by their correlation ids, nothing else.

Of Kafka this knows the request header (protocol guide, "Request Header v0" to "v2"), where a Produce
request says its acks, and that raw SASL tokens follow SaslHandshake v0 (KIP-43, KIP-152). What it can't
judge it names.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.intact.packets import Fragment, Packet, packets
from tests.intact.tcp import Connection, Stream, connections

PRODUCE, SASL_HANDSHAKE, CONTROLLED_SHUTDOWN = 0, 17, 7
LAST_API, LAST_VERSION = 120, 30
LARGEST = 256 << 20
ROUNDS = {b"PLAIN": 1, b"OAUTHBEARER": 1, b"SCRAM-SHA-256": 2, b"SCRAM-SHA-512": 2}
"""Raw tokens of the client, each answered, by mechanism (RFC 4616, 7628, 5802)."""


class NotKafkaError(Exception):
    """Why a connection is not read."""


@dataclass
class Call:
    """A request and, if there was one, its response; a reply to acks=0 is none."""

    api_key: int
    version: int
    correlation_id: int
    first_packet: int
    last_packet: int
    size: int
    expects_reply: bool
    response_packet: int | None = None
    response_size: int | None = None

    @property
    def answered(self) -> bool:
        return self.response_packet is not None


@dataclass
class Reading:
    """A connection and what is known of it."""

    connection: Connection
    why_not: str = ""
    """Why it is not judged, empty if it is."""
    client: int = 0
    """Which of the connection's streams is the client's."""
    calls: list[Call] = field(default_factory=list)
    tails: tuple[int, int] = (0, 0)
    """Bytes of a last frame that is not whole, client's and broker's."""
    overtaken: bool = False
    """A response came before that of an older request."""
    orphans: int = 0
    """Responses to nothing that was asked."""
    replies_to_acks_0: int = 0


@dataclass
class Frame:
    start: int
    end: int
    body: memoryview


def frames(stream: Stream) -> tuple[list[Frame], int]:
    """Frames of a stream, and how many bytes of the last one there are if it isn't whole."""
    found, at, data = [], 0, memoryview(bytes(stream.data))
    while at + 4 <= len(data):
        size = struct.unpack_from(">i", data, at)[0]
        if not 0 <= size <= LARGEST:
            raise NotKafkaError(f"a length of {size}")
        if at + 4 + size > len(data):
            break
        found.append(Frame(at, at + 4 + size, data[at + 4 : at + 4 + size]))
        at += 4 + size
    return found, len(data) - at


def read(source: str | Iterable[Packet | Fragment]) -> list[Reading]:
    """A reading of each connection of a capture file, or of packets."""
    found = connections(packets(source) if isinstance(source, str) else source)
    return [reading(connection) for connection in found]


def reading(connection: Connection) -> Reading:
    """What went over a connection, or why nobody can say."""
    if connection.why_not_whole:
        return Reading(connection, connection.why_not_whole)
    if not connection.streams[0].data and not connection.streams[1].data:
        return Reading(connection, "no data")
    if connection.streams[0].data[:2] in (b"\x16\x03", b"\x15\x03"):
        return Reading(connection, "TLS")
    found = Reading(connection)
    try:
        _converse(found, 0)
    except NotKafkaError as error:
        try:  # whoever's SYN came first need not be the client, as when both opened at once
            found = Reading(connection, client=1)
            _converse(found, 1)
        except NotKafkaError:
            return Reading(connection, f"not Kafka: {error}")
    return found


def _converse(found: Reading, client: int) -> None:
    asking, answering = found.connection.streams[client], found.connection.streams[1 - client]
    requests, behind_requests = frames(asking)
    responses, behind_responses = frames(answering)
    found.tails = (behind_requests, behind_responses)
    answers = deque(responses)
    open_calls: dict[int, list[Call]] = {}
    order: deque[Call] = deque()
    tokens = 0
    for frame in requests:
        if tokens:
            tokens -= 1
            _pair(found, order, open_calls, answers, answering, _waiting(order))
            if answers:
                answers.popleft()
            continue
        call = _call(frame, asking)
        found.calls.append(call)
        if call.expects_reply:
            order.append(call)
        open_calls.setdefault(call.correlation_id, []).append(call)
        if (call.api_key, call.version) == (SASL_HANDSHAKE, 0):
            # The client waits for the answer before it sends a token.
            _pair(found, order, open_calls, answers, answering, _waiting(order))
            tokens = _rounds(frame.body) if call.answered else 0
    _pair(found, order, open_calls, answers, answering, None)
    if found.calls and responses and not any(call.answered for call in found.calls):
        raise NotKafkaError("no response answers a request")
    if responses and not found.calls:
        raise NotKafkaError("responses alone")


def _pair(
    found: Reading, order: deque[Call], open_calls: dict[int, list[Call]], answers: deque[Frame],
    stream: Stream, limit: int | None,
) -> None:  # fmt: skip
    """Take the next responses, `limit` of them or all."""
    while answers and (limit is None or limit > 0):
        frame = answers.popleft()
        if len(frame.body) < 4:
            raise NotKafkaError("a response of less than four bytes")
        ident = struct.unpack_from(">i", frame.body)[0]
        waiting = [call for call in open_calls.get(ident, ()) if not call.answered]
        if not waiting:
            found.orphans += 1
            continue
        call = next((call for call in waiting if call.expects_reply), waiting[0])
        while order and order[0].answered:
            order.popleft()
        if not call.expects_reply:
            found.replies_to_acks_0 += 1
            open_calls[ident].remove(call)
            continue
        if order and order[0] is not call:
            found.overtaken = True
        call.response_packet = stream.completed(frame.start, frame.end)
        call.response_size = frame.end - frame.start
        open_calls[ident].remove(call)
        if limit is not None:
            limit -= 1


def _waiting(order: deque[Call]) -> int:
    return sum(not call.answered for call in order)


def _call(frame: Frame, stream: Stream) -> Call:
    body = frame.body
    if len(body) < 8:
        raise NotKafkaError("a request shorter than its header")
    key, version, ident = struct.unpack_from(">hhi", body)
    if not (0 <= key <= LAST_API and 0 <= version <= LAST_VERSION):
        raise NotKafkaError(f"API {key} version {version}")
    if (key, version) != (CONTROLLED_SHUTDOWN, 0):
        size = struct.unpack_from(">h", body, 8)[0] if len(body) >= 10 else -2
        if size < -1 or 10 + size > len(body):
            raise NotKafkaError("a client id that does not fit")
    try:
        silent = key == PRODUCE and acks(body) == 0
    except (IndexError, struct.error) as error:
        raise NotKafkaError("a Produce request that is too short") from error
    owner = stream.completed(frame.start, frame.start + 1)
    return Call(
        key, version, ident, owner, stream.completed(frame.start, frame.end), frame.end - frame.start,
        not silent,
    )  # fmt: skip


def acks(body: memoryview) -> int:
    """`acks` of a Produce request (protocol guide: Produce v0 to v13)."""
    version, at = struct.unpack_from(">h", body, 2)[0], 8
    at += 2 + max(struct.unpack_from(">h", body, at)[0], 0)
    if version >= 9:
        tags, at = _varint(body, at)
        for _ in range(tags):
            _, at = _varint(body, at)
            size, at = _varint(body, at)
            at += size
        size, at = _varint(body, at)
        at += max(size - 1, 0)
    elif version >= 3:
        at += 2 + max(struct.unpack_from(">h", body, at)[0], 0)
    return int(struct.unpack_from(">h", body, at)[0])


def _varint(body: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = body[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _rounds(body: memoryview) -> int:
    """How many raw tokens a client sends after a SaslHandshake."""
    at = 10 + max(struct.unpack_from(">h", body, 8)[0], 0)
    size = struct.unpack_from(">h", body, at)[0]
    name = bytes(body[at + 2 : at + 2 + size])
    if name not in ROUNDS:
        raise NotKafkaError(f"raw tokens of {name!r}")
    return ROUNDS[name]
