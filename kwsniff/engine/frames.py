"""Cutting one direction's bytes into length-prefixed frames.

Theory of operation. A Kafka message is a four-byte signed length and that many bytes (protocol guide,
"Common Request and Response Structure"). While a side is synchronised it is known where each frame ends, even
across bytes that the capture lacks: a gap inside a frame whose length is known breaks that frame and nothing
else. A gap that swallows a length, a late start or an impossible length loses the framing; then the next
plausible header is searched for (`search`), and what is skipped is counted.

Framing that was found by a search is *assumed* until a frame bears it out: a request that decodes, or a
response of a request that waits. Only while it is assumed may a segment inside a frame that begins with the
frame that is due end it; afterwards a frame ends where its length says, whatever it looks like.

A frame that lies in one segment is taken from where the segment lies; only what goes on in the next segment
is copied to the arena.

Every function that may find a table full leaves everything so that it can be called again: what was taken of
the item at hand is in `run.cursor`, and a frame that is complete but was not told has `got == size`.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import append, came, drop_front, empty_buffer
from kwsniff.engine.bodies import skim_request
from kwsniff.engine.connections import is_on_trial
from kwsniff.engine.headers import (
    REQUEST_HEADER,
    YES,
    begins_request,
    comes_next,
    correlation_id,
    is_known,
    names_client,
    request_at,
)
from kwsniff.engine.notes import (
    ENDS_EARLY,
    FRAME_SIZE_INVALID,
    FRAME_TOO_LARGE,
    FRAMING_LOST,
    TURNED,
    decided,
    note,
    room_for_notes,
)
from kwsniff.engine.outcomes import room_for_frame, time_of
from kwsniff.engine.requests import take_request_frame
from kwsniff.engine.responses import expire_early, pair_pending, remove_early, take_response_frame
from kwsniff.engine.row_tables import UNKNOWN
from kwsniff.engine.search import EFFORT, hides_response, lose_framing, search, search_buffer
from kwsniff.engine.tables import KAFKA
from kwsniff.engine.waiting import release
from kwsniff.native.mode import int16, int32, kernel

MIN_FRAME = 4
"""The shortest frame holds a correlation id ..."""
TOKEN_FRAMES = 32
"""... but among the first frames of a connection there may be SASL tokens, which may be empty."""
KEPT = 1024
"""Bytes of a broken frame kept for its header."""


@kernel
def least_size(s: Any) -> int:
    """The smallest length that a frame may have now."""
    return 0 if s.from_start and s.frames < TOKEN_FRAMES else MIN_FRAME


@kernel
def finish_frame(t: Any, c: int, k: int) -> None:
    """Take the frame in progress, all of which went by."""
    s = t.sides[2 * c + k]
    f = t.frame[0]
    f.conn, f.side = c, k
    f.start, f.end, f.size = s.buf, s.buf + s.have, s.size
    f.first_time, f.last_time, f.packet = s.first_time, s.frame_time, s.frame_packet
    f.whole = 0 if s.broken else 1
    if s.buf < 0:
        f.start = f.end = 0
    take_frame(t, t.arena)
    count_frame(t, c, s, k, t.arena, f.start, f.end)
    empty_buffer(t, s)
    s.size = s.got = s.broken = 0


@kernel
def in_progress(t: Any, s: Any) -> int:
    """Correlation id of the request in progress, UNKNOWN if there is none."""
    if s.buf < 0 or not s.synchronised:
        return UNKNOWN
    return correlation_id(t.arena, s.buf, s.buf + s.have)


@kernel
def count_frame(t: Any, c: int, s: Any, k: int, data: Any, start: int, end: int) -> None:
    """Count a frame that was taken."""
    s.frames += 1
    if k == t.conns[c].client and end > start:
        found = correlation_id(data, start, end)
        if found != UNKNOWN:
            s.latest = found


@kernel
def frame_in_place(t: Any, c: int, k: int, data: Any, start: int, size: int) -> None:
    """Take a frame that lies in one segment."""
    s, item = t.sides[2 * c + k], t.item[0]
    f = t.frame[0]
    f.conn, f.side = c, k
    f.start, f.end, f.size = start, start + size, size
    f.first_time, f.last_time, f.packet = item.time, item.time, item.packet
    f.whole = 1
    take_frame(t, data)
    count_frame(t, c, s, k, data, start, start + size)


@kernel
def refuse_size(t: Any, c: int, k: int, size: int, packet: int) -> None:
    """A length that no frame can have: the framing is lost."""
    room_for_notes(t, 1)
    s = t.sides[2 * c + k]
    note(t, c, FRAME_SIZE_INVALID, packet, t.conns[c].last_time, size, k)
    decided(t, c, FRAMING_LOST, k, size, 1)
    lose_framing(s)


@kernel
def begin_frame(t: Any, c: int, k: int, size: int, packet: int) -> None:
    """The length of the frame in progress is known, and it is not whole."""
    s = t.sides[2 * c + k]
    limits = t.limits[0]
    if size < least_size(s) or size > limits.max_frame_bytes:
        refuse_size(t, c, k, size, packet)
        s.skipped += 1
        drop_front(t, s, 1)
        return
    if size + 4 > limits.max_connection_bytes:
        room_for_notes(t, 1)
        note(t, c, FRAME_TOO_LARGE, packet, t.conns[c].last_time, size + 4, k)
        s.broken = 1
    s.size, s.got = size + 4, s.have


@kernel
def hides_frame(t: Any, c: int, k: int, data: Any, pos: int, end: int) -> bool:
    """Whether a segment inside a frame whose beginning was only assumed begins with the frame that is due."""
    if k != t.conns[c].client:
        return hides_response(t, c, k, data, pos, end)
    s = t.sides[2 * c + k]
    if s.got < REQUEST_HEADER or not begins_request(t, data, pos, end):
        return False
    found = correlation_id(data, pos, end)
    return comes_next(found, s.latest) or comes_next(found, in_progress(t, s))


@kernel
def cut_short(t: Any, c: int, k: int, packet: int) -> None:
    """The length of the frame in progress was wrong, another follows: it ends here."""
    s = t.sides[2 * c + k]
    room_for_notes(t, 1)
    note(t, c, FRAME_SIZE_INVALID, packet, t.conns[c].last_time, s.size - 4, 2 + k)
    decided(t, c, ENDS_EARLY, k, s.size, s.got)
    is_request = k == t.conns[c].client and s.have >= REQUEST_HEADER
    if is_request and is_known(t, int16(t.arena, s.buf + 4), int16(t.arena, s.buf + 6)):
        s.size = s.got = s.have
    else:
        s.skipped += s.have
        empty_buffer(t, s)
        s.size = s.got = s.broken = 0


@kernel
def feed(t: Any, c: int, k: int, data: Any, size: int) -> None:
    """Take contiguous bytes of a Kafka stream: the first `size` of the item, of which `run.cursor` were taken
    already."""
    run = t.run[0]
    s = t.sides[2 * c + k]
    if run.cursor == 0:
        run.effort = EFFORT * (size + s.have)
    while True:
        left = size - run.cursor
        at = t.item[0].pos + run.cursor
        if run.pairing >= 0:
            pair_pending(t)
        elif s.size > 0 and s.got == s.size:
            finish_frame(t, c, k)
        elif s.synchronised and s.size == 0 and s.have >= 4:
            unbuffer(t, c, k)
        elif not s.synchronised and s.have > s.searched:
            search_buffer(t, c, k)
        elif left <= 0:
            return
        elif not s.synchronised:
            search(t, c, k, data, at, left)
            if t.conns[c].state != KAFKA:
                return
        elif s.size > 0:
            go_on(t, c, k, data, at, left)
        else:
            start(t, c, k, data, at, left)


@kernel
def start(t: Any, c: int, k: int, data: Any, at: int, left: int) -> None:
    """Take bytes of which the length of the next frame is the first, or what lacks of one."""
    run = t.run[0]
    s = t.sides[2 * c + k]
    if s.have == 0 and left >= 4:
        size = int32(data, at)
        if size >= least_size(s) and size <= t.limits[0].max_frame_bytes and 4 + size <= left:
            frame_in_place(t, c, k, data, at, size + 4)
            run.cursor += size + 4
            return
    wanted = min(4 - s.have, left)
    fresh = s.have == 0
    append(t, s, data, at, wanted)
    came(t, s, fresh)
    run.cursor += wanted


@kernel
def go_on(t: Any, c: int, k: int, data: Any, at: int, left: int) -> None:
    """Take bytes of a frame whose length is known."""
    run = t.run[0]
    s = t.sides[2 * c + k]
    if s.assumed and run.cursor == 0:
        if hides_frame(t, c, k, data, at, at + left):
            cut_short(t, c, k, t.item[0].packet)
            return
    wanted = min(s.size - s.got, left)
    if not s.broken:
        append(t, s, data, at, wanted)
    elif s.have < KEPT and s.have == s.got:
        append(t, s, data, at, min(wanted, KEPT - s.have))
    came(t, s, False)
    s.got += wanted
    run.cursor += wanted


@kernel
def gap(t: Any, c: int, k: int) -> None:
    """Take bytes of the item that the capture lacks; `run.cursor` says how many were taken."""
    run, item = t.run[0], t.item[0]
    s = t.sides[2 * c + k]
    if k != t.conns[c].client:
        t.conns[c].response_gap = 1
    while True:
        if run.pairing >= 0:
            pair_pending(t)
            continue
        if s.size > 0 and s.got == s.size:
            finish_frame(t, c, k)
            continue
        left = item.length - run.cursor
        if left <= 0:
            return
        if s.size > 0:
            wanted = min(s.size - s.got, left)
            s.broken = 1
            s.got += wanted
            run.cursor += wanted
            if item.packet >= 0:  # a packet carried them, the snap length cut it
                came(t, s, False)
            elif s.got == s.size:
                s.frame_time = -1
            continue
        s.skipped += s.have
        empty_buffer(t, s)
        decided(t, c, FRAMING_LOST, k, left, 0)
        lose_framing(s)
        run.cursor = item.length


@kernel
def unbuffer(t: Any, c: int, k: int) -> None:
    """Take the frame at the beginning of the buffer, if it is whole; if not, it is the one in progress."""
    s = t.sides[2 * c + k]
    size = int32(t.arena, s.buf)
    if size < least_size(s) or size > t.limits[0].max_frame_bytes or size + 4 > s.have:
        begin_frame(t, c, k, size, s.frame_packet)
        return
    f = t.frame[0]
    f.conn, f.side = c, k
    f.start, f.end, f.size = s.buf, s.buf + size + 4, size + 4
    f.first_time, f.last_time, f.packet = s.first_time, s.frame_time, s.frame_packet
    f.whole = 1
    take_frame(t, t.arena)
    count_frame(t, c, s, k, t.arena, s.buf, s.buf + size + 4)
    s.first_time = s.frame_time
    drop_front(t, s, size + 4)


# A frame goes to the end that sent it.
#
# A request is read at once and waits (`requests`); a response takes the request with its correlation id, or
# waits for it (`responses`), and makes a call (`outcomes`). Pairing comes first and needs only the header:
# whatever is wrong with a body, the call has its latency.


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


# Turning a connection round when not the end that its port says is the client, but the other one.
#
# Theory of operation. A connection that is met in the middle, and of which nothing is proven while no more
# can be held, is believed for its port: it is on trial (`connections.is_on_trial`) and tells no calls. A port
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
