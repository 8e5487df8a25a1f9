"""The tables of dissecting: packets in, TCP segments out. `Tables` is what every function on headers takes.

All fields are 64-bit integers. Positions are offsets in `data`.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

from kwsniff.native.mode import byte, kernel, uintp
from kwsniff.native.rowcopies import BYTES, LONGS, WORDS, Spec

# Payloads as Arrow's binary views, of four 32-bit words each: the length, then either up to 12 bytes of
# data, or the first 4 bytes, the index of a buffer and an offset in it (Arrow columnar format, "Variable-size
# Binary View Layout"). Words are little-endian.

INLINE = 12
"""Bytes that stand in the view itself."""
VIEW_WORDS = 4


@kernel
def write_views(t: Any, count: int, buffer: int) -> int:
    """Write the views of the first `count` segments that lie in `data`, the buffer of this index."""
    for index in range(count):
        at = uintp(index)
        if t.buffer[at] != buffer:
            continue
        start, size = t.start[at], min(t.captured[at], t.length[at])
        first = index * VIEW_WORDS
        t.views[uintp(first)] = size
        if size <= INLINE:
            for word in range(3):
                t.views[uintp(first + 1 + word)] = word_of(t, start + 4 * word, start + size)
        else:
            t.views[uintp(first + 1)] = word_of(t, start, start + 4)
            t.views[uintp(first + 2)] = buffer
            t.views[uintp(first + 3)] = start
    return 0


@kernel
def word_of(t: Any, at: int, end: int) -> int:
    """Four bytes as a signed number, zeros from `end` on."""
    found = 0
    for index in range(min(end - at, 4)):
        found |= byte(t.data, at + index) << (8 * index)
    return found - 0x100000000 if found & 0x80000000 else found


# fmt: off
PACKET = {
    "row": "its index in the block",
    "link": "LINKTYPE_ value of its innermost link layer",
    "at": "where its next header begins",
    "end": "where its captured bytes end; never beyond those of the frame",
    "wire": "where they ended on the wire; not before `end`, unless a header lies about its length",
    "depth": "headers that were stepped over inside one another: tunnels, bridges, extension headers",
    "ethertype": "what its network layer is",
    "protocol": "IANA protocol number of what the IP header carries",
    "src_hi": "source address as IPv6, upper half", "src_lo": "lower half",
    "dst_hi": "destination address, upper half", "dst_lo": "lower half",
    "fragment": "offset of a fragment in bytes, plus 1 if more follow; 0 for what is whole",
    "ident": "identification of the IP packet, 0 where it has none (IPv6)",
}
"""What is known of a packet on its way through the layers."""

SPECS: list[Spec] = [
    Spec("packet", "the packet at hand; there is one row", **PACKET),
    Spec("slow", "a fragment, which Python takes further", **PACKET),
    Spec(
        "chain",
        "a stretch of a file with pcap records; there is one row",
        at="where the next record begins", end="where the stretch ends",
        header="bytes of a record's header", big="1: it is big-endian",
        count="complete records found",
    ),
    Spec(
        "recent",
        "one of the latest segments, see `kwsniff.net.copies`",
        before="number of the one of the same hash before it, -1 if there is none", time="packet time",
        seq="", ack="", ident="", length="", flags="", src_port="", dst_port="",
        src_hi="", src_lo="", dst_hi="", dst_lo="",
    ),
]
# fmt: on

SEGMENT_ARRAYS = (
    "row", "src_hi", "src_lo", "dst_hi", "dst_lo", "src_port", "dst_port", "seq", "ack", "flags", "length",
    "start", "captured", "ident", "tsval",
)  # fmt: skip
"""Columns of segments, see `kwsniff.net.tcp.Segments`."""

ARRAYS: dict[str, str] = {
    "data": BYTES,
    **dict.fromkeys(("first", "last", "last_on_wire", "linktype"), LONGS),  # of each packet
    "verdict": LONGS,  # on each packet, see below
    **dict.fromkeys(SEGMENT_ARRAYS, LONGS),
    "starts": LONGS,  # of records
    **dict.fromkeys(("times", "copies", "buffer"), LONGS),  # of each segment
    "latest": LONGS,  # number of the latest segment of each hash
    "views": WORDS,  # four of each segment
}
"""Tables without fields."""

NAMES = (*(spec.name for spec in SPECS), *ARRAYS)
_Tables = namedtuple("_Tables", NAMES)  # type: ignore[misc]
Tables: Any = _Tables
"""All tables, by name."""

# Verdicts

(GO_ON, SEGMENT, NON_IP, NON_TCP, CUT, FRAGMENT, ODD_LINK) = range(7)
"""GO_ON: there are more headers. SEGMENT: it was written to the columns of segments. CUT: its headers were
not captured whole. FRAGMENT: it was written to `slow`. ODD_LINK: nothing here knows its link type."""

(BAD_LINK, BAD_IPV4, BAD_IPV6, BAD_EXTENSION, BAD_TCP, TOO_DEEP) = range(7, 13)
"""What contradicts the packet's length."""
MALFORMED = {
    BAD_LINK: "link layer header",
    BAD_IPV4: "IPv4 header",
    BAD_IPV6: "IPv6 header",
    BAD_EXTENSION: "IPv6 extension header",
    BAD_TCP: "TCP header",
    TOO_DEEP: "headers nested too deep",
}
MAX_DEPTH = 16
"""Tunnels and extension headers inside one another."""
