"""Connections by silence: which of them spoke last.

Each stands in one of three lists, in the order in which they were last heard of; so those that are silent for
too long are found without looking at the others.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.mode import kernel
from kwsniff.kernel.states import CLOSED_, OPEN

LINGER = 60_000_000_000
"""Nanoseconds for which stray segments still belong to a connection that was closed."""
UNSORTED = 2_000_000_000
"""Nanoseconds by which connections in a list may stand later than they were last heard of, besides the time
for which segments may be overtaken: silence is looked at once a second."""
TALKING, RESET, ENDED = range(3)
"""Lists of connections by silence: in each of them the one that was silent longest is due first."""


@kernel
def append_quiet(t: Any, c: int, which: int) -> None:
    """A connection spoke last of all in a list."""
    conn, list_ = t.conns[c], t.lists[which]
    conn.list, conn.listed = which, t.run[0].order
    conn.silent_before, conn.silent_after = list_.last, -1
    if list_.last >= 0:
        t.conns[list_.last].silent_after = c
    else:
        list_.first = c
    list_.last = c


@kernel
def remove_quiet(t: Any, c: int) -> None:
    """Take a connection out of its list by silence."""
    conn = t.conns[c]
    list_ = t.lists[conn.list]
    if conn.silent_before >= 0:
        t.conns[conn.silent_before].silent_after = conn.silent_after
    else:
        list_.first = conn.silent_after
    if conn.silent_after >= 0:
        t.conns[conn.silent_after].silent_before = conn.silent_before
    else:
        list_.last = conn.silent_before


@kernel
def spoke(t: Any, c: int) -> None:
    """A connection spoke, or came into another state."""
    conn = t.conns[c]
    which = ENDED if conn.step == CLOSED_ else RESET if conn.reset_time >= 0 else TALKING
    if conn.list != which or t.lists[which].last != c:
        remove_quiet(t, c)
        append_quiet(t, c, which)
    conn.listed = t.run[0].order  # also where it stays the last: others may be followed elsewhere


@kernel
def patience(t: Any, c: int) -> int:
    """How long a connection may be silent."""
    conn = t.conns[c]
    idle = t.limits[0].idle_time
    return min(LINGER, idle) if conn.step == CLOSED_ or conn.reset_time >= 0 else idle


@kernel
def is_reset(t: Any, c: int, now: int) -> bool:
    """Whether an RST closed a connection: segments that it overtook had time to come."""
    conn = t.conns[c]
    return conn.step == OPEN and conn.reset_time >= 0 and now > conn.reset_time + t.limits[0].reorder_time
