"""The user name in a client's first SASL token, if the mechanism shows it. Never the password."""

from __future__ import annotations

from typing import Any

from kwsniff.kernel import texts
from kwsniff.kernel.headers import is_printable
from kwsniff.kernel.mode import kernel
from kwsniff.kernel.numbers import FULL, OK, byte

MAX_USER = 512
"""Bytes of a user name that are kept."""


@kernel
def learn_user(t: Any, c: int, data: Any, pos: int, end: int) -> int:
    """Keep the user whom a token names; FULL if there is no room for the name."""
    conn = t.conns[c]
    if conn.user >= 0 or conn.mechanism < 0:
        return OK
    first, behind = 0, 0
    if is_plain(t, conn.mechanism):
        first, behind = plain_user(data, pos, end)
    elif is_scram(t, conn.mechanism):
        first, behind = scram_user(data, pos, end)
    size = min(behind - first, MAX_USER)
    if size <= 0 or not is_printable(data, first, first + size):
        return OK
    found = texts.text(t, data, first, size, 0)
    if found == FULL:
        return FULL
    conn.user = found
    return OK


@kernel
def is_plain(t: Any, mechanism: int) -> bool:
    """Whether a mechanism is PLAIN (RFC 4616)."""
    at = t.texts[mechanism].at
    data = t.text_bytes
    return (
        t.texts[mechanism].size == 5
        and data[at] == 80
        and data[at + 1] == 76
        and data[at + 2] == 65
        and data[at + 3] == 73
        and data[at + 4] == 78
    )


@kernel
def is_scram(t: Any, mechanism: int) -> bool:
    """Whether a mechanism is one of SCRAM (RFC 5802)."""
    at = t.texts[mechanism].at
    data = t.text_bytes
    return (
        t.texts[mechanism].size > 6
        and data[at] == 83
        and data[at + 1] == 67
        and data[at + 2] == 82
        and data[at + 3] == 65
        and data[at + 4] == 77
        and data[at + 5] == 45
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
