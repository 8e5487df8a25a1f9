"""The table of connections: finding the one a segment belongs to, opening one, and giving a row back.

Theory of operation. A hash table leads from both ends to a connection. All connections stand in a list by
their number, the place of their first packet, and in one by their latest packet (see `append_quiet`).

Invariant: which connection a segment belongs to depends on that connection's own segments alone.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import drop, forget_latest, take
from kwsniff.engine.leaving import note_opened
from kwsniff.engine.notes import opened
from kwsniff.engine.row_tables import CONNECTIONS, SIDES
from kwsniff.engine.tables import CONNS, KAFKA, OTHER, PROBING, TLS
from kwsniff.native.mode import inlined, kernel, made
from kwsniff.native.rowcopies import linked


@kernel
def mix(found: int, word: int) -> int:
    """One more word of a hash."""
    found = ((found ^ word) & 0xFFFFFFFF) * 0x9E3779B1 & 0xFFFFFFFFFFFFFFF
    return (found ^ (found >> 17)) & 0xFFFFFFFF


@kernel
def slot_of(t: Any, a_hi: int, a_lo: int, b_hi: int, b_lo: int, ports: int) -> int:
    """Where in `slots` the connections of two ends begin."""
    found = t.limits[0].seed & 0x7FFFFFFF
    found = mix(found, a_hi)
    found = mix(found, a_hi >> 32)
    found = mix(found, a_lo)
    found = mix(found, a_lo >> 32)
    found = mix(found, b_hi)
    found = mix(found, b_hi >> 32)
    found = mix(found, b_lo)
    found = mix(found, b_lo >> 32)
    found = mix(found, ports)
    found = mix(found, t.limits[0].seed >> 31)
    return found & (len(t.slots) - 1)


@kernel
def is_forward(seg: Any) -> bool:
    """Whether a segment goes from the lower end to the higher: by address, then by port."""
    if seg.src_hi != seg.dst_hi:
        return seg.src_hi < seg.dst_hi
    if seg.src_lo != seg.dst_lo:
        return seg.src_lo < seg.dst_lo
    return seg.src_port <= seg.dst_port


@kernel
def find(t: Any, seg: Any) -> int:
    """The connection that a segment is of, -1 if there is none."""
    forward = is_forward(seg)
    a_hi, a_lo, a_port = (
        (seg.src_hi, seg.src_lo, seg.src_port) if forward else (seg.dst_hi, seg.dst_lo, seg.dst_port)
    )
    b_hi, b_lo, b_port = (
        (seg.dst_hi, seg.dst_lo, seg.dst_port) if forward else (seg.src_hi, seg.src_lo, seg.src_port)
    )
    c = t.slots[slot_of(t, a_hi, a_lo, b_hi, b_lo, a_port * 65536 + b_port)].first
    while c >= 0:
        t.run[0].steps += 1
        conn = t.conns[c]
        if (
            conn.a_port == a_port
            and conn.b_port == b_port
            and conn.a_lo == a_lo
            and conn.b_lo == b_lo
            and conn.a_hi == a_hi
            and conn.b_hi == b_hi
        ):
            return c
        c = conn.next
    return -1


@kernel
def is_kafka_port(t: Any, port: int) -> bool:
    """Whether brokers are expected on a port."""
    for at in range(len(t.ports)):
        if t.ports[at].port == port:
            return True
    return False


_reset_conn = made("reset_conn", "row", CONNECTIONS.reset())
_reset_side = made("reset_side", "row", SIDES.reset())


@kernel
def open_connection(t: Any, seg: Any) -> int:
    """A new connection for a segment."""
    run = t.run[0]
    c = take(t, t.conns, CONNS)
    conn = t.conns[c]
    _reset_conn(conn)
    forward = is_forward(seg)
    conn.a_hi, conn.a_lo, conn.a_port = (
        (seg.src_hi, seg.src_lo, seg.src_port) if forward else (seg.dst_hi, seg.dst_lo, seg.dst_port)
    )
    conn.b_hi, conn.b_lo, conn.b_port = (
        (seg.dst_hi, seg.dst_lo, seg.dst_port) if forward else (seg.src_hi, seg.src_lo, seg.src_port)
    )
    run.opened += 1
    run.followed += 1
    conn.number = run.order + 1
    enter(t, c)
    a, b = is_kafka_port(t, conn.a_port), is_kafka_port(t, conn.b_port)
    conn.ports = (1 if a else 0) + (2 if b else 0)
    conn.client = 1 if conn.ports == 1 else 0 if conn.ports == 2 else -1
    conn.state, conn.step = PROBING, OPEN
    conn.first_time = conn.last_time = seg.time
    conn.capture = run.capture
    conn.first_packet = seg.packet
    if t.limits[0].part:
        note_opened(t, c, seg)
    for k in range(2):
        _reset_side(t.sides[2 * c + k])
    append_quiet(t, c, TALKING)
    append_number(t.conns, run, c)
    opened(t, c, seg.packet)
    return c


append_number, remove_number = linked("older", "newer", "oldest", "newest")
"""All connections by their number, in `run`: a new one has the highest."""


@inlined
def place_of(t: Any, c: int) -> int:
    """Where in `slots` the connections begin that have the ends of this one."""
    conn = t.conns[c]
    return slot_of(t, conn.a_hi, conn.a_lo, conn.b_hi, conn.b_lo, conn.a_port * 65536 + conn.b_port)


@kernel
def enter(t: Any, c: int) -> None:
    """Put a connection in its place of the hash table."""
    slot = t.slots[place_of(t, c)]
    t.conns[c].next = slot.first
    slot.first = c


@kernel
def take_out(t: Any, c: int) -> None:
    """Take a connection out of the hash table and all lists of connections; what it holds stays."""
    slot, following = t.slots[place_of(t, c)], t.conns[c].next
    if slot.first == c:
        slot.first = following
    else:
        at = slot.first
        while t.conns[at].next != c:
            at = t.conns[at].next
        t.conns[at].next = following
    remove_number(t.conns, t.run[0], c)
    _remove_quiet(t.conns, t.lists[t.conns[c].list], c)
    t.run[0].followed -= 1


@kernel
def remove(t: Any, c: int) -> None:
    """Give the row of a connection back."""
    take_out(t, c)
    for k in range(2):
        forget_latest(t, t.sides[2 * c + k])
    t.conns[c].number = 0
    drop(t, t.conns, CONNS, c)


@kernel
def rehash_connections(t: Any) -> None:
    """Put all connections in their places again, after `slots` grew."""
    for at in range(len(t.slots)):
        t.slots[at].first = -1
    for c in range(t.pools[CONNS].used):
        if t.conns[c].number > 0:
            enter(t, c)


# Connections by silence: which of them spoke last.
#
# Each stands in one of three lists, in the order in which they were last heard of; so those that are silent
# for too long are found without looking at the others.

LINGER = 60_000_000_000
"""Nanoseconds for which stray segments still belong to a connection that was closed."""
UNSORTED = 2_000_000_000
"""Nanoseconds by which connections in a list may stand later than they were last heard of, besides the time
for which segments may be overtaken: silence is looked at once a second."""
TALKING, RESET, ENDED = range(3)
"""Lists of connections by silence: in each of them the one that was silent longest is due first."""
_append_quiet, _remove_quiet = linked("silent_before", "silent_after", "first", "last")


@kernel
def append_quiet(t: Any, c: int, which: int) -> None:
    """A connection spoke last of all in a list."""
    t.conns[c].list, t.conns[c].listed = which, t.run[0].order
    _append_quiet(t.conns, t.lists[which], c)


@kernel
def spoke(t: Any, c: int) -> None:
    """A connection spoke, or came into another state."""
    conn = t.conns[c]
    which = ENDED if conn.step == CLOSED_ else RESET if conn.reset_time >= 0 else TALKING
    if conn.list != which or t.lists[which].last != c:
        _remove_quiet(t.conns, t.lists[conn.list], c)
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


# The life of a connection: its states and what leads from one to the next, in one table.
#
# What a connection carries is its `state`; how far it was closed is its `step`, which only goes forward. A
# connection that ended and comes again is another one.

(OPEN, FLUSHING, JUDGING, FINISHING, GIVING_UP, CLOSED_) = range(6)
"""Steps of closing, in `conns.step`."""

TRANSITIONS = {
    (PROBING, KAFKA): "content proves it, or a Kafka port says so and no more can be held",
    (PROBING, TLS): "it begins with TLS records, on a Kafka port, or on any where their keys are looked for",
    (PROBING, OTHER): "content refutes it, nothing proved it until the end, or TLS on any other port",
    (KAFKA, TLS): "a connection met in the middle holds TLS records and never held a frame",
    (KAFKA, OTHER): "it is closed, and neither proved to be Kafka nor held a frame",
}
"""What leads from state to state; nothing else does."""
STEPS = {
    (OPEN, FLUSHING): "FIN of both ends, RST, silence, another SYN, a limit, the end of the input",
    (FLUSHING, JUDGING): "what waited behind holes was delivered",
    (JUDGING, FINISHING): "what was held until it was judged was delivered, or let go",
    (FINISHING, GIVING_UP): "frames in progress were taken as they are",
    (GIVING_UP, CLOSED_): "requests and responses that wait were told",
}
"""What leads from step to step. Each may be entered again, when a table was full."""

_STATES = 8
_ALLOWED = sum(1 << (before * _STATES + after) for before, after in TRANSITIONS)


@kernel
def may_become(before: int, after: int) -> bool:
    """Whether a state leads to another."""
    return (_ALLOWED >> (before * _STATES + after)) & 1 != 0


@kernel
def is_on_trial(conn: Any) -> bool:
    """Whether only a port says that a connection is Kafka, and which end is the client: no SYN was captured,
    and nothing that was said proved it yet."""
    return conn.proven == 0 and conn.syn == 0


@kernel
def is_left_alone(conn: Any) -> bool:
    """Whether the streams of a connection are not looked at."""
    return conn.state == OTHER


@kernel
def is_from_a(conn: Any, seg: Any) -> bool:
    """Whether a segment comes from end a."""
    return conn.a_port == seg.src_port and conn.a_lo == seg.src_lo and conn.a_hi == seg.src_hi


@kernel
def become(t: Any, c: int, state: int) -> None:
    """Go on to another state, if this one leads there."""
    if may_become(t.conns[c].state, state):
        t.conns[c].state = state


@kernel
def advance_to(t: Any, c: int, step: int) -> None:
    """One more step of closing was done."""
    if step == t.conns[c].step + 1:
        t.conns[c].step = step
