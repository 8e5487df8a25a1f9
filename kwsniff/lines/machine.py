"""Runs the kernel that writes lines, compiled or interpreted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.lines import rows
from kwsniff.lines.tables import FULL, ODD, SPECS, Tables
from kwsniff.native.code import WRITE, load, places

Ints = NDArray[np.int64]
_DTYPES = {spec.name: np.dtype([(field, np.int64) for field in spec.names]) for spec in SPECS}
_ROWS = {spec.name: spec.row for spec in SPECS}
ROOM = 4 << 20
"""Bytes of lines that are written at a time, unless a line is longer."""
COLUMN = _DTYPES["columns"].names
"""What a column is described by, see `kwsniff.lines.tables`."""


class OddTextError(Exception):
    """A text may not be written as it is."""

    def __init__(self, column: int) -> None:
        """`column` is its place among those given."""
        super().__init__(column)
        self.column = column


class LineWriter:
    """Writes rows of one batch after the other."""

    def __init__(self, *, compiled: bool | None = None) -> None:
        """`compiled` says how the kernel runs; None: compiled if there is code for this machine."""
        self._native = load(WRITE) if compiled is not False else None
        self._out: Any = self._room(ROOM)

    def _room(self, size: int) -> Any:
        return bytearray(size) if self._native is None else np.empty(size, np.uint8)

    def _table(self, name: str, given: list[dict[str, int]]) -> Any:
        if self._native is not None:
            fields = _DTYPES[name].names or ()
            rows = [tuple(row.get(field, 0) for field in fields) for row in given]
            return np.array(rows, _DTYPES[name]).view(np.recarray)
        made = [_ROWS[name]() for _ in given]
        for target, row in zip(made, given, strict=True):
            for field, value in row.items():
                setattr(target, field, value)
        return made

    def lines(
        self, columns: list[dict[str, int]], numbers: Ints, ends: Ints, text: NDArray[np.uint8],
        count: int, behind: int, first: int = 0,
    ) -> Iterator[tuple[int, memoryview]]:  # fmt: skip
        """Lines of the rows from `first` to the last of `count`, some at a time with the row that follows
        them; each to be taken before the next is asked for. `behind` commas follow the last column.

        Raises:
            OddTextError: a text can't be written as it is; what was yielded are the lines before it.
        """
        lines = self._table("lines", [{"row": first, "commas": behind}])
        given: tuple[Any, ...] = numbers, ends, text
        if self._native is None:
            given = numbers.tolist(), ends.tolist(), text.tobytes()
        table = self._table("columns", columns)
        while True:
            lines[0].at = 0
            code = self._call(Tables(*(lines, table, *given, self._out)), count)
            if lines[0].at:
                yield int(lines[0].row), memoryview(self._out)[: int(lines[0].at)]
            if code == ODD:
                raise OddTextError(int(lines[0].odd))
            if code != FULL:
                return
            if not lines[0].at:
                self._out = self._room(2 * len(self._out))

    def _call(self, tables: Any, count: int) -> int:
        if self._native is None:
            return rows.write(tables, 0, count)
        addresses = places(tables)
        return self._native(addresses.ctypes.data, 0, count)
