"""Keeping within the limits of the run: giving up what takes most."""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import allocate, empty_buffer, forget_latest, free
from kwsniff.engine.connections import OPEN
from kwsniff.engine.leaving import lacks_responses
from kwsniff.engine.notes import BUFFER_LIMIT, LIMITED, OUTSTANDING_LIMIT, decided, note_now, room_for_notes
from kwsniff.engine.outcomes import give_up
from kwsniff.engine.responses import orphan
from kwsniff.engine.roles import judge
from kwsniff.engine.streams import flush, replay
from kwsniff.engine.tables import GAP_REASON, KAFKA, LIMIT_REASON, PIECES, PROBING, TLS
from kwsniff.native.mode import kernel
from kwsniff.native.octets import copy

BUFFERS, IN_FLIGHT = 1, 2
"""What is given up, in `run.giving`."""
LITTLE = 3072
"""Bytes of one connection that are not worth giving up: beginnings of broken frames."""
WORDS = 64
"""Words of topics and partitions that take about as much room as a request does."""
PIECE = 128
"""Bytes that a piece takes beside its own: a row of `pieces`."""
KEPT = 1024
"""Bytes of a frame kept for its header when the rest is let go."""


@kernel
def buffered(t: Any, c: int) -> int:
    """Bytes held for a connection, about."""
    a, b = t.sides[2 * c], t.sides[2 * c + 1]
    return (
        a.block_room
        + b.block_room
        + a.waiting_bytes
        + b.waiting_bytes
        + 2 * t.conns[c].held_bytes
        + PIECE * t.conns[c].held
        + early_bytes(t, c)
    )


@kernel
def in_use(t: Any) -> int:
    """Bytes of the arena in use, and of the pieces that lie there."""
    return t.run[0].arena_live + PIECE * t.pools[PIECES].live


@kernel
def early_bytes(t: Any, c: int) -> int:
    """Bytes of the responses without request."""
    found, row = 0, t.conns[c].first_early
    while row >= 0:
        found += t.early[row].room
        row = t.early[row].next
    return found


@kernel
def keep_within_limits(t: Any) -> None:
    """After each segment: give up what is more than the run may hold, half of it at once. Giving up goes over
    all connections, first those that hold much, then those that hold half of that, and so on."""
    run, limits = t.run[0], t.limits[0]
    held = in_use(t)
    run.most_bytes = max(run.most_bytes, held)
    run.most_waiting = max(run.most_waiting, outstanding(t))
    run.most_followed = max(run.most_followed, run.followed)
    if run.giving == 0:
        if held > max(limits.max_buffered_bytes, run.floor + (run.floor >> 2)):
            run.limited = 1
            held = forget_latest_segments(t)
            if held <= limits.max_buffered_bytes // 4 * 3:
                return
            run.giving, run.goal, run.least = BUFFERS, limits.max_buffered_bytes // 2, held // 2
        elif outstanding(t) > limits.max_outstanding_total:
            run.giving, run.goal, run.least = IN_FLIGHT, limits.max_outstanding_total // 2, run.waiting // 2
        else:
            return
        run.giver, run.limited = run.oldest, 1
    while run.least > 0:
        while run.giver >= 0:
            begun = t.conns[run.giver].giving  # a table was full in the middle of it
            if now_held(t, run.giving) <= run.goal and not begun:
                run.least = 0
                break
            run.steps += 1
            give_up_some(t, run.giver)
            run.giver = t.conns[run.giver].newer
        run.least >>= 1
        run.giver = run.oldest
    run.floor = in_use(t) if run.giving == BUFFERS and in_use(t) > run.goal else 0
    run.giving, run.giver = 0, -1


@kernel
def forget_latest_segments(t: Any) -> int:
    """Before anything is lost: give up what only retransmissions are compared with, until half of what may be
    held is left. The bytes that are held then."""
    run, c = t.run[0], t.run[0].oldest
    while c >= 0 and in_use(t) > t.limits[0].max_buffered_bytes // 2:
        run.steps += 1
        forget_latest(t, t.sides[2 * c])
        forget_latest(t, t.sides[2 * c + 1])
        c = t.conns[c].newer
    return in_use(t)


@kernel
def now_held(t: Any, giving: int) -> int:
    """Bytes that are held, or requests in flight."""
    return in_use(t) if giving == BUFFERS else outstanding(t)


@kernel
def outstanding(t: Any) -> int:
    """Requests in flight, and what they name by the room that it takes."""
    return t.run[0].waiting + t.store[0].words_live // WORDS + t.store[0].named


@kernel
def give_up_some(t: Any, c: int) -> None:
    """Give up what one connection holds if that is much."""
    run, conn = t.run[0], t.conns[c]
    if run.giving == BUFFERS:
        held = buffered(t, c) if conn.step == OPEN else 0
        if conn.giving or held >= max(run.least, LITTLE):
            let_go(t, c, held)
        return
    if not conn.giving:
        if conn.in_flight < run.least or conn.in_flight == 0:
            return
        room_for_notes(t, 1)
        note_now(t, c, OUTSTANDING_LIMIT, conn.in_flight, 1)
        decided(t, c, LIMITED, 0, conn.in_flight, IN_FLIGHT)
        conn.giving = 1
    while conn.first_request >= 0:
        give_up(t, c, conn.first_request, GAP_REASON if lacks_responses(t, c) else LIMIT_REASON)
    conn.giving = 0


@kernel
def let_go(t: Any, c: int, held: int) -> None:
    """Give up holes and the bytes of frames in progress of one connection."""
    conn = t.conns[c]
    if conn.giving == 0:
        room_for_notes(t, 1)
        note_now(t, c, BUFFER_LIMIT, held, 0)
        decided(t, c, LIMITED, 0, held, BUFFERS)
        conn.giving = 1
    for k in range(2):
        flush(t, c, k)
    if conn.state == PROBING:
        judge(t, c, True)
        replay(t, c)
    if conn.state == KAFKA:
        for k in range(2):
            s = t.sides[2 * c + k]
            if s.size > 0:
                s.broken = 1
                shrink(t, s)
            elif s.have > 8:
                s.skipped += s.have
                empty_buffer(t, s)
    if conn.state == TLS:
        for k in range(2):
            s = t.sides[2 * c + k]
            if s.size > 0:
                s.broken = max(s.broken, 1)
                empty_buffer(t, s)
    while conn.first_early >= 0:
        orphan(t, c, conn.first_early)
    conn.giving = 0


@kernel
def shrink(t: Any, s: Any) -> None:
    """Keep only the beginning of the frame in progress."""
    if s.have <= KEPT:
        return
    at = allocate(t, KEPT)
    copy(t.arena, s.buf, KEPT, t.arena, at)
    free(t, s.block, s.block_room)
    s.buf, s.room, s.have = at, KEPT, KEPT
    s.block, s.block_room = at, KEPT
