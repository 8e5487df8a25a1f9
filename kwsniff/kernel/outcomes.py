"""Calls that are over: the row that each becomes, with a response or without.

A request that a gap in the responses leaves unanswered is known to be lost as soon as a later one is
answered, because brokers answer in order.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.arena import WANT_CALLS, lacks
from kwsniff.kernel.calls import join
from kwsniff.kernel.facts import clear
from kwsniff.kernel.numbers import NONE, OK
from kwsniff.kernel.remarks import is_shown
from kwsniff.kernel.tables import TRUNCATED_, UNANSWERED_
from kwsniff.kernel.trace import UNANSWERED, decided
from kwsniff.kernel.waiting import release
from kwsniff.native.mode import kernel

MAX_TOLD = 16 << 20
"""Bytes of texts that calls may refer to before they are made into events."""


@kernel
def blank(t: Any, call: Any, c: int) -> None:
    """What a call has whatever it says."""
    run, conn = t.run[0], t.conns[c]
    call.order, call.conn, call.number = run.order, c, conn.number
    call.rank, call.left = run.rank, conn.left
    call.capture, call.client = conn.capture, conn.client
    call.key = call.version = -1
    call.client_id = -2
    call.correlation_id = 0
    call.first_time = call.last_time = call.response_first = call.response_last = -1
    call.size = call.response_size = NONE
    call.packet = call.response_packet = -1
    call.status = call.because = 0
    call.in_flight = NONE
    call.software, call.software_version = conn.software, conn.software_version
    call.user, call.mechanism = conn.user, conn.mechanism
    call.response_end = call.throttled_until = -1
    call.closed_by, call.open_until, call.handshake = 0, -1, conn.handshake
    call.request_body = call.response_body = -1
    call.error = call.errors = call.throttle = call.acks = call.max_wait = call.min_bytes = NONE
    call.group = call.member = call.transactional_id = -1
    call.group_protocol = call.protocol_type = call.reason = call.rack = -1
    call.generation = call.validate_only = call.session_id = call.session_epoch = NONE
    call.names = call.uuids = call.rows = call.asked = call.resources = call.brokers = 0
    call.records = call.record_bytes = NONE
    call.tail = 0


@kernel
def tell(t: Any, row: int, replied: bool, status: int, because: int) -> int:
    """Add a call: a request with the response at hand, or without."""
    run, request = t.run[0], t.requests[row]
    conn = t.conns[request.conn]
    if not conn.proven:
        return OK
    if run.emitted_bytes > MAX_TOLD:
        return lacks(t, WANT_CALLS, 0)
    if run.calls + 1 > len(t.calls):
        return lacks(t, WANT_CALLS, 1)
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
    code = join(t, row, run.calls)
    if code != OK:
        return code
    run.calls += 1
    weigh(t, call)
    return OK


@kernel
def weigh(t: Any, call: Any) -> None:
    """Count the bytes of the texts that a call refers to: many calls may refer to the same long one."""
    size = (
        size_of(t, call.client_id) + size_of(t, call.software) + size_of(t, call.software_version)
        + size_of(t, call.user) + size_of(t, call.group) + size_of(t, call.member)
        + size_of(t, call.transactional_id) + size_of(t, call.group_protocol) + size_of(t, call.protocol_type)
        + size_of(t, call.reason) + size_of(t, call.rack)
    )  # fmt: skip
    end = t.store[0].call_names
    for at in range(end - call.names, end):
        size += size_of(t, t.call_names[at].name)
    t.run[0].emitted_bytes += size
    t.run[0].packet_bytes += size


@kernel
def size_of(t: Any, number: int) -> int:
    """Bytes of a text, 0 if it is none."""
    return t.texts[number].size if number >= 0 else 0


@kernel
def give_up(t: Any, c: int, row: int, because: int) -> int:
    """Report a request that waits as unanswered; one whose end was not captured has no answer to wait for."""
    if t.requests[row].status == TRUNCATED_ and t.requests[row].last_time < 0:
        code = tell(t, row, False, TRUNCATED_, 0)
    else:
        code = tell(t, row, False, UNANSWERED_, because)
    if code != OK:
        return code
    decided(t, c, UNANSWERED, 0, t.requests[row].correlation_id, because)
    release(t, row)
    return OK
