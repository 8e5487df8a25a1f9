"""One direction of a TCP connection: segments in any order in, its bytes in order out.

Theory of operation. A stream knows the sequence number of the next byte it wants. A segment that begins there
is delivered at once, from where it lies; one that lies beyond is copied and waits, in order, behind a hole;
bytes that were delivered or wait already are not taken again (the first copy wins, RFC 9293 leaves it open; a
differing copy is noted).

A hole is given up, and becomes a gap, when the capture can no longer be expected to fill it: the receiver has
acknowledged bytes that are not there, and more packets or a time have gone by; or too much waits; or the
connection ends. While the receiver has not acknowledged them, the bytes may still be sent again, however long
that takes. Only where the capture holds nothing of the receiver does a hole end by time alone. A segment cut
by the snap length leaves a gap at once.

Invariants: the pieces that wait are in order and free of overlap, and the first begins beyond `offset`, but
while it is being delivered. Offsets never wrap; only sequence numbers do.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine import frames, records
from kwsniff.engine.arena import (
    allocate,
    drop_piece,
    free,
    hold,
    pop_held,
    present_hole,
    present_piece,
    remember,
    room_for_history,
    room_for_row,
    take_piece,
)
from kwsniff.engine.notes import (
    GAP,
    GAP_GIVEN_UP,
    HELD,
    OVERLAP_DIFFERS,
    REORDER_LIMIT,
    decided,
    note,
    note_now,
    room_for_notes,
)
from kwsniff.engine.roles import judge
from kwsniff.engine.tables import KAFKA, LIMIT_REASON, PIECES, PROBING, TLS
from kwsniff.native.mode import distance, inlined, kernel
from kwsniff.native.octets import copy, same

FAR = 1 << 20
"""How many bytes behind the last one seen an acknowledgement, a FIN or an RST is believed to know of."""
COST = 256
"""Bytes charged for a piece that waits, besides its payload."""
MAX_WAITING = 8192
"""Pieces that may wait behind holes of one stream."""
MASK = 0xFFFFFFFF
SKIPPED = -2
"""Stands in `run.item` for bytes that nobody captured and no piece lies behind."""
ACKNOWLEDGED, LONG, MUCH, END = range(1, 5)
"""Why a hole is given up: its bytes arrived, nobody is there to acknowledge them, too much waits behind it,
or no more comes."""


@kernel
def deliver(t: Any, c: int, k: int, data: Any) -> None:
    """Take the bytes that `item` says, in order.

    `run.cursor` says how many were taken, and is their number afterwards."""
    run, item = t.run[0], t.item[0]
    conn, s = t.conns[c], t.sides[2 * c + k]
    if item.size:
        s.spoken = 1
    if t.limits[0].tls:
        records.feed(t, c, k, data)
        return
    if conn.state == PROBING and run.cursor == 0 and not conn.held_pending:
        hold(t, c, k, data)
        decided(t, c, HELD, k, conn.held_bytes, 0)
        conn.held_pending = 1
    if conn.held_pending:
        if conn.state == PROBING:
            judge(t, c, False)
        conn.held_pending = 0
        run.cursor = item.length
        return
    if conn.state == KAFKA:
        if item.size and run.cursor <= item.size:  # all may be taken, and a frame of it wait for room
            frames.feed(t, c, k, data, item.size)
        if run.cursor < item.length and conn.state == KAFKA:
            frames.gap(t, c, k)
        if conn.state == KAFKA:
            frames.feed(t, c, k, data, 0)
    if conn.state == TLS:
        records.feed(t, c, k, data)
    run.cursor = item.length


@kernel
def replay(t: Any, c: int) -> None:
    """Deliver what was held until the connection was judged."""
    run, conn = t.run[0], t.conns[c]
    if conn.state == PROBING:
        return
    while conn.held_first >= 0:
        if run.replaying == 0:
            run.replaying, run.cursor = 1, 0
        piece = t.pieces[conn.held_first]
        if piece.gap and piece.start == 0 and conn.state == KAFKA:
            room_for_notes(t, 1)
            note_now(t, c, GAP, piece.end, 0 if piece.side == conn.client else 1)
            piece.start = 1
        present_piece(t, piece, piece.end)
        deliver(t, c, piece.side, t.arena)
        pop_held(t, c)
        run.replaying = 0


@kernel
def advance(s: Any, count: int) -> None:
    """Move the delivery point."""
    s.offset += count
    s.next_seq = (s.next_seq + count) & MASK


@kernel
def why_given_up(t: Any, c: int, k: int, now: int) -> int:
    """Why the capture can no longer be expected to fill the first hole, 0 if it can."""
    s, other, limits = t.sides[2 * c + k], t.sides[2 * c + 1 - k], t.limits[0]
    if s.waiting_bytes > limits.max_reorder_bytes or s.waiting > MAX_WAITING:
        return MUCH
    waited = now - s.hole_time
    if s.acked >= t.pieces[s.wait_first].start:
        count = s.packets + other.packets
        over = count - s.hole_packets > limits.reorder_packets or waited > limits.reorder_time
        return ACKNOWLEDGED if over else 0
    return LONG if other.packets == 0 and waited > limits.hole_time else 0


@kernel
def never_arrived(t: Any, c: int, k: int) -> bool:
    """Whether what waits behind the first hole, at the end of the connection or of the capture, is nothing
    that the receiver handed on: it never acknowledged the bytes of the hole."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if t.sides[2 * c + 1 - k].packets == 0 or conn.ending == 0 or conn.ending == LIMIT_REASON:
        return False
    return s.acked <= s.offset + 1  # a FIN counts for one byte


@kernel
def set_free(t: Any, c: int, k: int, now: int, all_of_it: bool) -> None:
    """Deliver what waits: what follows what was delivered, and what lies behind holes that will not be filled
    any more; or `all_of_it`."""
    if t.run[0].item < 0:
        replay(t, c)
    while not keeps_order(t, t.conns[c]):  # what is delivered may show that it is TLS
        if t.sides[2 * c + k].wait_first < 0 or not set_first_free(t, c, k, now, all_of_it):
            return
    set_both_free(t, c, now, all_of_it)


@inlined
def keeps_order(t: Any, conn: Any) -> bool:
    """Whether both directions have to be delivered in the order in which they were captured: only where
    nothing in them says which response is whose."""
    return conn.state == TLS and t.limits[0].tls == 0


@kernel
def set_both_free(t: Any, c: int, now: int, all_of_it: bool) -> None:
    """The same of both directions, in the order in which they were captured. What one lacks, although the
    other end acknowledged it, comes before that end's answer."""
    while True:
        k = first_waiting(t, c)
        if k < 0:
            return
        other = t.sides[2 * c + 1 - k]
        if other.wait_first >= 0 and t.pieces[other.wait_first].start > other.offset and t.run[0].item < 0:
            if all_of_it or why_given_up(t, c, 1 - k, now):
                k = 1 - k
            elif lacks_acknowledged(t, other):
                return
        elif lacks_acknowledged(t, other) and t.run[0].item != t.sides[2 * c + k].wait_first:
            if not all_of_it and not has_waited(t, c, k, now):
                return
            skip_acknowledged(t, c, 1 - k)
        if not set_first_free(t, c, k, now, all_of_it):
            return


@kernel
def first_waiting(t: Any, c: int) -> int:
    """The side of what has waited longest, -1 if nothing waits."""
    a, b = t.sides[2 * c].wait_first, t.sides[2 * c + 1].wait_first
    if a < 0 or b < 0:
        return 0 if a >= 0 else 1 if b >= 0 else -1
    return 0 if t.pieces[a].order < t.pieces[b].order else 1


@kernel
def lacks_acknowledged(t: Any, s: Any) -> bool:
    """Whether the other end acknowledged more than was captured without a hole; a byte more may be a FIN."""
    if s.next_seq < 0 or s.acked <= s.offset + 1:
        return False
    end, row = s.offset, s.wait_first
    while row >= 0 and t.pieces[row].start == end:
        t.run[0].steps += 1
        end, row = t.pieces[row].end, t.pieces[row].next
    return s.acked > end + 1


@kernel
def has_waited(t: Any, c: int, k: int, now: int) -> bool:
    """Whether the first piece of a side has waited as long as overtaken segments may take."""
    piece, limits = t.pieces[t.sides[2 * c + k].wait_first], t.limits[0]
    count = t.sides[2 * c].packets + t.sides[2 * c + 1].packets
    return count - piece.packets > limits.reorder_packets or now - piece.time > limits.reorder_time


@kernel
def skip_acknowledged(t: Any, c: int, k: int) -> None:
    """Take what the other end acknowledged for missing."""
    s, run = t.sides[2 * c + k], t.run[0]
    hole = s.acked - s.offset
    if s.wait_first >= 0:
        hole = t.pieces[s.wait_first].start - s.offset
    if run.item != SKIPPED:
        run.item, run.cursor = SKIPPED, 0
    s.hole_time = t.pieces[t.sides[2 * c + 1 - k].wait_first].time
    present_hole(t, hole)
    deliver(t, c, k, t.arena)
    run.item = -1
    s.missing += hole
    advance(s, hole)
    s.history = 0


@kernel
def set_first_free(t: Any, c: int, k: int, now: int, all_of_it: bool) -> bool:
    """The same of the first piece that waits; whether it did not have to wait on."""
    run = t.run[0]
    conn, s = t.conns[c], t.sides[2 * c + k]
    piece = t.pieces[s.wait_first]
    hole = piece.start - s.offset
    if hole > 0:
        if all_of_it and run.item != s.wait_first and never_arrived(t, c, k):
            while s.wait_first >= 0:
                drop_first(t, s)
            return True
        if run.item != s.wait_first:
            if not all_of_it and not why_given_up(t, c, k, now):
                return False
            room_for_notes(t, 2)
            limits = t.limits[0]
            if not all_of_it and (s.waiting_bytes > limits.max_reorder_bytes or s.waiting > MAX_WAITING):
                note_now(t, c, REORDER_LIMIT, 0, 0)
            if conn.state == KAFKA:
                note_now(t, c, GAP, hole, 0 if k == conn.client else 1)
            decided(t, c, GAP_GIVEN_UP, k, hole, END if all_of_it else why_given_up(t, c, k, now))
            run.item, run.cursor = s.wait_first, 0
        present_hole(t, hole)
        deliver(t, c, k, t.arena)
        if conn.held_last >= 0:
            t.pieces[conn.held_last].gap = 1
        run.item = -1
        s.missing += hole
        advance(s, hole)
        s.history = 0
    else:
        if run.item != s.wait_first:
            run.item, run.cursor = s.wait_first, 0
        length = piece.end - piece.start
        room_for_history(t, s, piece.size, length)
        present_piece(t, piece, length)
        deliver(t, c, k, t.arena)
        s.missing += length - piece.size
        advance(s, length)
        remember(t, s, t.arena, piece.at, piece.size, length)
        drop_first(t, s)
        run.item = -1
        date_hole(t, s)
    replay(t, c)
    return True


@kernel
def date_hole(t: Any, s: Any) -> None:
    """The next hole is as old as the segment behind it. Were its age counted from now on, a stream with a
    hole every few packets would fall behind, and its responses be looked for among ever more requests."""
    if s.wait_first >= 0:
        piece = t.pieces[s.wait_first]
        s.hole_packets, s.hole_time = piece.packets, piece.time


@kernel
def drop_first(t: Any, s: Any) -> None:
    """Forget the first piece that waits."""
    row = s.wait_first
    piece = t.pieces[row]
    s.wait_first = piece.next
    if piece.next < 0:
        s.wait_last = -1
    s.waiting -= 1
    s.waiting_bytes -= COST + piece.size
    if piece.at >= 0:
        free(t, piece.at, piece.size)
    drop_piece(t, row)


@kernel
def flush(t: Any, c: int, k: int) -> None:
    """Deliver everything that waits, as at the end of the connection."""
    set_free(t, c, k, t.conns[c].last_time, True)


@kernel
def insert(t: Any, c: int, k: int, start: int, data: Any) -> None:
    """Let the parts of `item`, whose offset is `start`, wait that do not wait yet. Called again, it finds
    those there that it put there before it was stopped."""
    run, item = t.run[0], t.item[0]
    s = t.sides[2 * c + k]
    end = start + item.length
    before, at = -1, s.wait_first
    if s.wait_last >= 0 and t.pieces[s.wait_last].end <= start:
        before, at = s.wait_last, -1
    differing = False
    begin = start
    while True:
        while at >= 0 and t.pieces[at].end <= begin:
            run.steps += 1
            before, at = at, t.pieces[at].next
        stop = end if at < 0 else min(end, max(t.pieces[at].start, begin))
        if stop > begin:
            row = put(t, s, before, begin, stop, start, data)
            piece = t.pieces[row]
            piece.time, piece.packet, piece.order, piece.side = item.time, item.packet, item.order, k
            piece.packets = t.sides[2 * c].packets + t.sides[2 * c + 1].packets
            before = row
        if at < 0 or t.pieces[at].start >= end:
            break
        other = t.pieces[at]
        first, last = max(begin, other.start), min(min(end, start + item.size), other.start + other.size)
        if (
            first < last
            and other.order != item.order
            and not same(
                data, item.pos + first - start, t.arena, other.at + first - other.start, last - first
            )
        ):
            differing = True
        begin = min(other.end, end)
        if begin >= end:
            break
    if differing:
        room_for_notes(t, 1)
        note_overlap(t, c, item.packet)


@kernel
def put(t: Any, s: Any, before: int, begin: int, stop: int, start: int, data: Any) -> int:
    """Let bytes of `item`, whose offset is `start`, wait behind a piece, or as the first (-1)."""
    item = t.item[0]
    kept = max(min(stop, start + item.size) - begin, 0)
    room_for_row(t, t.pieces, PIECES)
    at = allocate(t, kept) if kept else -1
    row = take_piece(t)
    if kept:
        copy(data, item.pos + begin - start, kept, t.arena, at)
    piece = t.pieces[row]
    piece.start, piece.end, piece.at, piece.size, piece.gap = begin, stop, at, kept, 0
    after = t.pieces[before].next if before >= 0 else s.wait_first
    piece.next = after
    if before >= 0:
        t.pieces[before].next = row
    else:
        s.wait_first = row
    if after < 0:
        s.wait_last = row
    s.waiting += 1
    s.waiting_bytes += COST + kept
    return row


@kernel
def last_seen(t: Any, s: Any) -> int:
    """Offset behind the last byte of a stream that was captured."""
    return t.pieces[s.wait_last].end if s.wait_last >= 0 else s.offset


@kernel
def acknowledge(t: Any, s: Any, ack: int) -> bool:
    """Note an acknowledgement number of the other end, unless it is of bytes that were never sent: far beyond
    all that was seen (RFC 9293, 3.10.7.4)."""
    if s.next_seq < 0:
        return True
    offset = s.offset + distance(ack, s.next_seq)
    if offset > last_seen(t, s) + FAR:
        return False
    s.acked = max(s.acked, offset)
    return True


# What was delivered already, and comes again.

COPY = 512
"""Of a segment's `flags`, see `kwsniff.net.segments`."""


@kernel
def note_overlap(t: Any, c: int, packet: int) -> None:
    """A retransmission carries other bytes than the first copy; that there is room was seen to."""
    note(t, c, OVERLAP_DIFFERS, packet, t.conns[c].last_time, 0, 0)


@kernel
def seen_before(t: Any, c: int, k: int, start: int, data: Any, seg: Any) -> None:
    """Compare what of a segment, whose offset is `start`, was delivered already with the first copy, as far
    as that is kept."""
    s = t.sides[2 * c + k]
    end = start + seg.length
    s.retransmitted += min(end, s.offset) - start
    if end == s.offset and end - start == 1:
        return  # a keep-alive repeats the last byte, with whatever value (RFC 9293, 3.8.4)
    if seg.flags & COPY == 0:
        s.again += 1
    first = max(start, s.offset - s.history)
    last = min(start + seg.captured, s.offset)
    if first < last and not same(
        data, seg.start + first - start, t.arena, s.history_at + first - (s.offset - s.history), last - first
    ):
        note_overlap(t, c, seg.packet)
