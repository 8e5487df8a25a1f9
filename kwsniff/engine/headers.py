"""What the first bytes of a Kafka frame look like, for telling one from other bytes.

A request shows itself by length, API key, version and client id. A response shows only a length and a
correlation id, so it has to be expected, or to fit what came with it.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.row_tables import UNKNOWN
from kwsniff.native.mode import byte, int16, int32, int64, kernel, uint32

REQUEST_HEADER = 14
"""Bytes of a request up to the length of its client id, with that."""
RESPONSE_HEADER = 8
"""Bytes of a response up to its body."""
MAX_CLIENT_ID = 512
"""No longer client id is believed where a frame is searched for; in a frame any length is."""
TLS_ALERT, MAX_ALERT = 7, 64
"""Bytes of a TLS alert with its record header, and of a segment that may begin with one: what else has come
is hardly ever sent along."""
AHEAD = 20_000
"""How far the correlation id of a request may be from that of the latest one: others may have been lost."""
LOOSE = 256
"""Keys and versions below this may be APIs to come."""
YES, NO, MORE = 1, 0, -1


@kernel
def is_printable(data: Any, pos: int, end: int) -> bool:
    """Whether bytes are UTF-8 (RFC 3629) without control characters."""
    while pos < end:
        first = byte(data, pos)
        pos += 1
        if first < 0x20 or first == 0x7F:
            return False
        if first < 0x80:
            continue
        more = 1 if 0xC2 <= first < 0xE0 else 2 if 0xE0 <= first < 0xF0 else 3 if 0xF0 <= first < 0xF5 else 0
        if more == 0 or pos + more > end:
            return False
        second = byte(data, pos)
        if first == 0xC2 and second < 0xA0:
            return False
        for _ in range(more):
            if byte(data, pos) & 0xC0 != 0x80:
                return False
            pos += 1
    return True


@kernel
def is_known(t: Any, key: int, version: int) -> bool:
    """Whether there is a dissector for a version of an API."""
    return 0 <= key < len(t.apis) and t.apis[key].low <= version <= t.apis[key].high


@kernel
def request_at(t: Any, data: Any, pos: int, end: int, loose: bool) -> int:
    """Whether a request begins here: YES, NO, or MORE bytes are needed to say. `loose` also takes APIs and
    versions to come."""
    if end - pos < REQUEST_HEADER:
        return MORE
    size, key, version, length = (
        int32(data, pos), int16(data, pos + 4), int16(data, pos + 6), int16(data, pos + 12)
    )  # fmt: skip
    if size < REQUEST_HEADER - 4 or size > t.limits[0].max_frame_bytes:
        return NO
    if loose:
        if key < 0 or key >= LOOSE or version < 0 or version >= LOOSE:
            return NO
    elif not is_known(t, key, version):
        return NO
    if length < -1 or length > MAX_CLIENT_ID or length > size + 4 - REQUEST_HEADER:
        return NO
    first = pos + REQUEST_HEADER
    if length > 0:
        if first + length > end:
            return MORE if is_ascii(data, first, end) else NO
        if not is_printable(data, first, first + length):
            return NO
    return YES


@kernel
def is_ascii(data: Any, pos: int, end: int) -> bool:
    """Whether bytes are printable ASCII."""
    for at in range(pos, end):
        if not 0x20 <= byte(data, at) < 0x7F:
            return False
    return True


@kernel
def names_client(data: Any, pos: int) -> bool:
    """Whether the request at `pos` has a client id that is not empty: a null or empty one is no sign."""
    return int16(data, pos + 12) > 0


@kernel
def may_be_batch(data: Any, pos: int, end: int) -> bool:
    """Whether what looks like a request, and goes on behind `end`, may be the head of a record batch. One of
    a producer begins with a base offset of zeros and a length: after other bytes, a Produce v0 of id 0."""
    return int32(data, pos + 8) == 0 and pos + 4 + int32(data, pos) > end


@kernel
def comes_next(found: int, before: int) -> bool:
    """Whether a correlation id is that of a request after another: clients count upwards."""
    return 0 < found - before <= AHEAD


@kernel
def begins_request(t: Any, data: Any, pos: int, end: int) -> bool:
    """Whether a segment from `pos` to `end` surely begins with a request: one that fills it to the byte, or
    is followed by another, shows itself by that although its client id may be damaged."""
    if end - pos < REQUEST_HEADER:
        return False
    size, key, version = int32(data, pos), int16(data, pos + 4), int16(data, pos + 6)
    if size < REQUEST_HEADER - 4 or size > t.limits[0].max_frame_bytes or not is_known(t, key, version):
        return False
    after = pos + 4 + size
    if after == end or (after < end and request_at(t, data, after, end, False) == YES):
        return True
    return int16(data, pos + 12) > 0 and request_at(t, data, pos, end, False) == YES


@kernel
def is_tls(data: Any, pos: int, end: int) -> bool:
    """Whether bytes begin with a TLS record (RFC 8446, 5.1): type 20 to 23, version 3.0 to 3.4, length."""
    if end - pos < 5:
        return False
    size = (byte(data, pos + 3) << 8) | byte(data, pos + 4)
    return (
        20 <= byte(data, pos) <= 23
        and byte(data, pos + 1) == 3
        and byte(data, pos + 2) <= 4
        and 0 < size <= 16384 + 2048
    )


@kernel
def is_tls_alert(data: Any, pos: int, end: int) -> bool:
    """Whether bytes begin with a TLS alert (RFC 8446, 6), as a broker sends it to a client that speaks
    plaintext: what the client says need not be TLS."""
    return is_tls(data, pos, end) and byte(data, pos) == 0x15


@kernel
def alert_of(data: Any, pos: int) -> int:
    """256 * level + description if bytes, of which there are TLS_ALERT, begin with a TLS alert that is not
    encrypted (RFC 8446, 6), else -1."""
    if byte(data, pos) != 0x15 or byte(data, pos + 1) != 3 or byte(data, pos + 2) > 4:
        return int64(-1)
    if byte(data, pos + 3) != 0 or byte(data, pos + 4) != 2 or not 1 <= byte(data, pos + 5) <= 2:
        return int64(-1)
    return int64(byte(data, pos + 5) << 8 | byte(data, pos + 6))


@kernel
def is_gssapi(data: Any, pos: int, end: int) -> bool:
    """Whether bytes begin with a length and a GSSAPI token (RFC 2743, 3.1), as a 0.9 client may send."""
    return end - pos >= 6 and uint32(data, pos) < 0x10000 and byte(data, pos + 4) == 0x60


@kernel
def correlation_id(data: Any, pos: int, end: int) -> int:
    """Of the request at `pos`; UNKNOWN if it does not reach that far."""
    return int32(data, pos + 8) if end - pos >= 12 else UNKNOWN
