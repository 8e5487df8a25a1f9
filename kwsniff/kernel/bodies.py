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

from kwsniff.events import ANOMALIES
from kwsniff.kernel.mode import inlined, int64, kernel, uintp
from kwsniff.kernel.numbers import FULL, NONE, OK, REFUSED, byte, int16, int32, int64_at, uvarint
from kwsniff.kernel.pairs import add_name
from kwsniff.kernel.records import sum_up
from kwsniff.kernel.room import want
from kwsniff.kernel.tables import WANTS
from kwsniff.kernel.texts import TEXT as KIND_TEXT
from kwsniff.kernel.texts import UUID as KIND_UUID
from kwsniff.kernel.texts import invalid_at, text
from kwsniff.spec import instructions as i

_CODES = tuple(ANOMALIES)
TRUNCATED, VARINT, LENGTH, ARRAY, ELEMENTS, NOT_TEXT, VALUE, TRAILING = (
    _CODES.index(code)
    for code in (
        "truncated_body", "varint_too_long", "length_invalid", "array_too_long", "element_limit",
        "text_invalid", "value_invalid", "trailing_bytes",
    )
)  # fmt: skip
"""What can be wrong with a body: places in `kwsniff.events.ANOMALIES`."""

UNSUPPORTED_VERSION = 35
"""Error code of a broker that does not know the version it was asked for."""

_ROWS, _BROKERS = WANTS.index("rows"), WANTS.index("brokers")
_RESOURCES, _REGISTERS = WANTS.index("resources"), WANTS.index("registers")
# Constants of other modules, as numbers that the compiler takes in.
_GROUP, _MEMBER, _TRANSACTIONAL = (i.REGISTER[role] for role in ("group", "member", "transactional_id"))
_SOFTWARE, _SOFTWARE_VERSION = i.REGISTER["software_name"], i.REGISTER["software_version"]
_MECHANISM, _PROTOCOL_TYPE = i.REGISTER["mechanism"], i.REGISTER["protocol_type"]
_COORDINATOR, _COORDINATOR_TYPE = i.REGISTER["coordinator_key"], i.REGISTER["coordinator_type"]
_GROUP_PROTOCOL, _REASON, _RACK = (i.REGISTER[role] for role in ("group_protocol", "reason", "rack"))
_THROTTLE, _ACKS, _MAX_WAIT = (i.REGISTER[role] for role in ("throttle", "acks", "max_wait"))
_SESSION, _EPOCH = i.REGISTER["session_id"], i.REGISTER["session_epoch"]
_GENERATION, _VALIDATE_ONLY = i.REGISTER["generation"], i.REGISTER["validate_only"]


@kernel
def length(data: Any, pos: int, end: int, stored: int, width: int) -> tuple[int, int, int]:
    """A length, -1 for null, the position behind it, and what is wrong with it, 0 for nothing."""
    if stored & i.COMPACT:
        size, after = uvarint(data, pos, end)
        if after < 0:
            return int64(0), pos, VARINT if after == -2 else TRUNCATED
        size -= 1
    else:
        after = pos + width
        if after > end:
            return int64(0), pos, TRUNCATED
        size = int16(data, pos) if width == 2 else int32(data, pos)
    if size < -1 or (size == -1 and not stored & i.NULLABLE):
        return int64(0), pos, LENGTH
    return size, after, int64(0)


@kernel
def skip_tags(data: Any, pos: int, end: int) -> tuple[int, int]:
    """Position behind tagged fields (KIP-482), and what is wrong with them, 0 for nothing."""
    count, after = uvarint(data, pos, end)
    if after < 0:
        return pos, VARINT if after == -2 else TRUNCATED
    pos = after
    if 2 * count > end - pos:
        return pos, int64(ARRAY)
    for _ in range(count):
        for _ in range(2):
            size, after = uvarint(data, pos, end)
            if after < 0:
                return pos, VARINT if after == -2 else TRUNCATED
            pos = after
        if size > end - pos:
            return pos, int64(TRUNCATED)
        pos += size
    return pos, int64(0)


@inlined
def _number(data: Any, pos: int, width: int) -> int:
    """A signed number of 1, 2, 4 or 8 bytes."""
    if width == 4:
        return int32(data, pos)
    if width == 2:
        return int16(data, pos)
    if width == 8:
        return int64_at(data, pos)
    value = byte(data, pos)
    return value - 0x100 if value & 0x80 else value


@kernel
def clear(t: Any, side: int) -> None:
    """Let row `side` of `facts` say nothing."""
    fact = t.facts[side]
    fact.clean = fact.code = fact.offset = fact.trailing = fact.flags = fact.columns = fact.errors = 0
    fact.group = fact.member = fact.transactional_id = fact.software_name = fact.software_version = -1
    fact.mechanism = fact.protocol_type = fact.coordinator_key = fact.group_protocol = fact.reason = -1
    fact.rack = -1
    fact.error = fact.throttle = fact.acks = fact.max_wait = fact.session_id = fact.session_epoch = NONE
    fact.coordinator_type = fact.generation = fact.validate_only = fact.token = fact.token_end = NONE
    fact.records = fact.record_bytes = NONE
    fact.name_first = fact.names = fact.row_first = fact.rows = fact.brokers = fact.resources = 0
    fact.damaged = fact.tail = 0


@inlined
def reaches_end(row: Any) -> bool:
    """Whether what a partition brought is one batch and the last that could be read: a request that waits for
    data is answered with the first that comes."""
    if row.records == NONE or row.base_offset == NONE or row.high_watermark == NONE or row.batches != 1:
        return False
    return row.base_offset + row.records >= row.high_watermark


@kernel
def _settle(r: Any, fact: Any) -> None:
    """Write what the fixed registers hold into a row of `facts`."""
    fact.group, fact.member, fact.transactional_id = r[_GROUP], r[_MEMBER], r[_TRANSACTIONAL]
    fact.software_name, fact.software_version = r[_SOFTWARE], r[_SOFTWARE_VERSION]
    fact.mechanism, fact.protocol_type = r[_MECHANISM], r[_PROTOCOL_TYPE]
    fact.coordinator_key, fact.coordinator_type = r[_COORDINATOR], r[_COORDINATOR_TYPE]
    fact.group_protocol, fact.reason, fact.rack = r[_GROUP_PROTOCOL], r[_REASON], r[_RACK]
    fact.throttle, fact.acks, fact.max_wait = r[_THROTTLE], r[_ACKS], r[_MAX_WAIT]
    fact.session_id, fact.session_epoch = r[_SESSION], r[_EPOCH]
    fact.generation, fact.validate_only = r[_GENERATION], r[_VALIDATE_ONLY]
    fact.token, fact.token_end = r[i.TOKEN], r[i.TOKEN + 1]


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


# What single instructions do: each returns the position behind what it read, and what is wrong, 0 for nothing


@inlined
def _skip_sized(data: Any, pos: int, end: int, stored: int, width: int) -> tuple[int, int]:
    """Pass over a string or bytes."""
    size, after, wrong = length(data, pos, end, stored, width)
    if wrong:
        return pos, wrong
    if size > end - after:
        return after, int64(TRUNCATED)
    return after + (size if size > 0 else int64(0)), int64(0)


@inlined
def _skip_array(data: Any, pos: int, end: int, step: Any) -> tuple[int, int]:
    """Pass over an array of elements of fixed width."""
    size, after, wrong = length(data, pos, end, step.a, 4)
    if wrong:
        return pos, wrong
    if size * step.c > end - after:
        return after, int64(ARRAY)
    return after + (size * step.b if size > 0 else int64(0)), int64(0)


@inlined
def _span(data: Any, pos: int, end: int, r: Any, step: Any) -> tuple[int, int]:
    """Note where bytes lie."""
    size, after, wrong = length(data, pos, end, step.b, 4)
    if wrong:
        return pos, wrong
    if size > end - after:
        return after, int64(TRUNCATED)
    if size < 0:
        if step.c != i.FIRST:
            r[step.a] = NONE
        return after, int64(0)
    if step.c != i.FIRST or r[step.a] == NONE:
        r[step.a], r[step.a + 1] = after, after + size
    return after + size, int64(0)


@inlined
def _marker(data: Any, pos: int, end: int) -> tuple[bool, int]:
    """Whether a nullable struct is there, by the byte before it; and what is wrong with that."""
    if pos >= end:
        return False, int64(TRUNCATED)
    marker = byte(data, pos)
    return marker == 1, int64(0 if marker == 1 or marker == 0xFF else VALUE)


@inlined
def _count(data: Any, pos: int, end: int) -> tuple[int, int, int]:
    """An unsigned varint, the position behind it and what is wrong with it."""
    size, after = uvarint(data, pos, end)
    if after < 0:
        return int64(0), pos, int64(VARINT if after == -2 else TRUNCATED)
    return size, after, int64(0)


@inlined
def _tag(data: Any, pos: int, end: int, r: Any, a: int) -> tuple[int, int]:
    """Number and size of a tagged field: the registers from `a` + 1 on get its number, where it ends and
    where the struct does."""
    number, pos, wrong = _count(data, pos, end)
    if wrong:
        return pos, wrong
    size, pos, wrong = _count(data, pos, end)
    if wrong:
        return pos, wrong
    r[a + 1], r[a + 2], r[a + 3] = number, pos + size, end
    return pos, int64(TRUNCATED if pos + size > end else 0)


@inlined
def _fill_row(row: Any, r: Any, step: Any) -> None:
    """A row of a partition from its block of registers, without record data."""
    block = step.c
    row.name, row.uuid = r[step.a], r[step.b]
    row.partition, row.error = r[block + i.PARTITION_AT], r[block + i.ERROR_AT]
    row.base_offset, row.high_watermark = r[block + i.NUMBERS_AT], r[block + i.NUMBERS_AT + 1]
    row.log_start_offset = r[block + i.NUMBERS_AT + 2]
    row.last_stable_offset = r[block + i.NUMBERS_AT + 3]
    row.fetch_offset = r[block + i.NUMBERS_AT + 4]
    row.committed_offset = r[block + i.NUMBERS_AT + 5]
    row.leader_epoch = r[block + i.NUMBERS_AT + 6]
    row.records = row.bytes = NONE
    row.codecs = row.batches = row.mismatches = row.damage = row.taken = 0


@kernel
def _fill_records(row: Any, data: Any, r: Any, step: Any, side: int, verify: bool) -> None:
    """Add to a row what its record data says."""
    start, stop = r[step.c + i.RECORDS_AT], r[step.c + i.RECORDS_AT + 1]
    base = sum_up(data, start, stop, side == 0, verify, row)
    # A producer's batches count from 0, not from an offset.
    if side == 1 and row.base_offset == NONE and stop > start:
        row.base_offset = base


@inlined
def _sum(first: int, second: int) -> int:
    """Two numbers together, NONE if one of them is not known."""
    return int64(NONE) if first == NONE or second == NONE else first + second


@inlined
def _with_name(t: Any, names: int, name: int, uuid: int) -> int:
    """How many topics there are with this one; FULL if there is no room."""
    if names == 0 and len(t.names) > 0:
        topic = t.names[0]
        topic.name, topic.uuid = name, uuid
        return int64(1)
    return add_name(t, names, name, uuid)


@inlined
def _fill_broker(broker: Any, r: Any, step: Any) -> None:
    broker.node, broker.host, broker.port = r[step.a], r[step.b], r[step.c]


@inlined
def _fill_resource(resource: Any, r: Any, step: Any) -> None:
    resource.type, resource.name = r[step.a], r[step.b]
    resource.error, resource.detail = r[step.c], r[step.d]


@kernel
def run(t: Any, data: Any, pos: int, end: int, entry: int, side: int, keep: bool) -> int:
    """Run row `entry` of `programs` over a body; `side` is the row of `facts`. See `read` and `skim`."""
    program = t.programs[entry]
    flags, columns = program.flags, program.columns
    fact, r = t.facts[side], t.registers
    if program.registers > len(r):
        return want(t, _REGISTERS, program.registers)
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
            pos, wrong = _skip_sized(data, pos, end, a, 2 if op == i.SKIP_TEXT else 4)
        elif op == i.SKIP_ARRAY:
            pos, wrong = _skip_array(data, pos, end, step)
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
                    r[a] = _number(data, pos, b)
                pos += b
        elif op == i.SPAN:
            pos, wrong = _span(data, pos, end, r, step)
        elif op == i.UUID:
            if end - pos < 16:
                wrong = int64(TRUNCATED)
            else:
                r[a] = -1
                if named and not _is_zero(data, pos):
                    wanted = int64(16)
                pos += 16
        elif op == i.ROW:
            if keep:
                if rows >= len(t.rows):
                    return want(t, _ROWS, rows + 1)
                row = t.rows[uintp(rows)]
                _fill_row(row, r, step)
                if step.d and r[step.c + i.RECORDS_AT] != NONE:
                    _fill_records(row, data, r, step, side, verify)
                    record_bytes += row.bytes
                    records = _sum(records, row.records)
                    if row.bytes > 0 and side == 1:
                        tail = int64(1) if tail >= 0 and reaches_end(row) else int64(-1)
                    damaged += 1 if row.mismatches or row.damage else 0
                if lists or row.mismatches or row.damage:
                    rows += 1
        elif op == i.NAME:
            if lists:
                names = _with_name(t, names, r[a], r[b])
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
                            return want(t, _ROWS, rows + size)
                        _bare_rows(t, data, pos, rows, size, r[b], r[step.c])
                        rows += size
                        pos += 4 * size
                    else:
                        pos += 4 * size
        elif op == i.MARKER:
            present, wrong = _marker(data, pos, end)
            if wrong == 0:
                pos += 1
                if not present:
                    ip = a
        elif op == i.TAGS_OPEN:
            size, pos, wrong = _count(data, pos, end)
            if wrong == 0:
                if 2 * size > end - pos:
                    wrong = int64(ARRAY)
                elif size == 0:
                    ip = b
                r[a] = size
        elif op == i.TAG:
            pos, wrong = _tag(data, pos, end, r, a)
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
                    return want(t, _BROKERS, brokers + 1)
                _fill_broker(t.brokers[uintp(brokers)], r, step)
                brokers += 1
        elif op == i.RESOURCE:
            if lists:
                if resources >= len(t.resources):
                    return want(t, _RESOURCES, resources + 1)
                _fill_resource(t.resources[uintp(resources)], r, step)
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
        fact.code, fact.offset, fact.acks = code, offset, r[_ACKS]
        return REFUSED
    _settle(r, fact)
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


@inlined
def _is_zero(data: Any, pos: int) -> bool:
    """Whether there is the zero uuid, which stands for none (KIP-516)."""
    return int64_at(data, pos) == 0 and int64_at(data, pos + 8) == 0


@kernel
def _bare_rows(t: Any, data: Any, pos: int, first: int, count: int, name: int, uuid: int) -> None:
    """Rows of the partitions whose numbers stand in a row."""
    for at in range(count):
        _bare_row(t.rows[uintp(first + at)], name, uuid, int32(data, pos + 4 * at))


@kernel
def _bare_row(row: Any, name: int, uuid: int, partition: int) -> None:
    """A row of a partition of which only the number is said."""
    row.name, row.uuid, row.partition = name, uuid, partition
    row.error = row.base_offset = row.records = row.bytes = row.high_watermark = NONE
    row.log_start_offset = row.last_stable_offset = row.fetch_offset = row.committed_offset = NONE
    row.leader_epoch = NONE
    row.codecs = row.batches = row.mismatches = row.damage = row.taken = 0
