"""What compiled decoders call: the rare and the repeated, kept out of the generated source."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from kwsniff.spec.binary import uvarint

SMALL = 32
"""Arrays of fewer numbers are unpacked with a ready-made format."""


class MalformedError(ValueError):
    """Raised inside a compiled decoder; what exactly is wrong, the interpreter finds out."""


class TooManyError(ValueError):
    """Raised inside a compiled decoder when a message has more elements than it may."""


def tail(buf: bytes, pos: int, first: int, end: int) -> tuple[int, int]:
    """The rest of an unsigned varint whose first byte, 128 or more, has been read.

    The value is a size or a count, plus one at most; one that cannot fit before `end` is refused here.
    """
    second = buf[pos]
    if second < 0x80:
        value = first - 0x80 + (second << 7)
        pos += 1
    else:
        value, pos = uvarint(buf, pos - 1, end)
    if value - 1 > end - pos:
        raise MalformedError
    return value, pos


def skip_tags(buf: bytes, pos: int, count: int, end: int) -> int:
    """Position behind `count` tagged fields; `pos` is behind the first byte of the count."""
    if count > 0x7F:
        count, pos = tail(buf, pos, count, end)
    for _ in range(count):
        _, pos = uvarint(buf, pos, end)
        size, pos = uvarint(buf, pos, end)
        pos += size
    return pos


@lru_cache(maxsize=8192)
def uuid_text(raw: bytes) -> str:
    """Hyphenated hexadecimal."""
    text = raw.hex()
    if len(text) != 32:
        raise MalformedError
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def unpackers(code: str) -> list[Callable[..., tuple[Any, ...]]]:
    """`unpackers("i")[3](buf, pos)` reads three int32."""
    return [struct.Struct(f">{count}{code}").unpack_from for count in range(SMALL)]
