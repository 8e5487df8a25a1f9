"""Room for bytes that outlive their block: unfinished frames, and what waits behind a hole or for a verdict.

Theory of operation. Blocks have sizes that are powers of two, from 64 bytes on. A free block holds, in its
first eight bytes, where the next free one of its size is; `bins` says where the first is. What no free block
serves is taken from the end. When the arena is full the driver makes it larger and calls again.

Invariant: positions stay valid when the arena grows.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel, uintp
from kwsniff.kernel.numbers import int64_at
from kwsniff.kernel.room import WANT_ARENA, lacks

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
