"""Cutting one direction's bytes into TLS records.

Theory of operation. What the streams of a TLS connection deliver is cut here into records, five bytes that
end with a length and as many bytes as that (RFC 8446, 5.1). An engine with `limits.tls` follows nothing else:
it tells each record in `records` with its bytes in `record_data`, for `kwsniff.engine.decrypting` to open.
After each segment it notes how that stands to its streams. Any other engine has no keys, hands records to
`kwsniff.engine.exchanges`, and does not even keep the bytes of those that are encrypted.

As with frames, a gap inside a record whose length is known loses that record and nothing else. A gap that
swallows a header loses the framing: then the next bytes that look like a header are taken for one, which the
tag of the record proves.

Every function that may find a table full leaves everything so that it can be called again: what was taken of
the item at hand is in `run.cursor`, and a record that is complete but was not told has `got == size`.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import WANT_RECORD_DATA, WANT_RECORDS, append, came, empty_buffer, lacks
from kwsniff.engine.connections import become, is_from_a
from kwsniff.engine.exchanges import APPLICATION_DATA, lose_exchanges, take_lost, take_record
from kwsniff.engine.headers import is_tls
from kwsniff.engine.tables import OTHER, PROBING, TLS
from kwsniff.native.mode import byte, distance, kernel, uint16
from kwsniff.native.octets import copy

HEADER = 5
MASK = 0xFFFFFFFF
UNKNOWN = -1
"""Content type of a record whose header was lost."""
LOST, PASSED = 1, 2
"""Of a record in progress, in `broken`: bytes of it are missing; they are not needed."""
UNJUDGED = 1 << 16
"""Bytes of a connection met in the middle in which a segment may still begin with a record: one of them is
cut into a dozen segments at most."""


@kernel
def begin_records(t: Any, c: int) -> None:
    """A connection turned out to be TLS: records begin with what is delivered next."""
    become(t, c, TLS)
    t.conns[c].proven = 1
    for k in range(2):
        s = t.sides[2 * c + k]
        empty_buffer(t, s)
        s.size = s.got = s.broken = s.unread = 0
        s.synchronised = s.from_start


@kernel
def feed(t: Any, c: int, k: int, data: Any) -> None:
    """Take the bytes that `item` says, in order, of which `run.cursor` were taken already."""
    run, item = t.run[0], t.item[0]
    conn, s = t.conns[c], t.sides[2 * c + k]
    if conn.state == PROBING and item.size:
        judge(t, c, k, data)
    if conn.state != TLS:
        run.cursor = item.length
        return
    if t.limits[0].tls and run.cursor == 0 and not s.synchronised:
        s.synchronised = 1 if s.from_start and s.offset == 0 else 0
    while run.cursor < item.size:
        at, left = item.pos + run.cursor, item.size - run.cursor
        if s.size > 0 and s.got == s.size:
            finish_record(t, c, k)
        elif not s.synchronised:
            skipped = header_at(data, at, at + left)
            s.unread += skipped
            run.cursor += skipped
            s.synchronised = 1 if skipped < left else 0
        elif s.size > 0:
            go_on(t, s, data, at, min(s.size - s.got, left))
        elif s.have == 0 and left >= HEADER:
            begin(t, c, k, data, at, left)
        else:
            add_to_header(t, s, data, at, min(HEADER - s.have, left))
    while run.cursor < item.length:
        if t.limits[0].tls:
            pass_over(t, s, item.length - run.cursor)
            run.cursor = item.length
        else:
            guess(t, c, k, item.length - run.cursor)
    if s.size > 0 and s.got == s.size:
        finish_record(t, c, k)


@kernel
def judge(t: Any, c: int, k: int, data: Any) -> None:
    """Whether a connection is TLS, as its first bytes say. One whose beginning was not captured may begin in
    the middle of a record."""
    conn, s, item = t.conns[c], t.sides[2 * c + k], t.item[0]
    whole = is_tls(data, item.pos, item.pos + item.size)
    if whole or (item.size < HEADER and s.from_start and 20 <= byte(data, item.pos) <= 23):
        become(t, c, TLS)
    elif conn.syn or t.sides[2 * c].offset + t.sides[2 * c + 1].offset > UNJUDGED:
        become(t, c, OTHER)


@kernel
def header_at(data: Any, pos: int, end: int) -> int:
    """Bytes before what looks like the header of a record of a version in use; all, if nothing does."""
    at = pos
    while at + HEADER <= end:
        if is_tls(data, at, end) and 1 <= byte(data, at + 2) <= 3:
            return at - pos
        at += 1
    return end - pos


@kernel
def begin(t: Any, c: int, k: int, data: Any, at: int, left: int) -> None:
    """A record begins here: it is told from where it lies, if it is whole."""
    s, item = t.sides[2 * c + k], t.item[0]
    if not is_tls(data, at, at + left):
        if t.limits[0].tls == 0:
            lose_exchanges(t, c)
        s.synchronised = 0
        return
    size = HEADER + uint16(data, at + 3)
    if left < size:
        s.size, s.got = size, 0
        s.broken = PASSED if is_passed(t, byte(data, at)) else 0
        return
    f = t.frame[0]
    f.conn, f.side, f.start, f.size, f.whole = c, k, at, size, 1
    f.last_time, f.first_time, f.packet, f.order = item.time, item.time, item.packet, item.order
    tell(t, byte(data, at), data)
    t.run[0].cursor += size


@kernel
def is_passed(t: Any, kind: int) -> bool:
    """Whether only the length of a record of this content type is needed."""
    return kind == APPLICATION_DATA and t.limits[0].tls == 0


@kernel
def add_to_header(t: Any, s: Any, data: Any, at: int, count: int) -> None:
    """Take bytes of a header that goes on in the next segment."""
    append(t, s, data, at, count)
    came(t, s, s.have == count)
    t.run[0].cursor += count
    if s.have < HEADER:
        return
    if is_tls(t.arena, s.buf, s.buf + HEADER):
        s.size, s.got = HEADER + uint16(t.arena, s.buf + 3), HEADER
        if is_passed(t, byte(t.arena, s.buf)):
            s.broken = PASSED
            empty_buffer(t, s)
    else:
        s.unread += s.have
        empty_buffer(t, s)
        s.synchronised = 0


@kernel
def go_on(t: Any, s: Any, data: Any, at: int, count: int) -> None:
    """Take bytes of the record in progress."""
    if not s.broken:
        append(t, s, data, at, count)
    came(t, s, s.got == 0)
    s.got += count
    t.run[0].cursor += count


@kernel
def pass_over(t: Any, s: Any, count: int) -> None:
    """So many bytes were not captured."""
    if s.size > 0 and s.got + count <= s.size:
        s.broken = max(s.broken, LOST)
        s.got += count
        return
    s.unread += max(s.got, s.have) + count
    s.size = s.got = s.broken = s.synchronised = 0
    empty_buffer(t, s)


@kernel
def guess(t: Any, c: int, k: int, count: int) -> None:
    """So many bytes were not captured, and only lengths are needed: the rest of the record in progress, or
    else one record, as packets of small messages hold."""
    run, item, s, f = t.run[0], t.item[0], t.sides[2 * c + k], t.frame[0]
    if s.size > 0 and s.got == s.size:
        finish_record(t, c, k)
    elif s.size > 0:
        passed = min(count, s.size - s.got)
        s.broken = max(s.broken, LOST)
        s.got += passed
        run.cursor += passed
    elif s.have or not s.synchronised or count < HEADER:
        lose_exchanges(t, c)
        pass_over(t, s, count)
        run.cursor = item.length
    else:
        f.conn, f.side, f.start, f.size, f.whole = c, k, 0, count, 0
        f.last_time, f.first_time, f.packet, f.order = item.time, item.time, item.packet, item.order
        take_lost(t)
        run.cursor = item.length


@kernel
def finish_record(t: Any, c: int, k: int) -> None:
    """Tell the record in progress, all of which went by."""
    s = t.sides[2 * c + k]
    f = t.frame[0]
    f.conn, f.side, f.start, f.size, f.whole = c, k, s.buf, s.size, 1 if s.broken == 0 else 0
    f.last_time, f.first_time, f.packet, f.order = s.frame_time, s.first_time, s.frame_packet, s.frame_order
    kind = byte(t.arena, s.buf) if s.have else APPLICATION_DATA if s.broken == PASSED else UNKNOWN
    tell(t, kind, t.arena)
    s.size = s.got = s.broken = 0
    empty_buffer(t, s)


@kernel
def tell(t: Any, kind: int, data: Any) -> None:
    """Tell the record that `frame` says, of this content type. May stop, and then nothing was changed."""
    f = t.frame[0]
    if t.limits[0].tls:
        row = new_record(t, f.conn, f.side, f.size, f.size if f.whole else 0)
        row.packet, row.time, row.order = f.packet, f.last_time, f.order
        if f.whole:
            copy(data, f.start, f.size, t.record_data, row.at)
        else:
            row.at = -1
    take_record(t, kind, data)


@kernel
def new_record(t: Any, c: int, k: int, size: int, kept: int) -> Any:
    """A row for a record, of which so many bytes are at hand. Stops if there is no room, and then nothing was
    changed."""
    run, conn, s = t.run[0], t.conns[c], t.sides[2 * c + k]
    if run.records >= len(t.records):
        lacks(t, WANT_RECORDS, run.records + 1)
    if run.record_bytes + kept > len(t.record_data):
        lacks(t, WANT_RECORD_DATA, run.record_bytes + kept)
    row = t.records[run.records]
    row.number, row.side, row.row = conn.number, k, run.row
    row.a_hi, row.a_lo, row.a_port = conn.a_hi, conn.a_lo, conn.a_port
    row.b_hi, row.b_lo, row.b_port = conn.b_hi, conn.b_lo, conn.b_port
    row.base = (s.next_seq - s.offset) & MASK
    row.at, row.size, row.unread = run.record_bytes, size, s.unread
    run.records += 1
    run.record_bytes += kept
    s.unread = 0
    return row


@kernel
def note_standing(t: Any, seg: Any) -> None:
    """Say of a segment that was taken how it stands to the streams of its TLS connection."""
    run = t.run[0]
    conn = t.conns[run.conn]
    seg.number = conn.number if conn.state == TLS else 0
    if seg.number == 0:
        return
    k = 0 if is_from_a(conn, seg) else 1
    s, other = t.sides[2 * run.conn + k], t.sides[2 * run.conn + 1 - k]
    seg.side, seg.order = k, run.order
    seg.base = (s.next_seq - s.offset) & MASK if s.next_seq >= 0 else -1
    seg.other_base = (other.next_seq - other.offset) & MASK if other.next_seq >= 0 else -1
    seg.ahead = distance(seg.seq, s.next_seq) if s.next_seq >= 0 else 0
    seg.acked = distance(seg.ack, other.next_seq) if other.next_seq >= 0 else 0
    seg.over = (1 if 0 <= s.fin_at <= s.offset else 0) << k
    seg.over |= (1 if 0 <= other.fin_at <= other.offset else 0) << (1 - k)
