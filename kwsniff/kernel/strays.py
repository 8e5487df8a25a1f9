"""Segments that their sequence number puts out of place, but which hold what comes next.

Theory of operation. A sequence number or a length may be damaged, in the segment at hand or in the one by
which its stream was placed. A segment that lies behind what was delivered, too far ahead, or where others
wait with other bytes, is looked at: one of the client that begins with the request that comes next, or
one of the broker that is filled by the response to a request that waits, is no copy of an older one. Its
frames are taken for themselves. If it follows another such segment, or nothing is known of the connection
yet, it was the stream that stood in the wrong place: it goes on here.

What was taken for itself may come once more in its place, as a retransmission that is not damaged: the
correlation ids of such requests are remembered, and those requests are passed over then.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.codes import SEGMENT_MISPLACED
from kwsniff.kernel.conversation import take_frame
from kwsniff.kernel.frames import count_frame, in_progress
from kwsniff.kernel.headers import begins_request, comes_next, correlation_id, fills
from kwsniff.kernel.misplaced import remember
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.notes import note, room_for_notes
from kwsniff.kernel.numbers import FULL, OK, distance, int32
from kwsniff.kernel.responses import pair_pending
from kwsniff.kernel.streams import FAR, MASK, set_free
from kwsniff.kernel.tables import KAFKA, PROBING, UNKNOWN
from kwsniff.kernel.texts import same
from kwsniff.kernel.trace import MISPLACED, MOVED_ON, decided
from kwsniff.kernel.waiting import find_waiting

(IN_PLACE, OUT_OF_PLACE, MOVING, MOVED) = range(4)
"""What is done with the segment at hand, in `run.stray`: it is not out of place, its frames are taken for
themselves, or the stream is to go on with it, or does."""
COPIES = 64
"""Held segments that one out of place is compared with, at the most."""


@kernel
def is_stray(t: Any, c: int, k: int, seq: int, data: Any, pos: int, size: int) -> bool:
    """Whether a segment does not lie where its stream goes on, but holds what comes next."""
    s = t.sides[2 * c + k]
    if s.next_seq < 0 or size == 0:
        return False
    away = distance(seq, s.next_seq)
    if away == 0 or (0 < away <= FAR and s.wait_first < 0):
        return False
    if not begins_anew(t, c, k, seq == s.stray_end, data, pos, size):
        return False
    return away < 0 or away > FAR or contradicts(t, s, s.offset + away, data, pos, size)


@kernel
def contradicts(t: Any, s: Any, start: int, data: Any, pos: int, size: int) -> bool:
    """Whether other bytes wait where a segment lies."""
    at, end = s.wait_first, start + size
    if t.pieces[s.wait_last].end <= start:
        return False
    while at >= 0 and t.pieces[at].start < end:
        t.run[0].steps += 1
        piece = t.pieces[at]
        first, last = max(start, piece.start), min(end, piece.start + piece.size)
        if first < last and not same(
            data, pos + first - start, t.arena, piece.at + first - piece.start, last - first
        ):
            return True
        at = piece.next
    return False


@kernel
def begins_anew(t: Any, c: int, k: int, continues: bool, data: Any, pos: int, size: int) -> bool:
    """Whether bytes show that they are no copy of older ones; `continues`: they follow such."""
    conn = t.conns[c]
    end = pos + size
    if conn.state == PROBING:
        if not conn.ports or k != conn.client or not begins_request(t, data, pos, end):
            return False
        return not is_held(t, c, k, data, pos, size)
    if conn.state != KAFKA:
        return False
    if k != conn.client:
        return fills(data, pos, end) and find_waiting(t, c, int32(data, pos + 4)) >= 0
    if continues:
        return begins_request(t, data, pos, end)
    return is_next_request(t, c, k, data, pos, end)


@kernel
def is_next_request(t: Any, c: int, k: int, data: Any, pos: int, end: int) -> bool:
    """Whether bytes begin with the request that comes next, if there was one."""
    if not begins_request(t, data, pos, end):
        return False
    s = t.sides[2 * c + k]
    latest = in_progress(t, s)
    if latest == UNKNOWN:
        latest = s.latest
    return latest == UNKNOWN or comes_next(correlation_id(data, pos, end), latest)


@kernel
def is_held(t: Any, c: int, k: int, data: Any, pos: int, size: int) -> bool:
    """Whether the same bytes begin a segment that is held until the connection is judged."""
    row, seen = t.conns[c].held_first, 0
    while row >= 0 and seen < COPIES:
        piece = t.pieces[row]
        common = min(piece.size, size)
        if piece.side == k and common and same(t.arena, piece.at, data, pos, common):
            return True
        seen += 1
        row = piece.next
    return False


@kernel
def take_stray(t: Any, c: int, k: int, seg: Any, seq: int, data: Any) -> int:
    """See to a segment that is out of place; OK also if it was none: `run.stray` says."""
    run, s = t.run[0], t.sides[2 * c + k]
    if run.stray == IN_PLACE:
        if not is_stray(t, c, k, seq, data, seg.start, seg.captured):
            return OK
        if room_for_notes(t, 1) != OK:
            return FULL
        note(t, c, SEGMENT_MISPLACED, seg.packet, t.conns[c].last_time, seg.captured, 0)
        moves = t.conns[c].state == PROBING or s.stray_end == seq
        decided(t, c, MOVED_ON if moves else MISPLACED, k, distance(seq, s.next_seq), 0)
        run.stray = MOVING if moves else OUT_OF_PLACE
        run.cursor, run.item = 0, -1
    if run.stray == MOVING:
        code = set_free(t, c, k, seg.time, True)
        if code != OK:
            return code
        s.next_seq, s.acked, s.history = seq, -1, 0
        run.stray = MOVED
        run.cursor, run.item = 0, -1
        s.stray_end = (seq + seg.captured) & MASK
    if run.stray == OUT_OF_PLACE:
        code = take_misplaced(t, c, k, seg, data)
        if code != OK:
            return code
        s.stray_end = (seq + seg.captured) & MASK
    return OK


@kernel
def take_misplaced(t: Any, c: int, k: int, seg: Any, data: Any) -> int:
    """Take the frames of a segment that has no place in its stream, from `run.cursor` on."""
    run, s = t.run[0], t.sides[2 * c + k]
    while True:
        if run.pairing >= 0:
            code = pair_pending(t)
            if code != OK:
                return code
        left = seg.captured - run.cursor
        at = seg.start + run.cursor
        if left < 8:
            return OK
        size = int32(data, at) + 4
        if size < 8 or size - 4 > t.limits[0].max_frame_bytes or (run.cursor and size > left):
            return OK
        if k == t.conns[c].client and remember(t, c, correlation_id(data, at, at + left)) != OK:
            return FULL
        f = t.frame[0]
        f.conn, f.side, f.start, f.end, f.size = c, k, at, at + min(size, left), size
        f.first_time, f.last_time, f.packet = seg.time, seg.time if size <= left else -1, seg.packet
        f.whole = 1 if size <= left else 0
        code = take_frame(t, data)
        if code != OK:
            return code
        count_frame(t, c, s, k, data, f.start, f.end)
        run.cursor += min(size, left)
