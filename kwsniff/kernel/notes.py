"""Rows of `notes`, and anomalies that wait until it is known who the client is."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import OK
from kwsniff.kernel.pools import drop_piece, take_piece
from kwsniff.kernel.room import WANT_NOTES, lacks
from kwsniff.kernel.tables import PIECES, PROBING

MAX_PENDING = 100
"""Anomalies that wait until it is known who the client is."""


@kernel
def room_for_notes(t: Any, count: int) -> int:
    """OK if so many notes can be added, or can wait, else FULL."""
    if t.run[0].notes + count > len(t.notes):
        return lacks(t, WANT_NOTES, count)
    if t.pools[PIECES].live + count > len(t.pieces):
        return lacks(t, PIECES, count)
    return OK


@kernel
def note(t: Any, c: int, code: int, packet: int, time: int, a: int, b: int) -> None:
    """Add an anomaly of a connection; that there is room has been seen to. While it is not known who the
    client is, it waits: its row names the client."""
    if t.conns[c].state == PROBING and t.conns[c].pending_notes < MAX_PENDING:
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
    if conn.pending_last >= 0:
        t.pieces[conn.pending_last].next = at
    else:
        conn.pending_first = at
    conn.pending_last = at
    conn.pending_notes += 1


@kernel
def release_notes(t: Any, c: int) -> None:
    """Add the anomalies that waited; that there is room has been seen to."""
    conn = t.conns[c]
    while conn.pending_first >= 0:
        at = conn.pending_first
        piece = t.pieces[at]
        add_note(t, c, piece.start, piece.packet, piece.time, piece.end, piece.side)
        conn.pending_first = piece.next
        drop_piece(t, at)
    conn.pending_last, conn.pending_notes = -1, 0


@kernel
def note_now(t: Any, c: int, code: int, a: int, b: int) -> None:
    """Add an anomaly of a connection at its latest packet."""
    note(t, c, code, t.conns[c].last_packet, t.conns[c].last_time, a, b)
