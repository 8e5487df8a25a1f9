"""Rows of pools, lists of them, and rows that are told: taking, giving back, appending."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK
from kwsniff.kernel.tables import PROBING, WANTS

MAX_UNTOLD = 100
"""Anomalies that wait until it is known who the client is."""
WANT_CONNS, WANT_PIECES, WANT_REQUESTS, WANT_EARLY = range(4)
WANT_CALLS, WANT_NOTES, WANT_ENDS, WANT_KEEP, WANT_BODIES, WANT_BODY_DATA = range(5, 11)
WANT_DECISIONS = WANTS.index("decisions")


@kernel
def lacks(t: Any, want: int, room: int) -> int:
    """Say which table lacks how much room."""
    t.run[0].want, t.run[0].room = want, room
    return FULL


@kernel
def take_piece(t: Any) -> int:
    """A free row of `pieces`, -1 if there is none."""
    run = t.run[0]
    row = run.pieces_free
    if row >= 0:
        run.pieces_free = t.pieces[row].next
        run.pieces_live += 1
        return row
    if run.pieces_used >= len(t.pieces):
        run.want, run.room = WANT_PIECES, 1
        return -1
    row = run.pieces_used
    run.pieces_used += 1
    run.pieces_live += 1
    return row


@kernel
def drop_piece(t: Any, row: int) -> None:
    """Give a row of `pieces` back."""
    t.pieces[row].next = t.run[0].pieces_free
    t.run[0].pieces_free = row
    t.run[0].pieces_live -= 1


@kernel
def take_request(t: Any) -> int:
    """A free row of `requests`, -1 if there is none."""
    run = t.run[0]
    row = run.requests_free
    if row >= 0:
        run.requests_free = t.requests[row].next
        return row
    if run.requests_used >= len(t.requests):
        run.want, run.room = WANT_REQUESTS, 1
        return -1
    row = run.requests_used
    run.requests_used += 1
    return row


@kernel
def drop_request(t: Any, row: int) -> None:
    """Give a row of `requests` back."""
    t.run[0].bodies_waiting -= t.requests[row].shown
    t.requests[row].shown = 0
    t.requests[row].conn = -1
    t.requests[row].next = t.run[0].requests_free
    t.run[0].requests_free = row


@kernel
def take_early(t: Any) -> int:
    """A free row of `early`, -1 if there is none."""
    run = t.run[0]
    row = run.early_free
    if row >= 0:
        run.early_free = t.early[row].next
        return row
    if run.early_used >= len(t.early):
        run.want, run.room = WANT_EARLY, 1
        return -1
    row = run.early_used
    run.early_used += 1
    return row


@kernel
def drop_early(t: Any, row: int) -> None:
    """Give a row of `early` back."""
    t.early[row].next = t.run[0].early_free
    t.run[0].early_free = row


@kernel
def room_for_notes(t: Any, count: int) -> int:
    """OK if so many notes can be added, or can wait, else FULL."""
    if t.run[0].notes + count > len(t.notes):
        return lacks(t, WANT_NOTES, count)
    if t.run[0].pieces_live + count > len(t.pieces):
        return lacks(t, WANT_PIECES, count)
    return OK


@kernel
def note(t: Any, c: int, code: int, packet: int, time: int, a: int, b: int) -> None:
    """Add an anomaly of a connection; that there is room has been seen to. While it is not known who the
    client is, it waits: its row names the client."""
    if t.conns[c].state == PROBING and t.conns[c].untold < MAX_UNTOLD:
        at = take_piece(t)
        if at >= 0:
            keep_note(t, c, at, code, packet, time, a, b)
            return
    add_note(t, c, code, packet, time, a, b)


@kernel
def add_note(t: Any, c: int, code: int, packet: int, time: int, a: int, b: int) -> None:
    """Add a row of `notes`."""
    run = t.run[0]
    row = t.notes[run.notes]
    run.notes += 1
    row.order, row.conn, row.number = run.order, c, t.conns[c].number
    row.client = t.conns[c].client
    row.code, row.packet, row.time = code, packet, time
    row.a, row.b, row.c = a, b, 0
    row.at, row.size = 0, 0
    row.rank, row.left = run.rank, t.conns[c].left


@kernel
def keep_note(t: Any, c: int, at: int, code: int, packet: int, time: int, a: int, b: int) -> None:
    """Let an anomaly wait, in a row of `pieces`."""
    conn, piece = t.conns[c], t.pieces[at]
    piece.start, piece.packet, piece.time, piece.end, piece.side, piece.next = code, packet, time, a, b, -1
    if conn.untold_last >= 0:
        t.pieces[conn.untold_last].next = at
    else:
        conn.untold_first = at
    conn.untold_last = at
    conn.untold += 1


@kernel
def tell_notes(t: Any, c: int) -> None:
    """Add the anomalies that waited; that there is room has been seen to."""
    conn = t.conns[c]
    while conn.untold_first >= 0:
        at = conn.untold_first
        piece = t.pieces[at]
        add_note(t, c, piece.start, piece.packet, piece.time, piece.end, piece.side)
        conn.untold_first = piece.next
        drop_piece(t, at)
    conn.untold_last, conn.untold = -1, 0


@kernel
def note_now(t: Any, c: int, code: int, a: int, b: int) -> None:
    """Add an anomaly of a connection at its latest packet."""
    note(t, c, code, t.conns[c].last_packet, t.conns[c].last_time, a, b)
