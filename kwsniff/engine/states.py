"""The life of a connection: its states and what leads from one to the next, in one table.

What a connection carries is its `state`; how far it was closed is its `step`, which only goes forward. A
connection that ended and comes again is another one.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.tables import KAFKA, OTHER, PROBING, TLS
from kwsniff.native.mode import kernel

(OPEN, FLUSHING, JUDGING, FINISHING, GIVING_UP, CLOSED_) = range(6)
"""Steps of closing, in `conns.step`."""

TRANSITIONS = {
    (PROBING, KAFKA): "content proves it, or a Kafka port says so and no more can be held",
    (PROBING, TLS): "it begins with TLS records, on a Kafka port",
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
def become(t: Any, c: int, state: int) -> None:
    """Go on to another state, if this one leads there."""
    if may_become(t.conns[c].state, state):
        t.conns[c].state = state


@kernel
def advance_to(t: Any, c: int, step: int) -> None:
    """One more step of closing was done."""
    if step == t.conns[c].step + 1:
        t.conns[c].step = step
