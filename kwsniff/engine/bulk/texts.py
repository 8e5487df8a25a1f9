"""Texts and uuids of one round as small numbers, compiled: the same bytes have the same number.

Theory of operation. An open hash table from bytes to the order of their first appearance; the bytes stay in
the buffer they were found in. The table lives for one round, so what strangers send cannot make it grow
for long; when it is full, messages that bring more are left to the exact path.
"""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from kwsniff.engine.bulk.kernel import kernel
from kwsniff.engine.bulk.numbers import Bytes

CAPACITY = 1 << 15
SLOTS = CAPACITY * 4
FULL = -2

Ints = NDArray[np.int64]
Slots = NDArray[np.int32]


@kernel
def number(buf: Bytes, start: int, size: int, kind: int, spans: Ints, slots: Slots) -> int:
    """The number of a text (`kind` 0) or uuid (1); FULL if there is no room.

    `spans` has a row (start, size, kind) for each number; row CAPACITY counts them in its first column.
    """
    mixed = types.uint64(0x9E3779B97F4A7C15) ^ types.uint64(size * 2 + kind)
    for at in range(types.uintp(start), types.uintp(start + size)):
        mixed = (mixed ^ types.uint64(buf[at])) * types.uint64(0x100000001B3)
    mixed ^= mixed >> types.uint64(29)
    slot = types.int64(mixed & types.uint64(SLOTS - 1))
    while True:
        found = slots[slot]
        if found < 0:
            count = spans[CAPACITY, 0]
            if count >= CAPACITY:
                return FULL
            spans[count, 0], spans[count, 1], spans[count, 2] = start, size, kind
            spans[CAPACITY, 0] = count + 1
            slots[slot] = count
            return count
        if spans[found, 1] == size and spans[found, 2] == kind:
            same, mine = types.uintp(spans[found, 0]), types.uintp(start)
            at, stop = types.uintp(0), types.uintp(size)
            while at < stop and buf[same + at] == buf[mine + at]:
                at += types.uintp(1)
            if at == stop:
                return types.int64(found)
        slot = (slot + 1) & (SLOTS - 1)
