"""Single fields of a body: lengths, numbers, strings, arrays and tagged fields.

Each function returns the position behind what it read, and what is wrong with it, 0 for nothing.
"""

from __future__ import annotations

from typing import Any

from kwsniff.events import ANOMALIES
from kwsniff.kernel.mode import inlined, int64, kernel
from kwsniff.kernel.numbers import NONE, byte, int16, int32, int64_at, uvarint
from kwsniff.spec import instructions as i

_CODES = tuple(ANOMALIES)
TRUNCATED, VARINT, LENGTH, ARRAY, ELEMENTS, NOT_TEXT, VALUE, TRAILING = (
    _CODES.index(code)
    for code in (
        "truncated_body", "varint_too_long", "length_invalid", "array_too_long", "element_limit",
        "text_invalid", "value_invalid", "trailing_bytes",
    )
)  # fmt: skip
"""What can be wrong with a body: places in `kwsniff.events.ANOMALIES`."""


@kernel
def length(data: Any, pos: int, end: int, stored: int, width: int) -> tuple[int, int, int]:
    """A length, -1 for null, the position behind it, and what is wrong with it, 0 for nothing."""
    if stored & i.COMPACT:
        size, after = uvarint(data, pos, end)
        if after < 0:
            return int64(0), pos, VARINT if after == -2 else TRUNCATED
        size -= 1
    else:
        after = pos + width
        if after > end:
            return int64(0), pos, TRUNCATED
        size = int16(data, pos) if width == 2 else int32(data, pos)
    if size < -1 or (size == -1 and not stored & i.NULLABLE):
        return int64(0), pos, LENGTH
    return size, after, int64(0)


@kernel
def skip_tags(data: Any, pos: int, end: int) -> tuple[int, int]:
    """Position behind tagged fields (KIP-482), and what is wrong with them, 0 for nothing."""
    count, after = uvarint(data, pos, end)
    if after < 0:
        return pos, VARINT if after == -2 else TRUNCATED
    pos = after
    if 2 * count > end - pos:
        return pos, int64(ARRAY)
    for _ in range(count):
        for _ in range(2):
            size, after = uvarint(data, pos, end)
            if after < 0:
                return pos, VARINT if after == -2 else TRUNCATED
            pos = after
        if size > end - pos:
            return pos, int64(TRUNCATED)
        pos += size
    return pos, int64(0)


@kernel
def after_tags(data: Any, pos: int, end: int) -> int:
    """Position behind the tagged fields of a header, -1 if they are malformed."""
    after, wrong = skip_tags(data, pos, end)
    return int64(-1) if wrong else after


@inlined
def signed(data: Any, pos: int, width: int) -> int:
    """A signed number of 1, 2, 4 or 8 bytes."""
    if width == 4:
        return int32(data, pos)
    if width == 2:
        return int16(data, pos)
    if width == 8:
        return int64_at(data, pos)
    value = byte(data, pos)
    return value - 0x100 if value & 0x80 else value


@inlined
def skip_sized(data: Any, pos: int, end: int, stored: int, width: int) -> tuple[int, int]:
    """Pass over a string or bytes."""
    size, after, wrong = length(data, pos, end, stored, width)
    if wrong:
        return pos, wrong
    if size > end - after:
        return after, int64(TRUNCATED)
    return after + (size if size > 0 else int64(0)), int64(0)


@inlined
def skip_array(data: Any, pos: int, end: int, step: Any) -> tuple[int, int]:
    """Pass over an array of elements of fixed width."""
    size, after, wrong = length(data, pos, end, step.a, 4)
    if wrong:
        return pos, wrong
    if size * step.c > end - after:
        return after, int64(ARRAY)
    return after + (size * step.b if size > 0 else int64(0)), int64(0)


@inlined
def span(data: Any, pos: int, end: int, r: Any, step: Any) -> tuple[int, int]:
    """Note where bytes lie."""
    size, after, wrong = length(data, pos, end, step.b, 4)
    if wrong:
        return pos, wrong
    if size > end - after:
        return after, int64(TRUNCATED)
    if size < 0:
        if step.c != i.FIRST:
            r[step.a] = NONE
        return after, int64(0)
    if step.c != i.FIRST or r[step.a] == NONE:
        r[step.a], r[step.a + 1] = after, after + size
    return after + size, int64(0)


@inlined
def marker(data: Any, pos: int, end: int) -> tuple[bool, int]:
    """Whether a nullable struct is there, by the byte before it; and what is wrong with that."""
    if pos >= end:
        return False, int64(TRUNCATED)
    marker = byte(data, pos)
    return marker == 1, int64(0 if marker == 1 or marker == 0xFF else VALUE)


@inlined
def count(data: Any, pos: int, end: int) -> tuple[int, int, int]:
    """An unsigned varint, the position behind it and what is wrong with it."""
    size, after = uvarint(data, pos, end)
    if after < 0:
        return int64(0), pos, int64(VARINT if after == -2 else TRUNCATED)
    return size, after, int64(0)


@inlined
def tag(data: Any, pos: int, end: int, r: Any, a: int) -> tuple[int, int]:
    """Number and size of a tagged field: the registers from `a` + 1 on get its number, where it ends and
    where the struct does."""
    number, pos, wrong = count(data, pos, end)
    if wrong:
        return pos, wrong
    size, pos, wrong = count(data, pos, end)
    if wrong:
        return pos, wrong
    r[a + 1], r[a + 2], r[a + 3] = number, pos + size, end
    return pos, int64(TRUNCATED if pos + size > end else 0)


@inlined
def is_zero_uuid(data: Any, pos: int) -> bool:
    """Whether there is the zero uuid, which stands for none (KIP-516)."""
    return int64_at(data, pos) == 0 and int64_at(data, pos + 8) == 0
