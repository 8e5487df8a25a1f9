"""Record data by hand, for tests: each function writes one layout of the protocol guide, byte by byte."""

import struct
import zlib

from crc32c import crc32c

NOON = 1_700_000_000_000


def batch(
    payload=b"", count=0, *, attributes=0, base_offset=7, times=(NOON, NOON), ids=(-1, -1, -1), crc=None
):
    """A batch of magic 2; `times` are base and greatest timestamp, `ids` producer id, epoch and sequence."""
    body = struct.pack(">hiqqqhii", attributes, max(count - 1, 0), *times, *ids, count) + payload
    tail = struct.pack(">ibI", 0, 2, crc32c(body) if crc is None else crc) + body
    return struct.pack(">qi", base_offset, len(tail)) + tail


def message(magic, value=b"v", key=None, *, offset=5, attributes=0, timestamp=NOON, crc=None):
    """A message of magic 0 or 1, as it stands in a message set."""
    body = struct.pack(">bb", magic, attributes) + (struct.pack(">q", timestamp) if magic else b"")
    body += nullable(key) + nullable(value)
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body) if crc is None else crc) + body


def nullable(data):
    return struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data


def zigzag(number):
    number = number << 1 ^ number >> 63
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def record(delta=0, key=b"k", value=b"v", headers=(), *, time=0):
    """A record of a magic 2 batch."""
    body = b"\0" + zigzag(time) + zigzag(delta) + varbytes(key) + varbytes(value) + zigzag(len(headers))
    body += b"".join(varbytes(name) + varbytes(data) for name, data in headers)
    return zigzag(len(body)) + body


def varbytes(data):
    return zigzag(-1) if data is None else zigzag(len(data)) + data


def text(string):
    """STRING of the guide: int16 length."""
    return struct.pack(">h", len(string)) + string.encode()
