"""Following the chain of pcap records, compiled: the one loop over all packets of a file."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from kwsniff.engine.bulk.kernel import kernel

Integers = NDArray[np.int64]


@kernel
def follow(
    data: NDArray[np.uint8], at: int, end: int, big: bool, header: int, starts: Integers
) -> tuple[int, int]:
    """Write where complete records begin to `starts`; returns how many, and where the chain goes on.

    The captured length is the third field of a record's header, of whichever byte order.
    """
    count = 0
    last = end - header
    before = at
    while at <= last:
        starts[count] = before = at
        count += 1
        length = types.int64(0)
        for index in range(4):
            byte = types.int64(data[at + 8 + (index if big else 3 - index)])
            length = (length << 8) | byte
        at += length + header
    if count and at > end:
        return count - 1, before
    return count, at
