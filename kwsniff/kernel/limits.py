"""Keeping within the limits of the run: giving up what takes most."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import allocate, copy, release
from kwsniff.kernel.codes import BUFFER_LIMIT, OUTSTANDING_LIMIT
from kwsniff.kernel.connections import OPEN
from kwsniff.kernel.conversation import give_up, orphan
from kwsniff.kernel.frames import empty_buffer
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK
from kwsniff.kernel.roles import judge
from kwsniff.kernel.rows import note_now, room_for_notes
from kwsniff.kernel.streams import flush, replay
from kwsniff.kernel.tables import GAP_REASON, KAFKA, LIMIT_REASON, PROBING

KEPT = 1024
"""Bytes of a frame kept for its header when the rest is let go."""


@kernel
def buffered(t: Any, c: int) -> int:
    """Bytes held for a connection, about."""
    a, b = t.sides[2 * c], t.sides[2 * c + 1]
    return a.room + b.room + a.waiting_bytes + b.waiting_bytes + 2 * t.conns[c].held_bytes + early_bytes(t, c)


@kernel
def early_bytes(t: Any, c: int) -> int:
    """Bytes of the responses without request."""
    found, row = 0, t.conns[c].first_early
    while row >= 0:
        found += t.early[row].room
        row = t.early[row].next
    return found


@kernel
def give_up_buffers(t: Any, goal: int) -> int:
    """Let go of what the connections hold that hold most, until no more than `goal` bytes of the arena are in
    use."""
    run = t.run[0]
    while run.arena_live > goal:
        most, worst = 0, -1
        c = run.quiet_first
        while c >= 0:
            held = buffered(t, c) if t.conns[c].step == OPEN else 0
            if held > most:
                most, worst = held, c
            c = t.conns[c].silent_after
        if worst < 0 or most <= 2 * KEPT + 128:
            return OK
        code = let_go(t, worst, most)
        if code != OK:
            return code
    return OK


@kernel
def let_go(t: Any, c: int, held: int) -> int:
    """Give up holes and the bytes of frames in progress of one connection."""
    conn = t.conns[c]
    if conn.giving == 0:
        if room_for_notes(t, 1) != OK:
            return FULL
        note_now(t, c, BUFFER_LIMIT, held, 0)
        conn.giving = 1
    for k in range(2):
        code = flush(t, c, k)
        if code != OK:
            return code
    if conn.state == PROBING:
        code = judge(t, c, True)
        if code != OK:
            return code
        code = replay(t, c)
        if code != OK:
            return code
    if conn.state == KAFKA:
        for k in range(2):
            s = t.sides[2 * c + k]
            if s.size > 0:
                s.broken = 1
                shrink(t, s)
            elif s.have > 8:
                s.skipped += s.have
                empty_buffer(t, s)
    while conn.first_early >= 0:
        code = orphan(t, c, conn.first_early)
        if code != OK:
            return code
    conn.giving = 0
    return OK


@kernel
def shrink(t: Any, s: Any) -> None:
    """Keep only the beginning of the frame in progress."""
    if s.have <= KEPT:
        return
    at = allocate(t, KEPT)
    if at >= 0:
        copy(t.arena, at, t.arena, s.buf, KEPT)
        release(t, s.buf, s.room)
        s.buf, s.room, s.have = at, KEPT, KEPT


@kernel
def give_up_requests(t: Any, goal: int) -> int:
    """Give up the requests of the connections that have most of them, until no more than `goal` wait."""
    run = t.run[0]
    while run.waiting > goal:
        most, worst = 0, -1
        c = run.quiet_first
        while c >= 0:
            if t.conns[c].in_flight > most:
                most, worst = t.conns[c].in_flight, c
            c = t.conns[c].silent_after
        if worst < 0:
            return OK
        conn = t.conns[worst]
        if room_for_notes(t, 1) != OK:
            return FULL
        if conn.giving == 0:
            note_now(t, worst, OUTSTANDING_LIMIT, most, 1)
            conn.giving = 1
        while conn.first_request >= 0:
            code = give_up(t, worst, conn.first_request, GAP_REASON if conn.response_gap else LIMIT_REASON)
            if code != OK:
                return code
        conn.giving = 0
    return OK
