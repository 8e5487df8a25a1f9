"""Finding a frame among bytes whose framing is not known: after a gap, or where a capture begins.

Bytes inside a request may look like another. So a header alone is believed only where little else could be:
at the beginning of a segment, or with the client id that the connection is known to use and a correlation id
that comes next. Elsewhere the frame has to be followed by another, to fill what came, or to have a body that
decodes. A header alone that may be the beginning of a record batch is never believed.

Reading a body may need a program that is not loaded yet, or more room: a search is stopped then, as if it had
not begun, and is made again.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import append, came, drop_front
from kwsniff.engine.bodies import skim_answer, skim_request
from kwsniff.engine.connections import is_on_trial
from kwsniff.engine.headers import (
    AHEAD,
    MORE,
    REQUEST_HEADER,
    RESPONSE_HEADER,
    YES,
    begins_request,
    comes_next,
    is_tls,
    is_tls_alert,
    may_be_batch,
    names_client,
    request_at,
)
from kwsniff.engine.notes import FRAMING_FOUND, decided, note, room_for_notes
from kwsniff.engine.notes import RESYNCHRONISED as FOUND_AGAIN
from kwsniff.engine.records import begin_records
from kwsniff.engine.row_tables import UNKNOWN
from kwsniff.engine.waiting import find_waiting
from kwsniff.native.mode import byte, inlined, int16, int32, kernel, uint32, uintp
from kwsniff.native.octets import same

MAX_HOPE = 256 * 1024
"""Bytes of a response that are held until it is seen whether it ends with a segment."""
FEW = 64
"""How far a response may be ahead of the requests that were seen while none of those is missing."""
EFFORT = 4
"""How many bytes of bodies are read at the most for each byte of an item, however often searched."""


@kernel
def find_request(t: Any, c: int, k: int, data: Any, pos: int, end: int, mark: int) -> tuple[int, bool]:
    """Where a request begins, or up to where none does, and which of both. A segment begins at `mark`, -1 if
    none does."""
    top = t.limits[0].max_frame_bytes >> 24
    last = end - REQUEST_HEADER
    at = pos
    while at <= last:
        if at == mark and begins_request(t, data, at, end) and is_in_order(t, c, k, data, at, end):
            return at, True
        # Lengths are below 2^28, keys and versions small: most positions are ruled out by three bytes.
        # Where four bytes in a row are not zero, each of six is, by the first byte of its key or version.
        if has_no_zero(data, at + 6):
            at = before_mark(at + 6, at, mark)
            continue
        if (
            data[uintp(at + 4)] == 0
            and data[uintp(at + 6)] == 0
            and data[uintp(at)] <= top
            and (data[uintp(at + 12)] <= 2 or data[uintp(at + 12)] == 255)
        ):
            looks = request_at(t, data, at, end, False)
            if looks == MORE and names_client(data, at):
                return at, False
            if looks == YES and convinces(t, c, k, data, at, end):
                return at, True
        at += 1
    return max(pos, last + 1), False


@inlined
def has_no_zero(data: Any, at: int) -> bool:
    """Whether none of four bytes is zero."""
    word = uint32(data, at)
    return (word - 0x01010101) & ~word & 0x80808080 == 0


@inlined
def before_mark(after: int, at: int, mark: int) -> int:
    """Where to look next when there is nothing from `at` on before `after`: a mark is not passed over."""
    return mark if at < mark < after else after


@kernel
def is_in_order(t: Any, c: int, k: int, data: Any, at: int, end: int) -> bool:
    """Whether the correlation id of what looks like a request is one that may come, as far as that is known:
    bytes of a record that begin a segment may look like a header of zeros."""
    latest, found = t.sides[2 * c + k].latest, int32(data, at + 8)
    if latest == UNKNOWN:
        return not may_be_batch(data, at, end)
    return comes_next(found, latest)


@kernel
def convinces(t: Any, c: int, k: int, data: Any, at: int, end: int) -> bool:
    """Whether what looks like a request is one."""
    conn, s = t.conns[c], t.sides[2 * c + k]
    named = names_client(data, at)
    found = int32(data, at + 8)
    if conn.client_id >= 0 and named:
        if not is_text(t, conn.client_id, data, at + REQUEST_HEADER, int16(data, at + 12)):
            return False
        if s.latest != UNKNOWN and comes_next(found, s.latest):
            return True
    elif conn.client_id >= 0 and s.latest != UNKNOWN:
        return False
    after = at + 4 + int32(data, at)
    if after > end:
        return named and conn.client_id < 0 and not may_be_batch(data, at, end)
    if not may_read(t, 4 + int32(data, at)) or not skim_request(t, data, at, after):
        return False
    return named or (after + REQUEST_HEADER <= end and request_at(t, data, after, end, False) == YES)


@kernel
def may_read(t: Any, size: int) -> bool:
    """Whether a frame of `size` bytes may be decoded to see whether it is one. Bytes may be made to look like
    requests inside requests: so no more is read than there is, a few times over."""
    t.run[0].spent += size
    return t.run[0].spent <= t.run[0].effort


@kernel
def find_response(t: Any, c: int, k: int, data: Any, pos: int, end: int, mark: int) -> tuple[int, bool, int]:
    """Where a response begins, or up to where none does, which of both, and how long one would be that may
    begin there, 0 if none may. A segment begins at `mark`, -1 if none does."""
    hope = t.sides[2 * c + k].hope
    if hope:
        if mark >= 0 and end - mark >= RESPONSE_HEADER and is_sure(t, c, data, mark, end):
            return mark, True, 0
        if end - pos < hope:
            return pos, False, hope
        if pos + hope in (end, mark):
            return pos, True, 0
        pos += 1
    last = end - RESPONSE_HEADER
    at = pos
    while at <= last:
        if at == mark:
            if is_due(t, c, data, at, end, True):
                return at, True, 0
            if may_go_on(t, c, data, at, end):
                return at, False, 4 + int32(data, at)
        elif has_no_zero(data, at) and end - at < 1 << 24:
            at = before_mark(at + 4, at, mark)  # lengths are below 2^24: they begin with a zero
            continue
        elif is_framed(data, at, end) and is_due(t, c, data, at, end, False):
            if answers(t, c, data, at):
                return at, True, 0
        at += 1
    return max(pos, last + 1), False, 0


@inlined
def is_framed(data: Any, at: int, end: int) -> bool:
    """Whether a response at `at` would end with the bytes, or leave room for the header of another: that
    rules out most positions, and looks at no request."""
    size, most = uint32(data, at), end - at - 4
    return size >= RESPONSE_HEADER - 4 and (size == most or size <= most - RESPONSE_HEADER)


@kernel
def is_sure(t: Any, c: int, data: Any, at: int, end: int) -> bool:
    """Whether a segment begins with a response that is waited for."""
    return find_waiting(t, c, int32(data, at + 4)) >= 0 and is_due(t, c, data, at, end, True)


@kernel
def hides_response(t: Any, c: int, k: int, data: Any, at: int, end: int) -> bool:
    """Whether a segment of the broker, inside a frame whose beginning was only assumed, begins with a
    response that is waited for. Where one waits for the assumed frame too, the one that decodes is believed,
    or that of two unfinished ones that is not huge."""
    s = t.sides[2 * c + k]
    if s.buf < 0 or s.have < RESPONSE_HEADER or end - at < RESPONSE_HEADER:
        return False
    if byte(data, at) > t.limits[0].max_frame_bytes >> 24 or not is_sure(t, c, data, at, end):
        return False
    if find_waiting(t, c, int32(t.arena, s.buf + 4)) < 0:
        return True
    if at + 4 + int32(data, at) > end:
        return s.size > MAX_HOPE
    t.run[0].spent = 0
    found = answers(t, c, data, at)
    t.run[0].effort -= t.run[0].spent
    return found


@kernel
def may_go_on(t: Any, c: int, data: Any, at: int, end: int) -> bool:
    """Whether a segment may begin with a response that goes on in the next, while its request was not seen
    that would tell, or waits behind a hole: it has to end where a segment does."""
    size, found = int32(data, at), int32(data, at + 4)
    if not end - at < 4 + size <= MAX_HOPE:
        return False
    client = t.sides[2 * c + t.conns[c].client]
    if client.latest == UNKNOWN:
        return found >= 0
    return client.waiting > 0 and in_range(t, c, found)


@kernel
def is_due(t: Any, c: int, data: Any, at: int, end: int, begins: bool) -> bool:
    """Whether a response that is due begins at `at`. One that `begins` a segment needs a correlation id in
    the right range; one inside has to be waited for, and to be followed by another or end with the bytes.
    Lists of small numbers look like short responses: of that one the body (`answers`) has to be looked at."""
    size, found = int32(data, at), int32(data, at + 4)
    if size < RESPONSE_HEADER - 4 or size > t.limits[0].max_frame_bytes:
        return False
    after = at + 4 + size
    asked = t.sides[2 * c + t.conns[c].client].spoken
    if not asked or t.sides[2 * c + t.conns[c].client].latest == UNKNOWN:
        return begins and found >= 0 and ends_well(t, data, after, end)
    row = find_waiting(t, c, found)
    if begins and row >= 0:
        return after >= end or end - after < RESPONSE_HEADER or in_range(t, c, int32(data, after + 4))
    if row < 0 and not (begins and in_range(t, c, found)):
        return False
    return after == end or (after + RESPONSE_HEADER <= end and in_range(t, c, int32(data, after + 4)))


@kernel
def answers(t: Any, c: int, data: Any, at: int) -> bool:
    """Whether what looks like a response that is waited for has a body of what was asked, where any may be
    that of an API that is not known."""
    layout = t.requests[find_waiting(t, c, int32(data, at + 4))].layout
    if layout < 0:
        return True
    size = 4 + int32(data, at)
    return may_read(t, size) and skim_answer(t, data, at + RESPONSE_HEADER, at + size, layout)


@kernel
def in_range(t: Any, c: int, found: int) -> bool:
    """Whether a correlation id may be that of a response to come: waited for, or of a lost request."""
    if find_waiting(t, c, found) >= 0:
        return True
    conn = t.conns[c]
    latest = t.sides[2 * c + conn.client].latest
    before = conn.answered if conn.answered != UNKNOWN else latest - AHEAD
    client = t.sides[2 * c + conn.client]
    ahead = AHEAD if client.waiting or not client.synchronised else FEW
    return before < found <= latest + ahead


@kernel
def is_text(t: Any, number: int, data: Any, at: int, size: int) -> bool:
    """Whether bytes are the text of that number."""
    known = t.texts[number]
    return known.size == size and same(data, at, t.text_bytes, known.at, size)


@kernel
def ends_well(t: Any, data: Any, after: int, end: int) -> bool:
    """Whether a response that nothing is known of ends with the bytes, or is followed by others that do."""
    while end - after >= RESPONSE_HEADER:
        size = int32(data, after)
        if size < RESPONSE_HEADER - 4 or int32(data, after + 4) < 0:
            return False
        after += 4 + size
    return after == end


@kernel
def lose_framing(s: Any) -> None:
    """It is not known any more where frames begin."""
    if s.synchronised:
        s.lost = 1
    s.synchronised = 0
    s.size = s.got = 0
    s.broken = 0
    s.searched = s.hope = 0


@kernel
def search(t: Any, c: int, k: int, data: Any, at: int, left: int) -> None:
    """Framing is not known: look for a frame in what is left of a segment."""
    run = t.run[0]
    s = t.sides[2 * c + k]
    conn = t.conns[c]
    if s.have:
        append(t, s, data, at, left)
        came(t, s, False)
        run.cursor += left
        return
    if (
        s.frames == 0
        and is_tls(data, at, at + left)
        and (k == conn.client or not is_tls_alert(data, at, at + left))
    ):
        begin_records(t, c)
        return
    room_for_notes(t, 1)
    found, sure = find_frame(t, c, k, data, at, at + left, at if run.cursor == 0 else -1)
    rest = at + left - found
    if sure:
        s.skipped += found - at
        run.cursor += found - at
        synchronise(t, c, k, t.item[0].packet)
        return
    if rest > 0:
        append(t, s, data, found, rest)
        came(t, s, True)
        s.searched = s.have
    s.skipped += found - at
    run.cursor += left


@kernel
def asks(t: Any, data: Any, mark: int, end: int) -> bool:
    """Whether the segment at `mark`, if one begins there, begins with a request that names its client."""
    return (
        mark >= 0
        and end - mark >= REQUEST_HEADER
        and names_client(data, mark)
        and request_at(t, data, mark, end, False) == YES
        and not may_be_batch(data, mark, end)
    )


@kernel
def find_frame(t: Any, c: int, k: int, data: Any, pos: int, end: int, mark: int) -> tuple[int, bool]:
    """Where a frame of this side begins, or up to where none does, and which of both. A segment begins at
    `mark`, -1 if none does."""
    run, s = t.run[0], t.sides[2 * c + k]
    run.spent = 0  # it may have been stopped and begins anew
    if k == t.conns[c].client:
        found, sure = find_request(t, c, k, data, pos, end, mark)
    elif is_on_trial(t.conns[c]) and asks(t, data, mark, end):
        found, sure, s.hope = mark, True, 0
    else:
        found, sure, s.hope = find_response(t, c, k, data, pos, end, mark)
    run.steps += 1 + found - pos + run.spent
    run.effort -= run.spent
    return found, sure


@kernel
def search_buffer(t: Any, c: int, k: int) -> None:
    """Look for a frame in the buffer, the end of which came with the packet at hand."""
    s = t.sides[2 * c + k]
    room_for_notes(t, 1)
    found, sure = find_frame(t, c, k, t.arena, s.buf, s.buf + s.have, s.buf + s.searched)
    skipped = found - s.buf
    s.skipped += skipped
    if skipped >= s.searched:
        s.first_time = s.frame_time
    drop_front(t, s, skipped)
    s.searched = s.have
    if sure:
        s.searched = 0
        synchronise(t, c, k, s.frame_packet)


@kernel
def synchronise(t: Any, c: int, k: int, packet: int) -> None:
    """A frame was found; that there is room for a note was seen to."""
    s = t.sides[2 * c + k]
    skipped = s.skipped - s.skipped_before
    s.skipped_before = s.skipped
    s.synchronised = s.assumed = 1
    decided(t, c, FRAMING_FOUND, k, skipped, 0)
    if s.lost or skipped:
        s.lost = 0
        s.resynchronised += 1
        if k != t.conns[c].client:
            t.conns[c].response_gap = 1
        note(t, c, FOUND_AGAIN, packet, t.conns[c].last_time, skipped, k)
