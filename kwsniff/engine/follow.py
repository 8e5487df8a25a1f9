"""Segments in capture order, one after the other: what each does to its connection.

Theory of operation. A segment goes through phases, and `run.phase` says which was reached. A function that
finds a table full raises Stopped; when the driver has made room it calls again, and the segment goes on in
its phase. So every phase may be entered again, and nothing is done twice.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine import texts
from kwsniff.engine.arena import present_segment, remember, room_for_history
from kwsniff.engine.closing import close, end, finish, make_room, sweep, tick
from kwsniff.engine.connections import (
    CLOSED_,
    OPEN,
    find,
    is_from_a,
    is_left_alone,
    is_reset,
    open_connection,
    patience,
    rehash_connections,
)
from kwsniff.engine.flags import (
    ACK,
    LATE,
    RST,
    SYN,
    begins_anew,
    continues,
    count,
    is_own_syn,
    take_flags,
    take_handshake,
)
from kwsniff.engine.leaving import mark, note_segment
from kwsniff.engine.limits import keep_within_limits
from kwsniff.engine.notes import (
    GAP,
    OUT_OF_WINDOW,
    SEEN,
    SEGMENT,
    WAITS,
    decided,
    note_now,
    room_for_decisions,
    room_for_notes,
)
from kwsniff.engine.packing import compact_texts
from kwsniff.engine.records import note_standing
from kwsniff.engine.resumed import adopt, intern, leave, link_all, merge_all, settle_left
from kwsniff.engine.streams import (
    MASK,
    advance,
    deliver,
    insert,
    keeps_order,
    lacks_acknowledged,
    replay,
    seen_before,
    set_free,
)
from kwsniff.engine.tables import (
    ADOPT,
    BEGINS,
    CLOSED_REASON,
    COMPACT_TEXTS,
    DONE,
    FINISH,
    FOLLOW,
    INTERN,
    KAFKA,
    KNOWN,
    LEAVE,
    LINK,
    MERGE,
    PROBING,
    REHASH_CONNECTIONS,
    REHASH_REQUESTS,
    REHASH_TEXTS,
    RESET_REASON,
    SECOND,
    SKIP,
    SWEEP,
    SWEPT,
    TICK,
    UNTIL,
    WATCH,
)
from kwsniff.engine.waiting import rehash
from kwsniff.native.mode import distance, kernel

DAY = 86_400 * SECOND
"""So far ahead a packet's time is not believed unless the next bears it out."""
REUSED = 600 * SECOND
"""After so much silence a segment whose sequence number is not that of its connection is of another one."""
(FIND, COUNT, HOLES, PAYLOAD, GO_ON, FLAGS, WITHIN) = range(7)
"""PHASES of a segment."""
(GOES_ON, EXPIRES, ENDS, CLOSES) = range(4)
"""What a segment does to the connection that its ends have: nothing; it comes too late for it; it begins
another one; or it shows that an RST was the end."""


@kernel
def follow(t: Any, stop: int) -> None:
    """Take segments from `run.row` on, up to `stop`."""
    run = t.run[0]
    while run.row < stop:
        seg = t.segments[run.row]
        if run.sparse and seg.stop >= SWEEP:
            sweep_as_noted(t, seg)
            run.row += 1
            continue
        if run.sparse:
            run.order, run.capture = seg.order, seg.file
        if seg.apart:
            pass_time(t, seg)
        else:
            if run.phase != WITHIN:
                take_segment(t, seg)
                if t.limits[0].part:
                    note_segment(t, run.conn, seg)
                if t.limits[0].tls:
                    note_standing(t, seg)
                run.phase = WITHIN
            keep_within_limits(t)
        run.row += 1
        run.order += 0 if seg.flags & LATE else 1
        run.phase = FIND
        run.packet_bytes = 0
        if run.sparse and (seg.stop == UNTIL or seg.stop == BEGINS):
            settle_left(t, seg)


@kernel
def sweep_as_noted(t: Any, seg: Any) -> None:
    """Look for silent connections when a part did."""
    run = t.run[0]
    if seg.stop == SKIP:
        return
    run.order = seg.order
    if seg.time // SECOND > run.swept // SECOND:
        sweep(t, seg.time)
        run.swept = seg.time
    run.clock = max(run.clock, seg.time)


@kernel
def take_segment(t: Any, seg: Any) -> None:
    """Take one segment, from the phase that it has reached."""
    run = t.run[0]
    if run.phase == FIND:
        room_for_decisions(t)
        find_connection(t, seg)
        run.phase = COUNT
    if run.phase == COUNT:
        room_for_notes(t, 2)
        if seg.flags & LATE:
            run.refused = 0
        else:
            count(t, run.conn, seg)
        decided(t, run.conn, SEGMENT, 0 if is_from_a(t.conns[run.conn], seg) else 1, seg.length, seg.flags)
        run.phase = HOLES
    c = run.conn
    conn = t.conns[c]
    if conn.step != OPEN or is_left_alone(conn) or run.refused:
        if run.phase != FLAGS:
            return
    k = 0 if is_from_a(conn, seg) else 1
    if run.phase == HOLES:
        replay(t, c)
        if seg.flags & SYN and not is_own_syn(t, c, k, seg):
            return
        # What this end sent before may just be filled: its own holes are looked at afterwards.
        if t.sides[2 * c + 1 - k].wait_first >= 0:
            set_free(t, c, 1 - k, seg.time, False)
        run.phase = PAYLOAD
        run.cursor, run.item = 0, -1
    if run.phase == PAYLOAD:
        if seg.length > 0 and not seg.flags & RST:
            take_payload(t, c, k, seg)
        run.phase = GO_ON
        run.cursor, run.item = 0, -1
    if run.phase == GO_ON:
        replay(t, c)
        if t.sides[2 * c + k].wait_first >= 0:
            set_free(t, c, k, seg.time, False)
        run.phase = FLAGS
        take_flags(t, c, k, seg)
    close_if_over(t, c)


# The connection


@kernel
def find_connection(t: Any, seg: Any) -> None:
    """The connection that a segment is of, a new one if need be, in `run.conn`."""
    run = t.run[0]
    pass_time(t, seg)
    run.conn = find(t, seg)
    if run.conn >= 0:
        succeed(t, run.conn, seg)
    if run.conn < 0:
        if run.followed >= t.limits[0].max_connections or run.crowd:
            make_room(t)
        run.conn = open_connection(t, seg)
        t.conns[run.conn].syn_time = run.syn_time
        t.sides[2 * run.conn].born, t.sides[2 * run.conn + 1].born = run.a_born, run.b_born
        if run.begun >= 0:
            take_handshake(t, run.conn, run.begun, seg)
        run.begun = run.syn_time = run.a_born = run.b_born = -1


@kernel
def pass_time(t: Any, seg: Any) -> None:
    """End what had been silent for too long when a segment came; its time is `run.moment` then."""
    run = t.run[0]
    if seg.flags & LATE:
        return
    if run.moment_row != run.order:
        run.moment, run.moment_row = agreed_time(t, seg), run.order
    # Once in every second of packet time: that depends on no beginning.
    if run.moment // SECOND > run.swept // SECOND and not run.sparse:
        sweep(t, run.moment)
        run.swept = run.moment
        if t.limits[0].part:
            mark(t, SWEPT, -1, run.moment)
    if run.moment > run.clock:
        run.clock = run.moment


@kernel
def agreed_time(t: Any, seg: Any) -> int:
    """The time of a segment, but that of the run if it is far ahead and no other bears it out: one packet
    whose time is wrong must not end all connections."""
    run = t.run[0]
    if run.clock < 0 or seg.time <= run.clock + max(t.limits[0].idle_time, DAY):
        run.jump = -1
        return seg.time
    if run.jump >= 0 and abs(seg.time - run.jump) <= t.limits[0].idle_time:
        run.jump = -1
        return seg.time
    run.jump = seg.time
    return run.clock


@kernel
def succeed(t: Any, c: int, seg: Any) -> None:
    """If a segment begins another connection of the same ends, end the one that is there; `run.conn` is -1
    then."""
    run, conn = t.run[0], t.conns[c]
    k = 0 if is_from_a(conn, seg) else 1
    if conn.step != OPEN and conn.step != CLOSED_:
        close(t, c, conn.ending)
    if run.fate == GOES_ON:
        run.fate = fate_of(t, c, k, seg)
    if run.fate == CLOSES:
        close(t, c, RESET_REASON)
    elif run.fate != GOES_ON:
        if conn.left == KNOWN and run.fate != EXPIRES:
            t.lefts[conn.left_row].by_end, t.lefts[conn.left_row].by_seq = k, seg.seq
        end(t, c, CLOSED_REASON)
        run.conn = -1
    run.fate = GOES_ON


@kernel
def fate_of(t: Any, c: int, k: int, seg: Any) -> int:
    """What a segment does to the connection that its ends have. Asked once a segment: a connection that is
    half closed, when a table was full, would answer otherwise."""
    silent = t.run[0].moment - t.conns[c].last_time
    if silent > patience(t, c):
        return EXPIRES
    if begins_anew(t, c, k, seg) or (silent > REUSED and not continues(t, c, k, seg)):
        return ENDS
    return CLOSES if is_reset(t, c, seg.time) else GOES_ON


@kernel
def close_if_over(t: Any, c: int) -> None:
    """Close a connection both ends of which have ended."""
    conn = t.conns[c]
    if conn.step == CLOSED_:
        return
    a, b = t.sides[2 * c], t.sides[2 * c + 1]
    ended = a.fin_at >= 0 and b.fin_at >= 0 and a.offset >= a.fin_at and b.offset >= b.fin_at
    if ended or conn.step != OPEN:
        close(t, c, CLOSED_REASON)


@kernel
def watch(t: Any, stop: int) -> None:
    """Say of each segment that was taken whether its connection is Kafka, or may yet be."""
    for at in range(stop):
        seg = t.segments[at]
        c = find(t, seg)
        seg.watched = 1 if c < 0 or t.conns[c].state == KAFKA or t.conns[c].state == PROBING else 0


# The payload of a segment: delivered if its place has come, kept if not.
#
# Its sequence number alone says where it belongs (RFC 9293, 3.10.7.4). What the receiver has is not taken
# again; what lies beyond the largest window that TCP can announce is no part of the stream.

WINDOW = 65_535 << 14
"""The largest receive window (RFC 7323, 2.3), in bytes: no receiver takes what lies further ahead."""


@kernel
def take_payload(t: Any, c: int, k: int, seg: Any) -> None:
    """Put the payload of a segment in its place in the stream."""
    if seg.buffer == 0:
        place(t, c, k, seg, t.inline)
    elif seg.buffer == 1:
        place(t, c, k, seg, t.block)
    else:
        place(t, c, k, seg, t.extra)


@kernel
def place(t: Any, c: int, k: int, seg: Any, data: Any) -> None:
    """Deliver the payload of a segment if its place has come, let it wait if not."""
    run = t.run[0]
    s = t.sides[2 * c + k]
    seq = (seg.seq + 1) & MASK if seg.flags & SYN else seg.seq
    if s.next_seq < 0:
        if is_older(t, c, k, seg):
            return
        s.next_seq = seq
    start = s.offset + distance(seq, s.next_seq)
    end, item = start + seg.length, t.item[0]
    present_segment(t, seg)
    if start - s.offset > WINDOW:
        decided(t, c, OUT_OF_WINDOW, k, start - s.offset, 0)
        return
    if start < s.offset:
        if run.cursor == 0:
            room_for_notes(t, 1)
            if not run.compared:
                seen_before(t, c, k, start, data, seg)
                decided(t, c, SEEN, k, min(end, s.offset) - start, 0)
                run.compared = 1
        if end <= s.offset:
            run.compared = 0
            return
        cut = s.offset - start
        start = s.offset
        item.pos, item.size, item.length = item.pos + cut, max(item.size - cut, 0), item.length - cut
    if start > s.offset:
        if s.wait_first < 0:
            s.hole_packets = t.sides[2 * c].packets + t.sides[2 * c + 1].packets
            s.hole_time = seg.time
        insert(t, c, k, start, data)
        decided(t, c, WAITS, k, start - s.offset, 0)
    elif (s.wait_first >= 0 and t.pieces[s.wait_first].start < end) or must_wait(t, c, k):
        # It reaches into what waits: the parts that are new wait with it for a moment.
        insert(t, c, k, start, data)
    else:
        if seg.flags & LATE and item.size == 0 and not run.compared:
            room_for_notes(t, 1)
            if t.conns[c].state == KAFKA:
                note_now(t, c, GAP, item.length, 0 if k == t.conns[c].client else 1)
            run.compared = 1
        room_for_history(t, s, item.size, item.length)
        deliver(t, c, k, data)
        s.missing += item.length - item.size
        advance(s, item.length)
        remember(t, s, data, item.pos, item.size, item.length)
    run.compared = 0


@kernel
def must_wait(t: Any, c: int, k: int) -> bool:
    """Whether what comes next in a stream has to wait for what was captured before it in the other one."""
    if not keeps_order(t, t.conns[c]):
        return False
    a, b = t.sides[2 * c], t.sides[2 * c + 1]
    return a.wait_first >= 0 or b.wait_first >= 0 or lacks_acknowledged(t, b if k == 0 else a)


@kernel
def is_older(t: Any, c: int, k: int, seg: Any) -> bool:
    """Whether the first bytes of an end acknowledge what came before the other end's SYN: they were under way
    to an earlier connection of the same ends, and are dropped (RFC 9293, 3.10.7.3)."""
    other = t.sides[2 * c + 1 - k]
    if seg.flags & ACK == 0 or other.from_start == 0 or other.next_seq < 0:
        return False
    return other.offset + distance(seg.ack, other.next_seq) < 0


# The one function that the driver calls, compiled or interpreted.


@kernel
def act(t: Any, what: int, how: int) -> int:
    """Do one of the actions of `kwsniff.engine.tables` with the tables. Raises Stopped."""
    if what == FOLLOW:
        follow(t, how)
    elif what == FINISH:
        finish(t)
    elif what == TICK:
        tick(t, how)
    elif what == WATCH:
        watch(t, how)
    elif what == INTERN:
        intern(t, how)
    elif what == COMPACT_TEXTS:
        compact_texts(t)
    elif what == LEAVE:
        leave(t)
    elif what == ADOPT:
        adopt(t, how)
    elif what == MERGE:
        merge_all(t)
    elif what == LINK:
        link_all(t, how)
    elif what == REHASH_TEXTS:
        texts.rehash(t)
    elif what == REHASH_REQUESTS:
        rehash(t)
    elif what == REHASH_CONNECTIONS:
        rehash_connections(t)
    return DONE
