"""Joining: connections that were followed up to a cut, and those that a part behind it did not see begin.

Theory of operation. A *sparse* run holds the true state of all connections at a cut. It is fed the heads of
the part behind it, in the order of the input (`segments.order`), and the times at which that part looked
for silent connections. Where the part took a connection for known, the run compares its state with the
part's digest. If both are the same, what the part told from there on is true but for what lies wholly
before (counters, names, user, the beginning): the connection is taken out of the run until the part's own
state of it is put in (`adopt`), and both are made one (`merge`). If they differ, the driver is asked to
feed its other segments too: it is decoded again.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel import texts
from kwsniff.kernel.arena import copy, release
from kwsniff.kernel.aside import forget_all
from kwsniff.kernel.buffer import empty_buffer
from kwsniff.kernel.connections import append_number, remove, take_out
from kwsniff.kernel.early import remove_early
from kwsniff.kernel.frames import TOKEN_FRAMES
from kwsniff.kernel.holding import pop_held
from kwsniff.kernel.leaving import MASK, close_left, digest, print_of
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK, REFUSED
from kwsniff.kernel.outliers import drop_far
from kwsniff.kernel.packing import forget, move_request
from kwsniff.kernel.pools import drop, drop_piece, drop_request
from kwsniff.kernel.references import move_connection
from kwsniff.kernel.requests import most_unasked
from kwsniff.kernel.silence import append_quiet
from kwsniff.kernel.streams import drop_first
from kwsniff.kernel.tables import (
    ANSWERED_LATE,
    BEGINS,
    CLIENT_DIFFERS,
    CONNS,
    FITS,
    HEAD,
    KAFKA,
    KNOWN,
    OLD_SYN,
    STATE_DIFFERS,
)
from kwsniff.kernel.waiting import unlink

# Comparing


@kernel
def settle_left(t: Any, seg: Any) -> int:
    """After the last segment of a head: OK if the connection is what the part took it for."""
    run = t.run[0]
    c = run.conn
    if seg.stop == BEGINS:
        if t.conns[c].number != seg.order + 1:
            return REFUSED
        remove(t, c)
        return OK
    left = t.lefts[seg.left]
    left.before = c
    left.verdict = verdict_of(t, c, left)
    if left.verdict != FITS:
        return REFUSED
    detach(t, c)
    return OK


@kernel
def verdict_of(t: Any, c: int, left: Any) -> int:
    """Whether a connection is what a part took it for."""
    conn = t.conns[c]
    if (digest(t, c, 1) << 31) ^ digest(t, c, 2) != left.digest:
        return STATE_DIFFERS
    if not same_client(t, c, left):
        return CLIENT_DIFFERS
    if left.syns or not is_new(t, c, left):
        return OLD_SYN
    if conn.state == KAFKA and is_asked_for(t, c, left.stray_low, left.stray_high):
        return ANSWERED_LATE
    return FITS


@kernel
def same_client(t: Any, c: int, left: Any) -> bool:
    """Whether what a part learnt of the client is true of all it told."""
    conn = t.conns[c]
    for k in range(2):
        s = t.sides[2 * c + k]
        if left.unsteady and s.from_start and s.frames < TOKEN_FRAMES:
            return False  # the beginning of a connection allows shorter frames
    if conn.backwards and left.last_backwards and not left.backwards:
        return False
    if conn.skewed and left.last_skewed and not left.skewed:
        return False
    if conn.throttled_until > max(left.throttled_until, conn.response_end):
        return False
    return (
        fits(print_of(t, conn.software), left.software, left.last_software)
        and fits(print_of(t, conn.software_version), left.software_version, left.last_version)
        and fits(print_of(t, conn.user), left.user, left.last_user)
        and fits(print_of(t, conn.mechanism), left.mechanism, left.last_mechanism)
    )


@kernel
def fits(true: int, then: int, last: int) -> bool:
    """Whether a text may be filled in where a part had none."""
    if then >= 0 and then != true:
        return False
    return last in (then, true) or true < 0


@kernel
def is_new(t: Any, c: int, left: Any) -> bool:
    """Whether the SYN that ended a connection in a part began another one."""
    if left.by_end < 0:
        return True
    s = t.sides[2 * c + left.by_end]
    if s.isn >= 0:
        return s.isn != left.by_seq
    return s.next_seq >= 0 and (s.next_seq - s.offset - left.by_seq - 1) & MASK != 0


@kernel
def is_asked_for(t: Any, c: int, low: int, high: int) -> bool:
    """Whether a remembered request without reply has one of these correlation ids."""
    row = t.conns[c].first_unasked
    while row >= 0:
        if low <= t.requests[row].correlation_id <= high:
            return True
        row = t.requests[row].after
    return False


# Taking out


@kernel
def detach(t: Any, c: int) -> None:
    """Take a connection out of all lists of connections; what it holds stays."""
    take_out(t, c)
    t.conns[c].number = -t.conns[c].number  # its requests keep their places


@kernel
def dissolve(t: Any, c: int) -> None:
    """Give back all that a detached connection holds, and its row."""
    conn = t.conns[c]
    while conn.first_request >= 0:
        drop_waiting(t, conn.first_request)
    while conn.first_unasked >= 0:
        drop_waiting(t, conn.first_unasked)
    while conn.first_early >= 0:
        remove_early(t, c, conn.first_early)
    while conn.held_first >= 0:
        pop_held(t, c)
    forget_all(t, c)
    while conn.untold_first >= 0:
        row = conn.untold_first
        conn.untold_first = t.pieces[row].next
        drop_piece(t, row)
    for k in range(2):
        s = t.sides[2 * c + k]
        while s.wait_first >= 0:
            drop_first(t, s)
        if s.far >= 0:
            drop_far(t, s)
        empty_buffer(t, s)
        if s.history_at >= 0:
            release(t, s.history_at, s.history_room)
    conn.number = 0
    drop(t, t.conns, CONNS, c)


@kernel
def drop_waiting(t: Any, row: int) -> None:
    """Forget a request."""
    unlink(t, row)
    forget(t, row)
    drop_request(t, row)


@kernel
def leave(t: Any) -> None:
    """The part is over: what its connections came to, without those that it never knew."""
    for c in range(t.pools[CONNS].used):
        conn = t.conns[c]
        if conn.number > 0 and conn.left == KNOWN:
            close_left(t, c, False)
        elif conn.number > 0 and conn.left == HEAD:
            detach(t, c)
            dissolve(t, c)


# Putting in


@kernel
def intern(t: Any, count: int) -> int:
    """Give `count` texts, the places of which in `extra` are in `marks`, numbers of this run: OK or FULL.
    What becomes of each number is in `texts.moved`."""
    for number in range(count):
        row = t.marks[number]
        found = texts.text(t, t.extra, row.order, row.number, row.kind)
        if found == FULL:
            return FULL
        row.conn = found
    return OK


@kernel
def adopt(t: Any, count: int) -> None:
    """Replace the numbers of texts in rows that were just put in: those that `marks` names, first `count` of
    connections, then the others of requests."""
    for at in range(count):
        move_connection(t, t.marks[at].row)
    for at in range(count, t.run[0].marks):
        move_request(t, t.marks[at].row)


@kernel
def merge_all(t: Any) -> None:
    """Make one of each known connection and what it goes on with."""
    for at in range(t.run[0].lefts):
        left = t.lefts[at]
        if left.verdict == FITS and not left.over:
            merge(t, left, left.before, left.conn)
        if left.verdict == FITS:
            dissolve(t, left.before)


@kernel
def merge(t: Any, left: Any, old: int, new: int) -> None:
    """Let connection `new`, as a part has it, go on with what `old` was."""
    was, conn = t.conns[old], t.conns[new]
    conn.number, conn.first_time = -was.number, was.first_time
    conn.early_syn_ack, conn.client_time = was.early_syn_ack, was.client_time
    conn.skewed |= was.skewed
    conn.syn_time, conn.syn_ack_time, conn.handshake = was.syn_time, was.syn_ack_time, was.handshake
    conn.syn |= was.syn
    conn.backwards |= was.backwards
    conn.throttled_until = max(conn.throttled_until, was.throttled_until)
    conn.first_packet = was.first_packet
    if was.alert >= 0:
        conn.alert, conn.alert_side = was.alert, was.alert_side
    conn.copies += was.copies - left.copies
    conn.tokens += was.tokens - left.tokens
    conn.undecoded += was.undecoded - left.undecoded
    conn.frames += was.frames - left.frames
    if was.software >= 0 and conn.software < 0:
        conn.software, conn.software_version = was.software, was.software_version
    if was.asked_software >= 0 and conn.asked_software < 0:
        conn.asked_software, conn.asked_version = was.asked_software, was.asked_version
    if was.user >= 0:
        conn.user = was.user
    if conn.mechanism < 0:
        conn.mechanism = was.mechanism
    if conn.client_id == -2:
        conn.client_id = was.client_id
    packets = merge_sides(t, left, old, new)
    for k in range(2):
        t.sides[2 * new + k].hole_packets += packets
        row = t.sides[2 * new + k].wait_first
        while row >= 0:
            t.pieces[row].packets += packets
            row = t.pieces[row].next
    keep_unasked(t, old, new)


@kernel
def merge_sides(t: Any, left: Any, old: int, new: int) -> int:
    """The same of both directions; packets that came before."""
    was, s = t.sides[2 * old], t.sides[2 * new]
    packets = was.packets - left.a_packets
    s.packets += was.packets - left.a_packets
    s.bytes += was.bytes - left.a_bytes
    s.missing += was.missing - left.a_missing
    s.retransmitted += was.retransmitted - left.a_retransmitted
    s.zero_windows += was.zero_windows - left.a_zero_windows
    s.again += was.again - left.a_again
    s.frames += was.frames - left.a_frames
    s.resynchronised += was.resynchronised - left.a_resynchronised
    s.skipped += was.skipped - left.a_skipped
    s.skipped_before += was.skipped - left.a_skipped
    move_side(t, was, s, was.offset - left.a_offset)
    was, s = t.sides[2 * old + 1], t.sides[2 * new + 1]
    packets += was.packets - left.b_packets
    s.packets += was.packets - left.b_packets
    s.bytes += was.bytes - left.b_bytes
    s.missing += was.missing - left.b_missing
    s.retransmitted += was.retransmitted - left.b_retransmitted
    s.zero_windows += was.zero_windows - left.b_zero_windows
    s.again += was.again - left.b_again
    s.frames += was.frames - left.b_frames
    s.resynchronised += was.resynchronised - left.b_resynchronised
    s.skipped += was.skipped - left.b_skipped
    s.skipped_before += was.skipped - left.b_skipped
    move_side(t, was, s, was.offset - left.b_offset)
    return packets


@kernel
def move_side(t: Any, was: Any, s: Any, by: int) -> None:
    """Count the bytes of a direction from its true beginning."""
    s.offset += by
    s.from_start = was.from_start
    s.isn = was.isn if s.isn < 0 else s.isn
    if s.fin_at >= 0:
        s.fin_at += by
    s.acked = max(was.acked, s.acked + by if s.acked >= 0 else -1)
    if was.history_room > s.history_room and s.history_at >= 0:
        # As much room as it would have: what the run holds is the same then, and so are its limits.
        copy(t.arena, was.history_at, t.arena, s.history_at, s.history)
        at, room = s.history_at, s.history_room
        s.history_at, s.history_room = was.history_at, was.history_room
        was.history_at, was.history_room = at, room
    row = s.wait_first
    while row >= 0:
        t.pieces[row].start += by
        t.pieces[row].end += by
        row = t.pieces[row].next
    if s.far >= 0:
        t.pieces[s.far].start += by
        t.pieces[s.far].end += by


@kernel
def keep_unasked(t: Any, old: int, new: int) -> None:
    """Remember the requests without reply of `old` too, before those of `new`, which may not be in their
    places of the hash table yet."""
    was, conn = t.conns[old], t.conns[new]
    while was.last_unasked >= 0:
        row = was.last_unasked
        unlink(t, row)
        if conn.unasked >= most_unasked(t) or is_remembered(t, new, t.requests[row].order):
            forget(t, row)
            drop_request(t, row)
            continue
        request = t.requests[row]
        request.conn, request.before, request.after = new, -1, conn.first_unasked
        if conn.first_unasked >= 0:
            t.requests[conn.first_unasked].before = row
        else:
            conn.last_unasked = row
        conn.first_unasked = row
        conn.unasked += 1


@kernel
def is_remembered(t: Any, c: int, order: int) -> bool:
    """Whether a connection remembers the request without reply that came at a place of the input."""
    row = t.conns[c].first_unasked
    while row >= 0:
        if t.requests[row].order == order:
            return True
        row = t.requests[row].after
    return False


@kernel
def link_all(t: Any, count: int) -> None:
    """Put all connections into the lists by silence and by number: `marks` names `count` in the order of the
    first, then as many in that of the second."""
    run = t.run[0]
    run.oldest = run.newest = -1
    for which in range(3):
        t.lists[which].first = t.lists[which].last = -1
    for at in range(count):
        conn = t.conns[t.marks[at].row]
        since = conn.listed
        append_quiet(t, t.marks[at].row, conn.list)
        conn.listed = since
    for at in range(count, 2 * count):
        append_number(t, t.marks[at].row)
