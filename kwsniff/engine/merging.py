"""A connection that is known from some segment of a part on goes on with what it was before.

Theory of operation. `kwsniff.engine.left` compared both. The part's row stays and takes over what only the
past can know: when and where the connection began, counters up to that segment, remembered requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kwsniff.engine.arena import copy
from kwsniff.engine.left import dissolve
from kwsniff.engine.requests import most_unasked
from kwsniff.engine.tables import COUNTED, COUNTED_OF_SIDES, FITS, QUIET, UNKNOWN
from kwsniff.engine.waiting import move_first, release
from kwsniff.native.mode import kernel, made


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
        copy(t.arena, was.history_at, t.arena, s.history_at, s.history)
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
        conn.jumbled = 1


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
