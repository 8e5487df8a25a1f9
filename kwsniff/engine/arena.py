"""Room for bytes that outlive their block: unfinished frames, and what waits behind a hole or for a verdict.
And room for rows, which are taken and given back (see POOLS).

Theory of operation. Blocks have sizes that are powers of two, from 64 bytes on. A free block holds, in its
first eight bytes, where the next free one of its size is; `bins` says where the first is. What no free block
serves is taken from the end. When the arena is full the driver makes it larger and calls again.

Invariant: positions stay valid when the arena grows.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.numbers import FULL, int64_at
from kwsniff.engine.tables import EARLY, PIECES, REQUESTS, WANTS
from kwsniff.native.mode import inlined, kernel, uintp

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
    """Where a new block for `size` bytes begins; -1 if there is no room, and then nothing was changed."""
    run = t.run[0]
    number, block = bin_of(size), block_size(size)
    first = t.bins[number].first
    if first >= 0:
        t.bins[number].first = int64_at(t.arena, first)
        run.arena_live += block
        return first
    if run.arena_used + block > len(t.arena):
        lacks(t, WANT_ARENA, block)
        return -1
    at = run.arena_used
    run.arena_used += block
    run.arena_live += block
    return at


@kernel
def release(t: Any, at: int, size: int) -> None:
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


@kernel
def copy(target: Any, to: int, source: Any, at: int, size: int) -> None:
    """Copy bytes from one array to another, or forward to the front within one."""
    for index in range(uintp(size)):
        target[uintp(to) + index] = source[uintp(at) + index]


# Pools: tables whose rows are taken and given back. There are four, see POOLS.
#
# A row that was given back stands in a list, by `next`, and is the first to be taken again.


@inlined
def take(t: Any, rows: Any, pool: int) -> int:
    """A free row of a pool, the table of which is `rows`; -1 if there is none."""
    free = t.pools[pool]
    row = free.first
    if row >= 0:
        free.first = rows[row].next
    elif free.used < len(rows):
        row = free.used
        free.used += 1
    else:
        lacks(t, pool, 1)
        return -1
    free.live += 1
    return row


@inlined
def drop(t: Any, rows: Any, pool: int, row: int) -> None:
    """Give a row of a pool back."""
    free = t.pools[pool]
    rows[row].next = free.first
    free.first = row
    free.live -= 1


@kernel
def take_piece(t: Any) -> int:
    """A free row of `pieces`, -1 if there is none."""
    return take(t, t.pieces, PIECES)


@kernel
def drop_piece(t: Any, row: int) -> None:
    """Give a row of `pieces` back."""
    drop(t, t.pieces, PIECES, row)


@kernel
def take_request(t: Any) -> int:
    """A free row of `requests`, -1 if there is none."""
    return take(t, t.requests, REQUESTS)


@kernel
def drop_request(t: Any, row: int) -> None:
    """Give a row of `requests` back."""
    t.run[0].bodies_waiting -= t.requests[row].shown
    t.requests[row].shown = 0
    t.requests[row].conn = -1
    drop(t, t.requests, REQUESTS, row)


@kernel
def take_early(t: Any) -> int:
    """A free row of `early`, -1 if there is none."""
    return take(t, t.early, EARLY)


@kernel
def drop_early(t: Any, row: int) -> None:
    """Give a row of `early` back."""
    drop(t, t.early, EARLY, row)


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
WANT_ARENA, WANT_DECISIONS = WANTS.index("arena"), WANTS.index("decisions")


@kernel
def lacks(t: Any, which: int, room: int) -> int:
    """Note that table `which` (a place in WANTS) has to have `room` rows, or room for so many more if it is
    one that is emptied; returns FULL."""
    run = t.run[0]
    run.want = which
    run.room = room
    return FULL
