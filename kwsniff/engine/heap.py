"""A heap of 64-bit words for what waiting requests remember: blocks of a few sizes, free ones in lists.

Theory of operation. A block has a power of two of words, or three quarters of one. A freed block goes to the
list of its size; its first word then holds where the next free one is. New blocks come from the end of the
used part. Blocks are neither split nor joined: what waits at one time has about the sizes of what waits at
another, so the heap stays within a small multiple of its largest use, and the driver may shrink it when
nothing waits.

Invariant: `words_live` counts the words of all blocks that were taken and not freed.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import lacks
from kwsniff.engine.tables import WANTS
from kwsniff.native.mode import int64, kernel, uintp

BINS = 64
"""Rows of `word_bins`."""
_WORDS = WANTS.index("words")


@kernel
def bin_of(size: int) -> int:
    """The list of blocks that hold `size` words: 2, 3, 4, 6, 8, 12, … by number."""
    number, room = int64(0), int64(2)
    while room < size:
        if room + (room >> 1) >= size:
            return number + 1
        room <<= 1
        number += 2
    return number


@kernel
def room_of(number: int) -> int:
    """Words of the blocks of a list."""
    room = int64(2) << (number >> 1)
    return room + (room >> 1) if number & 1 else room


@kernel
def take(t: Any, size: int) -> int:
    """Where a block of at least `size` words begins; FULL if there is none."""
    store = t.store[0]
    number = bin_of(size)
    free = t.word_bins[number]
    room = room_of(number)
    at = free.first
    if at >= 0:
        free.first = t.words[uintp(at)]
    else:
        at = store.words
        if at + room > len(t.words):
            return lacks(t, _WORDS, at + room)
        store.words = at + room
    store.words_live += room
    return at


@kernel
def give(t: Any, at: int, size: int) -> None:
    """Give back a block that was taken for `size` words."""
    number = bin_of(size)
    free = t.word_bins[number]
    t.words[uintp(at)] = free.first
    free.first = at
    t.store[0].words_live -= room_of(number)


@kernel
def reset(t: Any) -> None:
    """Empty the heap."""
    t.store[0].words = t.store[0].words_live = 0
    for number in range(len(t.word_bins)):
        t.word_bins[number].first = -1
