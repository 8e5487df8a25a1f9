"""What client and broker say to each other on one connection: frames in, calls and anomalies out.

Theory of operation. A request is read at once and waits (`requests`); a response takes the request with its
correlation id (`responses`), or waits for it (`early`), and makes a call (`outcomes`). Pairing comes first
and needs only the header: whatever is wrong with a body, the call has its latency.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.bodies import skim_request
from kwsniff.engine.buffer import empty_buffer
from kwsniff.engine.early import expire_early, orphan, remove_early
from kwsniff.engine.headers import YES, names_client, request_at
from kwsniff.engine.outcomes import give_up, room_for_frame, time_of
from kwsniff.engine.requests import take_request_frame
from kwsniff.engine.responses import take_response_frame
from kwsniff.engine.search import lose_framing
from kwsniff.engine.states import is_on_trial
from kwsniff.engine.tables import UNKNOWN
from kwsniff.engine.trace import TURNED, decided
from kwsniff.engine.waiting import release
from kwsniff.native.mode import kernel


@kernel
def take_frame(t: Any, data: Any) -> None:
    """Take the frame at hand."""
    f = t.frame[0]
    f.body = f.start
    room_for_frame(t)
    if f.side != t.conns[f.conn].client and is_on_trial(t.conns[f.conn]):
        turn_if_asked(t, data)
    if f.side == t.conns[f.conn].client:
        take_request_frame(t, data)
        return
    if t.conns[f.conn].early:
        expire_early(t, f.conn, time_of(f))
    take_response_frame(t, data)


@kernel
def give_up_all(t: Any, c: int, because: int) -> None:
    """Report every request of a connection that waits as unanswered, and every response that does."""
    conn = t.conns[c]
    while conn.first_early >= 0:
        orphan(t, c, conn.first_early)
    while conn.first_request >= 0:
        give_up(t, c, conn.first_request, because)
    while conn.first_unasked >= 0:
        release(t, conn.first_unasked)


# Turning a connection round when not the end that its port says is the client, but the other one.
#
# Theory of operation. A connection that is met in the middle, and of which nothing is proven while no more
# can be held, is believed for its port: it is on trial (`states.is_on_trial`) and tells no calls. A port
# may be wrong: a client may have taken one that is named, or both ends have one. Lengths stand in front of
# requests and responses alike, so a stream of the client is cut rightly although it is read as the
# broker's. A frame of it that decodes as a request turns the connection round, before anything is made of
# it.
#
# What the wrong guess left is let go: frames of the broker that looked like requests, and frames of the
# client that looked like responses. None of the latter decodes as a request of a named client, or it had
# turned the connection.


@kernel
def turn_if_asked(t: Any, data: Any) -> None:
    """Turn the connection round if the frame at hand, of what is taken for the broker, is a request."""
    f = t.frame[0]
    if not f.whole or request_at(t, data, f.start, f.end, False) != YES:
        return
    if not names_client(data, f.start) and has_asked(t, f.conn):
        return
    if skim_request(t, data, f.start, f.end):
        turn(t, f.conn)


@kernel
def has_asked(t: Any, c: int) -> bool:
    """Whether the end that is taken for the client sent a frame that decodes: a request without the name of
    its client says less than that."""
    conn = t.conns[c]
    return t.sides[2 * c + conn.client].frames > conn.undecoded


@kernel
def turn(t: Any, c: int) -> None:
    """Take the other end for the client."""
    conn = t.conns[c]
    broker = t.sides[2 * c + conn.client]
    conn.client = 1 - conn.client
    conn.turned = 1 - conn.turned
    decided(t, c, TURNED, conn.client, 0, 0)
    while conn.first_early >= 0:
        remove_early(t, c, conn.first_early)
    while conn.first_request >= 0:
        release(t, conn.first_request)
    while conn.first_unasked >= 0:
        release(t, conn.first_unasked)
    conn.answered, conn.known_since, conn.client_id = UNKNOWN, -1, -2
    conn.undecoded = 0
    if conn.closed_by:
        conn.closed_by ^= 3
    if broker.broken:
        broker.skipped += broker.have
        empty_buffer(t, broker)
    lose_framing(broker)
    broker.latest = UNKNOWN
