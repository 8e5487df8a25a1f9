"""Names of the columns of the integer tables that the kernels of this package hand to each other."""

from __future__ import annotations

(
    CONNECTION, SIDE, ORDER, START, STOP, FIRST_TIME, LAST_TIME, PACKET, KEY, VERSION, CORRELATION_ID,
    CLIENT_ID, BODY, IN_FLIGHT, PARTNER, CLIENT_ID_SIZE, FRAME_COLUMNS,
) = range(17)  # fmt: skip
"""A frame. START and STOP are positions in the buffer, BODY that of the body; PARTNER is the frame of the
response to a request or of the request to a response, or one of these:"""
UNPAIRED, NO_REPLY, LOST, ORPHAN, EARLIER = -1, -2, -3, -4, -10
"""LOST: a request whose response a gap swallowed. ORPHAN: a response that waited too long for its request.
EARLIER - i: the response to the i-th of the requests that waited before the round."""

(
    CLEAN, ERROR, ERRORS, THROTTLE, ACKS, MAX_WAIT, GROUP, MEMBER, TRANSACTIONAL_ID, TOPIC_FIRST, TOPIC_COUNT,
    ROW_FIRST, ROW_COUNT, FLAGS, RECORDS, RECORD_BYTES, TRAILING, FACT_COLUMNS,
) = range(18)  # fmt: skip
"""The facts of a frame's body; CLEAN says that the rest holds, TRAILING how
many bytes follow the body."""

(
    ROW_TOPIC, ROW_TOPIC_ID, ROW_PARTITION, ROW_ERROR, ROW_BASE, ROW_RECORDS, ROW_BYTES, ROW_CODEC,
    ROW_COLUMNS,
) = range(9)  # fmt: skip
"""A partition."""

(
    BEGIN, END, CLIENT, CLOCK, GAP, WAITING_FIRST, WAITING, EARLY_FIRST, EARLY, SEGMENTS, REPLIES_UNASKED,
    TAKEN, ANSWERED, LINK_COLUMNS,
) = range(14)  # fmt: skip
"""A connection in a round: its rows, who is the client, its latest time, whether responses were lost, the
requests and the early responses that wait, segments seen; then what the round made of it."""

(
    WANTED, WARM, HELD, HELD_BYTES, HELD_CHUNK, HELD_CHUNKS, LAST_ORDER, CUT_BEFORE, ACKED, UNTOLD,
    LATEST, REGION, TABLE, OFFSET, WRITE, READ, CHUNK, CHUNK_END, CUT, SYNCHRONISED, SKIPPED, RESYNCHRONISED,
    MISSING, HOLE_SEGMENTS, HOLE_TIME, HOLES, HOLE_BYTES, HISTORY_FROM, NEWS, NEWS_PACKET, PACKETS, BYTES,
    SIDE_COLUMNS,
) = range(33)  # fmt: skip
"""One side of it. Before: the sequence number wanted, whether framing was known (WARM), bytes and chunks of
an unfinished frame, frames cut, the offset acknowledged (offsets count from the round's beginning), skipped
bytes that no anomaly told of yet (UNTOLD) and the correlation id of the LATEST request. Then its regions of
the buffer and the chunk table, and how far stream and framing got. NEWS is what a resynchronisation skipped
until it is told, else -1."""

MAX_WAITING = 64
"""Segments behind holes that a round follows."""
WAIT_FROM, WAIT_TO, WAIT_ROW = range(3)

(DEED, DEED_LINK, DEED_PLACE, DEED_ORDER, DEED_PACKET, DEED_TIME, DEED_WHAT, DEED_SIDE, DEED_COLUMNS) = range(
    9
)
"""Something to be told or done besides calls; PLACE is twice the frame it happens at, less one if before."""
GAP_FOUND, RESYNCHRONISATION, RESPONSE_FIRST, REQUEST_LOST, RESPONSE_ORPHANED = range(5)

CHUNK_START, CHUNK_PACKET, CHUNK_TIME, CHUNK_ORDER, CHUNK_COLUMNS = range(5)
"""A chunk of a stream: where it begins in the buffer, and the packet it came in."""

(
    CALL_ORDER, CALL_SEQUENCE, CALL_CONNECTION, CALL_KEY, CALL_VERSION, CALL_CORRELATION_ID, CALL_CLIENT_ID,
    REQUEST_TIME, REQUEST_END, RESPONSE_TIME, RESPONSE_END, REQUEST_BYTES, RESPONSE_BYTES, REQUEST_PACKET,
    RESPONSE_PACKET, STATUS, CALL_ERROR, CALL_ERRORS, CALL_THROTTLE, CALL_ACKS, CALL_MAX_WAIT, CALL_GROUP,
    CALL_MEMBER, CALL_TRANSACTIONAL_ID, TOPICS, IDS, PARTS, CALL_RECORDS, CALL_RECORD_BYTES, CALL_IN_FLIGHT,
    CALL_FRAME, CALL_COLUMNS,
) = range(32)  # fmt: skip
"""A call. TOPICS, IDS and PARTS are how many, -1 for null; they lie in tables of their own, in order."""
OK, FAILED, UNASKED = range(3)
"""Status: answered without error, with one, and no response wanted."""
