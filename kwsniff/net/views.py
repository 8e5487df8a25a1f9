"""Payloads as Arrow's binary views, of four 32-bit words each: the length, then either up to 12 bytes of
data, or the first 4 bytes, the index of a buffer and an offset in it (Arrow columnar format, "Variable-size
Binary View Layout"). Words are little-endian.
"""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import kernel, uintp
from kwsniff.native.numbers import byte

INLINE = 12
"""Bytes that stand in the view itself."""
WORDS = 4


@kernel
def write_views(t: Any, count: int, buffer: int) -> int:
    """Write the views of the first `count` segments that lie in `data`, the buffer of this index."""
    for index in range(count):
        at = uintp(index)
        if t.buffer[at] != buffer:
            continue
        start, size = t.start[at], min(t.captured[at], t.length[at])
        first = index * WORDS
        t.views[uintp(first)] = size
        if size <= INLINE:
            for word in range(3):
                t.views[uintp(first + 1 + word)] = word_of(t, start + 4 * word, start + size)
        else:
            t.views[uintp(first + 1)] = word_of(t, start, start + 4)
            t.views[uintp(first + 2)] = buffer
            t.views[uintp(first + 3)] = start
    return 0


@kernel
def word_of(t: Any, at: int, end: int) -> int:
    """Four bytes as a signed number, zeros from `end` on."""
    found = 0
    for index in range(min(end - at, 4)):
        found |= byte(t.data, at + index) << (8 * index)
    return found - 0x100000000 if found & 0x80000000 else found
