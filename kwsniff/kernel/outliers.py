"""A segment far ahead of its stream, which is not believed before another lies beside it."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import allocate, copy, release
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK
from kwsniff.kernel.pools import drop_piece, take_piece
from kwsniff.kernel.streams import FAR, insert


@kernel
def is_near(t: Any, s: Any, start: int) -> bool:
    """Whether a segment far ahead lies beside one that waits."""
    return s.wait_last >= 0 and -FAR <= start - t.pieces[s.wait_last].end <= FAR


@kernel
def keep_far(
    t: Any, c: int, k: int, start: int, end: int, data: Any, pos: int, size: int, time: int, packet: int,
    order: int,
) -> int:  # fmt: skip
    """A segment far ahead is believed once another lies beside it. One alone may have a damaged sequence
    number, and following it would make all that comes after it look like old bytes."""
    s = t.sides[2 * c + k]
    if s.far >= 0:
        far = t.pieces[s.far]
        if far.start >= s.offset and -FAR <= start - far.end <= FAR:
            code = OK
            if not far.gap:
                code = insert(
                    t, c, k, far.start, far.end, t.arena, far.at, far.size, far.time, far.packet, far.order
                )
            if code == OK:
                far.gap = 1  # it stands there, should there be no room for the other
                code = insert(t, c, k, start, end, data, pos, size, time, packet, order)
            if code == OK:
                drop_far(t, s)
            return code
    at = -1
    if size:
        at = allocate(t, size)
        if at < 0:
            return FULL
    row = take_piece(t)
    if row < 0:
        if at >= 0:
            release(t, at, size)
        return FULL
    if s.far >= 0:
        drop_far(t, s)
    if size:
        copy(t.arena, at, data, pos, size)
    piece = t.pieces[row]
    piece.start, piece.end, piece.at, piece.size, piece.gap, piece.side = start, end, at, size, 0, k
    piece.time, piece.packet, piece.order, piece.next = time, packet, order, -1
    s.far = row
    return OK


@kernel
def drop_far(t: Any, s: Any) -> None:
    """Forget the segment that is too far ahead."""
    piece = t.pieces[s.far]
    if piece.at >= 0:
        release(t, piece.at, piece.size)
    drop_piece(t, s.far)
    s.far = -1
