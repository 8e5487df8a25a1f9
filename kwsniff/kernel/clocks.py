"""Clocks of the two directions that differ, as where each was captured at a place of its own.

What cannot come before something else, a SYN-ACK before its SYN or a response before its request, tells it.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.notes import note
from kwsniff.kernel.numbers import CLOCKS_DIFFER

SKEW = 1_000_000
"""Nanoseconds up to which packets may be out of order: interfaces with several queues do that."""


@kernel
def compare(t: Any, c: int, first: int, second: int, packet: int, time: int) -> None:
    """Notice that what came `second` has an earlier time than what came `first`; that there is room for a
    note was seen to."""
    conn = t.conns[c]
    if conn.skewed == 0 and first >= 0 and second >= 0 and first - second > SKEW:
        conn.skewed = 1
        note(t, c, CLOCKS_DIFFER, packet, time, first - second, 0)
