"""Requests in flight: by correlation id, and in the order they came.

A broker answers the requests of one connection in the order they came (protocol guide, "Network"), so the
oldest one is expected; but the correlation id decides, because a capture may have lost either side.

A Produce that wants no reply is remembered for a while in a list of its own: some brokers answer it.

Theory of operation. The hash table leads to one request of each connection and correlation id; those that
have the same stand behind it in the order in which they will be found: the oldest of those in flight first,
the latest of those remembered. However many there are, each costs the same.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import drop_request
from kwsniff.engine.packing import forget
from kwsniff.engine.tables import CONNS
from kwsniff.native.mode import inlined, kernel
from kwsniff.native.rowcopies import linked

_append_request, _remove_request = linked("before", "after", "first_request", "last_request")
_append_unasked, _remove_unasked = linked("before", "after", "first_unasked", "last_unasked")
# The same from the other end.
_prepend_request, _ = linked("after", "before", "last_request", "first_request")
_prepend_unasked, _ = linked("after", "before", "last_unasked", "first_unasked")


@kernel
def place_of(t: Any, c: int, correlation_id: int) -> int:
    """Where in `asked` the requests with this id begin."""
    mixed = ((c + t.limits[0].seed) & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFFFFFFFFF
    mixed = (mixed ^ (mixed >> 17) ^ correlation_id) & 0xFFFFFFFF
    mixed = (mixed ^ (mixed >> 16)) * 0x85EBCA6B & 0xFFFFFFFFFFFFFFF
    mixed = (mixed ^ (mixed >> 17) ^ (t.limits[0].seed >> 30)) & 0xFFFFFFFF
    mixed = (mixed ^ (mixed >> 15)) * 0xC2B2AE35 & 0xFFFFFFFFFFFFFFF
    mixed ^= mixed >> 21
    return mixed & (len(t.asked) - 1)


@kernel
def find_waiting(t: Any, c: int, correlation_id: int) -> int:
    """The oldest request in flight with this correlation id, -1 if there is none."""
    return find_request(t, c, correlation_id, 0) if may_wait(t, t.conns[c], correlation_id) else -1


@inlined
def may_wait(t: Any, conn: Any, correlation_id: int) -> bool:
    """Whether a correlation id lies among those of the requests in flight: between the first and the last, as
    ids ascend unless the connection is marked `unordered`. Where framing is searched for most that are asked
    for don't, and this looks at two rows that were just used, not at one anywhere in the hash table."""
    if conn.in_flight == 0:
        return False
    if conn.unordered:
        return True
    oldest, latest = t.requests[conn.first_request], t.requests[conn.last_request]
    return oldest.correlation_id <= correlation_id <= latest.correlation_id


@kernel
def find_unasked(t: Any, c: int, correlation_id: int) -> int:
    """The latest remembered request with this id that wanted no reply, -1 if there is none."""
    return find_request(t, c, correlation_id, 1)


@kernel
def find_request(t: Any, c: int, correlation_id: int, unasked: int) -> int:
    """See the two above."""
    row = t.asked[place_of(t, c, correlation_id)].first
    t.run[0].steps += 1
    while row >= 0:
        t.run[0].steps += 1
        request = t.requests[row]
        if request.correlation_id == correlation_id and request.conn == c and request.unasked == unasked:
            return row
        row = request.next
    return -1


@kernel
def enter(t: Any, c: int, row: int) -> None:
    """Put a request of a connection into its place of the hash table; those with its id that came before it
    are there."""
    request = t.requests[row]
    first = find_request(t, c, request.correlation_id, request.unasked)
    request.twin, request.twin_before, request.last_twin = -1, -1, row
    if first < 0:
        slot = t.asked[place_of(t, c, request.correlation_id)]
        request.next, slot.first = slot.first, row
    elif request.unasked:
        request.twin, request.last_twin = first, t.requests[first].last_twin
        t.requests[first].twin_before = row
        replace(t, c, first, row)
    else:
        last = t.requests[first].last_twin
        t.requests[last].twin, request.twin_before = row, last
        t.requests[first].last_twin = row


@kernel
def leave(t: Any, c: int, row: int) -> None:
    """Take a request of a connection out of its place of the hash table."""
    request = t.requests[row]
    before, after = request.twin_before, request.twin
    if before < 0:
        if after >= 0:
            t.requests[after].twin_before, t.requests[after].last_twin = -1, request.last_twin
        replace(t, c, row, after)
        return
    t.requests[before].twin = after
    if after >= 0:
        t.requests[after].twin_before = before
    else:
        t.requests[find_request(t, c, request.correlation_id, request.unasked)].last_twin = before


@kernel
def replace(t: Any, c: int, row: int, other: int) -> None:
    """Let another request with the same id, or none (-1), stand in the hash table where one does."""
    request = t.requests[row]
    following = request.next
    if other >= 0:
        t.requests[other].next, following = following, other
    slot = t.asked[place_of(t, c, request.correlation_id)]
    if slot.first == row:
        slot.first = following
        return
    at = slot.first
    while t.requests[at].next != row:
        t.run[0].steps += 1
        at = t.requests[at].next
    t.requests[at].next = following


@kernel
def link(t: Any, row: int) -> None:
    """Add a request to those in flight, or to those remembered."""
    request = t.requests[row]
    conn = t.conns[request.conn]
    enter(t, request.conn, row)
    if request.unasked:
        _append_unasked(t.requests, conn, row)
    else:
        if conn.last_request < 0:
            conn.unordered = 0
        elif request.correlation_id < t.requests[conn.last_request].correlation_id:
            conn.unordered = 1
        _append_request(t.requests, conn, row)
    count(t, conn, request, 1)


@kernel
def count(t: Any, conn: Any, request: Any, by: int) -> None:
    """A request came to those in flight or remembered, or went."""
    if request.unasked:
        conn.unasked += by
    else:
        conn.in_flight += by
        t.run[0].waiting += by


@kernel
def put_first(t: Any, c: int, row: int) -> None:
    """Let a request that is in no list stand before those of a connection, which may not be in their places
    of the hash table yet: nor is it then."""
    request, conn = t.requests[row], t.conns[c]
    request.conn = c
    if request.unasked:
        _prepend_unasked(t.requests, conn, row)
    else:
        _prepend_request(t.requests, conn, row)
    count(t, conn, request, 1)


@kernel
def unlink(t: Any, row: int) -> None:
    """Take a request out of its lists."""
    request = t.requests[row]
    conn = t.conns[request.conn]
    leave(t, request.conn, row)
    if request.unasked:
        _remove_unasked(t.requests, conn, row)
    else:
        _remove_request(t.requests, conn, row)
    count(t, conn, request, -1)


@kernel
def move_first(t: Any, c: int, row: int) -> None:
    """Let a request that is in the lists of another connection stand before those of this one, see above."""
    unlink(t, row)
    put_first(t, c, row)


@kernel
def release(t: Any, row: int) -> None:
    """Let a request go that is in the lists, with all that it keeps in the heap."""
    unlink(t, row)
    forget(t, row)
    drop_request(t, row)


@kernel
def rehash(t: Any) -> None:
    """Put all requests in their places again, after `asked` grew."""
    for at in range(len(t.asked)):
        t.asked[at].first = -1
    for c in range(t.pools[CONNS].used):
        if t.conns[c].number:
            rehash_list(t, c, t.conns[c].first_request)
            rehash_list(t, c, t.conns[c].first_unasked)


@kernel
def rehash_list(t: Any, c: int, row: int) -> None:
    """The same for one list of a connection."""
    while row >= 0:
        enter(t, c, row)
        row = t.requests[row].after
