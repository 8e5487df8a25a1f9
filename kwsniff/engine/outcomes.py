"""Calls that are over: the row that each becomes, with a response or without.

A request that a gap in the responses leaves unanswered is known to be lost as soon as a later one is
answered, because brokers answer in order.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import WANT_BODIES, WANT_BODY_DATA, WANT_CALLS, WANT_KEEP, lacks
from kwsniff.engine.calls import join
from kwsniff.engine.facts import clear
from kwsniff.engine.notes import (
    BAD_BODY,
    BUFFER_LIMIT,
    HEADER_MALFORMED,
    KINDS,
    UNANSWERED,
    decided,
    note,
    room_for_notes,
)
from kwsniff.engine.tables import SPEC_OF, TRUNCATED_, UNANSWERED_
from kwsniff.engine.waiting import release
from kwsniff.native.mode import kernel, made
from kwsniff.native.octets import copy
from kwsniff.native.rowcopies import NONE, TEXT

MAX_TOLD = 16 << 20
"""Bytes of texts that calls may refer to before they are made into events."""


_reset = made("reset_call", "row", SPEC_OF["calls"].reset())


@kernel
def blank(t: Any, call: Any, c: int) -> None:
    """Reset a call row and fill the fields of its connection."""
    run, conn = t.run[0], t.conns[c]
    _reset(call)
    call.order, call.conn, call.number = run.order, c, conn.number
    call.rank, call.left = run.rank, conn.left
    call.capture, call.client = conn.capture, conn.client
    call.software, call.software_version = conn.software, conn.software_version
    call.user, call.handshake = conn.user, conn.handshake


@kernel
def tell(t: Any, row: int, replied: bool, status: int, because: int) -> None:
    """Add a call: a request with the response at hand, or without."""
    run, request = t.run[0], t.requests[row]
    conn = t.conns[request.conn]
    if not conn.proven:
        return
    room_for_call(t)
    call = t.calls[run.calls]
    blank(t, call, request.conn)
    call.key, call.version, call.correlation_id = request.key, request.version, request.correlation_id
    call.client_id = request.client_id
    call.first_time, call.last_time, call.size, call.packet = (
        request.first_time, request.last_time, request.size, request.packet
    )  # fmt: skip
    call.in_flight, call.status, call.because = request.in_flight, status, because
    call.request_body = request.serial
    if request.software >= 0:
        call.software, call.software_version = request.software, request.software_version
    if replied:
        f = t.frame[0]
        call.response_first, call.response_last = f.first_time, f.last_time
        call.response_size, call.response_packet = f.size, f.packet
        # A broker answers in order: it was busy with this one only after the response before.
        call.response_end, call.throttled_until = conn.response_end, conn.throttled_until
        if is_shown(t, 1):
            call.response_body = run.serial
        if status == TRUNCATED_ and conn.ended_inside & 2:
            call.closed_by = conn.closed_by
    else:
        clear(t, 1)
        if because or conn.ended_inside & 1:
            call.closed_by = conn.closed_by
        if because:
            call.open_until = conn.last_time
    join(t, row, run.calls)
    run.calls += 1
    weigh(t, call)


@kernel
def room_for_call(t: Any) -> None:
    """See that a call can be added."""
    if t.run[0].emitted_bytes > MAX_TOLD:
        lacks(t, WANT_CALLS, 0)
    if t.run[0].calls + 1 > len(t.calls):
        lacks(t, WANT_CALLS, 1)


@kernel
def size_of(t: Any, number: int) -> int:
    """Bytes of a text, 0 if it is none."""
    return t.texts[number].size if number >= 0 else 0


_weight = made(
    "weight_of_call",
    "t, row",
    ["return " + " + ".join(f"size_of(t, row.{name})" for name in SPEC_OF["calls"].of(TEXT))],
    size_of=size_of,
)


@kernel
def weigh(t: Any, call: Any) -> None:
    """Count the bytes of the texts that a call refers to: many calls may refer to the same long one."""
    size = _weight(t, call)
    end = t.store[0].call_names
    for at in range(end - call.names, end):
        size += size_of(t, t.call_names[at].name)
    t.run[0].emitted_bytes += size
    t.run[0].packet_bytes += size


@kernel
def give_up(t: Any, c: int, row: int, because: int) -> None:
    """Report a request that waits as unanswered; one whose end was not captured has no answer to wait for."""
    if t.requests[row].status == TRUNCATED_ and t.requests[row].last_time < 0:
        tell(t, row, False, TRUNCATED_, 0)
    else:
        tell(t, row, False, UNANSWERED_, because)
    decided(t, c, UNANSWERED, 0, t.requests[row].correlation_id, because)
    release(t, row)


# What is said of single frames: what is wrong with them, and when they came.

NOTES = 8
"""Anomalies that one frame may bring, at the most."""
MAX_EXPLAINED = 65_536
"""Bytes of a body that are looked at again to say what is wrong with it."""


@kernel
def time_of(f: Any) -> int:
    """Packet time of the end of a frame, or else of its beginning."""
    return f.last_time if f.last_time >= 0 else f.first_time


@kernel
def room_for_frame(t: Any) -> None:
    """See that there is room for what the frame at hand may bring."""
    f = t.frame[0]
    if t.run[0].calls + 2 > len(t.calls):
        lacks(t, WANT_CALLS, 2)
    room_for_notes(t, NOTES)
    if t.run[0].kept + min(f.end - f.start, MAX_EXPLAINED) > len(t.keep):
        lacks(t, WANT_KEEP, MAX_EXPLAINED)
    room_for_body(t)


@kernel
def room_for_damage(t: Any, direction: int) -> None:
    """See that what is wrong with the record data of a body can be told."""
    damaged = t.facts[direction].damaged
    if damaged:
        room_for_notes(t, NOTES + KINDS * damaged)


@kernel
def note_body(t: Any, row: int, direction: int, data: Any) -> None:
    """Tell that a body could not be read; the words are found later, from its bytes."""
    f, request = t.frame[0], t.requests[row]
    facts = t.facts[direction]
    note(t, f.conn, BAD_BODY + facts.code, f.packet, time_of(f), direction, facts.offset)
    emitted = t.notes[t.run[0].notes - 1]
    emitted.c = request.key * 65536 + request.version
    emitted.at, emitted.size = t.run[0].kept, min(max(f.end - f.body, 0), MAX_EXPLAINED)
    for at in range(emitted.size):
        t.keep[emitted.at + at] = data[f.body + at]
    t.run[0].kept += emitted.size


@kernel
def unreadable(t: Any, direction: int) -> None:
    """A frame too short for its header; or no more of it was captured, which is told elsewhere."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    conn.undecoded += 1
    conn.frames += 1
    if f.whole:
        note(t, f.conn, HEADER_MALFORMED, f.packet, time_of(f), direction, f.size)
        t.notes[t.run[0].notes - 1].c = f.end - f.start


# Bodies that are to be shown (`--full`): their bytes are kept until they are made into JSON.
#
# Theory of operation. A body has a number, which its call refers to; its bytes stand in `body_data`, which is
# emptied whenever it is full: what becomes of them is no matter of the kernels. The text of a request's body
# has to wait for the response, and nobody could foresee how many do: so the bytes of bodies that wait are
# counted, and one too many is not shown.
#
# Invariant: `room_for_body` is asked before anything changes, `keep_body` is the last thing that does.

SHARE = 4
"""One part in so many of the bytes that the run may hold is for bodies that wait."""


@kernel
def room_for_body(t: Any) -> None:
    """See that the body of the frame at hand can be kept."""
    run, f = t.run[0], t.frame[0]
    if t.limits[0].full == 0:
        return
    if run.bodies + 1 > len(t.bodies):
        lacks(t, WANT_BODIES, 1)
    if run.body_bytes + f.end - f.start > len(t.body_data):
        lacks(t, WANT_BODY_DATA, f.end - f.start)


@kernel
def is_shown(t: Any, direction: int) -> bool:
    """Whether the body at hand, which was read into `facts`, is to be shown."""
    return t.limits[0].full != 0 and t.facts[direction].clean != 0 and t.facts[direction].code == 0


@kernel
def keep_body(t: Any, data: Any, direction: int, guessed: int) -> None:
    """Keep the body of the frame at hand; its number is the next one."""
    run, f = t.run[0], t.frame[0]
    body = t.bodies[run.bodies]
    body.order, body.conn, body.number = run.order, f.conn, t.conns[f.conn].number
    body.serial, body.direction = run.serial, direction
    body.packet, body.time = f.packet, time_of(f)
    body.key, body.version = t.layouts[f.layout].key, t.layouts[f.layout].version
    body.guessed = guessed
    body.rank, body.left = run.rank, t.conns[f.conn].left
    body.at, body.size = run.body_bytes, f.end - f.body
    copy(data, f.body, body.size, t.body_data, body.at)
    run.bodies += 1
    run.body_bytes += body.size
    run.serial += 1


@kernel
def let_wait(t: Any, row: int) -> None:
    """Number the body of a request that is to be shown, if so much may wait."""
    run, f, request = t.run[0], t.frame[0], t.requests[row]
    size = f.end - f.body
    if t.facts[0].record_bytes != NONE and t.limits[0].records == 0:
        size -= t.facts[0].record_bytes
    if run.bodies_waiting + size > t.limits[0].max_buffered_bytes // SHARE:
        return
    request.serial, request.shown = run.serial, size
    run.bodies_waiting += size
    run.most_shown = max(run.most_shown, run.bodies_waiting)


@kernel
def wait_no_more(t: Any, row: int) -> None:
    """The body of a request is told."""
    t.run[0].bodies_waiting -= t.requests[row].shown
    t.requests[row].shown = 0


@kernel
def keep_request(t: Any, row: int, data: Any) -> None:
    """Keep the body of a request, or say that there is no room to let it wait."""
    f, request = t.frame[0], t.requests[row]
    if request.serial >= 0:
        keep_body(t, data, 0, 1 if request.layout < 0 else 0)
    else:
        note(t, f.conn, BUFFER_LIMIT, f.packet, time_of(f), f.end - f.body, 0)
