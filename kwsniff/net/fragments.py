"""IP fragments to whole packets (RFC 791, RFC 8200), in bounded memory.

Fragments of one datagram share a key and are kept until they cover it without a hole; then the datagram comes
back as an IP packet with a plain header in front. Where fragments overlap, the first copy wins. A datagram is
given up after `TIMEOUT` of packet time, or, the oldest first, when the limits on datagrams or bytes are
reached. The clock is that of the packets that come in, so the result depends on the capture only.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import itemgetter
from typing import NamedTuple

from kwsniff.net.address import text
from kwsniff.net.inout import PACKET
from kwsniff.net.ip import MAPPED
from kwsniff.net.packets import Note

TIMEOUT_NS = 30_000_000_000
MAX_DATAGRAMS = 4096
MAX_BYTES = 32 << 20
MAX_PIECES = 1024
"""Fragments of one datagram; 65,535 bytes over the smallest IPv4 MTU in use (576) are 119."""
MAX_SIZE = 65_535
_PIECE_OVERHEAD = 200

Key = tuple[int, ...]
"""Upper and lower half of source and destination address, protocol, identification."""


class Fragment(NamedTuple):
    """One IP fragment."""

    key: Key
    offset: int
    """Of the payload in that of the datagram, in bytes."""
    more: bool
    """Whether it is not the last."""
    payload: bytes
    """As captured."""
    length: int
    """Bytes of payload on the wire."""


_KEY = itemgetter(*map(list(PACKET).index, ("src_hi", "src_lo", "dst_hi", "dst_lo", "protocol", "ident")))
_PLACE = itemgetter(*map(list(PACKET).index, ("at", "end", "wire", "fragment")))


def read_fragment(found: Sequence[int], data: memoryview) -> Fragment:
    """What a row with the fields of `kwsniff.net.inout.PACKET` says of a fragment that lies in `data`."""
    at, end, wire, place = _PLACE(found)
    return Fragment(_KEY(found), place & ~1, bool(place & 1), bytes(data[at:end]), wire - at)


@dataclass(slots=True)
class _Datagram:
    time_ns: int
    packet: int
    pieces: dict[int, Fragment] = field(default_factory=dict)
    size: int | None = None
    """Known once the last fragment is there."""
    reached: int = 0
    """Bytes from the first on that are there without a hole."""
    apart: list[tuple[int, int]] = field(default_factory=list)
    """Beginnings and ends of the pieces behind the first hole: a heap, so that each is looked at once."""
    held: int = 0


class Defragmenter:
    """The datagrams of which fragments have been seen; oldest first."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[Key, _Datagram] = (
            OrderedDict()
        )  # a dict passes over all that left its front
        self._held = 0
        self._now = (0, 0)
        """Number and time of the packet of the last fragment."""

    def __len__(self) -> int:
        return len(self._waiting)

    def add(
        self, fragment: Fragment, time_ns: int, packet: int
    ) -> tuple[tuple[bytes, int] | None, list[Note]]:
        """Take a fragment; return the IP packet it completes, if so, and notes on datagrams given up.

        The packet comes as its captured bytes and its length on the wire. A fragment cut by the snaplen ends
        what is captured of the packet.
        """
        self._now = (packet, time_ns)
        notes = self._expire(time_ns)
        datagram = self._waiting.setdefault(fragment.key, _Datagram(time_ns, packet))
        self._keep(datagram, fragment)
        too_long = fragment.offset + fragment.length > MAX_SIZE
        if too_long or fragment.length < 0 or len(datagram.pieces) > MAX_PIECES:
            notes.append(self._lose(fragment.key, "fragments that fit no datagram"))
            return None, notes
        whole = _assembled(fragment.key, datagram)
        if whole is not None:
            self._forget(fragment.key)
        return whole, notes + self._enforce_limits()

    def flush(self) -> list[Note]:
        """Give up everything."""
        return [self._lose(key, "the capture ended first") for key in list(self._waiting)]

    def _keep(self, datagram: _Datagram, fragment: Fragment) -> None:
        if not fragment.more:
            datagram.size = fragment.offset + fragment.length
        known = datagram.pieces.get(fragment.offset)
        if known is not None and known.length >= fragment.length:
            return
        datagram.pieces[fragment.offset] = fragment
        apart = datagram.apart
        heappush(apart, (fragment.offset, fragment.offset + fragment.length))
        while apart and apart[0][0] <= datagram.reached:
            datagram.reached = max(datagram.reached, heappop(apart)[1])
        cost = len(fragment.payload) + _PIECE_OVERHEAD
        datagram.held += cost
        self._held += cost

    def _expire(self, time_ns: int) -> list[Note]:
        late = []
        for key, datagram in self._waiting.items():
            if datagram.time_ns + TIMEOUT_NS >= time_ns:
                break
            late.append(key)
        return [self._lose(key, "not complete after 30 s") for key in late]

    def _enforce_limits(self) -> list[Note]:
        notes = []
        while len(self._waiting) > MAX_DATAGRAMS or self._held > MAX_BYTES:
            notes.append(self._lose(next(iter(self._waiting)), "too many datagrams in fragments"))
        return notes

    def _forget(self, key: Key) -> _Datagram:
        datagram = self._waiting.pop(key)
        self._held -= datagram.held
        return datagram

    def _lose(self, key: Key, why: str) -> Note:
        datagram = self._forget(key)
        ends = f"{text(*key[0:2])} to {text(*key[2:4])}"
        packets = f"{len(datagram.pieces)} fragments since packet {datagram.packet}"
        packet, time_ns = self._now
        return Note(packet, "fragment_lost", f"datagram {key[5]} from {ends}: {packets}, {why}", time_ns)


def _assembled(key: Key, datagram: _Datagram) -> tuple[bytes, int] | None:
    size = datagram.size
    if size is None or datagram.reached < size:
        return None
    payload = bytearray()
    reached = 0
    for offset, piece in sorted(datagram.pieces.items()):
        payload += piece.payload[reached - offset : piece.length]
        reached = max(reached, offset + piece.length)
        if len(payload) != reached:
            break  # the snaplen cut this one
    header = _header(key, size)
    return header + bytes(payload[:size]), len(header) + size


def _header(key: Key, size: int) -> bytes:
    """A plain IP header; a size beyond its length field is written as 0, which means the whole frame."""
    src_hi, src_lo, _, dst_lo, protocol, ident = key
    if src_hi == 0 and src_lo >> 32 == MAPPED >> 32:
        length = size + 20 if size + 20 <= MAX_SIZE else 0
        addresses = (src_lo & 0xFFFFFFFF, dst_lo & 0xFFFFFFFF)
        head = struct.pack(">BBHHH", 0x45, 0, length, ident & 0xFFFF, 0)
        return head + struct.pack(">BBHII", 64, protocol, 0, *addresses)
    return struct.pack(">IHBB4q", 6 << 28, size, protocol, 64, *key[:4])
