"""The table of connections: finding the one a segment belongs to, opening, closing, and ending the silent.

Theory of operation. A hash table leads from both ends to a connection. All connections stand in a list by
their latest packet, so that those which are silent too long are found without looking at the others. A
connection that was closed stays for a while, for the stray segments that belong to it, and then ends: its row
is told and given back.

Invariant: which connection a segment belongs to depends on that connection's own segments alone.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import release
from kwsniff.kernel.aside import forget_all
from kwsniff.kernel.codes import CONNECTION_LIMIT, FRAME_INCOMPLETE, NOT_KAFKA
from kwsniff.kernel.conversation import give_up_all
from kwsniff.kernel.frames import empty_buffer, finish_frame
from kwsniff.kernel.leaving import close_left, note_opened
from kwsniff.kernel.life import (
    CLOSED_,
    FINISHING,
    FLUSHING,
    GIVING_UP,
    JUDGING,
    OPEN,
    advance_to,
    become,
)
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK
from kwsniff.kernel.responses import pair_pending
from kwsniff.kernel.roles import judge
from kwsniff.kernel.rows import WANT_CONNS, WANT_ENDS, lacks, note_now, room_for_notes
from kwsniff.kernel.streams import drop_far, flush, replay
from kwsniff.kernel.tables import (
    CAPTURE_REASON,
    CLOSED_REASON,
    GAP_REASON,
    KAFKA,
    KNOWN,
    LIMIT_REASON,
    OTHER,
    OWN,
    PROBING,
    RESET_REASON,
    TLS,
    UNKNOWN,
)
from kwsniff.kernel.trace import CLOSING, decided, opened, room_for_decisions

LINGER = 60_000_000_000
"""Nanoseconds for which stray segments still belong to a connection that was closed."""
TALKING, RESET, ENDED = range(3)
"""Lists of connections by silence: in each of them the one that was silent longest is due first."""


@kernel
def mix(found: int, word: int) -> int:
    """One more word of a hash."""
    found = ((found ^ word) & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFFFFFFFFF
    return (found ^ (found >> 17)) & 0xFFFFFFFF


@kernel
def slot_of(t: Any, a_hi: int, a_lo: int, b_hi: int, b_lo: int, ports: int) -> int:
    """Where in `slots` the connections of two ends begin."""
    found = t.limits[0].seed & 0x7FFFFFFF
    found = mix(found, a_hi)
    found = mix(found, a_hi >> 32)
    found = mix(found, a_lo)
    found = mix(found, a_lo >> 32)
    found = mix(found, b_hi)
    found = mix(found, b_hi >> 32)
    found = mix(found, b_lo)
    found = mix(found, b_lo >> 32)
    found = mix(found, ports)
    found = mix(found, t.limits[0].seed >> 31)
    return found & (len(t.slots) - 1)


@kernel
def is_forward(seg: Any) -> bool:
    """Whether a segment goes from the lower end to the higher: by address, then by port."""
    if seg.src_hi != seg.dst_hi:
        return seg.src_hi < seg.dst_hi
    if seg.src_lo != seg.dst_lo:
        return seg.src_lo < seg.dst_lo
    return seg.src_port <= seg.dst_port


@kernel
def find(t: Any, seg: Any) -> int:
    """The connection that a segment is of, -1 if there is none."""
    forward = is_forward(seg)
    a_hi, a_lo, a_port = (
        (seg.src_hi, seg.src_lo, seg.src_port) if forward else (seg.dst_hi, seg.dst_lo, seg.dst_port)
    )
    b_hi, b_lo, b_port = (
        (seg.dst_hi, seg.dst_lo, seg.dst_port) if forward else (seg.src_hi, seg.src_lo, seg.src_port)
    )
    c = t.slots[slot_of(t, a_hi, a_lo, b_hi, b_lo, a_port * 65536 + b_port)].first
    while c >= 0:
        t.run[0].steps += 1
        conn = t.conns[c]
        if (
            conn.a_port == a_port
            and conn.b_port == b_port
            and conn.a_lo == a_lo
            and conn.b_lo == b_lo
            and conn.a_hi == a_hi
            and conn.b_hi == b_hi
        ):
            return c
        c = conn.next
    return -1


@kernel
def is_kafka_port(t: Any, port: int) -> bool:
    """Whether brokers are expected on a port."""
    for at in range(len(t.ports)):
        if t.ports[at].port == port:
            return True
    return False


@kernel
def open_connection(t: Any, seg: Any) -> int:
    """A new connection for a segment; -1 if there is no room."""
    run = t.run[0]
    c = run.conns_free
    if c >= 0:
        run.conns_free = t.conns[c].next
    elif run.conns_used < len(t.conns) and 2 * run.conns_used + 2 <= len(t.sides):
        c = run.conns_used
        run.conns_used += 1
    else:
        run.want, run.room = WANT_CONNS, 1
        return -1
    conn = t.conns[c]
    forward = is_forward(seg)
    conn.a_hi, conn.a_lo, conn.a_port = (
        (seg.src_hi, seg.src_lo, seg.src_port) if forward else (seg.dst_hi, seg.dst_lo, seg.dst_port)
    )
    conn.b_hi, conn.b_lo, conn.b_port = (
        (seg.dst_hi, seg.dst_lo, seg.dst_port) if forward else (seg.src_hi, seg.src_lo, seg.src_port)
    )
    run.opened += 1
    run.followed += 1
    conn.number = run.order + 1
    slot = t.slots[slot_of(t, conn.a_hi, conn.a_lo, conn.b_hi, conn.b_lo, conn.a_port * 65536 + conn.b_port)]
    conn.next = slot.first
    slot.first = c
    a, b = is_kafka_port(t, conn.a_port), is_kafka_port(t, conn.b_port)
    conn.ports = (1 if a else 0) + (2 if b else 0)
    conn.client = 1 if conn.ports == 1 else 0 if conn.ports == 2 else -1
    conn.state, conn.step = PROBING, OPEN
    conn.first_time = conn.last_time = seg.time
    conn.capture = run.capture
    conn.first_packet, conn.last_packet, conn.last_order = seg.packet, -1, -1
    conn.copies, conn.alert, conn.alert_side = 0, -1, 0
    conn.early_syn_ack = conn.client_time = -1
    conn.syn_time = conn.syn_ack_time = conn.handshake = conn.reset_time = conn.reset_order = -1
    conn.closed_by = conn.closed_time = conn.syn = conn.fin = conn.rst = conn.backwards = conn.skewed = (
        conn.ended_inside
    ) = conn.ending = 0
    conn.held_first = conn.held_last = conn.untold_first = conn.untold_last = -1
    conn.aside_first = conn.aside_last = -1
    conn.untold = conn.aside = 0
    conn.held = conn.held_bytes = conn.judged = conn.tries = conn.held_pending = 0
    conn.first_request = conn.last_request = conn.first_unasked = conn.last_unasked = -1
    conn.first_early = conn.last_early = -1
    conn.in_flight = conn.unasked = conn.early = conn.response_gap = 0
    conn.answered = UNKNOWN
    conn.raw_tokens = conn.raw_waiting = conn.tokens = 0
    conn.mechanism = conn.user = conn.software = conn.software_version = -1
    conn.asked_software = conn.asked_version = -1
    conn.client_id = -2
    conn.response_end = conn.throttled_until = -1
    conn.undecoded = conn.frames = conn.turned = conn.giving = conn.proven = 0
    conn.left, conn.left_row, conn.head_bytes = 0, -1, 0
    conn.known_since, conn.syns = -1, 0
    conn.stray_low, conn.stray_high = -UNKNOWN, UNKNOWN
    if t.limits[0].part:
        note_opened(t, c, seg)
    for k in range(2):
        reset_side(t, 2 * c + k)
    append_quiet(t, c, TALKING)
    append_number(t, c)
    opened(t, c, seg.packet)
    return c


@kernel
def append_number(t: Any, c: int) -> None:
    """A connection has the highest number."""
    run, conn = t.run[0], t.conns[c]
    conn.older, conn.newer = run.newest, -1
    if run.newest >= 0:
        t.conns[run.newest].newer = c
    else:
        run.oldest = c
    run.newest = c


@kernel
def remove_number(t: Any, c: int) -> None:
    """Take a connection out of the list by number."""
    run, conn = t.run[0], t.conns[c]
    if conn.older >= 0:
        t.conns[conn.older].newer = conn.newer
    else:
        run.oldest = conn.newer
    if conn.newer >= 0:
        t.conns[conn.newer].older = conn.older
    else:
        run.newest = conn.older


@kernel
def reset_side(t: Any, at: int) -> None:
    """A direction of which nothing was seen."""
    s = t.sides[at]
    s.next_seq, s.offset, s.from_start, s.isn, s.fin_at = -1, 0, 0, -1, -1
    s.packets = s.bytes = s.missing = s.retransmitted = s.again = s.zero_windows = s.shut = 0
    s.acked = -1
    s.hole_packets = s.hole_time = 0
    s.wait_first = s.wait_last = -1
    s.waiting = s.waiting_bytes = 0
    s.far = -1
    s.spoken = 0
    s.history, s.history_at, s.history_room = 0, -1, 0
    s.synchronised = s.lost = 0
    s.buf, s.room, s.have, s.block, s.block_room = -1, 0, 0, 0, 0
    s.size = s.got = s.broken = 0
    s.first_time, s.frame_time, s.frame_order, s.frame_packet = -1, -1, -1, -1
    s.frames = s.resynchronised = s.skipped = s.skipped_before = 0
    s.latest = UNKNOWN
    s.searched = s.hope = 0
    s.stray_end = -1


# Silence


@kernel
def append_quiet(t: Any, c: int, which: int) -> None:
    """A connection spoke last of all in a list."""
    conn, list_ = t.conns[c], t.lists[which]
    conn.list, conn.listed = which, t.run[0].order
    conn.silent_before, conn.silent_after = list_.last, -1
    if list_.last >= 0:
        t.conns[list_.last].silent_after = c
    else:
        list_.first = c
    list_.last = c


@kernel
def remove_quiet(t: Any, c: int) -> None:
    """Take a connection out of its list by silence."""
    conn = t.conns[c]
    list_ = t.lists[conn.list]
    if conn.silent_before >= 0:
        t.conns[conn.silent_before].silent_after = conn.silent_after
    else:
        list_.first = conn.silent_after
    if conn.silent_after >= 0:
        t.conns[conn.silent_after].silent_before = conn.silent_before
    else:
        list_.last = conn.silent_before


@kernel
def spoke(t: Any, c: int) -> None:
    """A connection spoke, or came into another state."""
    conn = t.conns[c]
    which = ENDED if conn.step == CLOSED_ else RESET if conn.reset_time >= 0 else TALKING
    if conn.list != which or t.lists[which].last != c:
        remove_quiet(t, c)
        append_quiet(t, c, which)


@kernel
def patience(t: Any, c: int) -> int:
    """How long a connection may be silent."""
    conn = t.conns[c]
    idle = t.limits[0].idle_time
    return min(LINGER, idle) if conn.step == CLOSED_ or conn.reset_time >= 0 else idle


# The end


@kernel
def close(t: Any, c: int, reason: int) -> int:
    """Deliver what still waits and end the conversation; segments that follow are only counted."""
    conn = t.conns[c]
    run = t.run[0]
    if conn.step == OPEN:
        if room_for_decisions(t) != OK:
            return FULL
        conn.ending = reason
        advance_to(t, c, FLUSHING)
        decided(t, c, CLOSING, 0, reason, 0)
    if conn.step == FLUSHING:
        for k in range(2):
            code = flush(t, c, k)
            if code != OK:
                return code
        advance_to(t, c, JUDGING)
    if conn.step == JUDGING:
        if conn.state == PROBING:
            code = judge(t, c, True)
            if code != OK:
                return code
        code = replay(t, c)
        if code != OK:
            return code
        lose_tails(t, c)
        advance_to(t, c, FINISHING)
    if conn.step == FINISHING:
        code = finish_frames(t, c)
        if code != OK:
            return code
        advance_to(t, c, GIVING_UP)
    if conn.step == GIVING_UP:
        because = conn.ending
        if conn.response_gap and because != RESET_REASON:
            because = GAP_REASON
        code = give_up_all(t, c, because)
        if code == OK:
            code = room_for_notes(t, 1)
        if code != OK:
            return code
        settle(t, c)
        advance_to(t, c, CLOSED_)
        conn.reset_time = -1
        spoke(t, c)
    run.cursor = 0
    return OK


@kernel
def lose_tails(t: Any, c: int) -> None:
    """Count as missing what an end acknowledged but the capture never held."""
    conn = t.conns[c]
    for k in range(2):
        s = t.sides[2 * c + k]
        if s.acked >= 0:
            tail = s.acked - s.offset - (1 if s.fin_at >= 0 else 0)
            if is_tail_missing(s):  # one byte may be a FIN that was not captured
                s.missing += tail
                if k != conn.client:
                    conn.response_gap = 1


@kernel
def is_tail_missing(s: Any) -> bool:
    """Whether bytes behind the last that was captured were acknowledged."""
    return s.acked >= 0 and s.acked - s.offset - (1 if s.fin_at >= 0 else 0) > 1


@kernel
def finish_frames(t: Any, c: int) -> int:
    """Take what is there of the frames that are not whole."""
    conn = t.conns[c]
    if conn.state != KAFKA:
        return OK
    if t.run[0].pairing >= 0:
        code = pair_pending(t)
        if code != OK:
            return code
    for k in range(2):
        s = t.sides[2 * c + k]
        if s.size > 0:
            if room_for_notes(t, 12) != OK:
                return FULL
            if s.got < s.size:
                note_now(t, c, FRAME_INCOMPLETE, (0 if k == conn.client else 1) | (s.size << 1), s.have)
                if not s.broken and s.have == s.got and not is_tail_missing(s):
                    conn.ended_inside = 1
                    t.notes[t.run[0].notes - 1].c = conn.closed_by
                s.broken, s.frame_time, s.got = 1, -1, s.size
            code = finish_frame(t, c, k)
            if code == OK and t.run[0].pairing >= 0:
                code = pair_pending(t)
            if code != OK:
                return code
            conn.ended_inside = 0
        elif s.have:
            s.skipped += s.have
            empty_buffer(t, s)
    return OK


@kernel
def settle(t: Any, c: int) -> None:
    """What was taken for Kafka because of its port, but proved nothing or held no frame, was none."""
    conn = t.conns[c]
    if conn.state == KAFKA and (not conn.proven or t.sides[2 * c].frames + t.sides[2 * c + 1].frames == 0):
        become(t, c, OTHER)
        if conn.ports and (t.sides[2 * c].spoken or t.sides[2 * c + 1].spoken):
            note_now(t, c, NOT_KAFKA, 1, 0)


@kernel
def end(t: Any, c: int, reason: int) -> int:
    """The connection is over: tell its row, and give it back."""
    run, conn = t.run[0], t.conns[c]
    if conn.step != CLOSED_:
        if conn.step == OPEN:
            if conn.reset_time >= 0:
                reason = RESET_REASON
            elif conn.fin:
                reason = CLOSED_REASON
        code = close(t, c, reason)
        if code != OK:
            return code
    if run.ends + 1 > len(t.ends):
        return lacks(t, WANT_ENDS, 1)
    tell_end(t, c)
    remove(t, c)
    return OK


@kernel
def tell_end(t: Any, c: int) -> None:
    """Add the row of a connection."""
    run, conn = t.run[0], t.conns[c]
    row = t.ends[run.ends]
    run.ends += 1
    client = max(conn.client, 0)
    s, o = t.sides[2 * c + client], t.sides[2 * c + 1 - client]
    row.order, row.conn, row.number, row.capture = run.order, c, conn.number, conn.capture
    row.client = conn.client
    row.known = 1 if conn.state == KAFKA or conn.state == TLS or conn.ports else 0
    row.a_hi, row.a_lo, row.b_hi, row.b_lo = conn.a_hi, conn.a_lo, conn.b_hi, conn.b_lo
    row.a_port, row.b_port, row.state = conn.a_port, conn.b_port, conn.state
    row.first_time, row.last_time = conn.first_time, conn.last_time
    row.client_packets, row.broker_packets, row.client_bytes, row.broker_bytes = (
        s.packets,
        o.packets,
        s.bytes,
        o.bytes,
    )
    row.client_missing, row.broker_missing = s.missing, o.missing
    row.client_retransmitted, row.broker_retransmitted = s.retransmitted, o.retransmitted
    row.client_again, row.broker_again = s.again, o.again
    row.client_shut, row.broker_shut = s.zero_windows, o.zero_windows
    row.copies, row.alert, row.alert_side = conn.copies, conn.alert, 0 if conn.alert_side == client else 1
    row.client_id, row.first_packet, row.last_packet = conn.client_id, conn.first_packet, conn.last_packet
    row.syn, row.fin, row.rst, row.handshake = conn.syn, conn.fin, conn.rst, conn.handshake
    row.closed_by, row.mechanism, row.user = conn.closed_by, conn.mechanism, conn.user
    row.resynchronised = s.resynchronised + o.resynchronised
    row.skipped = s.skipped + o.skipped if conn.state == KAFKA else 0
    row.frames, row.undecoded = s.frames + o.frames, conn.undecoded
    row.rank, row.left, row.left_row = run.rank, conn.left, conn.left_row
    if conn.left == KNOWN:
        close_left(t, c, True)


@kernel
def remove(t: Any, c: int) -> None:
    """Give the row of a connection back."""
    run, conn = t.run[0], t.conns[c]
    remove_number(t, c)
    slot = t.slots[slot_of(t, conn.a_hi, conn.a_lo, conn.b_hi, conn.b_lo, conn.a_port * 65536 + conn.b_port)]
    if slot.first == c:
        slot.first = conn.next
    else:
        at = slot.first
        while t.conns[at].next != c:
            at = t.conns[at].next
        t.conns[at].next = conn.next
    for k in range(2):
        s = t.sides[2 * c + k]
        if s.history_at >= 0:
            release(t, s.history_at, s.history_room)
        if s.far >= 0:
            drop_far(t, s)
    forget_all(t, c)
    remove_quiet(t, c)
    conn.number = 0
    conn.next = run.conns_free
    run.conns_free = c
    run.followed -= 1


@kernel
def is_reset(t: Any, c: int, now: int) -> bool:
    """Whether an RST closed a connection: segments that it overtook had time to come."""
    conn = t.conns[c]
    return conn.step == OPEN and conn.reset_time >= 0 and now > conn.reset_time + t.limits[0].reorder_time


@kernel
def sweep(t: Any, now: int) -> int:
    """End the connections that were silent for too long, and close those that were reset: what they hold is
    given up at once. Only those that are due are looked at."""
    run = t.run[0]
    code = close_reset(t, now)
    for which in range(2):
        while code == OK:
            c = t.lists[TALKING if which == 0 else ENDED].first
            if c < 0 or now - t.conns[c].last_time <= patience(t, c):
                break
            run.steps += 1
            run.rank = rank_of(t, c)
            code = end(t, c, CLOSED_REASON)
    if code == OK:
        run.rank = OWN
    return code


@kernel
def rank_of(t: Any, c: int) -> int:
    """Where a connection stands among those that are looked at when silent ones are ended."""
    which = t.conns[c].list
    turn = 0 if which == RESET else 1 if which == TALKING else 2
    return (turn << 57) + t.conns[c].listed


@kernel
def close_reset(t: Any, now: int) -> int:
    """Close the connections that were reset."""
    c = t.lists[RESET].first
    while c >= 0:
        t.run[0].steps += 1
        following = t.conns[c].silent_after
        if t.conns[c].step != OPEN or is_reset(t, c, now):
            t.run[0].rank = rank_of(t, c)
            code = close(t, c, RESET_REASON)
            if code != OK:
                return code
        elif now <= t.conns[c].last_time + t.limits[0].reorder_time:
            break
        c = following
    return OK


@kernel
def make_room(t: Any) -> int:
    """More connections than are followed at once: end a tenth, those that were silent longest, closed ones
    first."""
    run = t.run[0]
    if run.crowd == 0:
        run.crowd, run.limited = max(run.followed // 10, 1), 1
    while run.crowd > 0 and run.followed > 0:
        c = t.lists[ENDED].first
        if c < 0:
            c = t.lists[RESET].first if t.lists[RESET].first >= 0 else t.lists[TALKING].first
        if t.conns[c].step == OPEN:
            if room_for_notes(t, 1) != OK:
                return FULL
            note_now(t, c, CONNECTION_LIMIT, run.clock - t.conns[c].last_time, 0)
        code = end(t, c, LIMIT_REASON)
        if code != OK:
            return code
        run.crowd -= 1
    run.crowd = 0
    return OK


@kernel
def end_all(t: Any) -> int:
    """The input is over: end all that is open, oldest connection first. Each has a place of its own behind
    the last segment, the same whatever other connections are followed in this run."""
    run = t.run[0]
    while run.followed > 0:
        oldest = run.oldest
        run.steps += 1
        run.order = run.finished + t.conns[oldest].number
        expired = run.clock - t.conns[oldest].last_time > patience(t, oldest)
        code = end(t, oldest, CLOSED_REASON if expired else CAPTURE_REASON)
        if code != OK:
            return code
    return OK


@kernel
def rehash_connections(t: Any) -> None:
    """Put all connections in their places again, after `slots` grew."""
    for at in range(len(t.slots)):
        t.slots[at].first = -1
    for c in range(t.run[0].conns_used):
        conn = t.conns[c]
        if conn.number > 0:
            slot = t.slots[
                slot_of(t, conn.a_hi, conn.a_lo, conn.b_hi, conn.b_lo, conn.a_port * 65536 + conn.b_port)
            ]
            conn.next = slot.first
            slot.first = c
