"""What a body says: single fields, what they come to (rows of `facts`), and whom a SASL token names."""

from __future__ import annotations

from typing import Any

from kwsniff.engine import texts
from kwsniff.engine.headers import is_printable
from kwsniff.engine.tables import SPEC_OF
from kwsniff.native.mode import byte, inlined, int16, int32, int64, int64_at, kernel, made, uvarint
from kwsniff.native.rowcopies import NONE
from kwsniff.rows.events import ANOMALIES
from kwsniff.spec import instructions as i

ACKS = i.REGISTER["acks"]
_reset = made("reset_facts", "row", SPEC_OF["facts"].reset())


@kernel
def clear(t: Any, side: int) -> None:
    """Let row `side` of `facts` say nothing."""
    _reset(t.facts[side])


_REGISTERS = i.REGISTER | {"token": i.TOKEN, "token_end": i.TOKEN + 1}
fill_facts = made(
    "fill_facts",
    "r, fact",
    [f"fact.{name} = r[{at}]" for name, at in _REGISTERS.items() if name in SPEC_OF["facts"].names],
)
"""Writes what the fixed registers hold into a row of `facts`."""


# Single fields of a body: lengths, numbers, strings, arrays and tagged fields.
#
# Each function returns the position behind what it read, and what is wrong with it, 0 for nothing.

_CODES = tuple(ANOMALIES)
TRUNCATED, VARINT, LENGTH, ARRAY, ELEMENTS, NOT_TEXT, VALUE, TRAILING = (
    _CODES.index(code)
    for code in (
        "truncated_body", "varint_too_long", "length_invalid", "array_too_long", "element_limit",
        "text_invalid", "value_invalid", "trailing_bytes",
    )
)  # fmt: skip
"""What can be wrong with a body: places in `kwsniff.rows.events.ANOMALIES`."""


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


# The user name in a client's first SASL token, if the mechanism shows it. Never the password.

MAX_USER = 512
"""Bytes of a user name that are kept."""


@kernel
def learn_user(t: Any, c: int, data: Any, pos: int, end: int) -> None:
    """Keep the user whom a token names."""
    conn = t.conns[c]
    if conn.user >= 0 or conn.mechanism < 0:
        return
    first, behind = 0, 0
    if is_plain(t, conn.mechanism):
        first, behind = plain_user(data, pos, end)
    elif is_scram(t, conn.mechanism):
        first, behind = scram_user(data, pos, end)
    size = min(behind - first, MAX_USER)
    if size <= 0 or not is_printable(data, first, first + size):
        return
    found = texts.text(t, data, first, size, 0)
    conn.user = found


@kernel
def is_plain(t: Any, mechanism: int) -> bool:
    """Whether a mechanism is PLAIN (RFC 4616)."""
    name = t.texts[mechanism]
    return (
        name.size == 5
        and int32(t.text_bytes, name.at) == 0x504C4149
        and byte(t.text_bytes, name.at + 4) == 78
    )


@kernel
def is_scram(t: Any, mechanism: int) -> bool:
    """Whether a mechanism is one of SCRAM (RFC 5802)."""
    name = t.texts[mechanism]
    return (
        name.size > 6
        and int32(t.text_bytes, name.at) == 0x53435241
        and int16(t.text_bytes, name.at + 4) == 0x4D2D
    )


@kernel
def plain_user(data: Any, pos: int, end: int) -> tuple[int, int]:
    """Where the second of three parts is that NUL bytes separate: authzid, authcid, password (RFC 4616)."""
    first = second = -1
    for at in range(pos, end):
        if byte(data, at) == 0:
            if first < 0:
                first = at
            elif second < 0:
                second = at
            else:
                return 0, 0
    return (first + 1, second) if second >= 0 else (0, 0)


@kernel
def scram_user(data: Any, pos: int, end: int) -> tuple[int, int]:
    """Where the name of a first SCRAM message is: `n,,n=user,r=…` (RFC 5802)."""
    if end - pos < 2 or not (
        (byte(data, pos) in (110, 121) and byte(data, pos + 1) == 44)
        or (byte(data, pos) == 112 and byte(data, pos + 1) == 61)
    ):
        return 0, 0
    commas, first = 0, pos
    for at in range(pos, end + 1):
        if at == end or byte(data, at) == 44:
            if commas >= 2 and at - first >= 2 and byte(data, first) == 110 and byte(data, first + 1) == 61:
                return first + 2, at
            commas += 1
            first = at + 1
    return 0, 0
