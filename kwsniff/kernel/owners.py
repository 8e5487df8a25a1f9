"""Whose rows are: ids and ends of connections as columns of EVENTS.

Theory of operation. All is made for the connections of a batch, column by column, and then taken for its
rows. An id, which takes a hash, is made once and kept at the place of the connection in the table, with the
number that says whether the place belongs to the same one still: there are as many as connections are
followed at a time. An address is worded once for each batch.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import Columns, column, places
from kwsniff.kernel.details import distinct
from kwsniff.kernel.drained import Rows
from kwsniff.kernel.identity import SIZE, connection_ids
from kwsniff.net.address import text
from kwsniff.table import EVENTS

Ints = NDArray[np.int64]
_HEX = np.frombuffer(b"".join(b"%02x" % byte for byte in range(256)), np.uint16)
"""Two digits of each byte."""


class Owners:
    """Makes columns of the connections that rows belong to."""

    def __init__(self) -> None:
        self._numbers = np.zeros(0, np.int64)
        """Whose id was kept at each place of the table of connections, 0: nobody's."""
        self._ids = np.zeros((0, SIZE), np.uint8)

    def columns(self, owners: Rows, whose: Ints) -> Columns:
        """Id and ends. `whose` says which of the owners each row belongs to; the number of these: to none."""
        nobody = whose == len(owners)
        taken = places(np.where(nobody, 0, whose), nobody)
        made = {"connection": self._connections(owners)} | _addresses(owners) | _ports(owners)
        return {name: values.take(taken) for name, values in made.items()}

    def _connections(self, owners: Rows) -> pa.Array:
        offsets = np.arange(0, 2 * SIZE * (len(owners) + 1), 2 * SIZE, dtype=np.int32)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(_HEX[self._ids_of(owners)])]
        return pa.Array.from_buffers(pa.string(), len(owners), buffers)

    def _ids_of(self, owners: Rows) -> NDArray[np.uint8]:
        at = owners["conn"]
        self._have_room(int(at.max(initial=-1)) + 1)
        ids = self._ids[at]
        new = np.flatnonzero(self._numbers[at] != owners["number"])
        if len(new):
            ids[new] = connection_ids(owners[new])
            self._ids[at[new]], self._numbers[at[new]] = ids[new], owners["number"][new]
        return ids

    def _have_room(self, count: int) -> None:
        lacking = count - len(self._numbers)
        if lacking > 0:
            lacking = max(lacking, len(self._numbers))
            self._numbers = np.pad(self._numbers, (0, lacking))
            self._ids = np.pad(self._ids, ((0, lacking), (0, 0)))


def _addresses(owners: Rows) -> Columns:
    halves = [np.concatenate([owners["a" + half], owners["b" + half]]) for half in ("_lo", "_hi")]
    first, which = distinct(halves)
    low, high = (half[first].tolist() for half in halves)
    texts = pa.array([text(*each) for each in zip(high, low, strict=True)], pa.string())
    a, b = which[: len(owners)], which[len(owners) :]
    return {f"{name}_ip": texts.take(places(end)) for name, end in _by_role(owners, a, b)}


def _ports(owners: Rows) -> Columns:
    ends = _by_role(owners, owners["a_port"], owners["b_port"])
    return {f"{name}_port": column(end, EVENTS.field(f"{name}_port").type) for name, end in ends}


def _by_role(owners: Rows, a: Ints, b: Ints) -> tuple[tuple[str, Ints], tuple[str, Ints]]:
    """What is known of both ends as what is known of client and broker."""
    turned = owners["client"] == 1
    return ("client", np.where(turned, b, a)), ("broker", np.where(turned, a, b))
