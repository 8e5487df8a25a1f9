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

from collections.abc import Iterable
from typing import Any

from kwsniff.engine import texts
from kwsniff.engine.arena import drop, drop_piece, drop_request, empty_buffer, forget_latest, pop_held
from kwsniff.engine.connections import append_number, append_quiet, remove, take_out
from kwsniff.engine.frames import TOKEN_FRAMES
from kwsniff.engine.leaving import MASK, close_left, digest, print_of
from kwsniff.engine.packing import forget, move_connection, move_request
from kwsniff.engine.requests import most_unasked
from kwsniff.engine.responses import remove_early
from kwsniff.engine.row_tables import COUNTED, COUNTED_OF_SIDES, UNKNOWN
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
    LEFT,
    OLD_SYN,
    QUIET,
    SPOILT,
    STATE_DIFFERS,
    stop,
)
from kwsniff.engine.waiting import move_first, release
from kwsniff.native.mode import distance, kernel, made
from kwsniff.native.octets import copy

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
    if conn.reply >= 0:
        forget(t, conn.reply)
        drop_request(t, conn.reply)
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
        append_number(t.conns, run, t.marks[at].row)


# Going on: a connection that a part knew from some segment on, and what it was before.
#
# The part's row stays and takes over what only the past can know: when and where the connection began,
# counters up to that segment, remembered requests.


@kernel
def merge_all(t: Any) -> None:
    """Make one of each known connection and what it goes on with."""
    for at in range(t.run[0].lefts):
        left = t.lefts[at]
        if left.verdict == FITS and not left.over:
            merge(t, left, left.before, left.conn)
        if left.verdict == FITS:
            dissolve(t, left.before)


def _adding(fields: Iterable[str], end: str = "") -> Any:
    """A kernel that adds what had been counted before a connection was known."""
    lines = [f"s.{name} += was.{name} - left.{end}{name}" for name in fields]
    return made("add_counts", "s, was, left", lines)


_add_counts = _adding(COUNTED)
_add_counts_of_a, _add_counts_of_b = _adding(COUNTED_OF_SIDES, "a_"), _adding(COUNTED_OF_SIDES, "b_")


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
    _add_counts(conn, was, left)
    if was.software >= 0 and conn.software < 0:
        conn.software, conn.software_version = was.software, was.software_version
    if was.user >= 0:
        conn.user = was.user
    if conn.mechanism < 0:
        conn.mechanism = was.mechanism
    if conn.client_id == -2:
        conn.client_id = was.client_id
    if conn.answered == UNKNOWN:
        conn.answered = was.answered
    if conn.unsure:
        conn.response_gap |= was.response_gap
        conn.unsure = 0
    conn.response_end = max(conn.response_end, was.response_end)
    if left.quiet == QUIET:
        keep_waiting(t, old, new)
    else:
        keep_flights(t, old, new)
    packets = merge_side(t, left, t.sides[2 * old], t.sides[2 * new], True)
    packets += merge_side(t, left, t.sides[2 * old + 1], t.sides[2 * new + 1], False)
    for k in range(2):
        t.sides[2 * new + k].hole_packets += packets
        row = t.sides[2 * new + k].wait_first
        while row >= 0:
            t.pieces[row].packets += packets
            row = t.pieces[row].next
    keep_unasked(t, old, new)


@kernel
def merge_side(t: Any, left: Any, was: Any, s: Any, a: bool) -> int:
    """The same of one direction, that of `a` or of `b`; its packets that came before."""
    packets, skipped = s.packets, s.skipped
    if a:
        _add_counts_of_a(s, was, left)
    else:
        _add_counts_of_b(s, was, left)
    s.skipped_before += s.skipped - skipped
    move_side(t, was, s, was.offset - (left.a_offset if a else left.b_offset))
    return s.packets - packets


@kernel
def move_side(t: Any, was: Any, s: Any, by: int) -> None:
    """Count the bytes of a direction from its true beginning."""
    s.offset += by
    s.from_start, s.born = was.from_start, was.born
    s.isn = was.isn if s.isn < 0 else s.isn
    if s.fin_at >= 0:
        s.fin_at += by
    if s.rst_at >= 0:
        s.rst_at += by
    s.acked = max(was.acked, s.acked + by if s.acked >= 0 else -1)
    if s.history_at < 0 and was.history_at >= 0:
        s.history, s.history_at, s.history_room = was.history, was.history_at, was.history_room
        was.history, was.history_at, was.history_room = 0, -1, 0
    s.spoken |= was.spoken
    if was.history_room > s.history_room and s.history_at >= 0:
        # As much room as it would have: what the run holds is the same then, and so are its limits.
        copy(t.arena, s.history_at, s.history, t.arena, was.history_at)
        at, room = s.history_at, s.history_room
        s.history_at, s.history_room = was.history_at, was.history_room
        was.history_at, was.history_room = at, room
    row = s.wait_first
    while row >= 0:
        t.pieces[row].start += by
        t.pieces[row].end += by
        row = t.pieces[row].next


@kernel
def keep_flights(t: Any, old: int, new: int) -> None:
    """How many requests were in flight when those were sent that wait since before `new` was known: they are
    the first of `new` that wait, and `old` has them too."""
    before, row = t.conns[old].first_request, t.conns[new].first_request
    while row >= 0:
        while before >= 0 and not is_same(t.requests[before], t.requests[row]):
            before = t.requests[before].after
        if before < 0:
            return
        t.requests[row].in_flight = t.requests[before].in_flight
        before, row = t.requests[before].after, t.requests[row].after


@kernel
def keep_waiting(t: Any, old: int, new: int) -> None:
    """Let the requests wait on that waited when `new` was taken to be quiet: they came before its own."""
    was, conn = t.conns[old], t.conns[new]
    row = conn.first_request
    while row >= 0:
        t.requests[row].in_flight += was.in_flight
        row = t.requests[row].after
    while was.last_request >= 0:
        move_first(t, new, was.last_request)
        conn.unordered = 1


@kernel
def is_same(one: Any, other: Any) -> bool:
    """Whether two rows are of the same request."""
    return (
        one.packet == other.packet
        and one.correlation_id == other.correlation_id
        and one.last_time == other.last_time
    )


@kernel
def keep_unasked(t: Any, old: int, new: int) -> None:
    """Remember the requests without reply of `old` too, before those of `new`, which may not be in their
    places of the hash table yet."""
    was, conn = t.conns[old], t.conns[new]
    while was.last_unasked >= 0:
        row = was.last_unasked
        if conn.unasked >= most_unasked(t) or is_remembered(t, new, t.requests[row]):
            release(t, row)
        else:
            move_first(t, new, row)


@kernel
def is_remembered(t: Any, c: int, request: Any) -> bool:
    """Whether a connection remembers a request without reply too."""
    row = t.conns[c].first_unasked
    while row >= 0:
        if is_same(t.requests[row], request):
            return True
        row = t.requests[row].after
    return False
