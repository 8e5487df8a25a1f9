"""Which rows refer to texts: dropping the texts that none of them does."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.packing import mark_request, move_request
from kwsniff.kernel.tables import CONNS, REQUESTS
from kwsniff.kernel.texts import compact, mark, moved, unmark


@kernel
def compact_texts(t: Any) -> None:
    """Drop the texts that neither connections nor requests refer to; nothing else may do so now."""
    unmark(t)
    for c in range(t.pools[CONNS].used):
        if t.conns[c].number:
            mark_connection(t, c)
    for row in range(t.pools[REQUESTS].used):
        if t.requests[row].conn >= 0:
            mark_request(t, row)
    compact(t)
    for c in range(t.pools[CONNS].used):
        if t.conns[c].number:
            move_connection(t, c)
    for row in range(t.pools[REQUESTS].used):
        if t.requests[row].conn >= 0:
            move_request(t, row)


@kernel
def mark_connection(t: Any, c: int) -> None:
    """Before texts are compacted: mark those that a connection refers to."""
    conn = t.conns[c]
    mark(t, conn.mechanism)
    mark(t, conn.user)
    mark(t, conn.software)
    mark(t, conn.software_version)
    mark(t, conn.client_id)


@kernel
def move_connection(t: Any, c: int) -> None:
    """After texts got other numbers: replace those that a connection has."""
    conn = t.conns[c]
    conn.mechanism, conn.user = moved(t, conn.mechanism), moved(t, conn.user)
    conn.software, conn.software_version = moved(t, conn.software), moved(t, conn.software_version)
    conn.client_id = moved(t, conn.client_id)
