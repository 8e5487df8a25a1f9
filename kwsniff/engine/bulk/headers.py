"""Headers of requests and responses, compiled: the usual ones of `kwsniff.wire.conversation`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine.bulk import columns as c
from kwsniff.engine.bulk.bodies import Codes
from kwsniff.engine.bulk.kernel import kernel
from kwsniff.engine.bulk.numbers import Bytes, int16, int32, is_ascii, uvarint
from kwsniff.wire.plausible import MAX_CLIENT_ID, REQUEST_HEADER, RESPONSE_HEADER
from kwsniff.wire.succession import AHEAD

Ints = NDArray[np.int64]

NAMES_CLIENT, FLEXIBLE_REQUEST, FLEXIBLE_RESPONSE, PRODUCES = 1, 2, 4, 8
"""Flags of an API version, in column 2 of its entry for requests."""


@kernel
def acks_none(buf: Bytes, pos: int, end: int, version: int) -> int:
    """1 if a Produce body says acks=0, 0 if not, -1 if that is not certain."""
    if version >= 9:
        size, pos = uvarint(buf, pos, end)
        if pos < 0:
            return -1
        pos += max(size - 1, 0)
    elif version >= 3:
        if end - pos < 2:
            return -1
        pos += 2 + max(int16(buf, pos), 0)
    if end - pos < 2:
        return -1
    return 1 if int16(buf, pos) == 0 else 0


@kernel
def read_request(frame: Ints, buf: Bytes, programs: Codes) -> bool:
    """Read a request's header into its frame; False if anything is unusual."""
    pos, end = frame[c.START] + 4, frame[c.STOP]
    key, version = int16(buf, pos), int16(buf, pos + 2)
    if not (0 <= key < programs.shape[0] and 0 <= version < programs.shape[1]):
        return False
    if programs[key, version, 0, 0] < 0:
        return False
    traits = programs[key, version, 0, 2]
    frame[c.KEY], frame[c.VERSION], frame[c.CORRELATION_ID] = key, version, int32(buf, pos + 4)
    pos += 8
    frame[c.CLIENT_ID], frame[c.CLIENT_ID_SIZE] = pos, -1
    if traits & NAMES_CLIENT:
        if end - pos < 2:
            return False
        size = int16(buf, pos)
        pos += 2
        if size >= 0:
            if size > end - pos or not is_ascii(buf, pos, pos + size):
                return False
            frame[c.CLIENT_ID], frame[c.CLIENT_ID_SIZE] = pos, size
            pos += size
    if traits & FLEXIBLE_REQUEST:
        if pos >= end or buf[pos]:
            return False
        pos += 1
    frame[c.BODY] = pos
    frame[c.PARTNER] = c.UNPAIRED
    if traits & PRODUCES:
        none = acks_none(buf, pos, end, version)
        if none < 0:
            return False
        if none:
            frame[c.PARTNER] = c.NO_REPLY
    return True


@kernel
def begins_request(buf: Bytes, pos: int, end: int, versions: Ints, max_frame: int) -> bool:
    """Whether a request surely begins here: `kwsniff.wire.plausible.is_request`, with a client id."""
    if end - pos < REQUEST_HEADER:
        return False
    size, key, version, length = (
        int32(buf, pos),
        int16(buf, pos + 4),
        int16(buf, pos + 6),
        int16(buf, pos + 12),
    )
    if not REQUEST_HEADER - 4 <= size <= max_frame or not 0 <= key < len(versions):
        return False
    if not versions[key, 0] <= version <= versions[key, 1]:
        return False
    if not 0 < length <= min(MAX_CLIENT_ID, size + 4 - REQUEST_HEADER):
        return False
    first = pos + REQUEST_HEADER
    if first + length > end:
        return False
    for at in range(first, first + length):
        if not 0x20 <= buf[at] <= 0x7E:
            return False
    return True


@kernel
def may_follow(
    buf: Bytes, pos: int, end: int, latest: int, now: int, versions: Ints, max_frame: int
) -> bool:  # fmt: skip
    """Whether a segment that begins here, inside a request, might begin with the next: then
    `kwsniff.wire.succession` decides. `latest` and `now` are correlation ids that it would come after."""
    if end - pos < REQUEST_HEADER:
        return False
    size, key, version = int32(buf, pos), int16(buf, pos + 4), int16(buf, pos + 6)
    if not REQUEST_HEADER - 4 <= size <= max_frame or not 0 <= key < len(versions):
        return False
    if not versions[key, 0] <= version <= versions[key, 1]:
        return False
    found = int32(buf, pos + 8)
    return 0 < found - latest <= AHEAD or 0 < found - now <= AHEAD


@kernel
def find_body(frame: Ints, asked: Ints, buf: Bytes, programs: Codes) -> bool:
    """Where the body of a response begins; False if its header has tagged fields."""
    frame[c.BODY] = frame[c.START] + RESPONSE_HEADER
    if programs[asked[c.KEY], asked[c.VERSION], 0, 2] & FLEXIBLE_RESPONSE:
        if frame[c.STOP] <= frame[c.BODY] or buf[frame[c.BODY]]:
            return False
        frame[c.BODY] += 1
    return True
