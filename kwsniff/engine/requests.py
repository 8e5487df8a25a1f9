"""Frames of the client: each is read at once, so that its bytes can be let go, and waits for its response."""

from __future__ import annotations

from typing import Any

from kwsniff.engine import texts
from kwsniff.engine.arena import drop_request, next_row, take
from kwsniff.engine.bodies import layout_of, newer, peek_acks, read, wants_program
from kwsniff.engine.calls import room_for_lists
from kwsniff.engine.facts import after_tags, clear, learn_user
from kwsniff.engine.headers import YES, names_client, request_at
from kwsniff.engine.leaving import lacks_responses
from kwsniff.engine.notes import (
    CORRELATION_ID_REUSED,
    HEADER_MALFORMED,
    OUTSTANDING_LIMIT,
    REPLY_TO_ACKS_0,
    REQUEST,
    TRAILING_BYTES,
    UNASKED,
    UNKNOWN_API,
    UNKNOWN_VERSION,
    decided,
    note,
    note_damage,
)
from kwsniff.engine.outcomes import (
    give_up,
    is_shown,
    keep_request,
    let_wait,
    note_body,
    room_for_call,
    room_for_damage,
    tell,
    time_of,
    unreadable,
    wait_no_more,
)
from kwsniff.engine.packing import forget, keep
from kwsniff.engine.responses import find_early, remove_early
from kwsniff.engine.tables import GAP_REASON, LIMIT_REASON, NO_REPLY_, OK_, REQUESTS, TRUNCATED_, UNDECODED_
from kwsniff.engine.waiting import find_waiting, link, release
from kwsniff.native.mode import byte, int16, int32, kernel
from kwsniff.native.rowcopies import NONE

MAX_UNASKED = 250
"""Requests without reply that are remembered of a connection."""
ALL_UNASKED = 40_000
"""The same of all connections, about: each takes as much room as a request in flight. When there are twice as
many, a connection remembers one."""

MAX_SAID = 512
"""Bytes kept of what a client says of itself for the whole connection."""


@kernel
def take_request_frame(t: Any, data: Any) -> None:
    """Take a frame that the client sent."""
    f = t.frame[0]
    conn = t.conns[f.conn]
    pos = f.start + 4
    if (conn.raw_tokens or begins_tokens(t, conn)) and not ends_tokens(t, data):
        learn_user(t, f.conn, data, pos, f.end)
        conn.raw_waiting += 1
        conn.tokens += 1
        conn.frames += 1
        return
    if f.end - pos < 8:
        unreadable(t, 0)
        return
    key, version, correlation_id = int16(data, pos), int16(data, pos + 2), int32(data, pos + 4)
    limits = t.limits[0]
    if conn.in_flight >= limits.max_outstanding:
        oldest = conn.first_request
        given_up = t.requests[oldest].correlation_id
        give_up(t, f.conn, oldest, GAP_REASON if lacks_responses(t, f.conn) else LIMIT_REASON)
        note(t, f.conn, OUTSTANDING_LIMIT, f.packet, time_of(f), given_up, 0)
    row = next_row(t, t.requests, REQUESTS)
    request = t.requests[row]
    request.key, request.version, request.correlation_id = key, version, correlation_id
    request.layout = layout_of(t, key, version)
    request.order, request.first_time, request.last_time = t.run[0].order, f.first_time, f.last_time
    request.size, request.packet, request.in_flight = f.size, f.packet, conn.in_flight
    request.unasked, request.serial, request.named, request.shown = 0, -1, 0, 0
    request.software = request.software_version = -1
    request.status = OK_ if f.whole else TRUNCATED_
    read_request(t, row, data, pos + 8)
    settle_request(t, row, data)


@kernel
def read_request(t: Any, row: int, data: Any, pos: int) -> None:
    """Read header and body of a request as far as they can be read."""
    f, request = t.frame[0], t.requests[row]
    request.client_id = -2
    clear(t, 0)
    names, flexible = 1, 0
    if request.layout >= 0:
        names, flexible = t.layouts[request.layout].client_id, t.layouts[request.layout].flexible_request
    if names:
        if f.end - pos < 2 or pos + 2 + max(int16(data, pos), 0) > f.end:
            bad_header(t, row)
            return
        size = int16(data, pos)
        pos += 2
        if size >= 0:
            request.client_id = texts.text(t, data, pos, size, 0)
            pos += size
        else:
            request.client_id = -1
    if request.layout < 0:
        if request.status == OK_:
            request.status = UNDECODED_
        read_newer(t, row, data, pos)
        return
    if flexible:
        pos = after_tags(data, pos, f.end)
        if pos < 0:
            bad_header(t, row)
            return
    layout = t.layouts[request.layout]
    if layout.request < 0:
        wants_program(t, request.layout)
    if not f.whole:
        if layout.acks_zero:
            t.facts[0].acks = peek_acks(t, data, pos, f.end, request.version)
        return
    f.body, f.layout = pos, request.layout
    if not read(t, data, pos, f.end, layout.request, True):
        request.status = UNDECODED_


@kernel
def read_newer(t: Any, row: int, data: Any, pos: int) -> None:
    """Read a request of a version that is newer than those known as if it were of the newest known one. Most
    versions have the layout of the one before, or end with something new: what fits to the last byte is what
    it seems to be in 999 of 1,000 cases, and nothing is made of what does not."""
    f = t.frame[0]
    f.layout = newer(t, row)
    if f.layout < 0:
        return
    layout = t.layouts[f.layout]
    if layout.request < 0:
        wants_program(t, f.layout)
    if layout.flexible_request:
        after = after_tags(data, pos, f.end)
        pos = after if after >= 0 else pos
    f.body = pos
    if f.whole:
        if read(t, data, pos, f.end, layout.request, True) and t.facts[0].trailing == 0:
            return
        clear(t, 0)
    if layout.acks_zero:
        t.facts[0].acks = peek_acks(t, data, pos, f.end, t.requests[row].version)


@kernel
def wants_no_reply(t: Any, row: int) -> bool:
    """Whether the request that was read is a Produce with acks=0."""
    if t.facts[0].acks != 0:
        return False
    known = t.requests[row].layout
    layout = known if known >= 0 else newer(t, row)
    return layout >= 0 and t.layouts[layout].acks_zero != 0


@kernel
def bad_header(t: Any, row: int) -> None:
    """The header of a request cannot be read; a truncated one may be no worse than that."""
    if t.requests[row].status == OK_:
        t.requests[row].status = UNDECODED_
        t.facts[0].code = -1


@kernel
def settle_request(t: Any, row: int, data: Any) -> None:
    """A request was read: tell what is wrong with it, and let it wait, pair it, or tell it at once. Its row
    is taken when there is room for all that this needs."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    room_for_damage(t, 0)
    client_id = shortened(t, request.client_id)
    learn(t, row, data)
    if t.facts[0].clean and request.layout >= 0:
        t.sides[2 * f.conn + f.side].assumed = 0
        if request.client_id >= 0 and names_client(data, f.start):
            conn.proven = 1
    unasked = wants_no_reply(t, row)
    if unasked and conn.proven:
        clear(t, 1)
        room_for_call(t)
        room_for_lists(t, t.facts[0], t.facts[1])
    keep(t, row)
    take(t, t.requests, REQUESTS)
    request.conn = f.conn
    if is_shown(t, 0):
        let_wait(t, row)
    if t.facts[0].token != NONE:
        conn.tokens += 1
    if unasked:
        settle_unasked(t, row, data)
        return
    early = find_early(t, f.conn, request.correlation_id)
    note_request(t, row, data)
    if find_waiting(t, f.conn, request.correlation_id) >= 0:
        note(t, f.conn, CORRELATION_ID_REUSED, f.packet, time_of(f), request.correlation_id, 0)
    link(t, row)
    decided(t, f.conn, REQUEST, f.side, request.correlation_id, request.key * 65536 + request.version)
    conn.frames += 1
    if request.client_id != -2:
        conn.client_id = client_id
    if early >= 0:
        t.run[0].pairing = row


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
def settle_unasked(t: Any, row: int, data: Any) -> None:
    """A request that wants no response is a whole call."""
    f, request = t.frame[0], t.requests[row]
    conn = t.conns[f.conn]
    # One whose end never came did not reach the broker, or is not known to.
    ended = request.status != TRUNCATED_ or request.last_time >= 0
    tell(t, row, False, NO_REPLY_ if ended else TRUNCATED_, 0)
    note_request(t, row, data)
    wait_no_more(t, row)
    forget(t, row)
    conn.frames += 1
    conn.client_id = shortened(t, request.client_id)
    early = find_early(t, f.conn, request.correlation_id)
    if early >= 0:
        note_early_reply(t, f.conn, early)
        drop_request(t, row)
        return
    request.unasked, request.client_id = 1, -2  # its text need not be kept
    link(t, row)
    decided(t, f.conn, UNASKED, f.side, request.correlation_id, request.key * 65536 + request.version)
    while conn.unasked > most_unasked(t):
        release(t, conn.first_unasked)


@kernel
def most_unasked(t: Any) -> int:
    """How many requests without reply a connection remembers at present."""
    if t.pools[REQUESTS].live - t.run[0].waiting >= 2 * ALL_UNASKED:
        return 1
    return max(min(MAX_UNASKED, ALL_UNASKED // max(t.run[0].followed, 1)), 1)


@kernel
def note_early_reply(t: Any, c: int, early: int) -> None:
    """A broker's answer to acks=0 was captured before the request that wants none."""
    found = t.early[early]
    note(t, c, REPLY_TO_ACKS_0, found.packet, found.last_time, found.correlation_id, 0)
    remove_early(t, c, early)


@kernel
def learn(t: Any, row: int, data: Any) -> None:
    """Keep what a request says of the client for the whole connection."""
    f, facts = t.frame[0], t.facts[0]
    conn = t.conns[f.conn]
    if not facts.clean:
        return
    if facts.software_name >= 0:
        name, version = shortened(t, facts.software_name), shortened(t, facts.software_version)
        t.requests[row].software, t.requests[row].software_version = name, version
        if conn.software < 0:
            conn.software, conn.software_version = name, version
    if facts.mechanism >= 0:
        conn.mechanism = shortened(t, facts.mechanism)
    if facts.token != NONE:
        learn_user(t, f.conn, data, facts.token, facts.token_end)


@kernel
def shortened(t: Any, number: int) -> int:
    """A text, of a long one its beginning: connections keep it as long as they last. `number`
    itself if it is no text."""
    if number < 0 or t.texts[number].size <= MAX_SAID:
        return number
    at, size = t.texts[number].at, MAX_SAID
    while size > 0 and byte(t.text_bytes, at + size) & 0xC0 == 0x80:
        size -= 1  # not inside of a character (RFC 3629)
    return texts.text(t, t.text_bytes, at, size, 0)


@kernel
def begins_tokens(t: Any, conn: Any) -> bool:
    """Whether raw SASL tokens are to be expected: what they follow was asked last. Its answer, and those
    before it, may be captured after the first of them."""
    if conn.in_flight == 0:
        return False
    request = t.requests[conn.last_request]
    return request.layout >= 0 and t.layouts[request.layout].tokens == 1


@kernel
def ends_tokens(t: Any, data: Any) -> bool:
    """Whether raw SASL tokens are over: a request comes."""
    f = t.frame[0]
    if request_at(t, data, f.start, f.end, False) != YES:
        return False
    t.conns[f.conn].raw_tokens = 0
    t.conns[f.conn].raw_waiting = 0
    return True
