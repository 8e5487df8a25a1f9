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

from kwsniff.engine import texts
from kwsniff.engine.arena import drop, drop_piece
from kwsniff.engine.buffer import empty_buffer, forget_latest, pop_held
from kwsniff.engine.connections import append_number, append_quiet, remove, take_out
from kwsniff.engine.early import remove_early
from kwsniff.engine.frames import TOKEN_FRAMES
from kwsniff.engine.leaving import MASK, close_left, digest, print_of
from kwsniff.engine.numbers import LEFT, distance, stop
from kwsniff.engine.packing import move_connection, move_request
from kwsniff.engine.streams import drop_first
from kwsniff.engine.tables import (
    ANSWERED_LATE,
    ANSWERING,
    BEGINS,
    CLIENT_DIFFERS,
    CONNS,
    FITS,
    HEAD,
    KAFKA,
    KNOWN,
    OLD_SYN,
    QUIET,
    SPOILT,
    STATE_DIFFERS,
    UNKNOWN,
)
from kwsniff.engine.waiting import release
from kwsniff.native.mode import kernel

# Comparing


@kernel
def settle_left(t: Any, seg: Any) -> None:
    """After the last segment of a head: take the connection out if it is what the part took it for, and stop
    if it isn't."""
    run = t.run[0]
    c = run.conn
    if seg.stop == BEGINS:
        if t.conns[c].number != seg.order + 1:
            stop(t, LEFT)
        remove(t, c)
        return
    left = t.lefts[seg.left]
    left.before = c
    left.verdict = verdict_of(t, c, left)
    if left.verdict != FITS:
        stop(t, LEFT)
    detach(t, c)


@kernel
def verdict_of(t: Any, c: int, left: Any) -> int:
    """Whether a connection is what a part took it for."""
    conn = t.conns[c]
    quiet = QUIET if left.quiet else ANSWERING
    if (digest(t, c, 1, quiet, left.gap) << 31) ^ digest(t, c, 2, quiet, left.gap) != left.digest:
        return STATE_DIFFERS
    if left.gap == 2 and conn.response_gap:
        return STATE_DIFFERS
    if quiet and not was_quiet(t, c, left):
        return STATE_DIFFERS
    if conn.handshake < 0 and conn.syn_time >= 0 and conn.syn_ack_time >= 0:
        return STATE_DIFFERS  # its client's next ACK ends the handshake
    if not same_client(t, c, left):
        return CLIENT_DIFFERS
    if left.syns or not is_new(t, c, left):
        return OLD_SYN
    if was_earlier(t.sides[2 * c], left.a_oldest) or was_earlier(t.sides[2 * c + 1], left.b_oldest):
        return STATE_DIFFERS
    if conn.state == KAFKA and is_asked_for(t, c, left.stray_low, left.stray_high):
        return ANSWERED_LATE
    return FITS


@kernel
def was_quiet(t: Any, c: int, left: Any) -> bool:
    """Whether what came last before the part can't matter for what a broker said that was quiet at first.
    Requests may wait if it said nothing at all; so many more are in flight all the time."""
    conn, limits = t.conns[c], t.limits[0]
    if left.quiet == SPOILT or conn.response_end > left.time:
        return False
    if conn.in_flight and (left.quiet != QUIET or left.over or limits.request_timeout >= 0):
        return False
    if conn.in_flight + left.waiting >= limits.max_outstanding:
        return False
    return conn.answered == UNKNOWN or conn.answered <= left.latest


@kernel
def same_client(t: Any, c: int, left: Any) -> bool:
    """Whether what a part learnt of the client is true of all it told."""
    conn = t.conns[c]
    for k in range(2):
        s = t.sides[2 * c + k]
        if left.unsteady >> k & 1 and s.from_start and s.frames < TOKEN_FRAMES:
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
def was_earlier(s: Any, oldest: int) -> bool:
    """Whether a timestamp is from before the SYN of an end."""
    return s.born >= 0 and oldest >= 0 and distance(oldest, s.born) < 0


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
        release(t, conn.first_request)
    while conn.first_unasked >= 0:
        release(t, conn.first_unasked)
    while conn.first_early >= 0:
        remove_early(t, c, conn.first_early)
    while conn.held_first >= 0:
        pop_held(t, c)
    while conn.pending_first >= 0:
        row = conn.pending_first
        conn.pending_first = t.pieces[row].next
        drop_piece(t, row)
    for k in range(2):
        s = t.sides[2 * c + k]
        while s.wait_first >= 0:
            drop_first(t, s)
        empty_buffer(t, s)
        forget_latest(t, s)
    conn.number = 0
    drop(t, t.conns, CONNS, c)


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
def intern(t: Any, count: int) -> None:
    """Give `count` texts, the places of which in `extra` are in `marks`, numbers of this run.
    What becomes of each number is in `texts.moved`."""
    for number in range(count):
        row = t.marks[number]
        found = texts.text(t, t.extra, row.order, row.number, row.kind)
        row.conn = found


@kernel
def adopt(t: Any, count: int) -> None:
    """Replace the numbers of texts in rows that were just put in: those that `marks` names, first `count` of
    connections, then the others of requests."""
    for at in range(count):
        move_connection(t, t.conns[t.marks[at].row])
    for at in range(count, t.run[0].marks):
        move_request(t, t.marks[at].row)


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
