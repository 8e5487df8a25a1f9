"""What was drained, taken out of the tables to be made into EVENTS.

Theory of operation. `taken` copies what calls, anomalies and connections that are over need; after that the
tables may be filled again, and another thread may make columns. Rows of all kinds are then read a field at a
time, each value at the place in the batch where its row belongs (`Placed`), so that no column has to be put
in order once it is made.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.engine.machine import Machine
from kwsniff.engine.tables import SPEC_OF
from kwsniff.native.rowcopies import copied, picked
from kwsniff.rows.arrays import nulls, places

if TYPE_CHECKING:
    from kwsniff.tls.decrypter import Facts

Ints = NDArray[np.int64]
Rows = NDArray[Any]
PacketNote = tuple[int, str, str, int, int, int]
"""Place in the input, code, detail, number and time of the packet, number of the capture."""
Problem = tuple[Any, str, str]
"""The row of `bodies`, code and detail of an anomaly."""

LISTS = {
    "call_names": ("names",), "call_rows": ("rows", "asked"), "call_resources": ("resources",),
    "call_brokers": ("brokers",),
}  # fmt: skip
"""Tables of what calls list, and the fields of calls that say how much."""
OWNER = (
    "number", "client", "capture", "a_hi", "a_lo", "b_hi", "b_lo", "a_port", "b_port", "first_time",
)  # fmt: skip
"""Of a connection: who it is."""
ABOUT = OWNER[1:]
"""The same but for its number."""
_OWNER = np.dtype([(name, np.int64) for name in (*OWNER, "conn")])
_CALLS = SPEC_OF["calls"].fields


class Drained(NamedTuple):
    """What events are to be made of."""

    calls: Rows
    lists: dict[str, Rows]
    """What these calls list, a table each."""
    notes: Rows
    packet_notes: list[PacketNote]
    problems: list[Problem]
    ends: Rows
    """Connections that have rows of their own."""
    bodies: dict[str, pa.Array]
    """Bodies of the calls, if they are shown."""
    texts: Strings
    details: list[str | None]
    """What the notes are about."""
    owners: Rows
    """Connections in the order of their numbers."""
    whose: Ints
    """Which of these each row belongs to: of calls, notes, problems and connections one after the other."""
    tls: Mapping[int, Facts] = MappingProxyType({})
    """What handshakes said, by numbers of connections, where keys of TLS are looked for ..."""
    tls_over: Mapping[int, Facts] = MappingProxyType({})
    """... and those of connections that are over."""


class Placed:
    """Rows of calls, read field by field, as long as a batch: blank where other rows stand."""

    def __init__(self, rows: Rows, place: Ints | None, total: int) -> None:
        """`place` says for each row where it stands in the batch; None if these are all."""
        self._rows, self._place, self._total = rows, place, total
        self._read: dict[str, Ints] = {}

    def __len__(self) -> int:
        return self._total

    def __getitem__(self, field: str) -> Ints:
        if field not in self._read:
            self._read[field] = self._field(field)
        return self._read[field]

    def _field(self, field: str) -> Ints:
        if self._place is None:
            return np.ascontiguousarray(self._rows[field])
        made = np.full(self._total, _CALLS[field].null, np.int64)
        made[self._place] = self._rows[field]
        return made

    def put(self, field: str, rows: Rows, place: Ints) -> None:
        """Give a field of other rows at their places, too."""
        self[field][place] = rows[field]

    def blank(self, field: str) -> None:
        """Take a field for null everywhere."""
        self._read[field] = np.full(self._total, _CALLS[field].null, np.int64)

    @property
    def any(self) -> bool:
        """Whether there is a row."""
        return bool(len(self._rows))

    def moved(self, lengths: Ints) -> Ints | None:
        """Where what rows list stands, if the rows come in another order than their lists, else None.
        `lengths` are those of the lists, in the order of the rows."""
        if self._place is None or not (np.diff(self._place) < 0).any():
            return None
        order = np.argsort(self._place)
        first = (np.cumsum(lengths) - lengths)[order]
        lengths = lengths[order]
        behind = np.cumsum(lengths)
        return np.repeat(first - behind + lengths, lengths) + np.arange(behind[-1] if len(behind) else 0)

    @property
    def rows(self) -> Rows:
        """The rows in their own order."""
        return self._rows


class Chosen:
    """Some rows of a table, read field by field."""

    def __init__(self, rows: Rows, index: Ints | None = None) -> None:
        """`index` says which; None for all."""
        self._rows, self._index = rows, index

    def __len__(self) -> int:
        return len(self._rows if self._index is None else self._index)

    def __getitem__(self, field: str) -> Ints:
        values = self._rows[field]
        return np.ascontiguousarray(values) if self._index is None else values[self._index]

    def where(self, mask: NDArray[np.bool_]) -> Chosen:
        """Those of these rows."""
        return Chosen(self._rows, np.flatnonzero(mask) if self._index is None else self._index[mask])


def listed(
    machine: Machine, calls: Rows, counts: dict[str, int], believed: NDArray[np.bool_] | None
) -> dict[str, Rows]:
    """What calls list, so many rows of each table. Not all of those in the tables are `believed`, then lists
    of the others are left out; `calls` are all of them."""
    made = {}
    for name, fields in LISTS.items():
        rows = machine.array(name, counts[name])
        if believed is None:
            made[name] = copied(rows)
        else:
            lengths = sum(np.maximum(calls[field], 0) for field in fields)
            made[name] = picked(rows, np.repeat(believed, lengths))
    return made


def owners_of(machine: Machine, parts: list[Rows], ends: Rows) -> tuple[Rows, Ints]:
    """The connections that rows belong to, and which of them each row does. What `ends` tells of a
    connection is the latest."""
    numbers = np.concatenate([rows["number"] for rows in parts])
    conns = np.concatenate([rows["conn"] for rows in parts])
    distinct, first, whose = _distinct(numbers, conns, machine.used("conns"))
    owners = np.zeros(len(distinct), _OWNER)
    places = np.searchsorted(distinct, ends["number"])
    known = np.flatnonzero(np.append(distinct, -1)[places] == ends["number"])
    ends, places = picked(ends, known), places[known]
    over = np.zeros(len(distinct), np.bool_)
    over[places] = True
    open_ = np.flatnonzero(~over)
    for name, values in _of_open(machine, conns[first[open_]]).items():
        owners[name][open_] = values
    for name in ABOUT:
        owners[name][places] = ends[name]
    owners["number"], owners["conn"] = distinct, conns[first]
    return _as_then(owners, whose, parts)


def _as_then(owners: Rows, whose: Ints, parts: list[Rows]) -> tuple[Rows, Ints]:
    """With owners of their own for rows from before a connection was turned round: what a row says does not
    depend on what is drained together."""
    then = [
        rows["client"] if "client" in (rows.dtype.names or ()) else np.full(len(rows), -1) for rows in parts
    ]
    before = np.concatenate(then)
    changed = np.flatnonzero((before >= 0) & (before != owners["client"][whose]))
    if not len(changed):
        return owners, whose
    again, first, which = np.unique(whose[changed], return_index=True, return_inverse=True)
    turned = owners[again]
    turned["client"] = before[changed[first]]
    whose = whose.copy()
    whose[changed] = len(owners) + which
    return np.concatenate([owners, turned]), whose


def _distinct(numbers: Ints, conns: Ints, room: int) -> tuple[Ints, Ints, Ints]:
    """The numbers that occur, ascending, a row of each, and which of them each row has. Sorted are not the
    rows but their places in the table of connections, of which `room` are used: those stand for the numbers,
    unless one was given to another connection meanwhile."""
    if len(conns) and room < 32 * len(conns) and conns.min() >= 0 and conns.max() < room:
        row = np.full(room, -1)
        row[conns] = np.arange(len(conns))
        used = row[row >= 0]
        if (numbers[row[conns]] == numbers).all():
            first = used[np.argsort(numbers[used])]
            distinct = numbers[first]
            if (distinct[1:] > distinct[:-1]).all():
                row[conns[first]] = np.arange(len(first))
                return distinct, first, row[conns]
    order = np.argsort(numbers, kind="stable")
    ascending = numbers[order]
    new = np.append(True, ascending[1:] != ascending[:-1])[: len(order)]
    whose = np.empty(len(order), np.int64)
    whose[order] = np.cumsum(new) - 1
    return ascending[new], order[new], whose


def distinct(columns: list[Ints]) -> tuple[Ints, Ints]:
    """Of rows that are given column by column: one of each that there is, and which of these each row is."""
    order = np.lexsort(columns)
    new = np.zeros(len(order), np.bool_)
    new[:1] = True
    for values in columns:
        new[1:] |= np.diff(values[order]) != 0
    which = np.empty(len(order), np.int64)
    which[order] = np.cumsum(new) - 1
    return order[new], which


def _of_open(machine: Machine, conns: Ints) -> dict[str, Ints]:
    """Fields of connections that are still in the table."""
    if machine.compiled:
        table = np.asarray(machine.t.conns)
        return {name: table[name][conns] for name in ABOUT}
    rows = [machine.t.conns[conn] for conn in conns.tolist()]
    return {name: np.array([getattr(row, name) for row in rows], np.int64) for name in ABOUT}


# The texts of a run as Arrow strings.
#
# Theory of operation. Texts lie one behind the other in the order of their numbers, so `at` of their rows
# are the offsets of an Arrow array over `text_bytes`: what calls name is taken out of it, and nothing is
# copied of the rest, which may be tens of megabytes. Each text that a column names is taken and looked at
# once, however many rows name it.
#
# What `now` returns stays as it is while the kernels go on, compiled: they only add behind what is there,
# into other memory when it is full, and `Machine.compact_texts` begins with a copy.

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

    def octets(self, at: int) -> bytes:
        """The bytes behind a number."""
        return bytes(self._data[int(self._offsets[at]) : int(self._offsets[at + 1])])

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
