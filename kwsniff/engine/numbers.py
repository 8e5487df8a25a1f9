"""Big-endian numbers in byte arrays, sequence arithmetic, and what numbers stand for: results of kernels, and
codes of anomalies. Nothing here checks bounds.

What is read from a byte array is made a 64-bit integer at once: compiled, a `uint8` would wrap.
"""

from __future__ import annotations

from typing import Any, NoReturn

from kwsniff.native.mode import byte, inlined, int64, int64_at, kernel, signed64, uint32, uintp
from kwsniff.native.rowcopies import NONE
from kwsniff.rows.events import ANOMALIES

__all__ = [
    "NONE", "SECOND", "byte", "distance", "int16", "int32", "int64_at", "signed64", "uint32", "uvarint",
]  # fmt: skip

SECOND = 1_000_000_000
"""In nanoseconds."""
(DONE, FULL, PROGRAM, LEFT) = range(4)
"""Why kernels stopped, in `run.stopped`. FULL: a table has no room left, `run.want` says which. PROGRAM: the
layout that `run.key` and `run.version` name has to be loaded. LEFT: a connection of a part was not what it
was taken for (`kwsniff.engine.left`)."""


class Stopped(Exception):  # noqa: N818 (no error: they go on)
    """Kernels can't go on before the driver has done something: `run.stopped` says what. Whatever is going on
    is left as it is, and called again then: so a function that may be stopped changes nothing before, or
    nothing that it would do twice."""


@kernel
def stop(t: Any, why: int) -> NoReturn:
    """Raise Stopped."""
    t.run[0].stopped = why
    raise Stopped


(FOLLOW, FINISH, TICK, REHASH_TEXTS, REHASH_REQUESTS, REHASH_CONNECTIONS, COMPACT_TEXTS, WATCH, LEAVE, INTERN,
 ADOPT, MERGE, LINK) = range(13)  # fmt: skip
"""What kernels can be asked to do (`kwsniff.engine.entry.act`)."""


@inlined
def int16(data: Any, pos: int) -> int:
    """Signed, two bytes."""
    value = (int64(data[uintp(pos)]) << 8) | int64(data[uintp(pos + 1)])
    return value - 0x10000 if value & 0x8000 else value


@inlined
def int32(data: Any, pos: int) -> int:
    """Signed, four bytes."""
    value = uint32(data, pos)
    return value - 0x100000000 if value & 0x80000000 else value


@kernel
def uvarint(data: Any, pos: int, end: int) -> tuple[int, int]:
    """UNSIGNED_VARINT (KIP-482) and the position behind it; the position is -1 if it does not end in time,
    -2 if it has more bits than its type."""
    value, shift = int64(0), int64(0)
    while pos < end and shift < 35:
        octet = int64(data[uintp(pos)])
        pos += 1
        value |= (octet & 0x7F) << shift
        if octet < 0x80:
            return (value, pos) if value <= 0xFFFFFFFF else (int64(0), int64(-2))
        shift += 7
    return int64(0), int64(-1) if shift < 35 else int64(-2)


@inlined
def distance(seq: int, origin: int) -> int:
    """From one sequence number to another, modulo 2³² and signed (RFC 1982)."""
    return ((seq - origin + 0x80000000) & 0xFFFFFFFF) - 0x80000000


# Numbers of anomaly codes, as `notes` hold them: places in `kwsniff.rows.events.ANOMALIES`.

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
