"""Room for bytes that outlive their block: unfinished frames, what waits behind a hole or for a verdict, and
what was delivered last. And room for rows, which are taken and given back (see POOLS).

Theory of operation. Blocks have sizes that are powers of two, from 64 bytes on. A free block holds, in its
first eight bytes, where the next free one of its size is; `bins` says where the first is. What no free block
serves is taken from the end. When the arena is full the driver makes it larger and calls again.

Invariant: positions stay valid when the arena grows.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kwsniff.engine.tables import FULL, PIECES, REQUESTS, WANTS, stop
from kwsniff.native.mode import inlined, int64_at, kernel, uintp
from kwsniff.native.octets import copy

LEAST = 6
"""The smallest block has 2 ** LEAST bytes."""
BINS = 40


@kernel
def block_size(size: int) -> int:
    """Bytes of the block that holds `size` bytes."""
    block = 1 << LEAST
    while block < size:
        block <<= 1
    return block


@kernel
def bin_of(size: int) -> int:
    """Number of the list that has blocks for `size` bytes."""
    number, block = 0, 1 << LEAST
    while block < size:
        block <<= 1
        number += 1
    return number


@kernel
def allocate(t: Any, size: int) -> int:
    """Where a new block for `size` bytes begins. Stops if there is no room, and then nothing was changed."""
    run = t.run[0]
    number, block = bin_of(size), block_size(size)
    first = t.bins[number].first
    if first >= 0:
        t.bins[number].first = int64_at(t.arena, first)
        run.arena_live += block
        return first
    if run.arena_used + block > len(t.arena):
        lacks(t, WANT_ARENA, block)
    at = run.arena_used
    run.arena_used += block
    run.arena_live += block
    return at


@kernel
def free(t: Any, at: int, size: int) -> None:
    """Give back the block at `at` that was taken for `size` bytes."""
    run = t.run[0]
    number = bin_of(size)
    run.arena_live -= block_size(size)
    if run.arena_live == 0:
        run.arena_used = 0
        for each in range(BINS):
            t.bins[each].first = -1
        return
    following = t.bins[number].first
    for index in range(8):
        t.arena[uintp(at + 7 - index)] = (following >> (8 * index)) & 0xFF
    t.bins[number].first = at


# Pools: tables whose rows are taken and given back. There are four, see POOLS.
#
# A row that was given back stands in a list, by `next`, and is the first to be taken again.


@inlined
def take(t: Any, rows: Any, pool: int) -> int:
    """A free row of a pool, the table of which is `rows`."""
    row, free = next_row(t, rows, pool), t.pools[pool]
    if free.first >= 0:
        free.first = rows[row].next
    else:
        free.used += 1
    free.live += 1
    return row


@inlined
def next_row(t: Any, rows: Any, pool: int) -> int:
    """The row that will be taken next."""
    room_for_row(t, rows, pool)
    free = t.pools[pool]
    return free.first if free.first >= 0 else free.used


@inlined
def room_for_row(t: Any, rows: Any, pool: int) -> None:
    """Stop if no row of a pool is free."""
    if t.pools[pool].live >= len(rows):
        lacks(t, pool, 1)


@inlined
def drop(t: Any, rows: Any, pool: int, row: int) -> None:
    """Give a row of a pool back."""
    free = t.pools[pool]
    rows[row].next = free.first
    free.first = row
    free.live -= 1


@kernel
def take_piece(t: Any) -> int:
    """A free row of `pieces`."""
    return take(t, t.pieces, PIECES)


@kernel
def drop_piece(t: Any, row: int) -> None:
    """Give a row of `pieces` back."""
    drop(t, t.pieces, PIECES, row)


@kernel
def drop_request(t: Any, row: int) -> None:
    """Give a row of `requests` back."""
    t.run[0].bodies_waiting -= t.requests[row].shown
    t.requests[row].shown = 0
    t.requests[row].conn = -1
    drop(t, t.requests, REQUESTS, row)


# Bytes at hand.


@inlined
def present(t: Any, pos: int, size: int, length: int) -> Any:
    """The row of `item`: `length` bytes of a stream, of which the first `size` are at hand at `pos`. Which
    packet brought them has to be filled in."""
    item = t.item[0]
    item.pos, item.size, item.length = pos, size, length
    return item


@inlined
def present_segment(t: Any, seg: Any) -> None:
    """Let `item` be the payload of a segment."""
    item = present(t, seg.start, seg.captured, seg.length)
    item.time, item.packet, item.order = seg.time, seg.packet, t.run[0].order


@inlined
def present_piece(t: Any, piece: Any, length: int) -> None:
    """Let `item` be a piece that waited, of `length` bytes."""
    item = present(t, piece.at, piece.size, length)
    item.time, item.packet, item.order = piece.time, piece.packet, piece.order


@inlined
def present_hole(t: Any, length: int) -> None:
    """Let `item` be so many bytes that nobody captured."""
    item = present(t, 0, 0, length)
    item.time = item.packet = item.order = -1


# Saying which table lacks room.

WANT_CALLS, WANT_NOTES, WANT_ENDS = (WANTS.index(name) for name in ("calls", "notes", "ends"))
WANT_KEEP, WANT_BODIES, WANT_BODY_DATA = (WANTS.index(name) for name in ("keep", "bodies", "body_data"))
WANT_ARENA, WANT_DECISIONS, WANT_WORDS = (WANTS.index(name) for name in ("arena", "decisions", "words"))
WANT_RECORDS, WANT_RECORD_DATA = (WANTS.index(name) for name in ("records", "record_data"))


@kernel
def lacks(t: Any, which: int, room: int) -> NoReturn:
    """Stop: table `which` (a place in WANTS) has to have `room` rows, or room for so many more if it is one
    that is emptied. Raises Stopped."""
    t.run[0].want, t.run[0].room = which, room
    stop(t, FULL)


# Bytes of the frame in progress, or of what is searched.


@kernel
def empty_buffer(t: Any, s: Any) -> None:
    """Let go of the bytes of the frame in progress, or of what was searched."""
    if s.buf >= 0:
        free(t, s.block, s.block_room)
    s.buf, s.room, s.have, s.searched, s.hope = -1, 0, 0, 0, 0
    s.block_room = 0


@kernel
def append(t: Any, s: Any, data: Any, pos: int, size: int) -> None:
    """Add bytes to the buffer of a side."""
    have_room(t, s, size)
    copy(data, pos, size, t.arena, s.buf + s.have)
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
            copy(t.arena, s.buf, s.have, t.arena, at)
            free(t, s.block, s.block_room)
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
        copy(data, item.pos, size, t.arena, at)
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
        free(t, piece.at, piece.size)
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
        copy(t.arena, s.history_at, s.history, t.arena, at)
        free(t, s.history_at, s.history_room)
    s.history_at, s.history_room = at, kept


@kernel
def remember(t: Any, s: Any, data: Any, pos: int, size: int, length: int) -> None:
    """Keep the end of the latest segment, to compare retransmissions with; that there is room was seen to."""
    if size < length or size == 0:
        s.history = 0
        return
    kept = min(size, HISTORY)
    copy(data, pos + size - kept, kept, t.arena, s.history_at)
    s.history = kept


@kernel
def forget_latest(t: Any, s: Any) -> None:
    """Keep nothing of the latest segment of a side: retransmissions of it are taken to be the same."""
    if s.history_at >= 0:
        free(t, s.history_at, s.history_room)
    s.history, s.history_at, s.history_room = 0, -1, 0
