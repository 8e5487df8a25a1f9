"""Pools: tables whose rows are taken and given back. There are four, see POOLS.

A row that was given back stands in a list, by `next`, and is the first to be taken again.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import inlined, kernel
from kwsniff.kernel.room import lacks
from kwsniff.kernel.tables import EARLY, PIECES, REQUESTS


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
