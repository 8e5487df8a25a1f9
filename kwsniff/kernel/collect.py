"""Dropping texts that nothing refers to any more.

The driver asks for it when texts take too much room, after it has taken everything that was told (calls,
notes, ends) out of the tables: those refer to texts by numbers, which change here.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.calls import mark_request, move_request
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.texts import compact, mark, moved, unmark


@kernel
def collect(t: Any) -> None:
    """Keep the texts that connections and requests in flight refer to, under new numbers."""
    run = t.run[0]
    unmark(t)
    for row in range(run.conns_used):
        _mark_connection(t, t.conns[row])
    for row in range(run.requests_used):
        if t.requests[row].conn >= 0:
            mark(t, t.requests[row].client_id)
            mark_request(t, row)
    compact(t)
    for row in range(run.conns_used):
        _move_connection(t, t.conns[row])
    for row in range(run.requests_used):
        if t.requests[row].conn >= 0:
            t.requests[row].client_id = moved(t, t.requests[row].client_id)
            move_request(t, row)


@kernel
def _mark_connection(t: Any, conn: Any) -> None:
    if conn.number:
        mark(t, conn.mechanism)
        mark(t, conn.user)
        mark(t, conn.software)
        mark(t, conn.software_version)
        mark(t, conn.asked_software)
        mark(t, conn.asked_version)
        mark(t, conn.client_id)


@kernel
def _move_connection(t: Any, conn: Any) -> None:
    if conn.number:
        conn.mechanism, conn.user = moved(t, conn.mechanism), moved(t, conn.user)
        conn.software, conn.software_version = moved(t, conn.software), moved(t, conn.software_version)
        conn.asked_software = moved(t, conn.asked_software)
        conn.asked_version = moved(t, conn.asked_version)
        conn.client_id = moved(t, conn.client_id)
