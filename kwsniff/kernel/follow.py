"""Segments in capture order, one after the other: what each does to its connection.

Theory of operation. A segment goes through phases, and `run.phase` says which was reached. A function that
finds a table full returns at once; when the driver has made room it calls again, and the segment goes on in
its phase. So every phase may be entered again, and nothing is done twice.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.clocks import compare
from kwsniff.kernel.codes import TIME_BACKWARDS
from kwsniff.kernel.connections import (
    close,
    end,
    end_all,
    find,
    is_reset,
    make_room,
    open_connection,
    patience,
    spoke,
    sweep,
)
from kwsniff.kernel.early import expire_early
from kwsniff.kernel.headers import MAX_ALERT, TLS_ALERT, alert_of
from kwsniff.kernel.leaving import mark, note_segment
from kwsniff.kernel.left import settle_left
from kwsniff.kernel.life import CLOSED_, OPEN
from kwsniff.kernel.limits import keep_within_limits
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, LEFT, OK, distance
from kwsniff.kernel.outcomes import give_up
from kwsniff.kernel.rows import note, room_for_notes
from kwsniff.kernel.strays import ASIDE, IN_PLACE, is_next_request, take_stray
from kwsniff.kernel.streams import (
    COPY,
    FAR,
    MASK,
    acknowledge,
    advance,
    deliver,
    insert,
    is_near,
    keep_far,
    remember,
    replay,
    room_for_history,
    seen_before,
    set_free,
)
from kwsniff.kernel.tables import (
    BEGINS,
    CLOSED_REASON,
    GAP_REASON,
    KAFKA,
    KNOWN,
    OTHER,
    PROBING,
    RESET_REASON,
    SKIP,
    SWEEP,
    SWEPT,
    TIMEOUT_REASON,
    TLS,
    UNTIL,
)
from kwsniff.kernel.trace import FAR_AHEAD, SEEN, SEGMENT, WAITS, decided, room_for_decisions

FIN, SYN, RST, ACK = 1, 2, 4, 16
ZERO_WINDOW = 256
"""Of `flags`, see `kwsniff.net.columns`."""
SECOND = 1_000_000_000
DAY = 86_400 * SECOND
"""So far ahead a packet's time is not believed unless the next bears it out."""
STRAY_SYN = 1 << 16
"""A SYN so near to where a stream stands is no new connection: the flag was damaged."""
(FIND, COUNT, HOLES, PAYLOAD, GO_ON, FLAGS, WITHIN) = range(7)
"""PHASES of a segment."""


@kernel
def follow(t: Any, stop: int) -> int:
    """Take segments from `run.row` on, up to `stop`."""
    run = t.run[0]
    while run.row < stop:
        seg = t.segments[run.row]
        if run.sparse and seg.stop >= SWEEP:
            code = sweep_as_told(t, seg)
            if code != OK:
                return code
            run.row += 1
            continue
        if run.sparse:
            run.order, run.capture = seg.order, seg.file
        if seg.apart:
            code = pass_time(t, seg)
            if code != OK:
                return code
        else:
            if run.phase != WITHIN:
                code = take_segment(t, seg)
                if code != OK:
                    return code
                if t.limits[0].part:
                    note_segment(t, run.conn, seg)
                run.phase = WITHIN
            code = keep_within_limits(t)
            if code != OK:
                return code
        run.row += 1
        run.order += 1
        run.phase = FIND
        run.packet_bytes = 0
        if run.sparse and (seg.stop == UNTIL or seg.stop == BEGINS):
            if settle_left(t, seg) != OK:
                return LEFT
    return OK


@kernel
def sweep_as_told(t: Any, seg: Any) -> int:
    """Look for silent connections when a part did."""
    run = t.run[0]
    if seg.stop == SKIP:
        return OK
    run.order = seg.order
    if seg.time // SECOND > run.swept // SECOND:
        code = sweep(t, seg.time)
        if code != OK:
            return code
        run.swept = seg.time
    run.clock = max(run.clock, seg.time)
    return OK


@kernel
def take_segment(t: Any, seg: Any) -> int:
    """Take one segment, from the phase that it has reached."""
    run = t.run[0]
    if run.phase == FIND:
        if room_for_decisions(t) != OK:
            return FULL
        code = find_connection(t, seg)
        if code != OK:
            return code
        run.phase = COUNT
    if run.phase == COUNT:
        if room_for_notes(t, 2) != OK:
            return FULL
        count(t, run.conn, seg)
        decided(t, run.conn, SEGMENT, 0 if is_from_a(t.conns[run.conn], seg) else 1, seg.length, seg.flags)
        run.phase = HOLES
    c = run.conn
    conn = t.conns[c]
    if conn.step != OPEN or conn.state == OTHER or conn.state == TLS:
        if run.phase != FLAGS:
            return OK
    k = 0 if is_from_a(conn, seg) else 1
    if run.phase == HOLES:
        code = replay(t, c)
        if code != OK:
            return code
        for j in range(2):
            side = 1 - k if j == 0 else k
            if t.sides[2 * c + side].wait_first >= 0:
                code = set_free(t, c, side, seg.time, False)
                if code != OK:
                    return code
        run.phase = PAYLOAD
        run.cursor, run.item = 0, -1
    if run.phase == PAYLOAD:
        if seg.length > 0:
            code = take_payload(t, c, k, seg)
            if code != OK:
                return code
        run.phase = GO_ON
        run.cursor, run.item = 0, -1
    if run.phase == GO_ON:
        code = replay(t, c)
        if code != OK:
            return code
        if t.sides[2 * c + k].wait_first >= 0:
            code = set_free(t, c, k, seg.time, False)
            if code != OK:
                return code
        run.phase = FLAGS
        take_flags(t, c, k, seg)
    return close_if_over(t, c)


@kernel
def is_from_a(conn: Any, seg: Any) -> bool:
    """Whether a segment comes from end a."""
    return conn.a_port == seg.src_port and conn.a_lo == seg.src_lo and conn.a_hi == seg.src_hi


# The connection


@kernel
def find_connection(t: Any, seg: Any) -> int:
    """The connection that a segment is of, a new one if need be, in `run.conn`."""
    run = t.run[0]
    code = pass_time(t, seg)
    if code != OK:
        return code
    run.conn = find(t, seg)
    if run.conn >= 0:
        code = succeed(t, run.conn, seg)
        if code != OK:
            return code
    if run.conn < 0:
        if run.followed >= t.limits[0].max_connections or run.crowd:
            code = make_room(t)
            if code != OK:
                return code
        run.conn = open_connection(t, seg)
        if run.conn < 0:
            return FULL
    return OK


@kernel
def pass_time(t: Any, seg: Any) -> int:
    """End what had been silent for too long when a segment came; its time is `run.moment` then."""
    run = t.run[0]
    if run.moment_row != run.order:
        run.moment, run.moment_row = agreed_time(t, seg), run.order
    # Once in every second of packet time: that depends on no beginning.
    if run.moment // SECOND > run.swept // SECOND and not run.sparse:
        code = sweep(t, run.moment)
        if code != OK:
            return code
        run.swept = run.moment
        if t.limits[0].part:
            mark(t, SWEPT, -1, run.moment)
    if run.moment > run.clock:
        run.clock = run.moment
    return OK


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
def succeed(t: Any, c: int, seg: Any) -> int:
    """If a segment begins another connection of the same ends, end the one that is there; `run.conn` is -1
    then."""
    run, conn = t.run[0], t.conns[c]
    k = 0 if is_from_a(conn, seg) else 1
    if conn.step != OPEN and conn.step != CLOSED_:
        code = close(t, c, conn.ending)
        if code != OK:
            return code
    if run.moment - conn.last_time > patience(t, c) or (seg.flags & SYN and begins_anew(t, c, k, seg)):
        if conn.left == KNOWN and run.moment - conn.last_time <= patience(t, c):
            t.lefts[conn.left_row].by_end, t.lefts[conn.left_row].by_seq = k, seg.seq
        code = end(t, c, CLOSED_REASON)
        if code == OK:
            run.conn = -1
        return code
    if is_reset(t, c, seg.time):
        code = close(t, c, RESET_REASON)
        if code != OK:
            return code
    if conn.step == CLOSED_ and conn.state == KAFKA and k == conn.client and seg.length:
        if goes_on(t, c, k, seg):
            code = end(t, c, CLOSED_REASON)
            if code == OK:
                run.conn = -1
            return code
    return OK


@kernel
def goes_on(t: Any, c: int, k: int, seg: Any) -> bool:
    """Whether a segment after the end holds the client's next request: there was no end, or none was seen of
    what came between."""
    if seg.buffer == 0:
        return is_next_request(t, c, k, t.inline, seg.start, seg.start + seg.captured)
    if seg.buffer == 1:
        return is_next_request(t, c, k, t.block, seg.start, seg.start + seg.captured)
    return is_next_request(t, c, k, t.extra, seg.start, seg.start + seg.captured)


@kernel
def begins_anew(t: Any, c: int, k: int, seg: Any) -> bool:
    """Whether a SYN is that of another connection."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if is_stray_syn(t, c, k, seg.seq):
        return False
    if s.isn >= 0:
        return s.isn != seg.seq
    over = conn.step != OPEN or conn.reset_time >= 0
    if s.next_seq < 0:
        return over
    return over or (s.next_seq - s.offset - seg.seq - 1) & MASK != 0


@kernel
def is_stray_syn(t: Any, c: int, k: int, seq: int) -> bool:
    """Whether a SYN stands in the middle of a stream, where there can be none."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    if conn.step != OPEN or conn.reset_time >= 0 or s.next_seq < 0 or s.isn == seq:
        return False
    if not (s.offset > 0 or s.from_start) or (s.next_seq - s.offset - seq - 1) & MASK == 0:
        return False
    return -STRAY_SYN <= distance(seq, s.next_seq) <= STRAY_SYN


# One segment


@kernel
def count(t: Any, c: int, seg: Any) -> None:
    """Note what every segment says of its connection, and what a SYN or an ACK does."""
    run, conn = t.run[0], t.conns[c]
    k = 0 if is_from_a(conn, seg) else 1
    s, other = t.sides[2 * c + k], t.sides[2 * c + 1 - k]
    run.steps += 1
    conn.capture = run.capture
    if seg.time < conn.last_time - SECOND and not conn.backwards:
        conn.backwards = 1
        note(t, c, TIME_BACKWARDS, seg.packet, conn.last_time, conn.last_time - seg.time, 0)
    s.packets += 1
    s.bytes += seg.length
    if seg.flags & COPY:
        conn.copies += 1
    if seg.flags & (SYN | FIN | RST) == 0:
        if seg.flags & ZERO_WINDOW == 0:
            s.shut = 0
        elif s.shut == 0:
            s.shut = 1
            s.zero_windows += 1
    if conn.alert < 0 and TLS_ALERT <= seg.length <= MAX_ALERT and seg.captured >= TLS_ALERT:
        note_alert(t, conn, k, seg)
    moment = run.moment
    if moment > conn.last_time:
        conn.last_time = moment
    conn.last_packet, conn.last_order = seg.packet, run.order
    spoke(t, c)
    if seg.flags & SYN and not is_stray_syn(t, c, k, seg.seq):
        note_syn(t, c, k, seg)
    elif seg.flags & ACK and conn.handshake < 0 and conn.syn_time >= 0 and k == conn.client:
        if conn.syn_ack_time >= 0:
            conn.handshake = seg.time - conn.syn_time
        elif conn.client_time < 0:
            conn.client_time = seg.time
    followed = conn.state == KAFKA or conn.state == PROBING
    if seg.flags & ACK and not seg.flags & SYN and conn.step == OPEN and followed:
        acknowledge(t, other, seg.ack)


@kernel
def note_alert(t: Any, conn: Any, k: int, seg: Any) -> None:
    """Keep the first TLS alert that is not encrypted, whatever the connection is taken for."""
    if seg.buffer == 0:
        conn.alert = alert_of(t.inline, seg.start)
    elif seg.buffer == 1:
        conn.alert = alert_of(t.block, seg.start)
    else:
        conn.alert = alert_of(t.extra, seg.start)
    conn.alert_side = k


@kernel
def note_syn(t: Any, c: int, k: int, seg: Any) -> None:
    """A SYN or SYN-ACK says where streams begin and who is the client."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    conn.syn = 1
    conn.syns += 1
    s.isn = seg.seq
    client = 1 - k if seg.flags & ACK else k
    if s.next_seq < 0:
        s.next_seq = (seg.seq + 1) & MASK
        s.from_start = 1
    if not seg.flags & ACK:
        if conn.syn_time < 0:
            conn.syn_time = seg.time
            if conn.early_syn_ack >= 0:
                compare(t, c, seg.time, conn.early_syn_ack, seg.packet, seg.time)
    elif conn.syn_time >= 0:
        if conn.syn_ack_time < 0:
            compare(t, c, conn.syn_time, seg.time, seg.packet, conn.last_time)
            compare(t, c, seg.time, conn.client_time, seg.packet, conn.last_time)
        conn.syn_ack_time = seg.time
    elif conn.early_syn_ack < 0:
        conn.early_syn_ack = seg.time
    if seg.flags & ACK:
        first = t.sides[2 * c + client]
        if first.next_seq < 0:
            first.next_seq = seg.ack
            first.from_start = 1
    if conn.state == PROBING:
        conn.client = client


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
        if code != OK or run.stray == ASIDE:
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


@kernel
def take_flags(t: Any, c: int, k: int, seg: Any) -> None:
    """Note an RST or a FIN."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    who = 1 if k == conn.client else 2
    if seg.flags & RST:
        conn.rst = 1
        if conn.reset_time < 0:
            conn.reset_time, conn.reset_order = conn.last_time, t.run[0].order
            spoke(t, c)
        closed_first(conn, who | 4, seg.time)
        return
    if seg.flags & FIN:
        conn.fin = 1
        closed_first(conn, who | 8, seg.time)
        s.fin_at = s.offset + distance((seg.seq + seg.length) & MASK, s.next_seq) if s.next_seq >= 0 else 0


@kernel
def closed_first(conn: Any, how: int, time: int) -> None:
    """Note who ended a connection first, by packet time: an RST may overtake a FIN on its way."""
    if conn.closed_by == 0 or time < conn.closed_time:
        conn.closed_by, conn.closed_time = how, time


@kernel
def close_if_over(t: Any, c: int) -> int:
    """Close a connection both ends of which have ended."""
    conn = t.conns[c]
    if conn.step == CLOSED_:
        return OK
    a, b = t.sides[2 * c], t.sides[2 * c + 1]
    ended = a.fin_at >= 0 and b.fin_at >= 0 and a.offset >= a.fin_at and b.offset >= b.fin_at
    if ended or conn.step != OPEN:
        return close(t, c, CLOSED_REASON)
    return OK


@kernel
def watch(t: Any, stop: int) -> int:
    """Say of each segment that was taken whether its connection is Kafka, or may yet be."""
    for at in range(stop):
        seg = t.segments[at]
        c = find(t, seg)
        seg.watched = 1 if c < 0 or t.conns[c].state == KAFKA or t.conns[c].state == PROBING else 0
    return OK


@kernel
def finish(t: Any) -> int:
    """The input is over."""
    return end_all(t)


@kernel
def tick(t: Any, now: int) -> int:
    """No segment before `now` is still to come: do what waited for the time."""
    run = t.run[0]
    if now > run.clock:
        run.clock = now
    c = run.oldest
    while c >= 0:
        following = t.conns[c].newer
        code = settle_in_time(t, c, now)
        if code != OK:
            return code
        c = following
    return sweep(t, now)


@kernel
def settle_in_time(t: Any, c: int, now: int) -> int:
    """What the time alone settles of one connection: an RST, holes, responses and requests that wait."""
    conn = t.conns[c]
    if conn.step != OPEN and conn.step != CLOSED_:
        return close(t, c, conn.ending)
    if is_reset(t, c, now):
        return close(t, c, RESET_REASON)
    if conn.step != OPEN or conn.state == OTHER or conn.state == TLS:
        return OK
    code = replay(t, c)
    if code != OK:
        return code
    for k in range(2):
        if t.sides[2 * c + k].wait_first >= 0:
            code = set_free(t, c, k, now, False)
            if code != OK:
                return code
    code = expire_early(t, c, now) if conn.early else OK
    if code == OK and t.limits[0].request_timeout >= 0:
        code = time_out(t, c, now)
    return code


@kernel
def time_out(t: Any, c: int, now: int) -> int:
    """Report requests that have waited for too long: for longer than they let the broker wait, and more."""
    conn = t.conns[c]
    row = conn.first_request
    while row >= 0:
        request = t.requests[row]
        following = request.after
        allowed = t.limits[0].request_timeout + max(request.max_wait, 0) * 1_000_000
        if request.layout >= 0:
            allowed += t.layouts[request.layout].held
        if now - request.last_time > allowed:
            code = give_up(t, c, row, GAP_REASON if conn.response_gap else TIMEOUT_REASON)
            if code != OK:
                return code
        row = following
    return OK
