"""The texts of a run as Arrow strings.

Theory of operation. Texts lie one behind the other in the order of their numbers, so `at` of their rows are
the offsets of an Arrow array over `text_bytes`: what calls name is taken out of it, and nothing is copied of
the rest, which may be tens of megabytes. The array is lent for the length of one call only; the kernels own
its bytes.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import places
from kwsniff.kernel.machine import Machine

Ints = NDArray[np.int64]


class Texts:
    """The texts of a machine as Arrow strings."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._count = -1
        self._offsets = np.zeros(1, np.int64)

    def chosen(self, at: Ints, limit: int = 0) -> pa.Array:
        """Texts by their numbers, null for negative ones, cut to `limit` characters."""
        missing = at < 0
        if missing.all():
            return pa.nulls(len(at), pa.string())
        self._renew()
        rows = np.where(missing, 0, at)
        if limit and int((self._offsets[rows + 1] - self._offsets[rows])[~missing].max()) > limit:
            return self._cut(rows, missing, limit)
        return _strings(self._lent().take(places(rows, missing)))

    def uuids(self, at: Ints) -> pa.Array:
        """Uuids in hyphenated hexadecimal by their numbers, null for negative ones."""
        missing = at < 0
        if missing.all():
            return pa.nulls(len(at), pa.string())
        self._renew()
        distinct, index = np.unique(np.where(missing, at.max(), at), return_inverse=True)
        found = [_uuid(data) for data in self._lent().take(places(distinct)).to_pylist()]
        return pa.array(found, pa.string()).take(places(index, missing))

    def forget(self) -> None:
        """The numbers of texts have changed."""
        self._count = -1

    def _cut(self, rows: Ints, missing: NDArray[np.bool_], limit: int) -> pa.Array:
        """Cut before they are repeated: thousands of rows may name one text of many kilobytes."""
        import pyarrow.compute as pc

        distinct, index = np.unique(rows, return_inverse=True)
        whole = _strings(self._lent().take(places(distinct)))
        return pc.utf8_slice_codeunits(whole, 0, limit).take(places(index, missing))

    def _renew(self) -> None:
        store = self._machine.t.store[0]
        count = int(store.texts)
        if count == self._count:
            return
        self._count = count
        self._offsets = np.append(self._machine.column("texts", "at", count), int(store.text_bytes))

    def _lent(self) -> pa.Array:
        data = pa.py_buffer(self._machine.t.text_bytes)
        return pa.Array.from_buffers(
            pa.large_binary(), self._count, [None, pa.py_buffer(self._offsets), data]
        )


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
