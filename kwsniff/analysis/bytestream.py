"""The bytes of messages, put together again from the segments of their connections.

Theory of operation: EVENTS say when the first and the last byte of each message came, and in which packet. Of
the segments of one direction only those between these times are put together, and a message is taken out
with the packet that completes it. It is found by what its frame begins with (its size, and key, version and
correlation id). The first copy of a byte counts, as everywhere; what the capture lacks is zeros, and told.
"""

from __future__ import annotations

import re
import struct
import sys
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.tabular import columns
from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.net.address import halves, text
from kwsniff.rows.columns import Ints
from kwsniff.rows.events import CALL
from kwsniff.run.offline import events

REQUEST, RESPONSE = "request", "response"
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

    def joined(self) -> tuple[bytes, Ints]:
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
    for batch in segments([path], config):
        numbers = batch["packet"].to_numpy(zero_copy_only=False)
        for row in np.flatnonzero(numbers == packet).tolist():
            one = [batch[name][row].as_py() for name in _ENDS]
            if None not in one:
                return frozenset(((text(one[0], one[1]), one[2]), (text(one[3], one[4]), one[5])))
        if len(numbers) and np.nanmax(numbers) > packet:
            return None
    return None


# Messages of calls, and the segments between their ends.

NEEDED = columns(
    """
    api_key api_version correlation_id client_ip client_port broker_ip broker_port capture connection
    request_packet response_packet request_bytes response_bytes request_time request_end_time
    response_time response_end_time
    """
)
"""Columns of calls by which their messages are found."""
SUMMARY = NEEDED | columns(
    """
    event time api client_id status error error_code latency_us topics topic_ids partitions
    unanswered_because
    """
)
"""Columns that tell what a call is."""
Code = tuple[int, int, int, int, int, int]
"""Source and destination of one direction: upper and lower half of the address, and port."""
_ENDS = ("src_hi", "src_lo", "src_port", "dst_hi", "dst_lo", "dst_port")


def directions(call: Row) -> list[tuple[str, Code]]:
    """Those of the request and of the response of a call; none if its ends are not known."""
    ends = [call[name] for name in ("client_ip", "client_port", "broker_ip", "broker_port")]
    if None in ends:
        return []
    client, broker = (*halves(ends[0]), ends[1]), (*halves(ends[2]), ends[3])
    return [(REQUEST, client + broker), (RESPONSE, broker + client)]


def between(batch: pa.RecordBatch, codes: Collection[Code]) -> Iterator[tuple[Code, int]]:
    """The rows of a batch of segments that lie in one of some directions."""
    ends = [pc.fill_null(batch[name], 0).to_numpy(zero_copy_only=False) for name in _ENDS]
    ports = ends[2].astype(np.int64) << 16 | ends[5].astype(np.int64)
    asked = np.array([code[2] << 16 | code[5] for code in codes], np.int64)
    near = np.flatnonzero(np.isin(ports, asked))
    for at, code in zip(
        near.tolist(), zip(*(column[near].tolist() for column in ends), strict=True), strict=True
    ):
        if code in codes:
            yield code, at


def micros(moment: Any) -> int:
    """A time of EVENTS in microseconds since 1970."""
    return int(pa.scalar(moment, pa.timestamp("us", tz="UTC")).value)


# Calls of a capture by what a person can name: a packet, or a connection and a correlation id.

COLUMNS = SUMMARY | columns(
    "duration_us group_id queued_us throttled_us waited_us broker_us closed_by waited_open_us"
)
"""Columns of the calls that are found."""


class Target(NamedTuple):
    """What to find: a packet, or a call of a connection."""

    packet: int | None = None
    connection: str | None = None
    """The beginning of its id."""
    correlation_id: int | None = None

    @classmethod
    def of(cls, text: str) -> Target:
        """From `17` or `4905ac74e8683338#12`. Raises ValueError."""
        if text.isdecimal():
            return cls(packet=int(text))
        found = re.fullmatch(r"([0-9a-fA-F]+)#(-?\d+)", text.strip())
        if found is None:
            raise ValueError(f"{text!r} is neither the number of a packet nor CONNECTION#CORRELATION_ID")
        return cls(connection=found[1].lower(), correlation_id=int(found[2]))


def found_calls(path: str, target: Target, config: Config) -> list[Row]:
    """The calls that `target` names, in the order of the events: of a packet those whose request or response
    it completes. Raises CaptureError."""
    found: list[Row] = []
    for batch in events([path], replace(config, columns=COLUMNS)):
        mask = pc.and_(pc.equal(batch["event"], CALL), pc.fill_null(_test(batch, target), False))
        found += batch.filter(mask).to_pylist()
    return found


def _test(batch: pa.RecordBatch, target: Target) -> pa.Array:
    if target.packet is not None:
        request = pc.fill_null(pc.equal(batch["request_packet"], target.packet), False)
        return pc.or_(request, pc.fill_null(pc.equal(batch["response_packet"], target.packet), False))
    own = pc.starts_with(batch["connection"], target.connection)
    return pc.and_(own, pc.equal(batch["correlation_id"], target.correlation_id))


def next_call(path: str, ends: frozenset[tuple[str, int]], packet: int, config: Config) -> Row | None:
    """The call between these two ends whose message is the next to be complete from `packet` on."""
    best: tuple[int, Row] | None = None
    for batch in events([path], replace(config, columns=COLUMNS)):
        for row in batch.filter(pc.equal(batch["event"], CALL)).to_pylist():
            own = {(row["client_ip"], row["client_port"]), (row["broker_ip"], row["broker_port"])}
            packets = (row["request_packet"] or -1, row["response_packet"] or -1)
            later = [each for each in packets if each >= packet]
            if own == ends and later and (best is None or min(later) < best[0]):
                best = (min(later), row)
    return best[1] if best else None


# The messages of calls, in one reading of the captures

LARGEST = 8 << 20
"""Bytes of a message beyond which it is not kept, where there may be many."""
MARGIN_NS = 50_000_000
"""Segments may be captured out of their order."""
SLACK = 256 << 10
"""Bytes of a stream kept beyond the size of what is looked for."""


class Wish(NamedTuple):
    """One message that is looked for; `first` and `last` in nanoseconds."""

    first: int
    last: int
    call: int
    direction: str
    capture: str | None
    packet: int


@dataclass(slots=True)
class Direction:
    """One direction of the connections between two ends, with what is wanted of it."""

    wishes: list[Wish] = field(default_factory=list)
    keep: int = SLACK
    side: Side | None = None
    begins: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def join(self) -> None:
        """Bring the times of all wishes together into spans that do not overlap."""
        for wish in sorted(self.wishes):
            if self.ends and wish.first <= self.ends[-1]:
                self.ends[-1] = max(self.ends[-1], wish.last)
            else:
                self.begins.append(wish.first)
                self.ends.append(wish.last)

    def wants(self, time: int) -> bool:
        """Whether something that is wanted may come at this time."""
        place = bisect_right(self.begins, time) - 1
        return place >= 0 and time <= self.ends[place]


def messages_of(path: str, call: Row, config: Config | None = None) -> dict[str, FramedMessage]:
    """The request and the response of a call of EVENTS, those of them that were captured. Raises
    CaptureError."""
    found = messages_of_calls([path], [call], config, largest=sys.maxsize)
    return {direction: message for _, direction, message in found}


def messages_of_calls(
    paths: Sequence[str], calls: Sequence[Row], config: Config | None = None, largest: int = LARGEST
) -> Iterator[tuple[int, str, FramedMessage]]:
    """The requests and responses of calls of EVENTS, as far as they were captured and are not larger than
    `largest`: number of the call, direction, message, in the order in which they were complete. Raises
    CaptureError."""
    wanted = _wanted(calls, largest)
    open_until = max((wish.last for each in wanted.values() for wish in each.wishes), default=0)
    left = sum(len(each.wishes) for each in wanted.values())
    if not left:
        return
    for batch in segments(paths, config):
        for direction, at in _rows(batch, wanted):
            for wish, message in _taken(direction, batch, at, calls):
                left -= 1
                if message is not None:
                    yield wish.call, wish.direction, message
        if not left or _over(batch, open_until):
            return


def _over(batch: pa.RecordBatch, until: int) -> bool:
    """Whether a batch lies well behind everything wanted, packets in the order of time."""
    times = batch["time"].drop_null()
    return bool(len(times)) and times[0].as_py() > until + 3600 * 10**9


def _wanted(calls: Sequence[Row], largest: int) -> dict[Code, Direction]:
    found: dict[Code, Direction] = defaultdict(Direction)
    for number, call in enumerate(calls):
        for name, code in directions(call):
            first, last = call[f"{name}_time"], call[f"{name}_end_time"]
            packet, size = call[f"{name}_packet"], call[f"{name}_bytes"] or 0
            if first is None or last is None or packet is None or size > largest:
                continue
            span = (1000 * micros(first) - MARGIN_NS, 1000 * micros(last) + MARGIN_NS)
            found[code].wishes.append(Wish(*span, number, name, call["capture"], packet))
            found[code].keep = max(found[code].keep, size + SLACK)
    for each in found.values():
        each.join()
    return dict(found)


def _rows(batch: pa.RecordBatch, wanted: dict[Code, Direction]) -> Iterator[tuple[Direction, list[int]]]:
    """The rows of a batch in each direction at times when something is wanted."""
    times = pc.fill_null(batch["time"], 0).to_numpy(zero_copy_only=False)
    by_code: dict[Code, list[int]] = defaultdict(list)
    for code, at in between(batch, wanted):
        if wanted[code].wants(int(times[at])):
            by_code[code].append(at)
    for code, at_rows in by_code.items():
        yield wanted[code], at_rows


def _taken(
    direction: Direction, batch: pa.RecordBatch, at: Sequence[int], calls: Sequence[Row]
) -> Iterator[tuple[Wish, FramedMessage | None]]:
    columns = [batch[name] for name in ("seq", "payload", "length", "packet", "capture")]
    for row in at:
        seq, payload, length, packet, capture = (column[row].as_py() for column in columns)
        if not payload:
            continue
        if direction.side is None:
            direction.side = Side(direction.keep)
        direction.side.add(seq, payload, length, packet)
        done = [wish for wish in direction.wishes if (wish.packet, wish.capture) == (packet, capture)]
        for wish in done:
            direction.wishes.remove(wish)
            yield wish, found_message(direction.side, calls[wish.call], wish.direction)
        if not direction.wishes:
            direction.side = None
            return
