"""The payload of a segment: delivered if its place has come, kept if not.

Its sequence number alone says where it belongs (RFC 9293, 3.10.7.4). What the receiver has is not taken
again; what lies beyond the largest window that TCP can announce is no part of the stream.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.buffer import remember, room_for_history, seen_before
from kwsniff.kernel.flags import ACK, SYN
from kwsniff.kernel.notes import room_for_notes
from kwsniff.kernel.numbers import FULL, OK, distance
from kwsniff.kernel.streams import MASK, advance, deliver, insert
from kwsniff.kernel.trace import OUT_OF_WINDOW, SEEN, WAITS, decided
from kwsniff.native.mode import kernel

WINDOW = 65_535 << 14
"""The largest receive window (RFC 7323, 2.3), in bytes: no receiver takes what lies further ahead."""


@kernel
def take_payload(t: Any, c: int, k: int, seg: Any) -> int:
    """Put the payload of a segment in its place in the stream."""
    if seg.buffer == 0:
        return place(t, c, k, seg, t.inline)
    if seg.buffer == 1:
        return place(t, c, k, seg, t.block)
    return place(t, c, k, seg, t.extra)


@kernel
def place(t: Any, c: int, k: int, seg: Any, data: Any) -> int:
    """Deliver the payload of a segment if its place has come, let it wait if not."""
    run = t.run[0]
    s = t.sides[2 * c + k]
    seq = (seg.seq + 1) & MASK if seg.flags & SYN else seg.seq
    if s.next_seq < 0:
        if is_older(t, c, k, seg):
            return OK
        s.next_seq = seq
    start = s.offset + distance(seq, s.next_seq)
    end, pos, size, length = start + seg.length, seg.start, seg.captured, seg.length
    if start - s.offset > WINDOW:
        decided(t, c, OUT_OF_WINDOW, k, start - s.offset, 0)
        return OK
    if start < s.offset:
        if run.cursor == 0:
            if room_for_notes(t, 1) != OK:
                return FULL
            if not run.compared:
                seen_before(t, c, k, start, end, data, pos, size, seg)
                decided(t, c, SEEN, k, min(end, s.offset) - start, 0)
                run.compared = 1
        if end <= s.offset:
            run.compared = 0
            return OK
        cut = s.offset - start
        start, pos, size, length = start + cut, pos + cut, max(size - cut, 0), length - cut
    if start > s.offset:
        if s.wait_first < 0:
            s.hole_packets = t.sides[2 * c].packets + t.sides[2 * c + 1].packets
            s.hole_time = seg.time
        code = insert(t, c, k, start, end, data, pos, size, seg.time, seg.packet, run.order)
        if code == OK:
            decided(t, c, WAITS, k, start - s.offset, 0)
    elif s.wait_first >= 0 and t.pieces[s.wait_first].start < end:
        # It reaches into what waits: the parts that are new wait with it for a moment.
        code = insert(t, c, k, start, end, data, pos, size, seg.time, seg.packet, run.order)
    else:
        if room_for_history(t, s, size, length) != OK:
            return FULL
        code = deliver(t, c, k, data, pos, size, length, seg.time, seg.packet, run.order)
        if code == OK:
            s.missing += length - size
            advance(s, length)
            remember(t, s, data, pos, size, length)
    if code == OK:
        run.compared = 0
    return code


@kernel
def is_older(t: Any, c: int, k: int, seg: Any) -> bool:
    """Whether the first bytes of an end acknowledge what came before the other end's SYN: they were under way
    to an earlier connection of the same ends, and are dropped (RFC 9293, 3.10.7.3)."""
    other = t.sides[2 * c + 1 - k]
    if seg.flags & ACK == 0 or other.from_start == 0 or other.next_seq < 0:
        return False
    return other.offset + distance(seg.ack, other.next_seq) < 0
