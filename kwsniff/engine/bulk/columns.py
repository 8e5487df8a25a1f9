"""Names of the columns of the integer tables that the kernels of this package hand to each other."""

from __future__ import annotations

(
    CONNECTION, SIDE, ORDER, START, STOP, FIRST_TIME, LAST_TIME, PACKET, KEY, VERSION, CORRELATION_ID,
    CLIENT_ID, BODY, IN_FLIGHT, PARTNER, CLIENT_ID_SIZE, FRAME_COLUMNS,
) = range(17)  # fmt: skip
"""A frame. START and STOP are positions in the buffer, BODY that of the body; PARTNER is the frame of the
response to a request or of the request to a response, or one of these:"""
UNPAIRED, NO_REPLY, EARLIER = -1, -2, -10
"""EARLIER - i: the response to the i-th of the requests that waited before the round."""

(
    CLEAN, ERROR, ERRORS, THROTTLE, ACKS, MAX_WAIT, GROUP, MEMBER, TRANSACTIONAL_ID, TOPIC_FIRST, TOPIC_COUNT,
    ROW_FIRST, ROW_COUNT, FLAGS, RECORDS, RECORD_BYTES, TRAILING, FACT_COLUMNS,
) = range(18)  # fmt: skip
"""The facts of a frame's body; CLEAN says that the rest holds, TRAILING how
many bytes follow the body."""

(
    ROW_TOPIC, ROW_TOPIC_ID, ROW_PARTITION, ROW_ERROR, ROW_BASE, ROW_RECORDS, ROW_BYTES, ROW_CODEC, ROW_COLUMNS,
) = range(9)  # fmt: skip
"""A partition."""

(
    BEGIN, END, CLIENT, CLOCK, GAP, WAITING_FIRST, WAITING, NEXT_A, NEXT_B, SYNC_A, SYNC_B, HELD_A, HELD_B,
    HELD_BYTES_A, HELD_BYTES_B, CHUNK_A, CHUNK_B, CHUNKS_A, CHUNKS_B, LAST_ORDER_A, LAST_ORDER_B,
    REGION_A, REGION_B, TABLE_A, TABLE_B, TAKEN, PACKETS_A, PACKETS_B, BYTES_A, BYTES_B, ACK_A, ACK_B,
    FRAMES_A, FRAMES_B, REST_A, REST_B, REST_CHUNK_A, REST_CHUNK_B, WRITTEN_A, WRITTEN_B, TABLE_END_A,
    TABLE_END_B, FRAME_FIRST, FRAME_END, ANSWERED, LINK_COLUMNS,
) = range(46)  # fmt: skip
"""A connection in a round. Of sides a and b: sequence number wanted, whether framing is known, bytes and
chunks held from before; then what the round made of it: rows TAKEN, packets, bytes, highest
acknowledgement, frames, where the unfinished frame begins, regions of the buffer and of the chunk table."""

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
