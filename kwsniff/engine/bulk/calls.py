"""What request and response of one call say together, compiled: `kwsniff.wire.joining` for many calls."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.kernel import kernel
from kwsniff.engine.bulk.numbers import NONE, Bytes
from kwsniff.engine.bulk.texts import Ints, Slots, number
from kwsniff.spec import program as p

Flags = NDArray[np.bool_]
MAX_MATCHED = 64
"""Partitions of a request that are matched with those of its response one by one."""
NAMED = 2
"""Column of the stamps: the name came with a uuid."""


@kernel
def either(asked: int, given: int, spans: Ints) -> int:
    """The text of the request, or if it is missing or empty that of the response."""
    return asked if asked >= 0 and spans[asked, 1] > 0 else given


@kernel
def same_topics(query: Ints, reply: Ints, topics: Ints) -> bool:
    """Whether request and response name the same topics in the same way."""
    if (query[c.FLAGS] ^ reply[c.FLAGS]) & p.HAS_TOPIC_ID or query[c.TOPIC_COUNT] != reply[c.TOPIC_COUNT]:
        return False
    a, b = query[c.TOPIC_FIRST], reply[c.TOPIC_FIRST]
    for at in range(query[c.TOPIC_COUNT]):
        if topics[a + at, 0] != topics[b + at, 0] or topics[a + at, 1] != topics[b + at, 1]:
            return False
    return True


@kernel
def copy_topics(fact: Ints, topics: Ints, out: Ints, at: int) -> int:
    """Append the topics of one body."""
    first = fact[c.TOPIC_FIRST]
    for index in range(first, first + fact[c.TOPIC_COUNT]):
        out[at, 0], out[at, 1] = topics[index, 0], topics[index, 1]
        at += 1
    return at


@kernel
def united_topics(
    query: Ints, reply: Ints, topics: Ints, out: Ints, at: int, stamps: Ints, stamp: int
) -> int:
    """Append the topics of both, each once, a bare name only if no uuid came with it; -1 if uncertain."""
    a, b = query[c.TOPIC_FIRST], reply[c.TOPIC_FIRST]
    a_end, b_end = a + query[c.TOPIC_COUNT], b + reply[c.TOPIC_COUNT]
    for first, stop in ((a, a_end), (b, b_end)):
        for index in range(first, stop):
            name, uuid = topics[index, 0], topics[index, 1]
            if name < 0 and uuid < 0:
                return -1
            if name >= 0 and uuid >= 0:
                stamps[name, NAMED] = stamp
    for index in range(a, a_end):
        name, uuid = topics[index, 0], topics[index, 1]
        key = name if name >= 0 else uuid
        stamps[key, 0], stamps[key, 1] = stamp, index
        if uuid >= 0 or stamps[name, NAMED] != stamp:
            out[at, 0], out[at, 1] = name, uuid
            at += 1
    for index in range(b, b_end):
        name, uuid = topics[index, 0], topics[index, 1]
        key = name if name >= 0 else uuid
        if stamps[key, 0] == stamp:
            other = stamps[key, 1]
            if topics[other, 0] == name and topics[other, 1] == uuid:
                continue
        if uuid >= 0 or stamps[name, NAMED] != stamp:
            out[at, 0], out[at, 1] = name, uuid
            at += 1
    return at


@kernel
def same_partition(a: Ints, b: Ints) -> bool:
    """Whether two rows are about one partition."""
    return (
        a[c.ROW_TOPIC] == b[c.ROW_TOPIC]
        and a[c.ROW_TOPIC_ID] == b[c.ROW_TOPIC_ID]
        and a[c.ROW_PARTITION] == b[c.ROW_PARTITION]
    )


@kernel
def merged_rows(query: Ints, reply: Ints, rows: Ints, out: Ints, at: int) -> int:
    """Append the response's rows with the record data of the request's; -1 if they do not match in order."""
    asked, given, count = query[c.ROW_FIRST], reply[c.ROW_FIRST], query[c.ROW_COUNT]
    if count != reply[c.ROW_COUNT]:
        return -1
    for index in range(count):
        mine, theirs = rows[asked + index], rows[given + index]
        if not same_partition(mine, theirs):
            return -1
        if index:
            before = rows[asked + index - 1]
            rising = (
                mine[c.ROW_TOPIC] == before[c.ROW_TOPIC]
                and mine[c.ROW_TOPIC_ID] == before[c.ROW_TOPIC_ID]
                and mine[c.ROW_PARTITION] > before[c.ROW_PARTITION]
            )
            if not rising and count > MAX_MATCHED:
                return -1
            for other in range(0 if rising else index):
                if same_partition(mine, rows[asked + other]):
                    return -1
            if rising and count <= MAX_MATCHED:
                for other in range(index - 1):
                    if same_partition(mine, rows[asked + other]):
                        return -1
        for column in range(c.ROW_CODEC):
            out[at, column] = theirs[column]
        for column in (c.ROW_RECORDS, c.ROW_BYTES, c.ROW_CODEC):
            out[at, column] = mine[column]
        at += 1
    return at


@kernel
def copy_rows(fact: Ints, rows: Ints, out: Ints, at: int) -> int:
    """Append the rows of one body."""
    first = fact[c.ROW_FIRST]
    for index in range(first, first + fact[c.ROW_COUNT]):
        for column in range(c.ROW_COLUMNS):
            out[at, column] = rows[index, column]
        at += 1
    return at


@kernel
def calls(
    frames: Ints, facts: Ints, rows: Ints, topics: Ints, buf: Bytes, spans: Ints, slots: Slots, stamps: Ints,
    stamp: int, out: Ints, out_topics: Ints, out_rows: Ints, places: Ints, nothing: Ints,
) -> int:  # fmt: skip
    """Write the calls whose bodies are clean, a column in `out` each; return how many.

    Frames of a call that is not certain become unclean. `places` gets how many topics and rows there are.
    """
    count = topic_at = row_at = 0
    for column in range(c.FACT_COLUMNS):
        nothing[column] = 0
    nothing[c.ERROR] = nothing[c.THROTTLE] = nothing[c.RECORDS] = nothing[c.RECORD_BYTES] = NONE
    nothing[c.GROUP] = nothing[c.MEMBER] = nothing[c.TRANSACTIONAL_ID] = -1
    for index in range(len(frames)):
        frame = frames[index]
        partner = frame[c.PARTNER]
        if frame[c.KEY] < 0 or (partner < 0 and partner != c.NO_REPLY):
            continue
        answered = partner >= 0
        query, reply = facts[index], facts[partner] if answered else nothing
        if not query[c.CLEAN] or (answered and not reply[c.CLEAN]):
            query[c.CLEAN] = 0
            continue
        query[c.CLEAN] = 0
        client_id = -1
        if frame[c.CLIENT_ID_SIZE] >= 0:
            client_id = number(buf, frame[c.CLIENT_ID], frame[c.CLIENT_ID_SIZE], 0, spans, slots)
            if client_id < 0:
                continue
        topic_next, ids = topic_at, 0
        if reply[c.TOPIC_COUNT] == 0 or same_topics(query, reply, topics):
            topic_next = copy_topics(query, topics, out_topics, topic_at)
            ids = query[c.FLAGS] & p.HAS_TOPIC_ID
        elif query[c.TOPIC_COUNT] == 0:
            topic_next = copy_topics(reply, topics, out_topics, topic_at)
            ids = reply[c.FLAGS] & p.HAS_TOPIC_ID
        else:
            stamp += 1
            topic_next = united_topics(query, reply, topics, out_topics, topic_at, stamps, stamp)
            if topic_next < 0:
                continue
            for at in range(topic_at, topic_next):
                if out_topics[at, 1] >= 0:
                    ids = 1
        if not query[c.ROW_COUNT] and not reply[c.ROW_COUNT]:
            row_next = row_at
        elif not reply[c.FLAGS] & p.HAS_PARTITION:
            row_next = copy_rows(query, rows, out_rows, row_at)
        elif not query[c.FLAGS] & p.HAS_RECORDS or query[c.ROW_COUNT] == 0:
            row_next = copy_rows(reply, rows, out_rows, row_at)
        else:
            row_next = merged_rows(query, reply, rows, out_rows, row_at)
            if row_next < 0:
                continue
        query[c.CLEAN] = 1
        response = frames[partner] if answered else frame
        # A response that was captured before its request makes a call when the request is there.
        early = partner >= 0 and partner < index
        out[c.CALL_ORDER, count] = max(response[c.ORDER], frame[c.ORDER]) if early else response[c.ORDER]
        out[c.CALL_SEQUENCE, count] = 2 * max(partner, index)
        out[c.CALL_CONNECTION, count] = frame[c.CONNECTION]
        out[c.CALL_KEY, count] = frame[c.KEY]
        out[c.CALL_VERSION, count] = frame[c.VERSION]
        out[c.CALL_CORRELATION_ID, count] = frame[c.CORRELATION_ID]
        out[c.CALL_CLIENT_ID, count] = client_id
        out[c.REQUEST_TIME, count] = frame[c.FIRST_TIME]
        out[c.REQUEST_END, count] = frame[c.LAST_TIME]
        out[c.RESPONSE_TIME, count] = response[c.FIRST_TIME] if answered else -1
        out[c.RESPONSE_END, count] = response[c.LAST_TIME] if answered else -1
        out[c.REQUEST_BYTES, count] = frame[c.STOP] - frame[c.START]
        out[c.RESPONSE_BYTES, count] = response[c.STOP] - response[c.START] if answered else NONE
        out[c.REQUEST_PACKET, count] = frame[c.PACKET]
        out[c.RESPONSE_PACKET, count] = response[c.PACKET] if answered else -1
        failed = answered and reply[c.ERROR] != NONE and reply[c.ERROR] != 0
        out[c.STATUS, count] = c.UNASKED if not answered else c.FAILED if failed else c.OK
        out[c.CALL_ERROR, count] = reply[c.ERROR]
        out[c.CALL_ERRORS, count] = reply[c.ERRORS] if reply[c.ERROR] != NONE else NONE
        out[c.CALL_THROTTLE, count] = reply[c.THROTTLE]
        out[c.CALL_ACKS, count] = query[c.ACKS]
        out[c.CALL_MAX_WAIT, count] = query[c.MAX_WAIT]
        out[c.CALL_GROUP, count] = either(query[c.GROUP], reply[c.GROUP], spans)
        out[c.CALL_MEMBER, count] = either(query[c.MEMBER], reply[c.MEMBER], spans)
        out[c.CALL_TRANSACTIONAL_ID, count] = either(
            query[c.TRANSACTIONAL_ID], reply[c.TRANSACTIONAL_ID], spans
        )
        out[c.TOPICS, count] = topic_next - topic_at if topic_next > topic_at else -1
        out[c.IDS, count] = topic_next - topic_at if ids and topic_next > topic_at else -1
        out[c.PARTS, count] = row_next - row_at if row_next > row_at else -1
        carrier = query if query[c.RECORD_BYTES] != NONE else reply
        out[c.CALL_RECORDS, count] = carrier[c.RECORDS]
        out[c.CALL_RECORD_BYTES, count] = carrier[c.RECORD_BYTES]
        out[c.CALL_IN_FLIGHT, count] = frame[c.IN_FLIGHT]
        out[c.CALL_FRAME, count] = index
        topic_at, row_at = topic_next, row_next
        count += 1
    places[0], places[1] = topic_at, row_at
    return count
