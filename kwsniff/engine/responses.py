"""Frames of the broker: each takes the request with its correlation id, is read by that request's API and
version, and makes a call; or it waits for its request."""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import allocate, drop, free, room_for_row, take
from kwsniff.engine.bodies import EXTRA, downgraded, newer, read, unsupported, wants_program
from kwsniff.engine.facts import after_tags, clear
from kwsniff.engine.headers import AHEAD
from kwsniff.engine.leaving import lacks_responses
from kwsniff.engine.notes import (
    DROPPED,
    HEADER_MALFORMED,
    ORPHANED,
    PAIRED,
    PAIRED_EARLY,
    REPLY_TO_ACKS_0,
    RESPONSE_BEFORE_REQUEST,
    RESPONSE_OUT_OF_ORDER,
    TRAILING_BYTES,
    WAITS_EARLY,
    compare,
    decided,
    note,
    note_damage,
    room_for_notes,
)
from kwsniff.engine.outcomes import (
    NOTES,
    blank,
    give_up,
    is_shown,
    keep_body,
    note_body,
    room_for_call,
    room_for_damage,
    room_for_frame,
    tell,
    time_of,
    unreadable,
)
from kwsniff.engine.row_tables import UNKNOWN
from kwsniff.engine.tables import EARLY, ERROR_, GAP_REASON, OK_, ORPHAN_, TRUNCATED_, UNDECODED_
from kwsniff.engine.waiting import find_unasked, find_waiting, release
from kwsniff.native.mode import int32, kernel
from kwsniff.native.octets import copy
from kwsniff.native.rowcopies import NONE, linked

RESERVED = 0x7FFFFFF8
"""From here on the Java client takes its correlation ids while it authenticates (KIP-368); they say nothing
of those that follow."""


@kernel
def take_response_frame(t: Any, data: Any) -> None:
    """Take a frame that the broker sent."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    if conn.raw_waiting and not conn.in_flight:
        conn.raw_waiting -= 1
        return
    if f.end - f.start < 8:
        if conn.raw_tokens and not conn.in_flight:
            conn.raw_waiting -= 1  # captured before the token that it answers
        else:
            unreadable(t, 1)
        return
    found = int32(data, f.start + 4)
    row = find_waiting(t, f.conn, found)
    if row < 0 and found == 0 and conn.first_request >= 0:
        oldest = t.requests[conn.first_request]
        if oldest.layout >= 0 and t.layouts[oldest.layout].answered_zero:
            row = conn.first_request
    if row < 0:
        unexpected(t, data, found)
        return
    if conn.first_request != row:
        overtake(t, row)
    answer(t, row, data)


@kernel
def unexpected(t: Any, data: Any, found: int) -> None:
    """No request waits for this response."""
    f = t.frame[0]
    row = find_unasked(t, f.conn, found)
    if row < 0:
        wait_for_request(t, data, found)
        return
    release(t, row)
    note(t, f.conn, REPLY_TO_ACKS_0, f.packet, time_of(f), found, 0)
    t.conns[f.conn].frames += 1


@kernel
def overtake(t: Any, row: int) -> None:
    """A response of a request that is not the oldest: brokers answer in order, so the older ones will not be
    answered. If nothing was lost the order was broken, which `answer` notes."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    if not lacks_responses(t, f.conn):
        return
    while conn.first_request != row:
        give_up(t, f.conn, conn.first_request, GAP_REASON)


@kernel
def answer(t: Any, row: int, data: Any) -> None:
    """Make a call of a request and its response."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    room_for_frame(t)
    if t.run[0].pairing < 0:
        pass_early(t, f.conn, -1)
    status = request.status
    facts = t.facts[1]
    clear(t, 1)
    compare(t, f.conn, request.last_time, f.first_time, f.packet, time_of(f))
    bad = 0
    if not f.whole:
        status = TRUNCATED_
    elif request.layout >= 0 or newer(t, row) >= 0:
        if not read_response(t, row, data):
            bad = 1
            if status != TRUNCATED_:
                status = UNDECODED_
        elif facts.error != NONE and facts.error != 0 and (status == OK_ or is_refused(t, row)):
            status = ERROR_
        room_for_damage(t, 1)
    if facts.clean and request.status == OK_ and facts.trailing <= EXTRA:
        conn.proven = 1
    if f.whole and not bad and t.run[0].pairing < 0:
        t.sides[2 * f.conn + f.side].assumed = 0
    reason, offset = facts.code, facts.offset
    shown = is_shown(t, 1) and conn.proven
    tell(t, row, True, status, 0)
    facts.code, facts.offset = reason, offset  # joining forgets what of a response was not decoded
    if conn.first_request != row and not lacks_responses(t, f.conn) and t.run[0].pairing < 0:
        note(t, f.conn, RESPONSE_OUT_OF_ORDER, f.packet, time_of(f), request.correlation_id,
             t.requests[conn.first_request].correlation_id)  # fmt: skip
    if bad:
        conn.undecoded += 1
        if facts.code == -1:
            note(t, f.conn, HEADER_MALFORMED, f.packet, time_of(f), -2, f.size)
        else:
            note_body(t, row, 1, data)
    elif facts.clean and facts.code and request.layout >= 0:
        note_body(t, row, 1, data)
        emitted = t.notes[t.run[0].notes - 1]
        emitted.b, emitted.c = -1, request.key * 65536
    elif facts.clean and facts.trailing:
        note(t, f.conn, TRAILING_BYTES, f.packet, time_of(f), facts.trailing, 1)
    if facts.damaged and request.layout >= 0:
        note_damage(t, facts.rows)
    if shown:
        keep_body(t, data, 1, 1 if request.layout < 0 else 0)
    answered(t, row)


@kernel
def read_response(t: Any, row: int, data: Any) -> bool:
    """Read the body of a whole response into facts 1: whether it could be read."""
    f, request = t.frame[0], t.requests[row]
    pos = f.start + 8
    expected = request.layout if request.layout >= 0 else newer(t, row)
    chosen = downgraded(t, data, pos, f.end, expected)
    layout = t.layouts[chosen]
    if layout.response < 0:
        wants_program(t, chosen)
    if layout.flexible_response:
        pos = after_tags(data, pos, f.end)
        if pos < 0:
            t.facts[1].code = -1
            return request.layout < 0
    f.body, f.layout = pos, chosen
    good = read(t, data, pos, f.end, layout.response, False)
    if not good and chosen != expected:
        unsupported(t)
        return True
    if request.layout < 0 and (not good or t.facts[1].trailing):
        clear(t, 1)  # as with requests: what does not fit to the last byte says nothing
        return True
    return good


@kernel
def is_refused(t: Any, row: int) -> bool:
    """Whether the broker does not know the version either: of a version that nobody knows this answer alone
    is known for certain."""
    return t.requests[row].layout < 0 and t.frame[0].layout != newer(t, row)


@kernel
def answered(t: Any, row: int) -> None:
    """A request waits no more: what its response says of the connection, and what it leaves."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    facts = t.facts[1]
    if conn.in_flight == 1:
        conn.response_gap = conn.unsure = 0
    if facts.clean and request.layout >= 0:
        if t.layouts[request.layout].tokens and facts.error == 0:
            conn.raw_tokens = 1
        if facts.error == 0 and request.software >= 0:
            conn.software, conn.software_version = request.software, request.software_version
        if facts.throttle != NONE and facts.throttle > 0:
            conn.throttled_until = max(conn.throttled_until, time_of(f) + facts.throttle * 1000000)
    ordinary = request.correlation_id < RESERVED
    if ordinary and (conn.answered == UNKNOWN or request.correlation_id > conn.answered):
        conn.answered = request.correlation_id
    conn.response_end = time_of(f)
    conn.frames += 1
    early = t.run[0].pairing >= 0
    decided(t, f.conn, PAIRED_EARLY if early else PAIRED, f.side, request.correlation_id, conn.proven)
    release(t, row)


@kernel
def pair_early(t: Any, row: int) -> None:
    """The request that just came was answered before, as the capture has it."""
    request = t.requests[row]
    c = request.conn
    found = find_early(t, c, request.correlation_id)
    if found < 0:
        return
    pass_early(t, c, found)
    early = t.early[found]
    f = t.frame[0]
    f.conn, f.side = c, 1 - t.conns[c].client
    f.start, f.end, f.size = early.at, early.at + early.have, early.size
    f.first_time, f.last_time, f.packet = early.first_time, early.last_time, early.packet
    f.whole = 1 if early.have == early.size else 0
    f.body = f.start
    room_for_notes(t, NOTES)
    before = early.first_time < request.last_time
    correlation_id = request.correlation_id
    answer(t, row, t.arena)
    t.conns[c].frames -= 1
    if before:
        note(t, c, RESPONSE_BEFORE_REQUEST, early.packet, early.last_time, correlation_id, 0)
    remove_early(t, c, found)


@kernel
def pair_pending(t: Any) -> None:
    """Pair the request that came last with the response that came before it."""
    pair_early(t, t.run[0].pairing)
    t.run[0].pairing = -1


# Responses without request.
#
# A response that comes before any request it could answer waits: packets of the two directions may have been
# captured in another order than they were sent. It is an orphan once a response behind it has found its
# request, since brokers answer in order, or a while has gone by, unless requests wait behind a hole.

MAX_EARLY = 1000
"""Responses without request that a connection may have."""
_append_early, _remove_early = linked("before", "next", "first_early", "last_early")


@kernel
def wait_for_request(t: Any, data: Any, found: int) -> None:
    """Keep a response that no request waits for."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    if conn.early >= MAX_EARLY:
        orphan(t, f.conn, conn.first_early)
    have = f.end - f.start
    room_for_row(t, t.early, EARLY)
    at, row = allocate(t, have), take(t, t.early, EARLY)
    copy(data, f.start, have, t.arena, at)
    early = t.early[row]
    early.correlation_id, early.order = found, t.run[0].order
    early.first_time, early.last_time, early.size, early.packet = f.first_time, f.last_time, f.size, f.packet
    early.at, early.have, early.room = at, have, have
    _append_early(t.early, conn, row)
    conn.early += 1
    conn.frames += 1
    conn.stray_low, conn.stray_high = min(conn.stray_low, found), max(conn.stray_high, found)
    decided(t, f.conn, WAITS_EARLY, f.side, found, 0)


@kernel
def find_early(t: Any, c: int, correlation_id: int) -> int:
    """The response without request that has this id, -1 if there is none."""
    row = t.conns[c].first_early
    while row >= 0:
        t.run[0].steps += 1
        if t.early[row].correlation_id == correlation_id:
            return row
        row = t.early[row].next
    return -1


@kernel
def remove_early(t: Any, c: int, row: int) -> None:
    """Take a response out of those that wait for their requests."""
    early = t.early[row]
    _remove_early(t.early, t.conns[c], row)
    t.conns[c].early -= 1
    free(t, early.at, early.room)
    drop(t, t.early, EARLY, row)


@kernel
def pass_early(t: Any, c: int, last: int) -> None:
    """Give up the responses before `last`, or all if it is -1: a later one found its request, and requests
    come in the order in which brokers answer them."""
    while t.conns[c].first_early != last:
        orphan(t, c, t.conns[c].first_early)


@kernel
def expire_early(t: Any, c: int, now: int) -> None:
    """Give up responses that waited too long for their requests, unless requests wait behind a hole."""
    conn = t.conns[c]
    if conn.client >= 0 and t.sides[2 * c + conn.client].waiting and conn.early <= MAX_EARLY:
        return
    if not conn.proven:
        return  # they are told if the connection proves to be Kafka
    limits = t.limits[0]
    # Where no response came after its request yet, the clocks of the two directions may differ.
    unsure = conn.skewed or conn.answered == UNKNOWN
    limit = now - (max(limits.hole_time, limits.orphan_time) if unsure else limits.orphan_time)
    while conn.first_early >= 0 and time_of(t.early[conn.first_early]) < limit:
        orphan(t, c, conn.first_early)


@kernel
def orphan(t: Any, c: int, row: int) -> None:
    """Report a response whose request does not come any more."""
    run = t.run[0]
    if not t.conns[c].proven or is_chance(t, c, t.early[row].correlation_id):
        decided(t, c, DROPPED, 0, t.early[row].correlation_id, t.conns[c].proven)
        remove_early(t, c, row)
        return
    room_for_call(t)
    early, call = t.early[row], t.calls[run.calls]
    blank(t, call, c)
    call.correlation_id = early.correlation_id
    call.response_first, call.response_last = early.first_time, early.last_time
    call.response_size, call.response_packet = early.size, early.packet
    call.status = ORPHAN_
    run.calls += 1
    decided(t, c, ORPHANED, 0, early.correlation_id, 0)
    remove_early(t, c, row)


@kernel
def is_chance(t: Any, c: int, found: int) -> bool:
    """Whether what was taken for a response, where framing was searched for, has a correlation id that is far
    from those of the client's requests: other bytes looked like one."""
    conn = t.conns[c]
    latest = t.sides[2 * c + conn.client].latest
    broker = t.sides[2 * c + 1 - conn.client]
    searched = broker.resynchronised > 0 or not broker.from_start
    return searched and latest != UNKNOWN and not -AHEAD <= found - latest <= AHEAD
