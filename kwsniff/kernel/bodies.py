"""What a body says: runs a program of `kwsniff.spec.instructions` over one message.

Theory of operation. One loop over instructions, with the position in the message and the registers. All that
is read is first compared with the message's end, or with that of the tagged field it stands in. Topics,
partitions, advertised brokers and resources go to the lists `names`, `rows`, `brokers` and `resources`, the
rest to the row of `facts`.

What is wrong ends the reading; only a string that is not text does not, since an acks behind it decides
whether a response is due. `code` and `offset` say what was found first; where it stands in the message, the
interpreter of `kwsniff.spec.interpret` finds out from the same bytes.

Invariants: for any bytes, what is accepted and what is refused, and for which reason, is what the decoder of
`kwsniff.spec.instructions` says. FULL leaves nothing behind but texts, so the body can be read again.
"""

from __future__ import annotations

from typing import Any

from kwsniff.kernel.facts import (
    ACKS,
    bare_rows,
    clear,
    fill_broker,
    fill_facts,
    fill_records,
    fill_resource,
    fill_row,
    reaches_end,
    total,
    with_name,
)
from kwsniff.kernel.fields import (
    ARRAY,
    ELEMENTS,
    NOT_TEXT,
    TRAILING,
    TRUNCATED,
    count,
    is_zero_uuid,
    length,
    marker,
    signed,
    skip_array,
    skip_sized,
    skip_tags,
    span,
    tag,
)
from kwsniff.kernel.mode import int64, kernel, uintp
from kwsniff.kernel.numbers import FULL, NONE, OK, REFUSED, int16, uvarint
from kwsniff.kernel.room import lacks
from kwsniff.kernel.tables import WANTS
from kwsniff.kernel.texts import TEXT as KIND_TEXT
from kwsniff.kernel.texts import UUID as KIND_UUID
from kwsniff.kernel.texts import invalid_at, text
from kwsniff.spec import instructions as i

UNSUPPORTED_VERSION = 35
"""Error code of a broker that does not know the version it was asked for."""

_ROWS, _BROKERS = WANTS.index("rows"), WANTS.index("brokers")
_RESOURCES, _REGISTERS = WANTS.index("resources"), WANTS.index("registers")


@kernel
def read(t: Any, data: Any, pos: int, end: int, entry: int, is_request: bool) -> int:
    """Read the body `data[pos:end]` by row `entry` of `programs`.

    Fills row 0 of `facts` for a request, row 1 for a response, and `names`, `rows`, `brokers`, `resources`
    from their starts. Returns OK, REFUSED (then `facts` has the reason, and of the rest only `acks`) or FULL.
    """
    return run(t, data, pos, end, entry, 0 if is_request else 1, True)


@kernel
def skim(t: Any, data: Any, pos: int, end: int, entry: int, is_request: bool) -> int:
    """Whether `read` would take the body, with nothing kept: OK, REFUSED or FULL. The row of `facts` is that
    of a body without texts and lists."""
    return run(t, data, pos, end, entry, 0 if is_request else 1, False)


@kernel
def downgraded(t: Any, data: Any, pos: int, end: int, layout: int) -> int:
    """The row of `layouts` that a response to a request of `layout` follows. A broker that does not know the
    version it was asked for cannot know its layout either: ApiVersions is then answered with v0 and error 35
    (KIP-511)."""
    other = t.layouts[layout].downgraded
    if other < 0 or end - pos < 2 or int16(data, pos) != UNSUPPORTED_VERSION:
        return layout
    return other


@kernel
def unsupported(t: Any) -> None:
    """After `read` refused a downgraded response, of which the error code is all that counts: take it all
    the same; `code` and `offset` say what is wrong. librdkafka's mock cluster writes a short array here."""
    fact = t.facts[1]
    code, offset = fact.code, fact.offset
    clear(t, 1)
    fact.code, fact.offset, fact.clean, fact.flags = code, offset, 1, i.HAS_ERROR
    fact.error, fact.errors = UNSUPPORTED_VERSION, 1


@kernel
def peek_acks(t: Any, data: Any, pos: int, end: int, version: int) -> int:
    """The acks of a Produce request of which only the beginning may be at hand, NONE if they are not: they
    decide about pairing, which has to work on a broken body too."""
    if version >= 9:
        size, after = uvarint(data, pos, end)
        if after < 0:
            return int64(NONE)
        pos = after + (size - 1 if size > 0 else 0)
    elif version >= 3 and end - pos >= 2:
        size = int16(data, pos)
        pos += 2 + (size if size > 0 else 0)
    return int16(data, pos) if end - pos >= 2 else int64(NONE)


@kernel
def run(t: Any, data: Any, pos: int, end: int, entry: int, side: int, keep: bool) -> int:
    """Run row `entry` of `programs` over a body; `side` is the row of `facts`. See `read` and `skim`."""
    program = t.programs[entry]
    flags, columns = program.flags, program.columns
    fact, r = t.facts[side], t.registers
    if program.registers > len(r):
        return lacks(t, _REGISTERS, program.registers)
    for at in range(i.NO_NUMBER):
        r[at] = -1
    for at in range(i.NO_NUMBER, program.registers):
        r[at] = NONE
    lists = keep and t.limits[0].lists != 0
    named = lists or (keep and flags & i.HAS_RECORDS != 0)  # an anomaly names the partition it is about
    left, verify = t.limits[0].max_elements, t.limits[0].verify_crc != 0
    begin, outer = pos, end
    error, errors = int64(0), int64(0)
    names, rows, brokers, resources = int64(0), int64(0), int64(0), int64(0)
    records, record_bytes, damaged = int64(0), int64(0), int64(0)
    tail = int64(0)
    code, offset = int64(0), int64(0)
    steps, ip = t.code, program.start
    while True:
        step = steps[uintp(ip)]
        op, a, b = step.op, step.a, step.b
        ip += 1
        wrong, wanted = int64(0), int64(-1)
        if op == i.SKIP:
            if a > end - pos:
                wrong = int64(TRUNCATED)
            else:
                pos += a
        elif op == i.NEXT:
            r[a] -= 1
            if r[a] > 0:
                ip = b
        elif op == i.TEXT:
            size, after, wrong = length(data, pos, end, b, 2)
            if wrong == 0:
                pos = after
                if size > end - pos:
                    wrong = int64(TRUNCATED)
                elif size >= 0:
                    at = invalid_at(data, pos, pos + size)
                    if at >= 0:
                        if code == 0:
                            code, offset = int64(NOT_TEXT), at - begin
                    elif keep and (r[a] < 0 or step.c != i.FIRST) and (named or step.c != i.LIST):
                        wanted = size
                    pos += size
                elif step.c != i.FIRST:
                    r[a] = -1
        elif op == i.SKIP_TEXT or op == i.SKIP_BYTES:
            pos, wrong = skip_sized(data, pos, end, a, 2 if op == i.SKIP_TEXT else 4)
        elif op == i.SKIP_ARRAY:
            pos, wrong = skip_array(data, pos, end, step)
        elif op == i.LOOP:
            size, after, wrong = length(data, pos, end, b, 4)
            if wrong == 0:
                pos = after
                if size > 0:
                    if size * step.c > end - pos:
                        wrong = int64(ARRAY)
                    else:
                        left -= size
                        if left < 0:
                            wrong = int64(ELEMENTS)
                    r[a] = size
                else:
                    ip = step.d
        elif op == i.TAGS:
            if pos < end and data[uintp(pos)] == 0:
                pos += 1
            else:
                pos, wrong = skip_tags(data, pos, end)
        elif op == i.ERROR:
            if end - pos < 2:
                wrong = int64(TRUNCATED)
            else:
                value = int16(data, pos)
                pos += 2
                if value:
                    errors += 1
                    if error == 0:
                        error = value
                if a and (b or r[a + i.ERROR_AT] == 0):
                    r[a + i.ERROR_AT] = value
                if step.c:
                    r[step.c] = value
        elif op == i.NUMBER:
            if end - pos < b:
                wrong = int64(TRUNCATED)
            else:
                if step.c != i.FIRST or r[a] == NONE:
                    r[a] = signed(data, pos, b)
                pos += b
        elif op == i.SPAN:
            pos, wrong = span(data, pos, end, r, step)
        elif op == i.UUID:
            if end - pos < 16:
                wrong = int64(TRUNCATED)
            else:
                r[a] = -1
                if named and not is_zero_uuid(data, pos):
                    wanted = int64(16)
                pos += 16
        elif op == i.ROW:
            if keep:
                if rows >= len(t.rows):
                    return lacks(t, _ROWS, rows + 1)
                row = t.rows[uintp(rows)]
                fill_row(row, r, step)
                if step.d and r[step.c + i.RECORDS_AT] != NONE:
                    fill_records(row, data, r, step, side, verify)
                    record_bytes += row.bytes
                    records = total(records, row.records)
                    if row.bytes > 0 and side == 1:
                        tail = int64(1) if tail >= 0 and reaches_end(row) else int64(-1)
                    damaged += 1 if row.mismatches or row.damage else 0
                if lists or row.mismatches or row.damage:
                    rows += 1
        elif op == i.NAME:
            if lists:
                names = with_name(t, names, r[a], r[b])
                if names == FULL:
                    return FULL
        elif op == i.PARTITIONS:
            size, after, wrong = length(data, pos, end, a, 4)
            if wrong == 0:
                pos = after
                if size * 4 > end - pos:
                    wrong = int64(ARRAY)
                elif size > 0:
                    left -= size
                    if left < 0:
                        wrong = int64(ELEMENTS)
                    elif lists:
                        if rows + size > len(t.rows):
                            return lacks(t, _ROWS, rows + size)
                        bare_rows(t, data, pos, rows, size, r[b], r[step.c])
                        rows += size
                        pos += 4 * size
                    else:
                        pos += 4 * size
        elif op == i.MARKER:
            present, wrong = marker(data, pos, end)
            if wrong == 0:
                pos += 1
                if not present:
                    ip = a
        elif op == i.TAGS_OPEN:
            size, pos, wrong = count(data, pos, end)
            if wrong == 0:
                if 2 * size > end - pos:
                    wrong = int64(ARRAY)
                elif size == 0:
                    ip = b
                r[a] = size
        elif op == i.TAG:
            pos, wrong = tag(data, pos, end, r, a)
        elif op == i.TAG_CASE:
            if r[a + 1] != b:
                ip = step.c
            else:
                end = r[a + 2]
        elif op == i.TAG_CLOSE:
            end = r[a + 3]
            if pos != r[a + 2]:
                wrong = int64(TRAILING)
            ip = b
        elif op == i.TAG_NEXT:
            pos = r[a + 2]
            r[a] -= 1
            if r[a] > 0:
                ip = b
        elif op == i.COPY:
            if step.c != i.FIRST or r[a] == NONE or (a < i.NO_NUMBER and r[a] < 0):
                r[a] = r[b]
                if step.d:
                    r[a + 1] = r[b + 1]
        elif op == i.BROKER:
            if keep:
                if brokers >= len(t.brokers):
                    return lacks(t, _BROKERS, brokers + 1)
                fill_broker(t.brokers[uintp(brokers)], r, step)
                brokers += 1
        elif op == i.RESOURCE:
            if lists:
                if resources >= len(t.resources):
                    return lacks(t, _RESOURCES, resources + 1)
                fill_resource(t.resources[uintp(resources)], r, step)
                resources += 1
        else:
            break
        if wrong:
            if code == 0:
                code, offset = wrong, pos - begin
            break
        if wanted >= 0:
            value = text(t, data, pos - wanted, wanted, KIND_UUID if op == i.UUID else KIND_TEXT)
            if value < 0:
                return FULL
            r[a] = value
    if code:
        clear(t, side)
        fact.code, fact.offset, fact.acks = code, offset, r[ACKS]
        return REFUSED
    fill_facts(r, fact)
    fact.clean, fact.code, fact.offset, fact.trailing = 1, 0, 0, outer - pos
    fact.flags, fact.columns = flags, columns
    has_error, has_records = flags & i.HAS_ERROR, flags & i.HAS_RECORDS
    fact.error, fact.errors = error if has_error else int64(NONE), errors
    fact.records = records if has_records else int64(NONE)
    fact.record_bytes = record_bytes if has_records else int64(NONE)
    fact.names, fact.rows, fact.brokers, fact.resources = names, rows, brokers, resources
    fact.tail = tail
    fact.name_first, fact.row_first, fact.damaged = 0, 0, damaged
    return OK
