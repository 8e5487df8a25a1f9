"""Tables as they are declared, and copies of their rows.

NumPy copies records a field at a time, each with a function of its own, which takes seven times as long as
copying their bytes. Rows of kernels are integers side by side, so their bytes are all there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.native.mode import made

# How a table is declared: its name, what a row is, and each field with what it means and of what kind it is.

NONE = -(1 << 63)
"""Stands for null among numbers that may be negative."""
NUMBER, TEXT, COUNTER, REF = "number", "text", "counter", "ref"
"""Kinds of fields: any number; the number of a text; what is only added to; the number of a row of a pool."""


class Field(str):
    """What a field means, its kind, and its value in a row that says nothing."""

    __slots__ = ("kind", "null", "to")
    kind: str
    null: int
    to: str
    """Of a REF: the table."""

    def __new__(cls, meaning: str, kind: str = NUMBER, null: int = 0, to: str = "") -> Field:
        made = super().__new__(cls, meaning)
        made.kind, made.null, made.to = kind, null, to
        return made


def text(meaning: str) -> Field:
    """A text, -1 if there is none."""
    return Field(meaning, TEXT, -1)


def counter(meaning: str) -> Field:
    """What is counted from the beginning of the connection."""
    return Field(meaning, COUNTER)


def unknown(meaning: str) -> Field:
    """A number that is -1 while it is not known: a time, a place."""
    return Field(meaning, null=-1)


def nullable(meaning: str) -> Field:
    """A number that is NONE if there is none."""
    return Field(meaning, null=NONE)


def ref(to: str, meaning: str) -> Field:
    """The row of a pool, -1 if there is none."""
    return Field(meaning, REF, -1, to)


class Spec:
    """A table: its name, what a row is, and its fields."""

    def __init__(self, name: str, what: str, /, **fields: str) -> None:
        self.name, self.what = name, what
        self.fields = {
            name: each if isinstance(each, Field) else Field(each) for name, each in fields.items()
        }
        self.names = tuple(fields)
        self.row: type = type(name.title() + "Row", (), {"__slots__": self.names, "__init__": _zero})

    def of(self, kind: str, to: str = "") -> tuple[str, ...]:
        """The fields of a kind; `to` of a table."""
        return tuple(name for name, each in self.fields.items() if each.kind == kind and to in ("", each.to))

    def reset(self) -> list[str]:
        """What `made` takes to write the values of a row that says nothing into `row`."""
        return [f"row.{name} = {each.null}" for name, each in self.fields.items()]

    def __repr__(self) -> str:
        return f"Spec({self.name!r})"


def _zero(row: Any) -> None:
    """Make all fields of an interpreted row 0, as those of a new array are."""
    for name in row.__slots__:
        setattr(row, name, 0)


def linked(before: str, after: str, first: str, last: str) -> tuple[Any, Any]:
    """Kernels for a list of rows that know their neighbours, `before` and `after`: one puts a row behind all
    others, one takes one out. Both take the table, the row whose `first` and `last` are the ends of the list,
    and the number of the row."""
    append = [
        f"rows[row].{before}, rows[row].{after} = ends.{last}, -1",
        f"if ends.{last} >= 0:",
        f"    rows[ends.{last}].{after} = row",
        "else:",
        f"    ends.{first} = row",
        f"ends.{last} = row",
    ]
    remove = [
        f"before, after = rows[row].{before}, rows[row].{after}",
        "if before >= 0:",
        f"    rows[before].{after} = after",
        "else:",
        f"    ends.{first} = after",
        "if after >= 0:",
        f"    rows[after].{before} = before",
        "else:",
        f"    ends.{last} = before",
    ]
    return made("append", "rows, ends, row", append), made("remove", "rows, ends, row", remove)


BYTES, WORDS, LONGS = "bytes", "words", "longs"
"""Tables without fields: arrays of bytes, of 32-bit and of 64-bit integers."""
TYPES = {BYTES: np.uint8, WORDS: np.int32, LONGS: np.int64}


Rows = NDArray[Any]


def copied(rows: Rows) -> Rows:
    """A copy of all of these rows."""
    made: Rows = _bytes(rows).copy().view(rows.dtype)
    return made


def picked(rows: Rows, which: Any) -> Rows:
    """A copy of some: `which` is a mask or places."""
    made: Rows = _bytes(rows)[which].view(rows.dtype)
    return made


def joined(parts: Sequence[Rows], kind: np.dtype[Any] | None = None) -> Rows:
    """Rows of one type, one after the other; `kind` is that type where there may be none of them."""
    if not parts:
        return np.zeros(0, kind)
    return np.concatenate([_bytes(rows) for rows in parts]).view(parts[0].dtype)


def put(table: Rows, at: Any, rows: Rows) -> None:
    """Write rows of the same type over those at `at`, a slice or places."""
    _bytes(table)[at] = _bytes(rows)


def _bytes(rows: Rows) -> Rows:
    return np.asarray(rows).view(np.dtype((np.void, rows.dtype.itemsize)))
