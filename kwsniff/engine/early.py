"""Responses without request.

Theory of operation. A response that comes before any request it could answer waits: packets of the two
directions may have been captured in another order than they were sent. It is an orphan once a response behind
it has found its request, since brokers answer in order, or a while has gone by, unless requests wait behind a
hole.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import allocate, copy, drop_early, release, room_for_row, take_early
from kwsniff.engine.headers import AHEAD
from kwsniff.engine.outcomes import blank, room_for_call, time_of
from kwsniff.engine.tables import EARLY, ORPHAN_, UNKNOWN
from kwsniff.engine.trace import DROPPED, ORPHANED, WAITS_EARLY, decided
from kwsniff.native.mode import kernel

MAX_EARLY = 1000
"""Responses without request that a connection may have."""


@kernel
def wait_for_request(t: Any, data: Any, found: int) -> None:
    """Keep a response that no request waits for."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    if conn.early >= MAX_EARLY:
        orphan(t, f.conn, conn.first_early)
    have = f.end - f.start
    room_for_row(t, t.early, EARLY)
    at, row = allocate(t, have), take_early(t)
    copy(t.arena, at, data, f.start, have)
    early = t.early[row]
    early.correlation_id, early.order = found, t.run[0].order
    early.first_time, early.last_time, early.size, early.packet = f.first_time, f.last_time, f.size, f.packet
    early.at, early.have, early.room, early.next, early.before = at, have, have, -1, conn.last_early
    if conn.last_early >= 0:
        t.early[conn.last_early].next = row
    else:
        conn.first_early = row
    conn.last_early = row
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
    conn = t.conns[c]
    early = t.early[row]
    if early.before >= 0:
        t.early[early.before].next = early.next
    else:
        conn.first_early = early.next
    if early.next >= 0:
        t.early[early.next].before = early.before
    else:
        conn.last_early = early.before
    conn.early -= 1
    release(t, early.at, early.room)
    drop_early(t, row)


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
