"""Packets that a capture holds twice: taken on both sides of a bridge, or by `tcpdump -i any` on their way
through several interfaces.

A copy has the same addresses, ports, numbers, flags and length, and the same identification of the IP packet,
which a sender gives anew to each packet, retransmissions and repeated ACKs too. Where there is none (IPv6, or
always 0), only payload that comes again sooner than any sender would repeat it counts. Copies follow their
packet closely: no more than `WINDOW` segments and `SOON_NS` are looked back, so the cost is small and
bounded.

Theory of operation. The latest segments stand in a ring, each in the row of its number. Those of the same
hash are a list, from the latest back, which ends where it leaves the ring.
"""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import inlined, kernel, uintp

WINDOW = 64
"""A network card hands over so many packets at a time, before they are handed on. A power of two."""
SOON_NS = 10_000_000
HEADS = 256
"""Lists of segments of the same hash. A power of two."""


@kernel
def find_copies(t: Any, count: int, number: int) -> int:
    """Write to `copies` which of the first `count` segments are copies of an earlier one; returns how many.
    `number` is how many there were before."""
    found = 0
    for index in range(count):
        at = uintp(index)
        t.copies[at] = 0
        hash_ = (t.seq[at] + 3 * t.ack[at] + 5 * t.length[at] + 7 * t.ident[at] + t.src_port[at]) & (
            HEADS - 1
        )
        if is_copy(t, at, number + index, t.latest[uintp(hash_)]):
            t.copies[at] = 1
            found += 1
        remember(t, at, number + index, hash_)
    return found


@kernel
def is_copy(t: Any, at: Any, number: int, earlier: int) -> bool:
    """Whether a segment is a copy of one in the list that begins at number `earlier`."""
    if t.ident[at] == 0 and t.length[at] == 0:
        return False
    while earlier >= 0 and number - earlier <= WINDOW:
        other = t.recent[uintp(earlier & (WINDOW - 1))]
        if is_same(t, at, other) and abs(t.times[at] - other.time) <= SOON_NS:
            return True
        earlier = other.before
    return False


@inlined
def is_same(t: Any, at: Any, other: Any) -> Any:
    """Whether all is alike but the time."""
    return (
        t.seq[at] == other.seq
        and t.ack[at] == other.ack
        and t.ident[at] == other.ident
        and t.length[at] == other.length
        and t.flags[at] == other.flags
        and t.src_port[at] == other.src_port
        and t.dst_port[at] == other.dst_port
        and t.src_lo[at] == other.src_lo
        and t.dst_lo[at] == other.dst_lo
        and t.src_hi[at] == other.src_hi
        and t.dst_hi[at] == other.dst_hi
    )


@inlined
def remember(t: Any, at: Any, number: int, hash_: int) -> None:
    """Put a segment in the place of the one that is the longest ago."""
    row = t.recent[uintp(number & (WINDOW - 1))]
    row.time, row.before = t.times[at], t.latest[uintp(hash_)]
    row.seq, row.ack, row.ident, row.length, row.flags = (
        t.seq[at], t.ack[at], t.ident[at], t.length[at], t.flags[at]
    )  # fmt: skip
    row.src_port, row.dst_port = t.src_port[at], t.dst_port[at]
    row.src_hi, row.src_lo, row.dst_hi, row.dst_lo = t.src_hi[at], t.src_lo[at], t.dst_hi[at], t.dst_lo[at]
    t.latest[uintp(hash_)] = number
