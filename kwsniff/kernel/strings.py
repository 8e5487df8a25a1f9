"""The texts of a run as Arrow strings."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import places
from kwsniff.kernel.machine import Machine

Ints = NDArray[np.int64]


class Texts:
    """The texts of a machine as Arrow strings, made anew when there are more."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._count = -1
        self._strings: dict[int, pa.Array] = {}
        self._ids = pa.array([], pa.string())

    def chosen(self, at: Ints, limit: int = 0) -> pa.Array:
        """Texts by their numbers, null for negative ones, cut to `limit` characters."""
        missing = at < 0
        if missing.all():
            return pa.nulls(len(at), pa.string())
        self._renew()
        if limit and limit not in self._strings:
            import pyarrow.compute as pc

            self._strings[limit] = pc.utf8_slice_codeunits(self._strings[0], 0, limit)
        return self._strings[limit].take(places(np.where(missing, 0, at), missing))

    def uuids(self, at: Ints) -> pa.Array:
        """Uuids in hyphenated hexadecimal by their numbers, null for negative ones."""
        missing = at < 0
        if missing.all():
            return pa.nulls(len(at), pa.string())
        self._renew()
        return self._ids.take(places(np.where(missing, 0, at), missing))

    def forget(self) -> None:
        """The numbers of texts have changed."""
        self._count = -1

    def _renew(self) -> None:
        store = self._machine.t.store[0]
        count = int(store.texts)
        if count == self._count:
            return
        self._count = count
        rows = self._machine.array("texts", count)
        data = self._machine.data("text_bytes", 0, int(store.text_bytes))
        plain = [
            data[at : at + size].decode("utf-8", "replace") if kind == 0 else ""
            for at, size, kind in zip(
                rows["at"].tolist(), rows["size"].tolist(), rows["kind"].tolist(), strict=True
            )
        ]
        self._strings = {0: pa.array(plain, pa.string())}
        self._ids = pa.array(
            [
                _uuid(data[at : at + 16]) if kind == 1 else ""
                for at, kind in zip(rows["at"].tolist(), rows["kind"].tolist(), strict=True)
            ],
            pa.string(),
        )


def _uuid(data: bytes) -> str:
    found = data.hex()
    return f"{found[:8]}-{found[8:12]}-{found[12:16]}-{found[16:20]}-{found[20:]}"
