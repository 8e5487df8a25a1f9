"""Bytes of a stream that are kept in the arena: those of the frame in progress, or of what is searched; those
held until the connection is judged; and those delivered last."""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import allocate, block_size, copy, drop_piece, release, room_for_row, take_piece
from kwsniff.engine.notes import note
from kwsniff.engine.numbers import OVERLAP_DIFFERS
from kwsniff.engine.tables import PIECES
from kwsniff.engine.texts import same
from kwsniff.engine.trace import HELD, decided
from kwsniff.native.mode import kernel


@kernel
def empty_buffer(t: Any, s: Any) -> None:
    """Let go of the bytes of the frame in progress, or of what was searched."""
    if s.buf >= 0:
        release(t, s.block, s.block_room)
    s.buf, s.room, s.have, s.searched, s.hope = -1, 0, 0, 0, 0
    s.block_room = 0


@kernel
def append(t: Any, s: Any, data: Any, pos: int, size: int) -> None:
    """Add bytes to the buffer of a side."""
    have_room(t, s, size)
    copy(t.arena, s.buf + s.have, data, pos, size)
    s.have += size


@kernel
def have_room(t: Any, s: Any, size: int) -> None:
    """See that the buffer of a side has room for so many bytes more."""
    if s.have + size > s.room:
        # What is emptied at its front as it grows at its end is not moved each time.
        spare = s.have >> 1 if s.buf > s.block else 0
        room = block_size(s.have + size + spare)
        at = allocate(t, room)
        if s.buf >= 0:
            copy(t.arena, at, t.arena, s.buf, s.have)
            release(t, s.block, s.block_room)
        s.buf, s.room = at, room
        s.block, s.block_room = at, room


@kernel
def drop_front(t: Any, s: Any, count: int) -> None:
    """Forget the first bytes of the buffer."""
    if count >= s.have:
        empty_buffer(t, s)
    elif count > 0:
        s.buf += count
        s.room -= count
        s.have -= count
        s.searched = max(s.searched - count, 0)


@kernel
def came(t: Any, s: Any, first: bool) -> None:
    """Note the packet that brought bytes of the frame in progress."""
    item = t.item[0]
    if first:
        s.first_time = item.time
        s.frame_order = -1
    if item.order >= s.frame_order:
        s.frame_order, s.frame_time, s.frame_packet = item.order, item.time, item.packet


# What both streams deliver before it is known what they carry: it is held.


@kernel
def hold(t: Any, c: int, k: int, data: Any) -> None:
    """Keep the item at hand of a stream that is not judged."""
    conn, s, item = t.conns[c], t.sides[2 * c + k], t.item[0]
    size = item.size
    room_for_row(t, t.pieces, PIECES)
    if size and not s.broken:
        have_room(t, s, size)
    at = allocate(t, size) if size else -1
    if size:
        copy(t.arena, at, data, item.pos, size)
        if not s.broken:
            append(t, s, data, item.pos, size)
    row = take_piece(t)
    piece = t.pieces[row]
    piece.next, piece.side, piece.gap = -1, k, 0
    piece.start, piece.end, piece.at, piece.size = 0, item.length, at, size
    piece.time, piece.packet, piece.order = item.time, item.packet, item.order
    if size < item.length:
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


# What was delivered last, kept to compare retransmissions with.

COPY = 512
"""Of a segment's `flags`, see `kwsniff.net.segments`."""
HISTORY = 2048
"""Bytes of the latest segment kept to compare retransmissions with."""


@kernel
def room_for_history(t: Any, s: Any, size: int, length: int) -> None:
    """See that there is room for what `remember` keeps."""
    if size < length or size == 0:
        return
    kept = block_size(min(size, HISTORY))
    if s.history_at >= 0 and s.history_room >= kept:
        return
    at = allocate(t, kept)
    if s.history_at >= 0:
        copy(t.arena, at, t.arena, s.history_at, s.history)
        release(t, s.history_at, s.history_room)
    s.history_at, s.history_room = at, kept


@kernel
def remember(t: Any, s: Any, data: Any, pos: int, size: int, length: int) -> None:
    """Keep the end of the latest segment, to compare retransmissions with; that there is room was seen to."""
    if size < length or size == 0:
        s.history = 0
        return
    kept = min(size, HISTORY)
    copy(t.arena, s.history_at, data, pos + size - kept, kept)
    s.history = kept


@kernel
def forget_latest(t: Any, s: Any) -> None:
    """Keep nothing of the latest segment of a side: retransmissions of it are taken to be the same."""
    if s.history_at >= 0:
        release(t, s.history_at, s.history_room)
    s.history, s.history_at, s.history_room = 0, -1, 0


@kernel
def note_overlap(t: Any, c: int, packet: int) -> None:
    """A retransmission carries other bytes than the first copy; that there is room was seen to."""
    note(t, c, OVERLAP_DIFFERS, packet, t.conns[c].last_time, 0, 0)


@kernel
def seen_before(t: Any, c: int, k: int, start: int, data: Any, seg: Any) -> None:
    """Compare what of a segment, whose offset is `start`, was delivered already with the first copy, as far
    as that is kept."""
    s = t.sides[2 * c + k]
    end = start + seg.length
    s.retransmitted += min(end, s.offset) - start
    if end == s.offset and end - start == 1:
        return  # a keep-alive repeats the last byte, with whatever value (RFC 9293, 3.8.4)
    if seg.flags & COPY == 0:
        s.again += 1
    first = max(start, s.offset - s.history)
    last = min(start + seg.captured, s.offset)
    if first < last and not same(
        data, seg.start + first - start, t.arena, s.history_at + first - (s.offset - s.history), last - first
    ):
        note_overlap(t, c, seg.packet)
