"""Tokens of an expression.

Kinds: `number`, `quantity` (a number with a unit), `text` (in quotes), `moment` (a date, or date and time),
`clock` (a time of day), `network` (an address or a CIDR range), `endpoint` (address and port), `name`,
`sign`, and `end`. The value of a quantity is a pair: microseconds or bytes, and which of the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from kwsniff.where import wrong

TIME_UNITS = {
    "ns": 1e-3, "us": 1, "µs": 1, "μs": 1, "ms": 1e3, "s": 1e6, "sec": 1e6, "min": 60e6, "m": 60e6,
    "h": 3600e6, "d": 86_400e6,
}  # fmt: skip
"""In microseconds."""
BYTE_UNITS = {
    "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30,
}  # fmt: skip
"""In bytes; written in any case."""
DURATION, SIZE = "µs", "bytes"

_TOKENS = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<text>[rR]?(?:"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'))
  | (?P<moment>\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?(?![\w.:-]))
  | (?P<endpoint>\d+\.\d+\.\d+\.\d+:\d+)
  | (?P<network>\d+\.\d+\.\d+\.\d+(?:/\d+)?
              |[0-9a-fA-F:]*::[0-9a-fA-F:.]*(?:/\d+)?
              |(?:[0-9a-fA-F]+:){7}[0-9a-fA-F]+(?:/\d+)?)
  | (?P<clock>\d{1,2}:\d\d(?::\d\d(?:\.\d+)?)?(?!\w))
  | (?P<number>(?:0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))(?P<unit>[A-Za-zµμ]\w*)?
  | (?P<name>[^\W\d]\w*)
  | (?P<sign>==|!=|<=|>=|!~|=~|<>|&&|\|\||\*\*|//|[<>~+\-*/()\[\],.=!&|])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


class Token(NamedTuple):
    """A word of the language, `value` as it is meant, `at` its position from 1."""

    kind: str
    text: str
    value: Any
    at: int


def tokens(text: str) -> Iterator[Token]:
    """The tokens of `text`, the last of kind `end`. Raises WhereError."""
    place = 0
    while place < len(text):
        found = _TOKENS.match(text, place)
        if found is None:
            raise wrong(place + 1, _unknown(text[place:]))
        kind = found.lastgroup or ""
        if kind != "space":
            yield _token(found, "number" if kind == "unit" else kind)
        place = found.end()
    yield Token("end", "", None, len(text) + 1)


def _token(found: re.Match[str], kind: str) -> Token:
    at, text = found.start() + 1, found[0]
    if kind == "number":
        number = _number(found["number"])
        return Token(kind, text, number, at) if not found["unit"] else _quantity(found, number, at)
    if kind == "text":
        return Token(kind, text, _unquoted(text), at)
    return Token(kind, text, text, at)


def _number(text: str) -> int | float:
    if text[:2] in ("0x", "0X"):
        return int(text, 16)
    return int(text) if text.isdecimal() else float(text)


def _quantity(found: re.Match[str], number: float, at: int) -> Token:
    unit = found["unit"]
    if unit in TIME_UNITS:
        return Token("quantity", found[0], (number * TIME_UNITS[unit], DURATION), at)
    if unit.lower() in BYTE_UNITS:
        return Token("quantity", found[0], (number * BYTE_UNITS[unit.lower()], SIZE), at)
    units = "ns us ms s min h d, and B kB MB GB KiB MiB GiB"
    raise wrong(at + len(found["number"]), f"unknown unit {unit!r}; there are {units}")


def _unquoted(text: str) -> str:
    if text[0] in "rR":
        return text[2:-1]
    return _ESCAPE.sub(lambda escape: _meant(escape[1]), text[1:-1])


def _meant(escape: str) -> str:
    # A backslash before anything else stays: regular expressions are full of them.
    if len(escape) > 1:
        return chr(int(escape[1:], 16))
    return _ESCAPED.get(escape, "\\" + escape)


def _unknown(rest: str) -> str:
    if rest[0] in "\"'":
        return "a quote that is not closed"
    return f"{rest[0]!r} is not part of the language"
