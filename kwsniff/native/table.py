"""How a table is declared: its name, what a row is, and each field with what it means."""

from __future__ import annotations

from typing import Any


class Spec:
    """A table: its name, what a row is, and its fields with their meanings."""

    def __init__(self, name: str, what: str, /, **fields: str) -> None:
        self.name, self.what, self.fields = name, what, fields
        self.names = tuple(fields)
        self.row: type = type(name.title() + "Row", (), {"__slots__": self.names, "__init__": _zero})

    def __repr__(self) -> str:
        return f"Spec({self.name!r})"


def _zero(row: Any) -> None:
    """Make all fields of an interpreted row 0, as those of a new array are."""
    for name in row.__slots__:
        setattr(row, name, 0)


BYTES, WORDS, LONGS = "bytes", "words", "longs"
"""Tables without fields: arrays of bytes, of 32-bit and of 64-bit integers."""
