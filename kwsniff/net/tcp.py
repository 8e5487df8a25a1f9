"""TCP headers (RFC 9293, 3.1)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from kwsniff.native.mode import byte, kernel, uint16, uint32, uintp
from kwsniff.net.inout import BAD_TCP, GO_ON, SEGMENT
from kwsniff.net.ip import lacking
from kwsniff.net.packets import Integers
from kwsniff.net.segments import ZERO_WINDOW

PROTOCOL = 6
HEADER = 14
"""Bytes as far as they matter here, so that a capture cut behind them still counts."""
WINDOW = 14
"""Where the receive window stands in the header."""
OPTIONS = 20
"""Where options begin."""
(END, NOTHING), TIMESTAMPS = range(2), 8
"""Kinds of options (RFC 9293, 3.1; RFC 7323, 3.2)."""
ALIGNED = 0x0101080A
"""Two NOTHINGs and a timestamp of ten bytes: what nearly all segments have (RFC 7323, appendix A)."""


@dataclass(slots=True)
class Segments:
    """TCP segments as columns; `row` tells which packet of the block each one came in."""

    row: Integers
    src_hi: Integers
    src_lo: Integers
    dst_hi: Integers
    dst_lo: Integers
    src_port: Integers
    dst_port: Integers
    seq: Integers
    ack: Integers
    flags: Integers
    length: Integers
    """Payload bytes on the wire."""
    start: Integers
    """Offset of the payload in the block's buffer."""
    captured: Integers
    """Payload bytes captured."""
    ident: Integers
    """Identification of the IP packet, 0 where it has none (IPv6)."""
    tsval: Integers
    """The sender's timestamp (RFC 7323, 3.2), -1 where there is none."""

    def __len__(self) -> int:
        return len(self.row)


@kernel
def write_segment(t: Any, p: Any, found: int) -> int:
    """Write the segment at hand to the columns, as number `found`."""
    code = lacking(p, HEADER, BAD_TCP)
    if code != GO_ON:
        return code
    at = p.at
    start = at + (byte(t.data, at + 12) >> 4) * 4
    if start < at + 20 or start > p.wire:
        return BAD_TCP
    row = uintp(found)
    t.row[row] = p.row
    t.src_hi[row], t.src_lo[row] = p.src_hi, p.src_lo
    t.dst_hi[row], t.dst_lo[row] = p.dst_hi, p.dst_lo
    t.src_port[row], t.dst_port[row] = uint16(t.data, at), uint16(t.data, at + 2)
    t.seq[row], t.ack[row] = uint32(t.data, at + 4), uint32(t.data, at + 8)
    shut = at + WINDOW + 2 <= p.end and uint16(t.data, at + WINDOW) == 0
    t.flags[row] = byte(t.data, at + 13) | (ZERO_WINDOW if shut else 0)
    t.length[row] = p.wire - start
    t.start[row] = start
    t.captured[row] = max(p.end - start, 0)
    t.ident[row] = p.ident
    t.tsval[row] = timestamp_of(t, at + OPTIONS, min(start, p.end))
    return SEGMENT


@kernel
def timestamp_of(t: Any, at: int, end: int) -> int:
    """The timestamp among the options between two places, -1 if there is none."""
    if at + 12 <= end and uint32(t.data, at) == ALIGNED:
        return uint32(t.data, at + 4)
    while at + 10 <= end:
        kind = byte(t.data, at)
        if kind == TIMESTAMPS:
            return uint32(t.data, at + 2)
        if kind == END:
            break
        at += 1 if kind == NOTHING else max(byte(t.data, at + 1), 2)
    return -1
