"""Connections and their bytes, as the receivers' TCP would have handed them over (RFC 9293).

Sequence numbers alone decide. Of bytes that come twice the first copy counts. An RST ends a connection if
it stands exactly where the receiver is (RFC 5961, section 3); a SYN opens another one if the connection is
over, or once its peer answers it with a SYN-ACK: an open connection would challenge it (section 4).

A connection is whole if both SYNs are there and every byte of both directions up to the last one captured,
and no end acknowledged more than that.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.intact.packets import ACK, FIN, RST, SYN, End, Fragment, Packet

LARGEST_WINDOW = 1 << 30
"""RFC 7323, section 2.3."""


def distance(seq: int, base: int) -> int:
    """How far a sequence number lies behind another, modulo 2^32."""
    return (seq - base + (1 << 31)) % (1 << 32) - (1 << 31)


class Stream:
    """The bytes of one direction."""

    def __init__(self) -> None:
        self.isn: int | None = None
        self.data = bytearray()
        self.starts: list[int] = []
        """Where in `data` each piece begins that was taken at once; in `owners` its packet."""
        self.owners: list[int] = []
        self.waiting: list[tuple[int, bytes, int]] = []
        self.acked = 0
        self.fin: int | None = None
        self.cut = self.differs = False

    def offset(self, seq: int) -> int:
        """Where a sequence number lies in `data`."""
        assert self.isn is not None
        taken = len(self.data)
        return taken + distance(seq, self.isn + 1 + taken)

    def take(self, packet: Packet) -> None:
        """The payload and the FIN of a packet."""
        start = self.offset(packet.seq + (1 if packet.flags & SYN else 0))
        if not -LARGEST_WINDOW < start - len(self.data) < LARGEST_WINDOW:
            return
        data = packet.data
        if packet.length > len(data):
            self.cut = True
        if self.fin is not None and data:
            data = data[: max(self.fin - start, 0)]
        if packet.flags & FIN and packet.length == len(data) and start + len(data) >= len(self.data):
            self.fin = start + len(data)
        if data:
            self._place(start, data, packet.number)

    def _place(self, start: int, data: bytes, number: int) -> None:
        taken = len(self.data)
        if start < taken:
            probe = len(data) == 1 and start == taken - 1  # may hold any byte (RFC 9293, 3.8.4)
            if start >= 0 and not probe:
                self._compare(self.data[start : start + len(data)], data)
            data, start = data[taken - start :], taken
            if not data:
                return
        if start == taken and not self.waiting:
            self._append(data, number)
            return
        self._wait(start, data, number)
        while self.waiting and self.waiting[0][0] <= len(self.data):
            _, waited, owner = self.waiting.pop(0)
            self._append(waited, owner)

    def _append(self, data: bytes, number: int) -> None:
        self.starts.append(len(self.data))
        self.owners.append(number)
        self.data += data

    def _compare(self, first: bytes | bytearray, again: bytes) -> None:
        if first != again[: len(first)]:
            self.differs = True

    def _wait(self, start: int, data: bytes, number: int) -> None:
        """Keep what does not wait yet; what waits is in order and free of overlap."""
        fresh: list[tuple[int, bytes, int]] = []
        at, end = start, start + len(data)
        for begin, other, _ in self.waiting:
            stop = begin + len(other)
            if stop <= at or begin >= end:
                continue
            low, high = max(at, begin), min(end, stop)
            self._compare(other[low - begin : high - begin], data[low - start : high - start])
            if begin > at:
                fresh.append((at, data[at - start : begin - start], number))
            at = max(at, stop)
        if at < end:
            fresh.append((at, data[at - start :], number))
        self.waiting = sorted(self.waiting + fresh)

    def completed(self, start: int, end: int) -> int:
        """The packet that brought the last missing byte of a range."""
        first = bisect_right(self.starts, start) - 1
        return max(self.owners[first : max(bisect_right(self.starts, end - 1), first + 1)])

    def lacks(self) -> str:
        """Why the stream is not whole, empty if it is."""
        taken = len(self.data)
        if self.isn is None:
            return "no SYN"
        if self.cut:
            return "cut packets"
        if self.differs:
            return "copies that differ"
        if self.waiting or (self.fin is not None and self.fin > taken):
            return "a hole"
        if self.acked > taken + 1:  # one more may be a FIN that was not captured
            return "bytes that were acknowledged"
        return ""


@dataclass
class Connection:
    """Two streams; the first is of the end that sent the SYN, or of whoever was seen first."""

    ends: tuple[End, End]
    first_packet: int
    first_time: int
    streams: tuple[Stream, Stream] = field(default_factory=lambda: (Stream(), Stream()))
    last_packet: int = 0
    reset: int | None = None
    """The packet with an RST that the other end had to obey."""
    middle: bool = False
    """Met in its middle."""
    fragments: bool = False
    latest_ack: list[int | None] = field(default_factory=lambda: [None, None])

    def side(self, source: End) -> int:
        return 0 if self.ends[0] == source else 1

    @property
    def over(self) -> bool:
        """Both ends know that the other is done, or one reset it."""
        done = all(stream.fin is not None and stream.acked > stream.fin for stream in self.streams)
        return self.reset is not None or done

    @property
    def why_not_whole(self) -> str:
        """Why nobody can say what went over it; empty if it was captured whole."""
        if self.middle:
            return "met in its middle"
        if self.fragments:
            return "IP fragments"
        for who, stream in zip(("client", "server"), self.streams, strict=True):
            if stream.lacks():
                return f"{who}: {stream.lacks()}"
        return ""


class Receiver:
    """All connections of a capture."""

    def __init__(self) -> None:
        self.connections: list[Connection] = []
        self.current: dict[tuple[End, End], Connection] = {}
        self.asked: dict[tuple[End, End], Packet] = {}
        """The latest SYN from one end to another that the connection there is did not allow."""
        self.fragmented: set[tuple[bytes, bytes]] = set()

    def read(self, packets: Iterable[Packet | Fragment]) -> list[Connection]:
        """Take all packets of a capture; its connections in the order of their first packets."""
        for packet in packets:
            if isinstance(packet, Fragment):
                self.fragmented |= {(packet.source, packet.target), (packet.target, packet.source)}
            else:
                self.take(packet)
        for one in self.connections:
            one.fragments = (one.ends[0][0], one.ends[1][0]) in self.fragmented
        return self.connections

    def take(self, packet: Packet) -> None:
        connection = self._of(packet)
        connection.last_packet = packet.number
        k = connection.side(packet.source)
        mine, others = connection.streams[k], connection.streams[1 - k]
        if packet.flags & RST:
            self._reset(connection, k, packet)
            return
        if packet.flags & SYN and mine.isn != packet.seq:
            return  # challenged, not obeyed
        if mine.isn is None:
            connection.middle = True
            return
        mine.take(packet)
        if packet.flags & ACK and not packet.flags & SYN and others.isn is not None:
            connection.latest_ack[k] = packet.ack
            ahead = others.offset(packet.ack)
            if ahead - len(others.data) < LARGEST_WINDOW:
                others.acked = max(others.acked, ahead)

    def _of(self, packet: Packet) -> Connection:
        ends = (packet.source, packet.target)
        found = self.current.get(ends)
        if packet.flags & SYN and not packet.flags & RST:
            found = self._opened(packet, found) if packet.flags & ACK else self._asked(packet, found)
        return found or self._new(packet, middle=not packet.flags & SYN)

    def _new(self, packet: Packet, middle: bool = False) -> Connection:
        connection = Connection((packet.source, packet.target), packet.number, packet.time, middle=middle)
        self.connections.append(connection)
        self.current[packet.source, packet.target] = connection
        self.current[packet.target, packet.source] = connection
        return connection

    def _asked(self, packet: Packet, found: Connection | None) -> Connection:
        """A SYN: the first one, the same again, one that crossed the other's, or another connection's."""
        if found is not None and not (found.over or found.middle):
            mine = found.streams[found.side(packet.source)]
            others = found.streams[1 - found.side(packet.source)]
            if mine.isn is None and others.isn is not None and not others.data:
                mine.isn = packet.seq
            elif mine.isn != packet.seq:
                self.asked[packet.source, packet.target] = packet
            return found
        if found is not None and found.streams[found.side(packet.source)].isn == packet.seq:
            return found
        self.asked.pop((packet.source, packet.target), None)
        connection = self._new(packet)
        connection.streams[0].isn = packet.seq
        return connection

    def _opened(self, packet: Packet, found: Connection | None) -> Connection:
        """A SYN-ACK: it answers the SYN of the connection there is, or of one that was asked for."""
        syn = self.asked.get((packet.target, packet.source))
        if syn is not None and 0 < distance(packet.ack, syn.seq) <= 1 + syn.length:  # it may have had data
            del self.asked[packet.target, packet.source]
            self.asked.pop((packet.source, packet.target), None)  # both opened at once
            connection = self._new(syn)
            connection.streams[0].isn = syn.seq
            connection.streams[0].take(syn)
            connection.streams[1].isn = packet.seq
            return connection
        if found is None:
            return self._new(packet, middle=True)
        k = found.side(packet.source)
        other = found.streams[1 - k]
        half_open = found.streams[k].isn is None and other.isn is not None
        if half_open and 0 < distance(packet.ack, other.isn or 0) <= 1 + len(other.data):
            found.streams[k].isn = packet.seq
        return found

    def _reset(self, connection: Connection, k: int, packet: Packet) -> None:
        mine = connection.streams[k]
        if mine.isn is None:  # refused, if it acknowledges the SYN (RFC 9293, 3.10.7.3)
            asked = connection.streams[1 - k].isn
            obeyed = asked is not None and packet.flags & ACK and packet.ack == (asked + 1) % (1 << 32)
        else:
            at = mine.offset(packet.seq)
            there = len(mine.data)
            obeyed = at in (there, there + 1) if mine.fin is not None else at == there
            # The receiver may have lost what the capture has; it stands where its latest ACK says.
            obeyed = obeyed or packet.seq == connection.latest_ack[1 - k]
        if obeyed and connection.reset is None:
            connection.reset = packet.number


def connections(packets: Iterable[Packet | Fragment]) -> list[Connection]:
    """The connections of a capture."""
    return Receiver().read(packets)


def whole(packets: Iterable[Packet | Fragment]) -> Iterator[Connection]:
    """Those of which nothing is missing."""
    return (one for one in connections(packets) if not one.why_not_whole)
