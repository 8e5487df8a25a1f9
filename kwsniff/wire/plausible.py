"""What the first bytes of a Kafka frame look like, for finding one in bytes of unknown framing.

A request shows itself: length, API key, API version and client id leave about one chance in 10⁹ for other
bytes. A response shows only a length and a correlation id, so it needs to be expected, or to fit the segments
it came in.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from struct import Struct

import numpy as np

REQUEST_HEADER = 14
"""Bytes of a request up to the length of its client id: size, key, version, correlation id, that length."""
RESPONSE_HEADER = 8
"""Bytes of a response up to its body: size, correlation id."""
MAX_CLIENT_ID = 512
"""No longer client id is believed when looking for a frame; in a framed request any length is."""

_request = Struct(">ihhih").unpack_from
_response = Struct(">ii").unpack_from

Versions = Mapping[int, tuple[int, int]]
"""API key to its lowest and highest known version."""

ANY_VERSION: Versions = dict.fromkeys(range(256), (0, 255))
"""What a request may look like where it is expected: APIs and versions of the future too."""

TLS_RECORD_TYPES = {20, 21, 22, 23}


def is_tls(data: bytes) -> bool:
    """Whether bytes begin with a TLS record (RFC 8446, 5.1): type 20 to 23, version 3.0 to 3.4, length."""
    return (
        len(data) >= 5
        and data[0] in TLS_RECORD_TYPES
        and data[1] == 3
        and data[2] <= 4
        and 0 < (data[3] << 8 | data[4]) <= 16384 + 2048
    )


def is_tls_refusal(data: bytes) -> bool:
    """Whether bytes begin with a TLS alert (RFC 8446, 6), as a broker sends it to a client that speaks
    plaintext: what the client says need not be TLS."""
    return data[:1] == b"\x15" and is_tls(data)


def is_gssapi(data: bytes) -> bool:
    """Whether bytes begin with a length and a GSSAPI token (RFC 2743, 3.1), as a 0.9 client may send."""
    return len(data) >= 6 and data[:2] == b"\0\0" and data[4] == 0x60


def is_request(data: bytes, pos: int, end: int, versions: Versions, max_frame: int) -> bool | None:
    """Whether a request begins at `pos`; None if more bytes are needed to say."""
    if end - pos < REQUEST_HEADER:
        return None
    size, key, version, _, length = _request(data, pos)
    if not REQUEST_HEADER - 4 <= size <= max_frame or key not in versions:
        return False
    low, high = versions[key]
    if not low <= version <= high or not -1 <= length <= min(MAX_CLIENT_ID, size + 4 - REQUEST_HEADER):
        return False
    first = pos + REQUEST_HEADER
    if length > 0 and first + length > end:
        return None if data[first:end].isascii() else False
    return length <= 0 or _is_text(data[first : first + length])


def begins_segment(data: bytes, pos: int, end: int, versions: Versions, max_frame: int) -> bool:
    """Whether a segment from `pos` to `end` surely begins with a request. One that fills the segment to the
    byte, or is followed by another, shows itself by that: its client id may be damaged."""
    if end - pos < REQUEST_HEADER:
        return False
    size, key, version, _, length = _request(data, pos)
    if not REQUEST_HEADER - 4 <= size <= max_frame or key not in versions:
        return False
    low, high = versions[key]
    if not low <= version <= high:
        return False
    after = pos + 4 + int(size)
    if after == end or (after < end and is_request(data, after, end, versions, max_frame)):
        return True
    return length > 0 and is_request(data, pos, end, versions, max_frame) is True


def fills(data: bytes) -> bool:
    """Whether frames, by their lengths, fill a segment to the byte."""
    pos = 0
    while len(data) - pos >= RESPONSE_HEADER:
        size = int(_response(data, pos)[0])
        if size < RESPONSE_HEADER - 4:
            return False
        pos += 4 + size
    return pos == len(data) > 0


def find_request(data: bytes, pos: int, versions: Versions, max_frame: int) -> int:
    """First position from `pos` where a request begins, or where too few bytes are left to say."""
    view = np.frombuffer(data, np.uint8)[pos:]
    last = len(view) - REQUEST_HEADER + 1
    if last <= 0:
        return pos
    high = np.full(256, -1, np.int16)
    for key, (_, top) in versions.items():
        high[key] = top
    mask = (view[4 : 4 + last] == 0) & (view[6 : 6 + last] == 0)
    # Without this, a stretch of zeros would be a candidate at every byte, each looked at on its own.
    mask &= (view[:last] <= max_frame >> 24) & (
        (view[3 : 3 + last] >= REQUEST_HEADER - 4) | (view[2 : 2 + last] > 0) | (view[1 : 1 + last] > 0)
        | (view[:last] > 0)
    )  # fmt: skip
    mask &= view[7 : 7 + last] <= high[view[5 : 5 + last]]
    mask &= (view[12 : 12 + last] <= 2) | ((view[12 : 12 + last] == 255) & (view[13 : 13 + last] == 255))
    for candidate in np.flatnonzero(mask).tolist():
        # A null or empty client id is too weak a sign in the middle of unknown bytes.
        named = data[pos + candidate + 12 : pos + candidate + 14] not in (b"\0\0", b"\xff\xff")
        if named and is_request(data, pos + candidate, len(data), versions, max_frame) is not False:
            return pos + candidate
        if not named and _chained(data, pos + candidate, versions, max_frame):
            return pos + candidate
    return pos + last


def find_response(
    data: bytes, pos: int, boundaries: list[int], expected: Collection[int] | None, max_frame: int
) -> tuple[int, int]:
    """Where a response begins from `pos` on, and 0; or up to where none does, and how many bytes to wait for.

    `boundaries` are the positions where segments begin, `expected` the correlation ids that wait for an
    answer, or None if the requests are not captured. An expected id at the beginning of a segment is
    enough; otherwise the frame must end where a segment does.
    """
    begins = set(boundaries)
    for candidate in _response_candidates(data, pos, begins, expected, max_frame):
        end = candidate + 4 + int(_response(data, candidate)[0])
        at_boundary = candidate in begins
        if (expected is not None and at_boundary) or end in begins or end == len(data):
            return candidate, 0
        if end > len(data) and at_boundary:
            return candidate, end - candidate
    found = max(pos, len(data) - RESPONSE_HEADER + 1)
    return found, len(data) - found + 1


def _response_candidates(
    data: bytes, pos: int, begins: set[int], expected: Collection[int] | None, max_frame: int
) -> list[int]:
    count = len(data) - RESPONSE_HEADER + 1 - pos
    if count <= 0:
        return []
    view = np.frombuffer(data, np.uint8)[pos:].astype(np.int64)
    words = view[:-3] << 24 | view[1:-2] << 16 | view[2:-1] << 8 | view[3:]
    sizes, ids = words[:count], words[4:]
    fits = (sizes >= 4) & (sizes <= max_frame)
    if expected is None:
        # Without requests only a frame at the beginning of a segment is believed.
        return [pos + i for i in np.flatnonzero(fits & (ids < 1 << 31)).tolist() if pos + i in begins]
    known = np.fromiter(expected, np.int64, len(expected)) & 0xFFFFFFFF
    return [pos + int(i) for i in np.flatnonzero(fits & np.isin(ids, known))]


def _chained(data: bytes, pos: int, versions: Versions, max_frame: int) -> bool:
    """Whether a request at `pos` is followed by another."""
    if is_request(data, pos, len(data), versions, max_frame) is not True:
        return False
    after = pos + 4 + int(_request(data, pos)[0])
    return is_request(data, after, len(data), versions, max_frame) is True


def _is_text(data: bytes) -> bool:
    try:
        return data.decode().isprintable()
    except UnicodeDecodeError:
        return False
