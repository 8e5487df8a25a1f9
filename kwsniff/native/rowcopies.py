"""Copies of rows of tables.

NumPy copies records a field at a time, each with a function of its own, which takes seven times as long as
copying their bytes. Rows of kernels are integers side by side, so their bytes are all there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# How a table is declared: its name, what a row is, and each field with what it means.


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
