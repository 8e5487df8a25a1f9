"""What bodies say, compiled: runs the programs of `kwsniff.spec.program` over many messages.

Theory of operation. One loop over instructions, with the position in the message, the registers of the row
in the making and a stack of element counts. Everything read is first compared with the message's end. What
is not certain makes the message unclean (see CLEAN), and its rows are dropped; the exact path reads it then.

Invariant: a clean message has the very facts that the generated decoder gives.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.batches import NO_CODEC, sums
from kwsniff.engine.bulk.kernel import kernel
from kwsniff.engine.bulk.numbers import NONE, Bytes, int16, int32, int64, is_ascii, uvarint
from kwsniff.engine.bulk.texts import Ints, Slots, number
from kwsniff.spec import program as p

Codes = NDArray[np.int32]

REFUSED, ROOM = 0, -1
"""Results of `body`: not clean; or tables are full, so that they have to grow first. 1 is clean."""


@kernel
def length(buf: Bytes, pos: int, end: int, stored: int, width: int) -> tuple[int, int]:
    """A length, -1 for null, and the position behind it; that is -1 if the length is refused."""
    if stored & p.COMPACT:
        size, pos = uvarint(buf, pos, end)
        size -= 1
    else:
        if end - pos < width:
            return 0, -1
        size = int16(buf, pos) if width == 2 else int32(buf, pos)
        pos += width
    if size < -1 or (size == -1 and not stored & p.NULLABLE):
        return 0, -1
    return size, pos


@kernel
def skip_tags(buf: Bytes, pos: int, end: int, strict: int) -> int:
    """Position behind tagged fields; -1 if that is not certain. `strict` wants none."""
    if pos < end and buf[pos] == 0:
        return pos + 1
    if strict:
        return -1
    count, pos = uvarint(buf, pos, end)
    for _ in range(count):
        if pos < 0:
            return -1
        _, pos = uvarint(buf, pos, end)
        if pos < 0:
            return -1
        size, pos = uvarint(buf, pos, end)
        if pos < 0 or size > end - pos:
            return -1
        pos += size
    return pos


@kernel
def body(
    code: Codes, start: int, flags: int, buf: Bytes, pos: int, end: int, frame: int, is_request: bool,
    verify: bool, lists: bool, facts: Ints, rows: Ints, topics: Ints, counts: Ints, spans: Ints, slots: Slots,
    stamps: Ints, left: Ints, elements: int,
) -> int:  # fmt: skip
    """Read one body into row `frame` of `facts`; rows and topics are appended, `counts` says how many are.

    Without `lists` the calls will have no topics and partitions, and none are kept.
    """
    fact = facts[frame]
    fact[c.CLEAN] = 0
    fact[c.FLAGS] = flags
    fact[c.ERROR] = 0 if flags & p.HAS_ERROR else NONE
    fact[c.ERRORS] = 0
    for column in (c.THROTTLE, c.ACKS, c.MAX_WAIT):
        fact[column] = NONE
    for column in (c.GROUP, c.MEMBER, c.TRANSACTIONAL_ID):
        fact[column] = -1
    fact[c.RECORDS] = fact[c.RECORD_BYTES] = 0 if flags & p.HAS_RECORDS else NONE
    row_at = row_first = counts[0]
    topic_at = topic_first = counts[1]
    stamp = counts[2] = counts[2] + 1
    topic, topic_id, partition, base, row_error = -1, -1, 0, NONE, NONE
    records_start, records_end = -1, -1
    depth = 0
    ip = start
    while True:
        op, a, b = code[ip], code[ip + 1], code[ip + 2]
        ip += 4
        if op == p.SKIP:
            pos += a
            if pos > end:
                return REFUSED
        elif op == p.NEXT:
            left[depth - 1] -= 1
            if left[depth - 1] > 0:
                ip = start + a
            else:
                depth -= 1
        elif op == p.TEXT:
            size, pos = length(buf, pos, end, b, 2)
            if pos < 0 or size > end - pos:
                return REFUSED
            value = -1
            if size >= 0:
                if not is_ascii(buf, pos, pos + size):
                    return REFUSED
                if a != p.UNUSED and (lists or a != p.TOPIC):
                    value = number(buf, pos, size, 0, spans, slots)
                    if value < 0:
                        return REFUSED
                pos += size
            if a == p.TOPIC:
                topic = value
            elif a != p.UNUSED and fact[c.GROUP + a] < 0:
                fact[c.GROUP + a] = value
        elif op == p.SKIP_COMPACT:
            size, pos = length(buf, pos, end, p.COMPACT | a, 0)
            if pos < 0:
                return REFUSED
            if size > 0:
                pos += size * b
                if pos > end:
                    return REFUSED
        elif op == p.SKIP_STRING or op == p.SKIP_BYTES:
            width = 2 if op == p.SKIP_STRING else 4
            size, pos = length(buf, pos, end, a, width)
            if pos < 0:
                return REFUSED
            if size > 0:
                pos += size * (b if width == 4 else 1)
                if pos > end:
                    return REFUSED
        elif op == p.ARRAY or op == p.COMPACT_ARRAY:
            size, pos = length(buf, pos, end, a | (p.COMPACT if op == p.COMPACT_ARRAY else 0), 4)
            if pos < 0:
                return REFUSED
            if size > 0:
                elements -= size
                if size * b > end - pos or elements < 0:
                    return REFUSED
                left[depth] = size
                depth += 1
            else:
                ip = start + code[ip - 1]
        elif op == p.TAGS:
            pos = skip_tags(buf, pos, end, a)
            if pos < 0:
                return REFUSED
        elif op == p.ERROR:
            if end - pos < 2:
                return REFUSED
            code_found = int16(buf, pos)
            pos += 2
            if code_found:
                fact[c.ERRORS] += 1
                if fact[c.ERROR] == 0:
                    fact[c.ERROR] = code_found
            if a and (row_error == NONE or row_error == 0):
                row_error = code_found
        elif op == p.NUMBER:
            if end - pos < b:
                return REFUSED
            if fact[c.THROTTLE + a] == NONE:
                fact[c.THROTTLE + a] = int16(buf, pos) if b == 2 else int32(buf, pos)
            pos += b
        elif op == p.PARTITION:
            if end - pos < 4:
                return REFUSED
            partition = int32(buf, pos)
            pos += 4
        elif op == p.BASE_OFFSET:
            if end - pos < 8:
                return REFUSED
            base = int64(buf, pos)
            pos += 8
        elif op == p.RECORDS:
            size, pos = length(buf, pos, end, a, 4)
            if pos < 0 or size > end - pos:
                return REFUSED
            records_start, records_end = -1, -1
            if size >= 0:
                records_start, records_end = pos, pos + size
                pos += size
        elif op == p.TOPIC_ID:
            if end - pos < 16:
                return REFUSED
            topic_id = -1
            for at in range(pos, pos + 16 * lists):
                if buf[at]:
                    topic_id = number(buf, pos, 16, 1, spans, slots)
                    if topic_id < 0:
                        return REFUSED
                    break
            pos += 16
        elif op == p.ROW_BEGINS:
            row_error = NONE
        elif op == p.ROW:
            if row_at >= len(rows):
                return ROOM
            row = rows[row_at]
            row_at += lists
            row[c.ROW_TOPIC] = topic if a & p.HAS_TOPIC else -1
            row[c.ROW_TOPIC_ID] = topic_id if a & p.HAS_TOPIC_ID else -1
            row[c.ROW_PARTITION] = partition
            row[c.ROW_ERROR] = row_error if a & p.HAS_ERROR else NONE
            row[c.ROW_BASE] = base if a & p.HAS_BASE else NONE
            row[c.ROW_RECORDS] = row[c.ROW_BYTES] = NONE
            row[c.ROW_CODEC] = NO_CODEC
            if a & p.HAS_RECORDS and records_start >= 0:
                size = records_end - records_start
                usual, count, codec, found = sums(buf, records_start, records_end, not is_request, verify)
                if not usual:
                    return REFUSED
                row[c.ROW_RECORDS], row[c.ROW_BYTES], row[c.ROW_CODEC] = count, size, codec
                fact[c.RECORDS] += count
                fact[c.RECORD_BYTES] += size
                if not is_request and row[c.ROW_BASE] == NONE:
                    row[c.ROW_BASE] = found
        elif op == p.TOPIC_ROW and not lists:
            pass
        elif op == p.TOPIC_ROW:
            if topic_at >= len(topics):
                return ROOM
            name = topic if a & p.HAS_TOPIC else -1
            uuid = topic_id if a & p.HAS_TOPIC_ID else -1
            key = name if name >= 0 else uuid
            known = False
            if key >= 0:
                if stamps[key, 0] == stamp:
                    if topics[stamps[key, 1], 0] != name or topics[stamps[key, 1], 1] != uuid:
                        return REFUSED
                    known = True
                else:
                    stamps[key, 0], stamps[key, 1] = stamp, topic_at
            elif topic_at > topic_first:
                return REFUSED
            if not known:
                topics[topic_at, 0], topics[topic_at, 1] = name, uuid
                topic_at += 1
        elif op == p.PARTITIONS:
            size, pos = length(buf, pos, end, a, 4)
            elements -= max(size, 0)
            if pos < 0 or size * 4 > end - pos or elements < 0:
                return REFUSED
            if not lists:
                pos += max(size, 0) * 4
                continue
            if row_at + max(size, 0) > len(rows):
                return ROOM
            for _ in range(size):
                row = rows[row_at]
                row_at += 1
                row[c.ROW_TOPIC] = topic if b & p.HAS_TOPIC else -1
                row[c.ROW_TOPIC_ID] = topic_id if b & p.HAS_TOPIC_ID else -1
                row[c.ROW_PARTITION] = int32(buf, pos)
                row[c.ROW_ERROR] = row[c.ROW_BASE] = row[c.ROW_RECORDS] = row[c.ROW_BYTES] = NONE
                row[c.ROW_CODEC] = NO_CODEC
                pos += 4
        elif op == p.MARKER:
            if pos >= end:
                return REFUSED
            marker = buf[pos]
            pos += 1
            if marker == 0xFF:
                ip = start + a
            elif marker != 1:
                return REFUSED
        else:
            break
    fact[c.TRAILING] = end - pos
    fact[c.ROW_FIRST], fact[c.ROW_COUNT] = row_first, row_at - row_first
    fact[c.TOPIC_FIRST], fact[c.TOPIC_COUNT] = topic_first, topic_at - topic_first
    fact[c.CLEAN] = 1
    counts[0], counts[1] = row_at, topic_at
    return 1


@kernel
def bodies(
    first: int, frames: Ints, buf: Bytes, code: Codes, programs: Codes, verify: bool, lists: bool, facts:
    Ints, rows: Ints, topics: Ints, counts: Ints, spans: Ints, slots: Slots, stamps: Ints, left: Ints,
    elements: int,
) -> int:  # fmt: skip
    """Read the bodies of the calls that the round has whole, from frame `first` on.

    Returns the frame for which `rows` or `topics` lack room, or the number of frames.
    """
    for index in range(first, len(frames)):
        frame = frames[index]
        partner = frame[c.PARTNER]
        if partner < 0 and partner != c.NO_REPLY:
            facts[index, c.CLEAN] = 0
            continue
        is_request = frame[c.KEY] >= 0
        asked = frame if is_request else frames[partner]
        entry = programs[asked[c.KEY], asked[c.VERSION], 0 if is_request else 1]
        result = body(
            code, entry[0], entry[1], buf, frame[c.BODY], frame[c.STOP], index, is_request, verify,
            lists, facts, rows, topics, counts, spans, slots, stamps, left, elements,
        )  # fmt: skip
        if result == ROOM:
            return index
    return len(frames)
