"""What was drained, taken out of the tables to be made into EVENTS.

Theory of operation. `taken` copies what calls, anomalies and connections that are over need; after that the
tables may be filled again, and another thread may make columns. Rows of all kinds are then read a field at a
time, each value at the place in the batch where its row belongs (`Placed`), so that no column has to be put
in order once it is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.kernel.machine import Machine
from kwsniff.kernel.numbers import NONE
from kwsniff.kernel.strings import Strings
from kwsniff.native.records import copied, picked

Ints = NDArray[np.int64]
Rows = NDArray[Any]
PacketNote = tuple[int, str, str, int, int, int]
"""Place in the input, code, detail, number and time of the packet, number of the capture."""
if TYPE_CHECKING:
    from kwsniff.kernel.bodytexts import Problem

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
BLANK = {
    **dict.fromkeys(("first_time", "last_time", "response_first", "response_last"), -1),
    **dict.fromkeys(("response_end", "throttled_until", "handshake", "open_until"), -1),
    **dict.fromkeys(("key", "version", "packet", "response_packet", "status"), -1),
    **dict.fromkeys(("client_id", "group", "member", "transactional_id", "software"), -1),
    **dict.fromkeys(("software_version", "group_protocol", "reason", "rack", "user"), -1),
    **dict.fromkeys(("because", "closed_by", "tail", "uuids"), 0),
    **dict.fromkeys(("names", "rows", "asked", "resources", "brokers"), 0),
}
"""What fields of calls say where there is no call: null. NONE if not named here."""


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
        made = np.full(self._total, BLANK.get(field, NONE), np.int64)
        made[self._place] = self._rows[field]
        return made

    def put(self, field: str, rows: Rows, place: Ints) -> None:
        """Give a field of other rows at their places, too."""
        self[field][place] = rows[field]

    def blank(self, field: str) -> None:
        """Take a field for null everywhere."""
        self._read[field] = np.full(self._total, BLANK.get(field, NONE), np.int64)

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


def _of_open(machine: Machine, conns: Ints) -> dict[str, Ints]:
    """Fields of connections that are still in the table."""
    if machine.compiled:
        table = np.asarray(machine.t.conns)
        return {name: table[name][conns] for name in ABOUT}
    rows = [machine.t.conns[conn] for conn in conns.tolist()]
    return {name: np.array([getattr(row, name) for row in rows], np.int64) for name in ABOUT}
