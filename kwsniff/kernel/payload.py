"""The payload of a segment: delivered if its place has come, kept if not."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.flags import SYN
from kwsniff.kernel.history import remember, room_for_history, seen_before
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.notes import room_for_notes
from kwsniff.kernel.numbers import FULL, OK, distance
from kwsniff.kernel.outliers import is_near, keep_far
from kwsniff.kernel.strays import IN_PLACE, OUT_OF_PLACE, take_stray
from kwsniff.kernel.streams import FAR, MASK, advance, deliver, insert
from kwsniff.kernel.trace import FAR_AHEAD, SEEN, WAITS, decided


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
        s.next_seq = seq
    if seq != s.next_seq or run.stray != IN_PLACE:
        code = take_stray(t, c, k, seg, seq, data)
        if code != OK or run.stray == OUT_OF_PLACE:
            if code == OK:
                run.stray = IN_PLACE
            return code
    elif seg.captured < seg.length:
        s.stray_end = (seq + seg.captured) & MASK  # unless the capture cuts packets, its length is wrong
    start = s.offset + distance(seq, s.next_seq)
    end, pos, size, length = start + seg.length, seg.start, seg.captured, seg.length
    if start < s.offset:
        if run.cursor == 0:
            if room_for_notes(t, 1) != OK:
                return FULL
            if not run.compared:
                seen_before(t, c, k, start, end, data, pos, size, seg)
                decided(t, c, SEEN, k, min(end, s.offset) - start, 0)
                run.compared = 1
        if end <= s.offset:
            run.compared = run.stray = 0
            return OK
        cut = s.offset - start
        start, pos, size, length = start + cut, pos + cut, max(size - cut, 0), length - cut
    code = OK
    if start > s.offset:
        if s.wait_first < 0:
            s.hole_packets = t.sides[2 * c].packets + t.sides[2 * c + 1].packets
            s.hole_time = seg.time
        if start - s.offset > FAR and not is_near(t, s, start):
            code = keep_far(t, c, k, start, end, data, pos, size, seg.time, seg.packet, run.order)
            if code == OK:
                decided(t, c, FAR_AHEAD, k, start - s.offset, 0)
        else:
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
        run.compared, run.stray = 0, IN_PLACE
    return code
