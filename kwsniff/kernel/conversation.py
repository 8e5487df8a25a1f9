"""What client and broker say to each other on one connection: frames in, calls and anomalies out.

Theory of operation. A request is read at once and waits (`requests`); a response takes the request with its
correlation id (`responses`), or waits for it (`early`), and makes a call (`outcomes`). Pairing comes first
and needs only the header: whatever is wrong with a body, the call has its latency.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.early import expire_early, orphan
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK
from kwsniff.kernel.outcomes import give_up
from kwsniff.kernel.remarks import room_for_frame, time_of
from kwsniff.kernel.requests import take_request_frame
from kwsniff.kernel.responses import take_response_frame
from kwsniff.kernel.states import is_on_trial
from kwsniff.kernel.turning import turn_if_asked
from kwsniff.kernel.waiting import release


@kernel
def take_frame(t: Any, data: Any) -> int:
    """Take the frame at hand."""
    f = t.frame[0]
    f.body = f.start
    if room_for_frame(t) != OK:
        return FULL
    if f.side != t.conns[f.conn].client and is_on_trial(t.conns[f.conn]):
        code = turn_if_asked(t, data)
        if code != OK:
            return code
    if f.side == t.conns[f.conn].client:
        return take_request_frame(t, data)
    if t.conns[f.conn].early:
        code = expire_early(t, f.conn, time_of(f))
        if code != OK:
            return code
    return take_response_frame(t, data)


@kernel
def give_up_all(t: Any, c: int, because: int) -> int:
    """Report every request of a connection that waits as unanswered, and every response that does."""
    conn = t.conns[c]
    while conn.first_early >= 0:
        code = orphan(t, c, conn.first_early)
        if code != OK:
            return code
    while conn.first_request >= 0:
        code = give_up(t, c, conn.first_request, because)
        if code != OK:
            return code
    while conn.first_unasked >= 0:
        release(t, conn.first_unasked)
    return OK
