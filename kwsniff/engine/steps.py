"""What single instructions of a body's program do: those that fill registers, facts and lists.

Each returns the position behind what it read, if it reads, and what is wrong: 0 for nothing.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import lacks
from kwsniff.engine.facts import ARRAY, ELEMENTS, NOT_TEXT, TRUNCATED, count, is_zero_uuid, length
from kwsniff.engine.tables import SPEC_OF, WANTS
from kwsniff.engine.texts import TEXT, UUID, add_name, text
from kwsniff.native.mode import byte, inlined, int16, int32, int64, int64_at, kernel, made, uint32, uintp
from kwsniff.native.octets import crc32, crc32c, invalid_at
from kwsniff.native.rowcopies import NONE
from kwsniff.spec import instructions as i

_ROWS, _BROKERS, _RESOURCES = WANTS.index("rows"), WANTS.index("brokers"), WANTS.index("resources")

# Registers


@inlined
def read_text(t: Any, data: Any, pos: int, end: int, step: Any, side: int) -> tuple[int, int]:
    """A string. One that is not text is noted and nothing more: an acks may stand behind it."""
    size, after, wrong = length(data, pos, end, step.b, 2)
    if wrong:
        return pos, wrong
    if size > end - after:
        return after, int64(TRUNCATED)
    reading, fact, r = t.reading[0], t.facts[side], t.registers
    if size < 0:
        if step.c != i.FIRST:
            r[step.a] = -1
        return after, int64(0)
    at = invalid_at(data, after, after + size)
    if at >= 0:
        if fact.code == 0:
            fact.code, fact.offset = int64(NOT_TEXT), at - reading.begin
    elif reading.keep and (r[step.a] < 0 or step.c != i.FIRST) and (reading.named or step.c != i.LIST):
        r[step.a] = text(t, data, after, size, TEXT)
    return after + size, int64(0)


@inlined
def read_uuid(t: Any, data: Any, pos: int, end: int, step: Any) -> tuple[int, int]:
    """A uuid; the one of zeros stands for none (KIP-516)."""
    if end - pos < 16:
        return pos, int64(TRUNCATED)
    t.registers[step.a] = -1
    if t.reading[0].named and not is_zero_uuid(data, pos):
        t.registers[step.a] = text(t, data, pos, int64(16), UUID)
    return pos + 16, int64(0)


@inlined
def read_error(t: Any, data: Any, pos: int, end: int, step: Any, side: int) -> tuple[int, int]:
    """An error code: the first that is not 0 is the call's."""
    if end - pos < 2:
        return pos, int64(TRUNCATED)
    fact, r, value = t.facts[side], t.registers, int16(data, pos)
    if value:
        fact.errors += 1
        if fact.error == 0:
            fact.error = value
    if step.a and (step.b or r[step.a + i.ERROR_AT] == 0):
        r[step.a + i.ERROR_AT] = value
    if step.c:
        r[step.c] = value
    return pos + 2, int64(0)


@inlined
def copy_register(r: Any, step: Any) -> None:
    """What one register holds, in another, unless that has something already."""
    a, b = step.a, step.b
    if step.c != i.FIRST or r[a] == NONE or (a < i.NO_NUMBER and r[a] < 0):
        r[a] = r[b]
        if step.d:
            r[a + 1] = r[b + 1]


@inlined
def open_loop(t: Any, data: Any, pos: int, end: int, step: Any) -> tuple[int, int]:
    """The length of an array, which register `a` counts down."""
    size, after, wrong = length(data, pos, end, step.b, 4)
    t.registers[step.a] = size
    if wrong:
        return pos, wrong
    return after, elements(t, size, step.c, end - after)


@inlined
def elements(t: Any, size: int, each: int, there: int) -> int:
    """What is wrong with an array of so many elements of at least `each` bytes, 0 for nothing."""
    if size <= 0:
        return int64(0)
    if size * each > there:
        return int64(ARRAY)
    t.reading[0].left -= size
    return int64(ELEMENTS if t.reading[0].left < 0 else 0)


@inlined
def open_tags(data: Any, pos: int, end: int, r: Any, a: int) -> tuple[int, int]:
    """How many tagged fields follow, which register `a` counts down."""
    size, pos, wrong = count(data, pos, end)
    r[a] = size
    if wrong == 0 and 2 * size > end - pos:
        wrong = int64(ARRAY)
    return pos, wrong


# Lists


@kernel
def add_row(t: Any, data: Any, step: Any, side: int) -> None:
    """The partition that the registers describe."""
    reading, fact, r = t.reading[0], t.facts[side], t.registers
    if not reading.keep:
        return
    if fact.rows >= len(t.rows):
        lacks(t, _ROWS, fact.rows + 1)
    row = t.rows[uintp(fact.rows)]
    fill_row(row, r, step)
    if step.d and r[step.c + i.RECORDS_AT] != NONE:
        fill_records(row, data, r, step, side, reading.verify != 0)
        fact.record_bytes += row.bytes
        fact.records = total(fact.records, row.records)
        if row.bytes > 0 and side == 1:
            fact.tail = reaches_end(row) if fact.tail == 0 else min(fact.tail, reaches_end(row))
        fact.damaged += 1 if row.mismatches or row.damage else 0
    if reading.lists or row.mismatches or row.damage:
        fact.rows += 1


@inlined
def fill_row(row: Any, r: Any, step: Any) -> None:
    """A row of a partition from its block of registers, without record data."""
    block = step.c
    row.name, row.uuid = r[step.a], r[step.b]
    row.partition, row.error = r[block + i.PARTITION_AT], r[block + i.ERROR_AT]
    _fill_numbers(row, r, block)
    row.records = row.bytes = NONE
    row.codecs = row.batches = row.mismatches = row.damage = row.taken = 0


_fill_numbers = made(
    "fill_numbers",
    "row, r, block",
    [f"row.{name} = r[block + {at}]" for at, name in enumerate(i.ROW_NUMBERS, i.NUMBERS_AT)],
)


@kernel
def fill_records(row: Any, data: Any, r: Any, step: Any, side: int, verify: bool) -> None:
    """Add to a row what its record data says."""
    start, stop = r[step.c + i.RECORDS_AT], r[step.c + i.RECORDS_AT + 1]
    base = sum_up(data, start, stop, side == 0, verify, row)
    # A producer's batches count from 0, not from an offset.
    if side == 1 and row.base_offset == NONE and stop > start:
        row.base_offset = base


@inlined
def total(first: int, second: int) -> int:
    """Two numbers together, NONE if one of them is not known."""
    return int64(NONE) if first == NONE or second == NONE else first + second


@inlined
def reaches_end(row: Any) -> int:
    """1 if a partition brought the last that could be read, 2 if that is one batch, as a request that waited
    for data is answered with the first that comes; else -1."""
    if row.records == NONE or row.base_offset == NONE or row.high_watermark == NONE:
        return int64(-1)
    if row.base_offset + row.records < row.high_watermark:
        return int64(-1)
    return int64(2) if row.batches == 1 else int64(1)


@inlined
def add_topic(t: Any, step: Any, side: int) -> None:
    """The topic that two registers name, unless it is there."""
    if not t.reading[0].lists:
        return
    fact, name, uuid = t.facts[side], t.registers[step.a], t.registers[step.b]
    if fact.names == 0 and len(t.names) > 0:
        topic = t.names[0]
        topic.name, topic.uuid = name, uuid
        fact.names = 1
    else:
        fact.names = add_name(t, fact.names, name, uuid)


@kernel
def add_partitions(t: Any, data: Any, pos: int, end: int, step: Any, side: int) -> tuple[int, int]:
    """An array of the numbers of partitions."""
    size, after, wrong = length(data, pos, end, step.a, 4)
    if wrong:
        return pos, wrong
    wrong = elements(t, size, int64(4), end - after)
    if wrong or size <= 0:
        return after, wrong
    fact, r = t.facts[side], t.registers
    if t.reading[0].lists:
        if fact.rows + size > len(t.rows):
            lacks(t, _ROWS, fact.rows + size)
        bare_rows(t, data, after, fact.rows, size, r[step.b], r[step.c])
        fact.rows += size
    return after + 4 * size, int64(0)


@kernel
def bare_rows(t: Any, data: Any, pos: int, first: int, count: int, name: int, uuid: int) -> None:
    """Rows of the partitions whose numbers stand in a row."""
    for at in range(count):
        _bare_row(t.rows[uintp(first + at)], name, uuid, int32(data, pos + 4 * at))


@kernel
def _bare_row(row: Any, name: int, uuid: int, partition: int) -> None:
    """A row of a partition of which only the number is said."""
    _reset_row(row)
    row.name, row.uuid, row.partition = name, uuid, partition


_reset_row = made("reset_row", "row", SPEC_OF["rows"].reset())


@inlined
def add_broker(t: Any, step: Any, side: int) -> None:
    """A broker that the message names."""
    fact, r = t.facts[side], t.registers
    if not t.reading[0].keep:
        return
    if fact.brokers >= len(t.brokers):
        lacks(t, _BROKERS, fact.brokers + 1)
    broker = t.brokers[uintp(fact.brokers)]
    broker.node, broker.host, broker.port = r[step.a], r[step.b], r[step.c]
    fact.brokers += 1


@inlined
def add_resource(t: Any, step: Any, side: int) -> None:
    """A resource that the message is about."""
    fact, r = t.facts[side], t.registers
    if not t.reading[0].lists:
        return
    if fact.resources >= len(t.resources):
        lacks(t, _RESOURCES, fact.resources + 1)
    resource = t.resources[uintp(fact.resources)]
    resource.type, resource.name = r[step.a], r[step.b]
    resource.error, resource.detail = r[step.c], r[step.d]
    fact.resources += 1


# Record data by its batch headers alone: records, codecs, first offset and what is wrong.
#
# Theory of operation. The field `records` of Produce, Fetch, ShareFetch and FetchSnapshot holds batches one
# after the other, each starting with an offset (8 bytes) and the length of what follows (4 bytes). The byte
# 16 after the start is the magic in every format ever used, so one can hop from batch to batch:
#
# * magic 2 (KIP-98): a 61-byte header with the number of records and a CRC-32C of all after the CRC field;
# * magic 0 and 1 (KIP-32): one message each, with a CRC-32. A compressed message wraps a whole message set,
#   and only decompressing it tells how many messages: the count is then unknown, never guessed.
#
# A fetch response may end inside a batch: brokers cut by bytes, and the consumer asks again (protocol guide).
#
# Invariant: every hop goes forward by at least 26 bytes, and nothing beyond `end` is read.

CUT_SHORT, CODEC_UNKNOWN, MALFORMED = 1, 2, 4
"""Bits of `damage`."""

_OVERHEAD = 12
"""Bytes of offset and length, which the length does not count."""
_MAGIC_AT = 16
_HEADER = 61
_CRC_FROM = 21
_MIN_RECORD = 7
"""Bytes of the smallest magic 2 record: seven one-byte fields."""
_UNKNOWN_CODEC = 5


@kernel
def with_codec(codecs: int, codec: int) -> int:
    """A list of codecs (four bits each, the first lowest, codec + 1) with one more if it is not in it."""
    shift = int64(0)
    while (codecs >> shift) & 15:
        if (codecs >> shift) & 15 == codec + 1:
            return codecs
        shift += 4
    return codecs | (codec + 1) << shift


@kernel
def _least(magic: int) -> int:
    """Smallest length of a batch or message: without key and value, or without records."""
    return 49 if magic == 2 else 22 if magic == 1 else 14


@kernel
def sum_up(data: Any, start: int, end: int, is_request: bool, verify: bool, row: Any) -> int:
    """Fill what `row` says of the record data `data[start:end]`; returns the offset of the first record, NONE
    if it is not known. Sums are of complete batches only."""
    count, codecs, base, mismatches, damage = int64(0), int64(0), int64(NONE), int64(0), int64(0)
    batches, unknown = int64(0), False
    pos = start
    while pos < end:
        left = end - pos
        if left <= _MAGIC_AT:
            if left >= _OVERHEAD and int32(data, pos + 8) < 14:
                damage, unknown = int64(MALFORMED), True
            elif is_request:
                damage |= CUT_SHORT
            break
        length, magic = int32(data, pos + 8), byte(data, pos + _MAGIC_AT)
        if magic > 2 or length < _least(magic):
            damage, unknown = int64(MALFORMED), True
            break
        stop = pos + _OVERHEAD + length
        if stop > end:
            if is_request:
                damage |= CUT_SHORT
            break
        codec = byte(data, pos + (_CRC_FROM + 1 if magic == 2 else 17)) & 7
        if magic == 2:
            records = int32(data, pos + _HEADER - 4)
            if records < 0 or (codec == 0 and records * _MIN_RECORD > stop - pos - _HEADER):
                damage, unknown = int64(MALFORMED), True
                break
            count += records
            if batches == 0:
                base = int64_at(data, pos)
            if verify and crc32c(data, pos + _CRC_FROM, stop) != uint32(data, pos + _MAGIC_AT + 1):
                mismatches += 1
        else:
            if codec:
                unknown = True
            else:
                count += 1
                if batches == 0:
                    base = int64_at(data, pos)
            if verify and crc32(data, pos + _MAGIC_AT, stop) != uint32(data, pos + _OVERHEAD):
                mismatches += 1
        if codec >= _UNKNOWN_CODEC:
            codec = int64(_UNKNOWN_CODEC)
            damage |= CODEC_UNKNOWN
        codecs = with_codec(codecs, codec)
        batches += 1
        pos = stop
    row.records = NONE if unknown else count
    row.bytes, row.codecs, row.mismatches, row.damage = end - start, codecs, mismatches, damage
    row.batches = batches
    return base
