"""Requests that were taken out of a segment that had no place in its stream: their correlation ids.

An undamaged copy of the segment may come later, in its place; then they are passed over.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK
from kwsniff.kernel.pools import drop_piece, take_piece

MAX_ASIDE = 64
"""How many are remembered of a connection."""


@kernel
def remember(t: Any, c: int, found: int) -> int:
    """Remember a correlation id: OK or FULL. Called again with the same, it does nothing."""
    conn = t.conns[c]
    if conn.misplaced_last >= 0 and t.pieces[conn.misplaced_last].start == found:
        return OK
    row = take_piece(t)
    if row < 0:
        return FULL
    piece = t.pieces[row]
    piece.start, piece.next, piece.at, piece.size = found, -1, -1, 0
    if conn.misplaced_last >= 0:
        t.pieces[conn.misplaced_last].next = row
    else:
        conn.misplaced_first = row
    conn.misplaced_last = row
    conn.misplaced += 1
    if conn.misplaced > MAX_ASIDE:
        drop_first(t, c)
    return OK


@kernel
def drop_first(t: Any, c: int) -> None:
    """Forget the one that is remembered longest."""
    conn = t.conns[c]
    row = conn.misplaced_first
    conn.misplaced_first = t.pieces[row].next
    if conn.misplaced_first < 0:
        conn.misplaced_last = -1
    conn.misplaced -= 1
    drop_piece(t, row)


@kernel
def is_misplaced(t: Any, c: int, found: int) -> bool:
    """Whether a request was taken already."""
    row = t.conns[c].misplaced_first
    while row >= 0:
        if t.pieces[row].start == found:
            return True
        row = t.pieces[row].next
    return False


@kernel
def pass_by(t: Any, c: int, found: int) -> None:
    """A request was taken in its place: none that was sent before it is still to come."""
    conn = t.conns[c]
    while conn.misplaced_first >= 0 and t.pieces[conn.misplaced_first].start <= found:
        drop_first(t, c)


@kernel
def forget_all(t: Any, c: int) -> None:
    """Forget all."""
    while t.conns[c].misplaced_first >= 0:
        drop_first(t, c)
