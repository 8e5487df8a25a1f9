"""Room for bytes that outlive their block: unfinished frames, and what waits behind a hole or for a verdict.
And room for rows, which are taken and given back (see POOLS).

Theory of operation. Blocks have sizes that are powers of two, from 64 bytes on. A free block holds, in its
first eight bytes, where the next free one of its size is; `bins` says where the first is. What no free block
serves is taken from the end. When the arena is full the driver makes it larger and calls again.

Invariant: positions stay valid when the arena grows.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kwsniff.engine.numbers import FULL, int64_at, stop
from kwsniff.engine.tables import EARLY, PIECES, REQUESTS, WANTS
from kwsniff.native.mode import inlined, int64, kernel, uintp

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
def take_request(t: Any) -> int:
    """A free row of `requests`."""
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
    """A free row of `early`."""
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
WANT_ARENA, WANT_DECISIONS, WANT_WORDS = (WANTS.index(name) for name in ("arena", "decisions", "words"))


@kernel
def lacks(t: Any, which: int, room: int) -> NoReturn:
    """Stop: table `which` (a place in WANTS) has to have `room` rows, or room for so many more if it is one
    that is emptied. Raises Stopped."""
    t.run[0].want, t.run[0].room = which, room
    stop(t, FULL)


# A heap of 64-bit words for what waiting requests remember: blocks of a few sizes, free ones in lists.
#
# Theory of operation. A block has a power of two of words, or three quarters of one. A freed block goes to
# the list of its size; its first word then holds where the next free one is. New blocks come from the end
# of the used part. Blocks are neither split nor joined: what waits at one time has about the sizes of what
# waits at another, so the heap stays within a small multiple of its largest use, and the driver may shrink
# it when nothing waits.
#
# Invariant: `words_live` counts the words of all blocks that were taken and not freed.

WORD_BINS = 64
"""Rows of `word_bins`."""


@kernel
def bin_of_words(size: int) -> int:
    """The list of blocks that hold `size` words: 2, 3, 4, 6, 8, 12, … by number."""
    number, room = int64(0), int64(2)
    while room < size:
        if room + (room >> 1) >= size:
            return number + 1
        room <<= 1
        number += 2
    return number


@kernel
def words_of_bin(number: int) -> int:
    """Words of the blocks of a list."""
    room = int64(2) << (number >> 1)
    return room + (room >> 1) if number & 1 else room


@kernel
def take_words(t: Any, size: int) -> int:
    """Where a block of at least `size` words begins."""
    store = t.store[0]
    number = bin_of_words(size)
    free = t.word_bins[number]
    room = words_of_bin(number)
    at = free.first
    if at >= 0:
        free.first = t.words[uintp(at)]
    else:
        at = store.words
        if at + room > len(t.words):
            lacks(t, WANT_WORDS, at + room)
        store.words = at + room
    store.words_live += room
    return at


@kernel
def give_words(t: Any, at: int, size: int) -> None:
    """Give back a block that was taken for `size` words."""
    number = bin_of_words(size)
    free = t.word_bins[number]
    t.words[uintp(at)] = free.first
    free.first = at
    t.store[0].words_live -= words_of_bin(number)


@kernel
def reset_words(t: Any) -> None:
    """Empty the heap."""
    t.store[0].words = t.store[0].words_live = 0
    for number in range(len(t.word_bins)):
        t.word_bins[number].first = -1
