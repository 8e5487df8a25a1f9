"""Numbers of anomaly codes, as `notes` hold them: places in `kwsniff.events.ANOMALIES`."""

from __future__ import annotations

from kwsniff.events import ANOMALIES

CODES = tuple(ANOMALIES)
"""The code of each number."""

GAP = CODES.index("gap")
OVERLAP_DIFFERS = CODES.index("overlap_differs")
REORDER_LIMIT = CODES.index("reorder_limit")
TIME_BACKWARDS = CODES.index("time_backwards")
CLOCKS_DIFFER = CODES.index("clocks_differ")
RESYNCHRONISED = CODES.index("resynchronised")
FRAME_SIZE_INVALID = CODES.index("frame_size_invalid")
FRAME_TOO_LARGE = CODES.index("frame_too_large")
FRAME_INCOMPLETE = CODES.index("frame_incomplete")
BUFFER_LIMIT = CODES.index("buffer_limit")
NOT_KAFKA = CODES.index("not_kafka")
UNKNOWN_API = CODES.index("unknown_api")
UNKNOWN_VERSION = CODES.index("unknown_version")
HEADER_MALFORMED = CODES.index("header_malformed")
CORRELATION_ID_REUSED = CODES.index("correlation_id_reused")
RESPONSE_OUT_OF_ORDER = CODES.index("response_out_of_order")
RESPONSE_BEFORE_REQUEST = CODES.index("response_before_request")
REPLY_TO_ACKS_0 = CODES.index("reply_to_acks_0")
OUTSTANDING_LIMIT = CODES.index("outstanding_limit")
CONNECTION_LIMIT = CODES.index("connection_limit")
TRAILING_BYTES = CODES.index("trailing_bytes")
CRC_MISMATCH = CODES.index("crc_mismatch")
BATCH_MALFORMED = CODES.index("batch_malformed")
CODEC_UNKNOWN = CODES.index("codec_unknown")

BAD_BODY = 1000
"""Added to the code of what is wrong with a body in `notes.code`: the wording needs the bytes."""
