"""What a part of the input notes of connections that it did not see begin.

Theory of operation. A *part* is a run that begins in the middle of the input (`limits.part`). A connection
whose first segment in it is no SYN may have begun before: what it tells is a hypothesis at first. Its
segments are marked, they are its *head*, and its rows are marked too, nobody believes them. When nothing
that lies before can matter any more it is *known*: both directions are cut into frames, and a request of
the part was answered, so that all earlier ones are settled, since brokers answer in order; and all that
wait came after that answer, so that the number of requests in flight is right. A row of `lefts` then keeps
a digest of its state.

What joins the parts (`kwsniff.kernel.left`) feeds the head to the connection as it was before, and
compares. Counters go on as they are; what they were is in `lefts`, so the difference can be added.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.tables import (
    HEAD,
    HEAD_,
    KAFKA,
    KNOWN,
    OPENED,
    OTHER,
    TLS,
    UNKNOWN,
)

SYN, ACK = 2, 16
COST = 128
"""Bytes charged for a segment of a head, besides its payload."""
SPARE = 8
"""Packets that are waited for beyond those after which a hole is given up."""
MASK = 0xFFFFFFFF


@kernel
def mark(t: Any, kind: int, c: int, time: int) -> None:
    """Note something of the segment at hand; the driver saw to it that there is room."""
    run = t.run[0]
    row = t.marks[run.marks]
    run.marks += 1
    row.kind, row.row, row.conn, row.order, row.time = kind, run.row, c, run.order, time
    row.number = t.conns[c].number if c >= 0 else 0


@kernel
def note_opened(t: Any, c: int, seg: Any) -> None:
    """A connection opened in a part; it may have begun before unless its first segment is a SYN."""
    if not seg.flags & SYN or seg.flags & ACK:
        t.conns[c].left = HEAD
    mark(t, OPENED, c, seg.time)


@kernel
def note_segment(t: Any, c: int, seg: Any) -> None:
    """A segment of a part was taken."""
    conn = t.conns[c]
    if conn.left != HEAD:
        return
    conn.head_bytes += COST + seg.captured
    mark(t, HEAD_, c, seg.time)
    if conn.known_since < 0 and conn.answered != UNKNOWN:
        conn.known_since = t.run[0].order
    if t.sides[2 * c].missing or t.sides[2 * c + 1].missing:
        t.run[0].lossy = 1
    if is_known(t, c) and (not t.run[0].lossy or is_settled(t, c)):
        begin_known(t, c)
    elif conn.head_bytes > t.limits[0].max_head_bytes and conn.state != 0:
        begin_known(t, c)
        t.lefts[conn.left_row].digest = -1  # whoever knows its state has to go on


@kernel
def is_known(t: Any, c: int) -> bool:
    """Whether nothing before the part can matter any more for a connection."""
    conn = t.conns[c]
    if conn.step != 0 or conn.reset_time >= 0:
        return False
    if conn.state == OTHER or conn.state == TLS:
        return True
    if conn.state != KAFKA or not conn.proven or conn.held_first >= 0:
        return False
    if not t.sides[2 * c].synchronised or not t.sides[2 * c + 1].synchronised:
        return False
    if conn.early or conn.raw_waiting or conn.known_since < 0:
        return False
    first = conn.first_request
    return first < 0 or t.requests[first].order > conn.known_since


@kernel
def is_settled(t: Any, c: int) -> bool:
    """Whether nothing that was lost before the part can matter any more for a known connection: holes that
    were open then are given up, and what a gap had left unanswered is told."""
    conn, a, b = t.conns[c], t.sides[2 * c], t.sides[2 * c + 1]
    if conn.state != KAFKA:
        return True
    if a.packets + b.packets <= t.limits[0].reorder_packets + SPARE or a.wait_first >= 0 or b.wait_first >= 0:
        return False
    return conn.in_flight == 0


@kernel
def begin_known(t: Any, c: int) -> None:
    """From here on a connection tells what is believed, if its state is what it seems."""
    run, conn = t.run[0], t.conns[c]
    left = t.lefts[run.lefts]
    conn.left, conn.left_row = KNOWN, run.lefts
    run.lefts += 1
    left.conn, left.number, left.order = c, conn.number, run.order
    left.digest = (digest(t, c, 1) << 31) ^ digest(t, c, 2)
    left.verdict, left.before, left.over = 0, -1, 0
    left.software, left.software_version = print_of(t, conn.software), print_of(t, conn.software_version)
    left.user, left.mechanism = print_of(t, conn.user), print_of(t, conn.mechanism)
    left.backwards, left.skewed, left.throttled_until = conn.backwards, conn.skewed, conn.throttled_until
    left.tokens, left.undecoded, left.frames = conn.tokens, conn.undecoded, conn.frames
    left.copies = conn.copies
    a, b = t.sides[2 * c], t.sides[2 * c + 1]
    left.a_offset, left.a_packets, left.a_bytes, left.a_missing = a.offset, a.packets, a.bytes, a.missing
    left.a_retransmitted, left.a_zero_windows, left.a_frames = a.retransmitted, a.zero_windows, a.frames
    left.a_resynchronised, left.a_skipped, left.a_again = a.resynchronised, a.skipped, a.again
    left.b_offset, left.b_packets, left.b_bytes, left.b_missing = b.offset, b.packets, b.bytes, b.missing
    left.b_retransmitted, left.b_zero_windows, left.b_frames = b.retransmitted, b.zero_windows, b.frames
    left.b_resynchronised, left.b_skipped, left.b_again = b.resynchronised, b.skipped, b.again
    left.by_end, left.by_seq, left.unsteady = -1, 0, 0
    conn.syns = 0
    conn.stray_low, conn.stray_high = -UNKNOWN, UNKNOWN


@kernel
def close_left(t: Any, c: int, over: bool) -> None:
    """Note how a known connection ended, or stands at the end of the part."""
    conn = t.conns[c]
    left, a, b = t.lefts[conn.left_row], t.sides[2 * c], t.sides[2 * c + 1]
    left.over = 1 if over else 0
    left.last_software, left.last_version = print_of(t, conn.software), print_of(t, conn.software_version)
    left.last_user, left.last_mechanism = print_of(t, conn.user), print_of(t, conn.mechanism)
    left.last_backwards, left.last_skewed = conn.backwards, conn.skewed
    left.stray_low, left.stray_high, left.syns = conn.stray_low, conn.stray_high, conn.syns
    steady = a.resynchronised == left.a_resynchronised and a.skipped == left.a_skipped
    steady = steady and b.resynchronised == left.b_resynchronised and b.skipped == left.b_skipped
    left.unsteady = 0 if steady else 1


# The state of a connection in a number


@kernel
def print_of(t: Any, number: int) -> int:
    """A text as a number that is the same in all runs of the same seed."""
    if number < 0:
        return number
    return (t.texts[number].hash << 20) + (t.texts[number].size & 0xFFFFF)


@kernel
def add(found: int, word: int) -> int:
    """One more word of a hash of 32 bits."""
    found = ((found ^ word) & MASK) * 0x9E3779B1 & 0xFFFFFFFFFFFFFFF
    found = (found ^ (found >> 17) ^ (word >> 32)) & MASK
    found = found * 0x85EBCA6B & 0xFFFFFFFFFFFFFFF
    return (found ^ (found >> 19)) & MASK


@kernel
def digest(t: Any, c: int, seed: int) -> int:
    """All of a connection's state that a part can know and that decides what it tells from here on."""
    conn = t.conns[c]
    found = add(seed, conn.state)
    found = add(found, conn.step)
    found = add(found, conn.client)
    found = add(found, conn.reset_time)
    found = add(found, conn.last_time)
    found = add(found, conn.fin + 2 * conn.rst + 4 * conn.closed_by)
    if conn.state != KAFKA:
        return add(found, t.sides[2 * c].shut + 2 * t.sides[2 * c + 1].shut)
    found = add(found, conn.response_gap + 2 * conn.proven + 4 * conn.raw_tokens + 8 * conn.turned)
    found = add(found, conn.raw_waiting + 65536 * conn.aside)
    found = add(found, conn.in_flight)
    found = add(found, conn.answered)
    found = add(found, print_of(t, conn.client_id))
    found = add(found, conn.response_end)
    row = conn.first_request
    while row >= 0:
        request = t.requests[row]
        found = add(found, request.order)
        found = add(found, request.correlation_id)
        found = add(found, request.key * 65536 + request.version)
        found = add(found, request.status * 65536 + request.in_flight)
        row = request.after
    row = conn.first_early
    while row >= 0:
        found = add(add(found, t.early[row].order), t.early[row].correlation_id)
        row = t.early[row].next
    return add_side(t, c, 1, add_side(t, c, 0, found))


@kernel
def add_side(t: Any, c: int, k: int, found: int) -> int:
    """The same of one direction."""
    s = t.sides[2 * c + k]
    found = add(found, s.next_seq)
    found = add(found, max(s.acked - s.offset, 0))
    found = add(found, s.fin_at - s.offset if s.fin_at >= 0 else -1)
    found = add(found, s.history)
    found = add(found, s.synchronised + 2 * s.lost + 4 * s.broken + 8 * s.spoken + 16 * s.shut)
    found = add(found, s.size)
    found = add(found, s.got)
    found = add(found, s.have)
    found = add(found, s.block_room)
    if s.got or s.have:
        found = add(found, s.first_time)
        found = add(found, s.frame_time)
        found = add(found, s.frame_order)
    found = add(found, s.latest)
    found = add(found, s.searched)
    found = add(found, s.hope)
    found = add(found, s.stray_end)
    found = add(found, s.skipped - s.skipped_before)
    if s.wait_first >= 0:
        found = add(found, s.hole_time)
        found = add(found, t.sides[2 * c].packets + t.sides[2 * c + 1].packets - s.hole_packets)
    row = s.wait_first
    while row >= 0:
        found = add_piece(t, row, s.offset, found)
        found = add(found, t.sides[2 * c].packets + t.sides[2 * c + 1].packets - t.pieces[row].packets)
        row = t.pieces[row].next
    return add_piece(t, s.far, s.offset, found) if s.far >= 0 else found


@kernel
def add_piece(t: Any, row: int, offset: int, found: int) -> int:
    """The same of a piece that waits."""
    piece = t.pieces[row]
    found = add(found, piece.order)
    found = add(found, piece.start - offset)
    found = add(found, piece.end - offset)
    return add(found, piece.size)
