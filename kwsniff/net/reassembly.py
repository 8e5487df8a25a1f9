"""One direction of a TCP connection: segments in any order in, the byte stream in order out.

Theory of operation. A stream knows the sequence number of the next byte it wants. A segment that begins
there is delivered; one that lies beyond waits, sorted, behind a hole; bytes that were delivered or wait
already are not taken again (the first copy wins, RFC 9293 leaves it open; a differing copy is reported).
What is delivered comes as `Run`s, which remember packet, time and place in the capture of every chunk, and
`Gap`s.

A hole is given up, and becomes a gap, when the capture can no longer be expected to fill it: the receiver
has acknowledged bytes beyond it and `reorder_packets` more packets of the connection or `reorder_time` have
gone by; or nobody acknowledged it for `hole_time`; or more than `max_reorder_bytes` wait; or the connection
ends. A segment more than a mebibyte ahead counts only once a second one lies beside it: its sequence number
may be damaged. A segment cut by the snap length leaves a gap at once: a retransmission would be cut too.

Invariants: `waiting` is sorted and free of overlap, and its first element begins beyond `offset`. Offsets
are plain integers that never wrap; only sequence numbers do.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config

HISTORY = 2048
"""Bytes kept behind the delivery point to compare retransmissions with."""

FAR = 1 << 20
"""Bytes ahead of the next byte wanted from which on a segment alone is not believed."""
WAITING_COST = 256
"""Bytes charged for keeping a segment behind a hole, besides its payload."""

_MASK = 0xFFFFFFFF


@dataclass(slots=True)
class Run:
    """Contiguous bytes of a stream. Element i of the lists tells of the chunk that begins at `starts[i]`."""

    data: bytes
    starts: list[int]
    packets: list[int]
    times: list[int]
    orders: list[int]
    """Place of the packet in the whole input; ascending unless packets came out of order."""

    def __len__(self) -> int:
        return len(self.data)

    def tail(self, pos: int) -> Run:
        """The run from byte `pos` on."""
        first = max(bisect_right(self.starts, pos) - 1, 0)
        starts = [max(start - pos, 0) for start in self.starts[first:]]
        return Run(self.data[pos:], starts, self.packets[first:], self.times[first:], self.orders[first:])


@dataclass(slots=True)
class Gap:
    """Bytes of a stream that the capture does not hold."""

    length: int
    packet: int = -1
    """Packet that carried them and was cut by the snap length; -1 if no such packet was captured."""
    time: int = -1
    order: int = -1


@dataclass(slots=True)
class _Waiting:
    """A segment behind a hole. `end` counts the bytes on the wire, `data` may hold fewer."""

    start: int
    end: int
    data: bytes
    packet: int
    time: int
    order: int


@dataclass(slots=True)
class Stream:
    """State of one direction; see the module's head."""

    config: Config
    next_seq: int = -1
    """Sequence number of the next byte wanted; -1 until the first segment."""
    offset: int = 0
    """Bytes of the stream before `next_seq`, gaps included."""
    from_start: bool = False
    """The SYN was seen, so the first byte delivered is the first of the connection."""
    waiting: list[_Waiting] = field(default_factory=list)
    waiting_bytes: int = 0
    """Memory that `waiting` takes, about."""
    history: bytes = b""
    acked: int = -1
    """Highest offset that the other end has acknowledged; -1 if it never did."""
    hole_since_packets: int = 0
    hole_since_time: int = 0
    missing: int = 0
    overlaps: list[int] = field(default_factory=list)
    """Packets whose bytes differed from the first copy, until somebody takes them away."""
    limit_hit: bool = False
    stray_end: int = -1
    """Sequence number behind the latest segment whose own number, or length, may be wrong."""
    far: _Waiting | None = None
    """The latest segment that lies implausibly far ahead, until another beside it bears it out."""
    reached_back: bool = False
    """A retransmission reached beyond the stream's first byte while `history` began there."""

    @property
    def settled(self) -> bool:
        """No hole is open, so in-order segments can be delivered in bulk."""
        return not self.waiting

    def synchronise(self, seq: int) -> None:
        """Note a SYN: the stream begins one after its sequence number."""
        self.next_seq = (seq + 1) & _MASK
        self.from_start = True

    def acknowledge(self, ack: int) -> None:
        """Note an acknowledgement number of the other end. One far beyond all that was seen is damaged."""
        if self.next_seq < 0:
            return
        offset = self.offset + self._distance(ack)
        if offset <= (self.waiting[-1].end if self.waiting else self.offset) + FAR:
            self.acked = max(self.acked, offset)

    def acknowledge_all(self, acks: NDArray[np.int64], ahead: NDArray[np.int64]) -> None:
        """Note several acknowledgement numbers: the highest counts. `ahead` is how much of this stream comes
        before each of them, from now on."""
        if self.next_seq >= 0:
            away = ((acks - self.next_seq - ahead + 0x80000000) & _MASK) - 0x80000000
            believed = (away + ahead)[away <= FAR]
            if len(believed):
                self.acked = max(self.acked, self.offset + int(believed.max()))

    def deliver_in_order(self, data: bytes) -> None:
        """Note that `data`, which began at `next_seq`, went to the reader without passing through `feed`."""
        self._advance(len(data))
        self.history = data[-HISTORY:] if len(data) >= HISTORY else (self.history + data)[-HISTORY:]

    def feed(
        self, seq: int, length: int, data: bytes, packet: int, time: int, order: int, count: int
    ) -> list[Run | Gap]:
        """Take one segment with payload; `length` is on the wire, `count` the connection's packets so far."""
        if self.next_seq < 0:
            self.next_seq = seq
        start = self.offset + self._distance(seq)
        segment = _Waiting(start, start + length, data, packet, time, order)
        if start < self.offset:
            self._compare_with_history(segment)
            if segment.end <= self.offset:
                return []
            segment = _cut_front(segment, self.offset)
        if segment.start - self.offset > FAR and not self._borne_out(segment, count, time):
            return []
        if segment.start > self.offset or self.waiting:
            if not self.waiting:
                self.hole_since_packets, self.hole_since_time = count, time
            self._insert(segment)
        else:
            return self._collect([segment])
        return self._collect(self._ripe(count, time))

    def astray(self, seq: int, data: bytes) -> bool:
        """Whether a segment lies behind what was delivered, too far ahead to be believed, or where another
        with other bytes waits."""
        if self.next_seq < 0:
            return False
        away = self._distance(seq)
        return not 0 <= away <= FAR or self._contradicts(self.offset + away, data)

    def _contradicts(self, start: int, data: bytes) -> bool:
        end = start + len(data)
        # A list of thousands must not be gone through for each segment: it is sorted and free of overlap.
        index = max(bisect_right(self.waiting, start, key=attrgetter("start")) - 1, 0)
        while index < len(self.waiting) and (other := self.waiting[index]).start < end:
            index += 1
            if start < other.end:
                first, last = max(start, other.start), min(end, other.end)
                if data[first - start : last - start] != other.data[first - other.start : last - other.start]:
                    return True
        return False

    def move(self, seq: int) -> list[Run | Gap]:
        """Go on at another sequence number: the place of the stream was wrong. Delivers what waits."""
        items = self.flush()
        self.next_seq, self.acked, self.history = seq, -1, b""
        return items

    def put_behind(self, start: int, end: int, data: bytes, packet: int, time: int, order: int) -> None:
        """Let a whole segment wait behind all that wait; `start` and `end` are offsets."""
        self.waiting.append(_Waiting(start, end, data, packet, time, order))

    def give_up_holes(self, count: int, time: int) -> list[Run | Gap]:
        """Deliver what waits behind holes that will not be filled any more, by now."""
        out: list[Run | Gap] = []
        while self.waiting and self._hopeless(count, time):
            out += self._give_up()
            self.hole_since_packets, self.hole_since_time = count, time
        return out

    def flush(self) -> list[Run | Gap]:
        """Deliver everything that waits, as at the end of the connection."""
        far = self._swap_far(None)
        if far is not None and far.start >= self.offset:
            self._insert(far)
        out: list[Run | Gap] = []
        while self.waiting:
            out += self._give_up()
        return out

    def lose_tail(self, fin_seen: bool) -> int:
        """Count as missing what the other end acknowledged but the capture never held; return how much."""
        tail = max(self.acked - self.offset - (1 if fin_seen else 0), 0) if self.acked >= 0 else 0
        # One byte may be a FIN that was not captured.
        tail = tail if tail > 1 else 0
        self.missing += tail
        return tail

    def _distance(self, seq: int) -> int:
        """From the next byte wanted to `seq`, modulo 2³² and signed (RFC 1982)."""
        return ((seq - self.next_seq + 0x80000000) & _MASK) - 0x80000000

    def _borne_out(self, segment: _Waiting, count: int, time: int) -> bool:
        """Whether a segment far ahead is believed: another lies beside it. One alone may have a damaged
        sequence number, and following it would make all that comes after it look like old bytes."""
        if self.waiting and abs(segment.start - self.waiting[-1].end) <= FAR:
            return True
        far = self._swap_far(segment)
        if far is None or abs(segment.start - far.end) > FAR or far.start < self.offset:
            return False
        self._swap_far(None)
        if not self.waiting:
            self.hole_since_packets, self.hole_since_time = count, time
        self._insert(far)
        return True

    def _swap_far(self, segment: _Waiting | None) -> _Waiting | None:
        far, self.far = self.far, segment
        for each, sign in ((far, -1), (segment, 1)):
            if each is not None:
                self.waiting_bytes += sign * (WAITING_COST + len(each.data))
        return far

    def _hopeless(self, count: int, time: int) -> bool:
        if self.waiting_bytes > self.config.max_reorder_bytes:
            self.limit_hit = True
            return True
        waited = time - self.hole_since_time
        if self.acked >= self.waiting[0].start:
            return (
                count - self.hole_since_packets > self.config.reorder_packets
                or waited > self.config.reorder_time * 1e9
            )
        return waited > self.config.hole_time * 1e9

    def _give_up(self) -> list[Run | Gap]:
        hole = self.waiting[0].start - self.offset
        self.missing += hole
        self._advance(hole)
        self.history = b""
        out: list[Run | Gap] = [Gap(hole)]
        return out + self._collect(self._contiguous())

    def _ripe(self, count: int, time: int) -> list[_Waiting]:
        """Segments at the delivery point, once a hole has been filled."""
        segments = self._contiguous()
        if segments and self.waiting:
            self.hole_since_packets, self.hole_since_time = count, time
        return segments

    def _contiguous(self) -> list[_Waiting]:
        wanted = self.offset
        taken = 0
        for segment in self.waiting:
            if segment.start != wanted:
                break
            wanted = segment.end
            taken += 1
        segments = self.waiting[:taken]
        del self.waiting[:taken]
        self.waiting_bytes -= sum(WAITING_COST + len(segment.data) for segment in segments)
        return segments

    def _collect(self, segments: list[_Waiting]) -> list[Run | Gap]:
        """Runs and gaps of segments that follow each other; moves the delivery point behind them."""
        out: list[Run | Gap] = []
        pieces: list[_Waiting] = []
        for segment in segments:
            if segment.data:
                pieces.append(segment)
            self._advance(segment.end - segment.start)
            cut = segment.end - segment.start - len(segment.data)
            if cut:
                if pieces:
                    out.append(_run(pieces))
                    pieces = []
                self.missing += cut
                out.append(Gap(cut, segment.packet, segment.time, segment.order))
                self.history = b""
            else:
                self.history = (self.history + segment.data)[-HISTORY:]
        if pieces:
            out.append(_run(pieces))
        return out

    def _advance(self, count: int) -> None:
        self.offset += count
        self.next_seq = (self.next_seq + count) & _MASK

    def _insert(self, segment: _Waiting) -> None:
        """Put the parts of `segment` that are not waiting yet in their places."""
        index = bisect_right(self.waiting, segment.start, key=lambda waiting: waiting.start)
        if index and self.waiting[index - 1].end > segment.start:
            index -= 1
        while index < len(self.waiting) and self.waiting[index].start < segment.end:
            other = self.waiting[index]
            self._compare(segment, other.start, other.data)
            if segment.start < other.start:
                self._put(index, _cut_back(segment, other.start))
                index += 1
            if segment.end <= other.end:
                return
            segment = _cut_front(segment, other.end)
            index += 1
        self._put(index, segment)

    def _put(self, index: int, segment: _Waiting) -> None:
        self.waiting.insert(index, segment)
        self.waiting_bytes += WAITING_COST + len(segment.data)

    def _compare_with_history(self, segment: _Waiting) -> None:
        if segment.end == self.offset and segment.end - segment.start == 1:
            return  # a keep-alive repeats the last byte, with whatever value (RFC 9293, 3.8.4)
        if segment.start < 0 and self.offset < HISTORY:
            self.reached_back = True
        self._compare(segment, self.offset - len(self.history), self.history)

    def _compare(self, segment: _Waiting, start: int, data: bytes) -> None:
        first = max(start, segment.start)
        last = min(start + len(data), segment.start + len(segment.data))
        mine = segment.data[first - segment.start : last - segment.start]
        if first < last and mine != data[first - start : last - start]:
            self.overlaps.append(segment.packet)


def _cut_front(segment: _Waiting, start: int) -> _Waiting:
    data = segment.data[start - segment.start :]
    return _Waiting(start, segment.end, data, segment.packet, segment.time, segment.order)


def _cut_back(segment: _Waiting, end: int) -> _Waiting:
    data = segment.data[: end - segment.start]
    return _Waiting(segment.start, end, data, segment.packet, segment.time, segment.order)


def _run(pieces: list[_Waiting]) -> Run:
    starts: list[int] = []
    position = 0
    for piece in pieces:
        starts.append(position)
        position += len(piece.data)
    return Run(
        b"".join([piece.data for piece in pieces]),
        starts,
        [piece.packet for piece in pieces],
        [piece.time for piece in pieces],
        [piece.order for piece in pieces],
    )
