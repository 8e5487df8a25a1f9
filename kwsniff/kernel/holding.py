"""What both streams deliver before it is known what they carry: it is held."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import allocate, copy, release
from kwsniff.kernel.buffer import append, drop_front, empty_buffer
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK
from kwsniff.kernel.pools import drop_piece, take_piece
from kwsniff.kernel.trace import HELD, decided


@kernel
def hold(
    t: Any, c: int, k: int, data: Any, pos: int, size: int, length: int, time: int, packet: int, order: int
) -> int:
    """Keep an item of a stream that is not judged: `size` bytes of `length`, the rest is missing."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    row = take_piece(t)
    if row < 0:
        return FULL
    at = -1
    if size:
        at = allocate(t, size)
        if at < 0:
            drop_piece(t, row)
            return FULL
        if not s.broken and append(t, s, data, pos, size) != OK:
            release(t, at, size)
            drop_piece(t, row)
            return FULL
        copy(t.arena, at, data, pos, size)
    piece = t.pieces[row]
    piece.next, piece.side, piece.gap = -1, k, 0
    piece.start, piece.end, piece.at, piece.size = 0, length, at, size
    piece.time, piece.packet, piece.order = time, packet, order
    if size < length:
        if s.have == 0:
            s.from_start = 0
        else:
            s.broken = 1
    if conn.held_last >= 0:
        t.pieces[conn.held_last].next = row
    else:
        conn.held_first = row
    conn.held_last = row
    conn.held += 1
    conn.held_bytes += size
    decided(t, c, HELD, k, conn.held_bytes, 0)
    return OK


@kernel
def let_go(t: Any, c: int) -> None:
    """Forget what is held."""
    conn = t.conns[c]
    while conn.held_first >= 0:
        row = conn.held_first
        piece = t.pieces[row]
        t.sides[2 * c + piece.side].skipped += piece.size
        pop_held(t, c)
    for k in range(2):
        s = t.sides[2 * c + k]
        empty_buffer(t, s)
        s.broken = s.from_start = 0


@kernel
def pop_held(t: Any, c: int) -> None:
    """Forget the first piece that is held."""
    conn = t.conns[c]
    row = conn.held_first
    piece = t.pieces[row]
    conn.held_first = piece.next
    if piece.next < 0:
        conn.held_last = -1
    conn.held -= 1
    conn.held_bytes -= piece.size
    if piece.at >= 0:
        release(t, piece.at, piece.size)
    drop_piece(t, row)


@kernel
def let_go_half(t: Any, c: int) -> None:
    """Forget the older half of what is held; all of it, if bytes are missing in between."""
    conn = t.conns[c]
    if t.sides[2 * c].broken or t.sides[2 * c + 1].broken:
        let_go(t, c)
        return
    while conn.held_first >= 0 and 2 * conn.held_bytes > t.limits[0].detect_bytes:
        piece = t.pieces[conn.held_first]
        s = t.sides[2 * c + piece.side]
        s.skipped += piece.size
        s.from_start = 0
        drop_front(t, s, piece.size)
        pop_held(t, c)
