"""The texts of a run as Arrow strings.

Theory of operation. Texts lie one behind the other in the order of their numbers, so `at` of their rows are
the offsets of an Arrow array over `text_bytes`: what calls name is taken out of it, and nothing is copied of
the rest, which may be tens of megabytes. Each text that a column names is taken and looked at once, however
many rows name it.

What `now` returns stays as it is while the kernels go on, compiled: they only add behind what is there, into
other memory when it is full, and `Machine.compact_texts` begins with a copy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import nulls, places
from kwsniff.kernel.machine import Machine

Ints = NDArray[np.int64]
SPARSE = 8
"""Texts for each row from which on numbers are sorted to find which occur, and no table of all is made."""


class Strings:
    """Texts by their numbers, as Arrow strings."""

    def __init__(self, offsets: Ints, data: Any) -> None:
        """`offsets` has one more than there are texts in `data`."""
        self._offsets, self._data = offsets, data

    def chosen(self, at: Ints, limit: int = 0) -> pa.Array:
        """Texts by their numbers, null for negative ones, cut to `limit` characters."""
        missing = at < 0
        if missing.all():
            return nulls(len(at), pa.string())
        distinct, index = self._distinct(at, missing)
        found = _strings(self._taken(distinct))
        if limit and int((self._offsets[distinct + 1] - self._offsets[distinct]).max()) > limit:
            import pyarrow.compute as pc

            found = pc.utf8_slice_codeunits(found, 0, limit)
        return found.take(places(index, missing))

    def uuids(self, at: Ints) -> pa.Array:
        """Uuids in hyphenated hexadecimal by their numbers, null for negative ones."""
        missing = at < 0
        if missing.all():
            return nulls(len(at), pa.string())
        distinct, index = self._distinct(at, missing)
        found = [_uuid(data) for data in self._taken(distinct).to_pylist()]
        return pa.array(found, pa.string()).take(places(index, missing))

    def _distinct(self, at: Ints, missing: NDArray[np.bool_]) -> tuple[Ints, Ints]:
        """The numbers that occur, ascending, and which of them each is."""
        count = len(self._offsets) - 1
        if count > SPARSE * len(at):
            distinct, index = np.unique(np.where(missing, at.max(), at), return_inverse=True)
            return distinct, index
        there = np.zeros(count + 1, np.bool_)
        at = np.maximum(at, -1)  # which is the last one of these
        there[at] = True
        there[-1] = False
        return np.flatnonzero(there), (np.cumsum(there) - 1)[at]

    def _taken(self, distinct: Ints) -> pa.Array:
        buffers = [None, pa.py_buffer(self._offsets), pa.py_buffer(self._data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self._offsets) - 1, buffers).take(
            places(distinct)
        )


class Texts:
    """The texts of a machine as Arrow strings."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._count = -1
        self._offsets = np.zeros(1, np.int64)

    def chosen(self, at: Ints, limit: int = 0) -> pa.Array:
        """As of `Strings`, of the texts that there are now."""
        return self.now().chosen(at, limit)

    def uuids(self, at: Ints) -> pa.Array:
        """The same for uuids."""
        return self.now().uuids(at)

    def forget(self) -> None:
        """The numbers of texts have changed."""
        self._count = -1

    def now(self) -> Strings:
        """The texts that there are now."""
        store = self._machine.t.store[0]
        count = int(store.texts)
        if count != self._count:
            self._count = count
            self._offsets = np.append(self._machine.column("texts", "at", count), int(store.text_bytes))
        data = self._machine.t.text_bytes
        # A byte array can't grow while somebody looks into it.
        return Strings(self._offsets, data if self._machine.compiled else bytes(data))


def _strings(data: pa.Array) -> pa.Array:
    """As UTF-8, what is none replaced."""
    try:
        return data.cast(pa.string())
    except pa.ArrowInvalid:
        plain = [None if each is None else each.decode("utf-8", "replace") for each in data.to_pylist()]
        return pa.array(plain, pa.string())


def _uuid(data: bytes) -> str:
    found = data.hex()
    return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:]}"
