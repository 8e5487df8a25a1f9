"""What client and broker say to each other on one connection: frames in, calls and anomalies out.

Theory of operation. A request is read at once, so that its bytes can be let go, and waits; a response takes
the request with its correlation id, is read by that request's API and version, and makes a call. Pairing
comes first and needs only the header: whatever is wrong with a body, the call has its latency.

A response that comes before any request it could answer waits too: packets of the two directions may have
been captured in another order than they were sent. It is an orphan once a later request has come, or a while
has gone by, unless requests wait behind a hole.

A request that a gap in the responses leaves unanswered is known to be lost as soon as a later one is
answered, because brokers answer in order.

Every function that may find a table full leaves everything so that it can be called again.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel import texts
from kwsniff.kernel.arena import allocate, copy, release
from kwsniff.kernel.bodies import clear, downgraded, peek_acks, read, unsupported
from kwsniff.kernel.calls import forget, join, keep
from kwsniff.kernel.clocks import compare
from kwsniff.kernel.codes import (
    BAD_BODY,
    CORRELATION_ID_REUSED,
    HEADER_MALFORMED,
    OUTSTANDING_LIMIT,
    REPLY_TO_ACKS_0,
    RESPONSE_BEFORE_REQUEST,
    RESPONSE_OUT_OF_ORDER,
    TRAILING_BYTES,
    UNKNOWN_API,
    UNKNOWN_VERSION,
)
from kwsniff.kernel.damage import KINDS, note_damage
from kwsniff.kernel.headers import AHEAD, YES, comes_next, names_client, request_at
from kwsniff.kernel.keeping import is_shown, keep_body, keep_request, let_wait, room_for_body, wait_no_more
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, NONE, OK, REFUSED, int16, int32
from kwsniff.kernel.rows import (
    WANT_CALLS,
    WANT_KEEP,
    drop_early,
    drop_request,
    lacks,
    note,
    room_for_notes,
    take_early,
    take_request,
)
from kwsniff.kernel.sasl import learn_user
from kwsniff.kernel.skimming import EXTRA, layout_of, skip_tags, wants_program
from kwsniff.kernel.tables import (
    ERROR_,
    GAP_REASON,
    LIMIT_REASON,
    NO_REPLY_,
    OK_,
    ORPHAN_,
    TRUNCATED_,
    UNANSWERED_,
    UNDECODED_,
    UNKNOWN,
)
from kwsniff.kernel.trace import (
    DROPPED,
    EARLY,
    ORPHANED,
    PAIRED,
    PAIRED_EARLY,
    REQUEST,
    UNANSWERED,
    UNASKED,
    decided,
)
from kwsniff.kernel.waiting import find_unasked, find_waiting, link, unlink

MAX_EARLY = 1000
"""Responses without request that a connection may have."""
MAX_UNASKED = 250
"""Requests without reply that are remembered of a connection."""
MAX_TOLD = 16 << 20
"""Bytes of texts that calls may refer to before they are made into events."""
RESERVED = 0x7FFFFFF8
"""From here on the Java client takes its correlation ids while it authenticates (KIP-368); they say nothing
of those that follow."""
NOTES = 8
"""Anomalies that one frame may bring, at the most."""
MAX_EXPLAINED = 65_536
"""Bytes of a body that are looked at again to say what is wrong with it."""


@kernel
def take_frame(t: Any, data: Any) -> int:
    """Take the frame at hand."""
    f = t.frame[0]
    f.body = f.start
    if t.run[0].calls + 2 > len(t.calls):
        return lacks(t, WANT_CALLS, 2)
    if room_for_notes(t, NOTES) != OK:
        return FULL
    if t.run[0].kept + min(f.end - f.start, MAX_EXPLAINED) > len(t.keep):
        return lacks(t, WANT_KEEP, MAX_EXPLAINED)
    if room_for_body(t) != OK:
        return FULL
    if f.side == t.conns[f.conn].client:
        return take_request_frame(t, data)
    if t.conns[f.conn].early:
        code = expire_early(t, f.conn, time_of(f))
        if code != OK:
            return code
    return take_response_frame(t, data)


# Requests


@kernel
def take_request_frame(t: Any, data: Any) -> int:
    """Take a frame that the client sent."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    pos = f.start + 4
    if conn.raw_tokens and not ends_tokens(t, data):
        code = learn_user(t, f.conn, data, pos, f.end)
        if code == OK:
            conn.raw_waiting += 1
            conn.tokens += 1
            conn.frames += 1
        return code
    if f.end - pos < 8:
        unreadable(t, 0)
        return OK
    key, version, correlation_id = int16(data, pos), int16(data, pos + 2), int32(data, pos + 4)
    limits = t.limits[0]
    if conn.early:
        code = pass_early(t, f.conn, correlation_id)
        if code != OK:
            return code
    if conn.in_flight >= limits.max_outstanding:
        oldest = conn.first_request
        given_up = t.requests[oldest].correlation_id
        code = give_up(t, f.conn, oldest, GAP_REASON if conn.response_gap else LIMIT_REASON)
        if code != OK:
            return code
        note(t, f.conn, OUTSTANDING_LIMIT, f.packet, time_of(f), given_up, 0)
    row = take_request(t)
    if row < 0:
        return FULL
    request = t.requests[row]
    request.conn, request.key, request.version, request.correlation_id = f.conn, key, version, correlation_id
    request.layout = layout_of(t, key, version)
    request.order, request.first_time, request.last_time = t.run[0].order, f.first_time, f.last_time
    request.size, request.packet, request.in_flight = f.size, f.packet, conn.in_flight
    request.unasked, request.serial = 0, -1
    request.status = OK_ if f.whole else TRUNCATED_
    code = read_request(t, row, data, pos + 8)
    if code == OK:
        code = settle_request(t, row, data)
    if code != OK:
        drop_request(t, row)
    return code


@kernel
def time_of(f: Any) -> int:
    """Packet time of the end of a frame, or else of its beginning."""
    return f.last_time if f.last_time >= 0 else f.first_time


@kernel
def read_request(t: Any, row: int, data: Any, pos: int) -> int:
    """Read header and body of a request as far as they can be read."""
    f, request = t.frame[0], t.requests[row]
    request.client_id = -2
    clear(t, 0)
    names, flexible = 1, 0
    if request.layout >= 0:
        names, flexible = t.layouts[request.layout].client_id, t.layouts[request.layout].flexible_request
    if names:
        if f.end - pos < 2 or pos + 2 + max(int16(data, pos), 0) > f.end:
            return bad_header(t, row)
        size = int16(data, pos)
        pos += 2
        if size >= 0:
            found = texts.text(t, data, pos, size, 0)
            if found == FULL:
                return FULL
            request.client_id = found
            pos += size
        else:
            request.client_id = -1
    if request.layout < 0:
        if request.status == OK_:
            request.status = UNDECODED_
        return read_newer(t, row, data, pos)
    if flexible:
        pos = skip_tags(data, pos, f.end)
        if pos < 0:
            return bad_header(t, row)
    layout = t.layouts[request.layout]
    if layout.request < 0:
        return wants_program(t, request.layout)
    if not f.whole:
        if layout.acks_zero:
            t.facts[0].acks = peek_acks(t, data, pos, f.end, request.version)
        return OK
    f.body, f.layout = pos, request.layout
    code = read(t, data, pos, f.end, layout.request, True)
    if code == REFUSED:
        request.status = UNDECODED_
        return OK
    return code


@kernel
def read_newer(t: Any, row: int, data: Any, pos: int) -> int:
    """Read a request of a version that is newer than those known as if it were of the newest known one. Most
    versions have the layout of the one before, or end with something new: what fits to the last byte is what
    it seems to be in 999 of 1,000 cases, and nothing is made of what does not."""
    f = t.frame[0]
    f.layout = newer(t, row)
    if f.layout < 0:
        return OK
    layout = t.layouts[f.layout]
    if layout.request < 0:
        return wants_program(t, f.layout)
    if layout.flexible_request:
        after = skip_tags(data, pos, f.end)
        pos = after if after >= 0 else pos
    f.body = pos
    if f.whole:
        code = read(t, data, pos, f.end, layout.request, True)
        if code == FULL or (code == OK and t.facts[0].trailing == 0):
            return code
        clear(t, 0)
    if layout.acks_zero:
        t.facts[0].acks = peek_acks(t, data, pos, f.end, t.requests[row].version)
    return OK


@kernel
def wants_no_reply(t: Any, row: int) -> bool:
    """Whether the request that was read is a Produce with acks=0."""
    if t.facts[0].acks != 0:
        return False
    known = t.requests[row].layout
    layout = known if known >= 0 else newer(t, row)
    return layout >= 0 and t.layouts[layout].acks_zero != 0


@kernel
def bad_header(t: Any, row: int) -> int:
    """The header of a request cannot be read; a truncated one may be no worse than that."""
    if t.requests[row].status == OK_:
        t.requests[row].status = UNDECODED_
        t.facts[0].code = -1
    return OK


@kernel
def settle_request(t: Any, row: int, data: Any) -> int:
    """A request was read: tell what is wrong with it, and let it wait, pair it, or tell it at once."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    if room_for_damage(t, 0) != OK:
        return FULL
    code = keep(t, row)
    if code != OK:
        return code
    if is_shown(t, 0):
        let_wait(t, row)
    if t.facts[0].clean and request.layout >= 0 and request.client_id >= 0 and names_client(data, f.start):
        conn.proven = 1
    code = learn(t, row, data)
    if code != OK:
        forget(t, row)
        return code
    if wants_no_reply(t, row):
        return settle_unasked(t, row, data)
    early = find_early(t, f.conn, request.correlation_id)
    note_request(t, row, data)
    if find_waiting(t, f.conn, request.correlation_id) >= 0:
        note(t, f.conn, CORRELATION_ID_REUSED, f.packet, time_of(f), request.correlation_id, 0)
    link(t, row)
    decided(t, f.conn, REQUEST, f.side, request.correlation_id, request.key * 65536 + request.version)
    conn.frames += 1
    if request.client_id != -2:
        conn.client_id = request.client_id
    if early >= 0:
        t.run[0].pairing = row
    return OK


@kernel
def note_request(t: Any, row: int, data: Any) -> None:
    """Tell what is wrong with a request."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    if request.layout < 0:
        known = 0 <= request.key < len(t.apis) and t.apis[request.key].first >= 0
        code = UNKNOWN_VERSION if known else UNKNOWN_API
        note(t, f.conn, code, f.packet, time_of(f), request.key, request.version)
    elif request.status == UNDECODED_:
        if t.facts[0].code == -1:
            note(t, f.conn, HEADER_MALFORMED, f.packet, time_of(f), -1, f.size)
        else:
            note_body(t, row, 0, data)
    elif t.facts[0].clean and t.facts[0].trailing:
        note(t, f.conn, TRAILING_BYTES, f.packet, time_of(f), t.facts[0].trailing, 0)
    if t.facts[0].damaged and request.layout >= 0:
        note_damage(t, t.facts[0].rows)
    if request.status == UNDECODED_:
        conn.undecoded += 1
    if is_shown(t, 0):
        keep_request(t, row, data)


@kernel
def room_for_damage(t: Any, direction: int) -> int:
    """OK if what is wrong with the record data of a body can be told, else FULL."""
    damaged = t.facts[direction].damaged
    return room_for_notes(t, NOTES + KINDS * damaged) if damaged else OK


@kernel
def note_body(t: Any, row: int, direction: int, data: Any) -> None:
    """Tell that a body could not be read; the words are found later, from its bytes."""
    f, request = t.frame[0], t.requests[row]
    facts = t.facts[direction]
    note(t, f.conn, BAD_BODY + facts.code, f.packet, time_of(f), direction, facts.offset)
    told = t.notes[t.run[0].notes - 1]
    told.c = request.key * 65536 + request.version
    told.at, told.size = t.run[0].kept, min(max(f.end - f.body, 0), MAX_EXPLAINED)
    for at in range(told.size):
        t.keep[told.at + at] = data[f.body + at]
    t.run[0].kept += told.size


@kernel
def settle_unasked(t: Any, row: int, data: Any) -> int:
    """A request that wants no response is a whole call."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    code = tell(t, row, False, NO_REPLY_, 0)
    if code != OK:
        forget(t, row)
        return code
    note_request(t, row, data)
    wait_no_more(t, row)
    forget(t, row)
    conn.frames += 1
    conn.client_id = request.client_id
    early = find_early(t, f.conn, request.correlation_id)
    if early >= 0:
        note_early_reply(t, f.conn, early)
        drop_request(t, row)
        return OK
    request.unasked = 1
    link(t, row)
    decided(t, f.conn, UNASKED, f.side, request.correlation_id, request.key * 65536 + request.version)
    if conn.unasked > MAX_UNASKED:
        oldest = conn.first_unasked
        unlink(t, oldest)
        drop_request(t, oldest)
    return OK


@kernel
def note_early_reply(t: Any, c: int, early: int) -> None:
    """A broker's answer to acks=0 was captured before the request that wants none."""
    found = t.early[early]
    note(t, c, REPLY_TO_ACKS_0, found.packet, found.last_time, found.correlation_id, 0)
    remove_early(t, c, early)


@kernel
def learn(t: Any, row: int, data: Any) -> int:
    """Keep what a request says of the client for the whole connection."""
    f, facts = t.frame[0], t.facts[0]
    conn = t.conns[f.conn]
    if not facts.clean:
        return OK
    if facts.software_name >= 0:
        conn.asked_software, conn.asked_version = facts.software_name, facts.software_version
        if conn.software < 0:
            conn.software, conn.software_version = facts.software_name, facts.software_version
    if facts.mechanism >= 0:
        conn.mechanism = facts.mechanism
    if facts.token != NONE:
        code = learn_user(t, f.conn, data, facts.token, facts.token_end)
        if code == OK:
            conn.tokens += 1
        return code
    return OK


@kernel
def ends_tokens(t: Any, data: Any) -> bool:
    """Whether raw SASL tokens are over: a request comes."""
    f = t.frame[0]
    if request_at(t, data, f.start, f.end, False) != YES:
        return False
    t.conns[f.conn].raw_tokens = 0
    t.conns[f.conn].raw_waiting = 0
    return True


# Responses


@kernel
def take_response_frame(t: Any, data: Any) -> int:
    """Take a frame that the broker sent."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    if conn.raw_waiting and not conn.in_flight:
        conn.raw_waiting -= 1
        return OK
    if f.end - f.start < 8:
        unreadable(t, 1)
        return OK
    found = int32(data, f.start + 4)
    row = find_waiting(t, f.conn, found)
    if row < 0 and found == 0 and conn.first_request >= 0:
        oldest = t.requests[conn.first_request]
        if oldest.layout >= 0 and t.layouts[oldest.layout].answered_zero:
            row = conn.first_request
    if row < 0:
        return unexpected(t, data, found)
    if conn.first_request != row:
        code = overtake(t, row)
        if code != OK:
            return code
    return answer(t, row, data)


@kernel
def unexpected(t: Any, data: Any, found: int) -> int:
    """No request waits for this response."""
    f = t.frame[0]
    row = find_unasked(t, f.conn, found)
    if row < 0:
        return wait_for_request(t, data, found)
    unlink(t, row)
    drop_request(t, row)
    note(t, f.conn, REPLY_TO_ACKS_0, f.packet, time_of(f), found, 0)
    t.conns[f.conn].frames += 1
    return OK


@kernel
def overtake(t: Any, row: int) -> int:
    """A response of a request that is not the oldest: brokers answer in order, so the older ones will not be
    answered. If nothing was lost the order was broken, which `answer` notes."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    if not conn.response_gap:
        return OK
    while conn.first_request != row:
        code = give_up(t, f.conn, conn.first_request, GAP_REASON)
        if code != OK:
            return code
    return OK


@kernel
def answer(t: Any, row: int, data: Any) -> int:
    """Make a call of a request and its response."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    if t.run[0].calls + 2 > len(t.calls):
        return lacks(t, WANT_CALLS, 2)
    if room_for_notes(t, NOTES) != OK:
        return FULL
    if t.run[0].kept + min(f.end - f.start, MAX_EXPLAINED) > len(t.keep):
        return lacks(t, WANT_KEEP, MAX_EXPLAINED)
    if room_for_body(t) != OK:
        return FULL
    status = request.status
    facts = t.facts[1]
    clear(t, 1)
    compare(t, f.conn, request.last_time, f.first_time, f.packet, time_of(f))
    bad = 0
    if not f.whole:
        status = TRUNCATED_
    elif request.layout >= 0 or newer(t, row) >= 0:
        code = read_response(t, row, data)
        if code == REFUSED:
            bad = 1
            if status != TRUNCATED_:
                status = UNDECODED_
        elif code != OK:
            return code
        elif facts.error != NONE and facts.error != 0 and (status == OK_ or is_refused(t, row)):
            status = ERROR_
        if room_for_damage(t, 1) != OK:
            return FULL
    if facts.clean and request.status == OK_ and facts.trailing <= EXTRA:
        conn.proven = 1
    reason, offset = facts.code, facts.offset
    shown = is_shown(t, 1) and conn.proven
    code = tell(t, row, True, status, 0)
    if code != OK:
        return code
    facts.code, facts.offset = reason, offset  # joining forgets what of a response was not decoded
    if conn.first_request != row and not conn.response_gap and t.run[0].pairing < 0:
        note(t, f.conn, RESPONSE_OUT_OF_ORDER, f.packet, time_of(f), request.correlation_id,
             t.requests[conn.first_request].correlation_id)  # fmt: skip
    if bad:
        conn.undecoded += 1
        if facts.code == -1:
            note(t, f.conn, HEADER_MALFORMED, f.packet, time_of(f), -2, f.size)
        else:
            note_body(t, row, 1, data)
    elif facts.clean and facts.code and request.layout >= 0:
        note_body(t, row, 1, data)
        told = t.notes[t.run[0].notes - 1]
        told.b, told.c = -1, request.key * 65536
    elif facts.clean and facts.trailing:
        note(t, f.conn, TRAILING_BYTES, f.packet, time_of(f), facts.trailing, 1)
    if facts.damaged and request.layout >= 0:
        note_damage(t, facts.rows)
    if shown:
        keep_body(t, data, 1, 1 if request.layout < 0 else 0)
    answered(t, row)
    return OK


@kernel
def newer(t: Any, row: int) -> int:
    """The newest layout of an API of which a version newer than known was asked for, -1 if it is not that: a
    broker that does not know the version either answers in one that is known."""
    request = t.requests[row]
    if request.key < 0 or request.key >= len(t.apis) or t.apis[request.key].first < 0:
        return -1
    api = t.apis[request.key]
    return api.first + api.high - api.low if request.version > api.high else -1


@kernel
def read_response(t: Any, row: int, data: Any) -> int:
    """Read the body of a whole response into facts 1."""
    f, request = t.frame[0], t.requests[row]
    pos = f.start + 8
    expected = request.layout if request.layout >= 0 else newer(t, row)
    chosen = downgraded(t, data, pos, f.end, expected)
    layout = t.layouts[chosen]
    if layout.response < 0:
        return wants_program(t, chosen)
    if layout.flexible_response:
        pos = skip_tags(data, pos, f.end)
        if pos < 0:
            t.facts[1].code = -1
            return REFUSED if request.layout >= 0 else OK
    f.body, f.layout = pos, chosen
    code = read(t, data, pos, f.end, layout.response, False)
    if code == REFUSED and chosen != expected:
        unsupported(t)
        return OK
    if request.layout < 0 and (code == REFUSED or t.facts[1].trailing):
        clear(t, 1)  # as with requests: what does not fit to the last byte says nothing
        return code if code == FULL else OK
    return code


@kernel
def is_refused(t: Any, row: int) -> bool:
    """Whether the broker does not know the version either: of a version that nobody knows this answer alone
    is known for certain."""
    return t.requests[row].layout < 0 and t.frame[0].layout != newer(t, row)


@kernel
def answered(t: Any, row: int) -> None:
    """A request waits no more: what its response says of the connection, and what it leaves."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    facts = t.facts[1]
    if conn.in_flight == 1:
        conn.response_gap = 0
    if facts.clean and request.layout >= 0:
        if t.layouts[request.layout].tokens and facts.error == 0:
            conn.raw_tokens = 1
        if facts.error == 0 and conn.asked_software >= 0 and t.layouts[request.layout].downgraded >= 0:
            conn.software, conn.software_version = conn.asked_software, conn.asked_version
        if facts.throttle != NONE and facts.throttle > 0:
            conn.throttled_until = max(conn.throttled_until, time_of(f) + facts.throttle * 1000000)
    ordinary = request.correlation_id < RESERVED
    if ordinary and (conn.answered == UNKNOWN or request.correlation_id > conn.answered):
        conn.answered = request.correlation_id
    conn.response_end = time_of(f)
    conn.frames += 1
    early = t.run[0].pairing >= 0
    decided(t, f.conn, PAIRED_EARLY if early else PAIRED, f.side, request.correlation_id, conn.proven)
    unlink(t, row)
    forget(t, row)
    drop_request(t, row)


# Responses that came before their requests


@kernel
def wait_for_request(t: Any, data: Any, found: int) -> int:
    """Keep a response that no request waits for."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    if conn.early >= MAX_EARLY:
        code = orphan(t, f.conn, conn.first_early)
        if code != OK:
            return code
    have = f.end - f.start
    at = allocate(t, have)
    if at < 0:
        return FULL
    row = take_early(t)
    if row < 0:
        release(t, at, have)
        return FULL
    copy(t.arena, at, data, f.start, have)
    early = t.early[row]
    early.correlation_id, early.order = found, t.run[0].order
    early.first_time, early.last_time, early.size, early.packet = f.first_time, f.last_time, f.size, f.packet
    early.at, early.have, early.room, early.next, early.before = at, have, have, -1, conn.last_early
    if conn.last_early >= 0:
        t.early[conn.last_early].next = row
    else:
        conn.first_early = row
    conn.last_early = row
    conn.early += 1
    conn.frames += 1
    conn.stray_low, conn.stray_high = min(conn.stray_low, found), max(conn.stray_high, found)
    decided(t, f.conn, EARLY, f.side, found, 0)
    return OK


@kernel
def find_early(t: Any, c: int, correlation_id: int) -> int:
    """The response without request that has this id, -1 if there is none."""
    row = t.conns[c].first_early
    while row >= 0:
        t.run[0].steps += 1
        if t.early[row].correlation_id == correlation_id:
            return row
        row = t.early[row].next
    return -1


@kernel
def remove_early(t: Any, c: int, row: int) -> None:
    """Take a response out of those that wait for their requests."""
    conn = t.conns[c]
    early = t.early[row]
    if early.before >= 0:
        t.early[early.before].next = early.next
    else:
        conn.first_early = early.next
    if early.next >= 0:
        t.early[early.next].before = early.before
    else:
        conn.last_early = early.before
    conn.early -= 1
    release(t, early.at, early.room)
    drop_early(t, row)


@kernel
def pair_early(t: Any, row: int) -> int:
    """The request that just came was answered before, as the capture has it."""
    request = t.requests[row]
    c = request.conn
    found = find_early(t, c, request.correlation_id)
    if found < 0:
        return OK
    early = t.early[found]
    f = t.frame[0]
    f.conn, f.side = c, 1 - t.conns[c].client
    f.start, f.end, f.size = early.at, early.at + early.have, early.size
    f.first_time, f.last_time, f.packet = early.first_time, early.last_time, early.packet
    f.whole = 1 if early.have == early.size else 0
    f.body = f.start
    if room_for_notes(t, NOTES) != OK:
        return FULL
    before = early.first_time < request.last_time
    correlation_id = request.correlation_id
    code = answer(t, row, t.arena)
    if code != OK:
        return code
    t.conns[c].frames -= 1
    if before:
        note(t, c, RESPONSE_BEFORE_REQUEST, early.packet, early.last_time, correlation_id, 0)
    remove_early(t, c, found)
    return OK


@kernel
def pair_pending(t: Any) -> int:
    """Pair the request that came last with the response that came before it."""
    code = pair_early(t, t.run[0].pairing)
    if code == OK:
        t.run[0].pairing = -1
    return code


@kernel
def pass_early(t: Any, c: int, correlation_id: int) -> int:
    """A request has come, and requests come in order: give up the responses whose requests should have come
    before it, unless requests wait behind a hole."""
    conn = t.conns[c]
    if t.sides[2 * c + conn.client].waiting > (1 if t.run[0].item >= 0 else 0):
        return OK
    row = conn.first_early
    while row >= 0:
        t.run[0].steps += 1
        following = t.early[row].next
        if comes_next(correlation_id, t.early[row].correlation_id):
            code = orphan(t, c, row)
            if code != OK:
                return code
        row = following
    return OK


@kernel
def expire_early(t: Any, c: int, now: int) -> int:
    """Give up responses that waited too long for their requests, unless requests wait behind a hole."""
    conn = t.conns[c]
    if conn.client >= 0 and t.sides[2 * c + conn.client].waiting and conn.early <= MAX_EARLY:
        return OK
    if not conn.proven:
        return OK  # they are told if the connection proves to be Kafka
    limits = t.limits[0]
    # Where no response came after its request yet, the clocks of the two directions may differ.
    unsure = conn.skewed or conn.answered == UNKNOWN
    limit = now - (max(limits.hole_time, limits.orphan_time) if unsure else limits.orphan_time)
    while conn.first_early >= 0 and time_of(t.early[conn.first_early]) < limit:
        code = orphan(t, c, conn.first_early)
        if code != OK:
            return code
    return OK


@kernel
def orphan(t: Any, c: int, row: int) -> int:
    """Report a response whose request does not come any more."""
    run = t.run[0]
    if not t.conns[c].proven or is_chance(t, c, t.early[row].correlation_id):
        decided(t, c, DROPPED, 0, t.early[row].correlation_id, t.conns[c].proven)
        remove_early(t, c, row)
        return OK
    if run.calls + 1 > len(t.calls):
        return lacks(t, WANT_CALLS, 1)
    early, call = t.early[row], t.calls[run.calls]
    blank(t, call, c)
    call.correlation_id = early.correlation_id
    call.response_first, call.response_last = early.first_time, early.last_time
    call.response_size, call.response_packet = early.size, early.packet
    call.status = ORPHAN_
    run.calls += 1
    decided(t, c, ORPHANED, 0, early.correlation_id, 0)
    remove_early(t, c, row)
    return OK


@kernel
def is_chance(t: Any, c: int, found: int) -> bool:
    """Whether what was taken for a response, where framing was searched for, has a correlation id that is far
    from those of the client's requests: other bytes looked like one."""
    conn = t.conns[c]
    latest = t.sides[2 * c + conn.client].latest
    broker = t.sides[2 * c + 1 - conn.client]
    searched = broker.resynchronised > 0 or not broker.from_start
    return searched and latest != UNKNOWN and not -AHEAD <= found - latest <= AHEAD


# Calls


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
    call.error = call.errors = call.throttle = call.acks = call.max_wait = NONE
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
    if run.told_bytes > MAX_TOLD:
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
    if replied:
        f = t.frame[0]
        call.response_first, call.response_last = f.first_time, f.last_time
        call.response_size, call.response_packet = f.size, f.packet
        # A broker answers in order: it was busy with this one only after the response before.
        call.response_end, call.throttled_until = conn.response_end, conn.throttled_until
        if is_shown(t, 1):
            call.response_body = run.serial
        if status == TRUNCATED_ and conn.ended_inside:
            call.closed_by = conn.closed_by
    else:
        clear(t, 1)
        if because:
            call.closed_by = t.conns[request.conn].closed_by
            call.open_until = t.conns[request.conn].last_time
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
    t.run[0].told_bytes += size
    t.run[0].packet_bytes += size


@kernel
def size_of(t: Any, number: int) -> int:
    """Bytes of a text, 0 if it is none."""
    return t.texts[number].size if number >= 0 else 0


@kernel
def give_up(t: Any, c: int, row: int, because: int) -> int:
    """Report a request that waits as unanswered."""
    code = tell(t, row, False, UNANSWERED_, because)
    if code != OK:
        return code
    decided(t, c, UNANSWERED, 0, t.requests[row].correlation_id, because)
    unlink(t, row)
    forget(t, row)
    drop_request(t, row)
    return OK


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
        row = conn.first_unasked
        unlink(t, row)
        drop_request(t, row)
    return OK


@kernel
def unreadable(t: Any, direction: int) -> None:
    """A frame too short for its header."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    conn.undecoded += 1
    conn.frames += 1
    note(t, f.conn, HEADER_MALFORMED, f.packet, time_of(f), direction, f.size)
    t.notes[t.run[0].notes - 1].c = f.end - f.start
