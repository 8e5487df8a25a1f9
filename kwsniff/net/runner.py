"""Runs the functions on headers over columns of packets, compiled or interpreted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.native.code import READ, load, places
from kwsniff.net import layers as headers
from kwsniff.net.copies import HEADS, WINDOW
from kwsniff.net.inout import FRAGMENT, SEGMENT_ARRAYS, SPECS, VIEW_WORDS, Tables
from kwsniff.net.packets import Bytes, Integers, Mask
from kwsniff.net.tcp import Segments

_RECORDS = {spec.name: np.dtype([(field, np.int64) for field in spec.names]) for spec in SPECS}
_ROWS = {spec.name: spec.row for spec in SPECS}
RAW_IP = 101
"""LINKTYPE_ value of IP packets without link layer."""
LARGEST = 40 + 65_535
"""Bytes of the largest packet that fragments make, with its header."""


@dataclass(slots=True)
class Packets:
    """Packets to dissect: positions in `data`, one element a packet. Every `end` is within `data`."""

    data: Bytes
    at: Integers
    end: Integers
    """Where the captured bytes end."""
    wire: Integers
    """Where they ended on the wire; no smaller than `end`."""
    linktype: Integers

    def __len__(self) -> int:
        return len(self.at)


@dataclass(slots=True)
class Read:
    """What dissecting found."""

    segments: Segments
    verdict: Integers
    """On each packet, see `kwsniff.net.inout`."""
    fragments: list[list[int]]
    """Rows of the table `slow`."""


def dissect(packets: Packets) -> Read:
    """Find the segments of packets."""
    count = len(packets)
    positions = {
        "first": packets.at, "last": packets.end, "last_on_wire": packets.wire, "linktype": packets.linktype
    }  # fmt: skip
    arrays = {name: _longs(column) for name, column in positions.items()}
    results = _empty(("verdict", *SEGMENT_ARRAYS), count)
    rows = {"packet": _rows("packet", 1), "slow": _rows("slow", count)}
    tables = _tables(data=_bytes(packets.data), **arrays, **results, **rows)
    found = _call(tables, headers.DISSECT, count)
    columns = [_array(results[name], found) for name in SEGMENT_ARRAYS]
    verdict = _array(results["verdict"], count)
    fragments = _values("slow", rows["slow"], int((verdict == FRAGMENT).sum()))
    return Read(Segments(*columns), verdict, fragments.tolist())


class Inside:
    """Looks for a fragment in one IP packet at a time, in tables that stay: those of a batch would take
    longer to make than all else."""

    def __init__(self) -> None:
        self._data = np.zeros(LARGEST, np.uint8)
        self._view = self._data.data
        arrays = {name: _longs(np.zeros(1, np.int64)) for name in ("first", "last", "last_on_wire")}
        arrays["linktype"] = _longs(np.full(1, RAW_IP))
        self._tables = _tables(
            data=_bytes(self._data), packet=_rows("packet", 1), slow=_rows("slow", 1), **arrays,
            **_empty(("verdict", *SEGMENT_ARRAYS), 1),
        )  # fmt: skip
        self._places = places(self._tables) if compiled() else None

    def __reduce__(self) -> Any:
        return Inside, ()

    def fragment(self, captured: bytes, length: int) -> list[int] | None:
        """Row of the table `slow` if the packet is a fragment, or a tunnel with one. `length` is that on the
        wire."""
        t = self._tables
        self._view[: len(captured)] = captured
        t.last[0], t.last_on_wire[0] = len(captured), max(length, len(captured))
        _call(t, headers.DISSECT, 1, self._places)
        if t.verdict[0] != FRAGMENT:
            return None
        found: list[int] = _values("slow", t.slow, 1)[0].tolist()
        return found


def follow_records(data: Bytes, at: int, end: int, header: int, *, big: bool) -> tuple[Integers, int]:
    """Follow the chain of pcap records from `at`: the offsets of all complete ones, and where it goes on.
    `header` is the size of a record's header, `big` says that it is big-endian."""
    starts = _empty(("starts",), max(end - at, 0) // header + 1)["starts"]
    rows = _rows("chain", 1)
    chain = rows[0]
    chain.at, chain.end, chain.header, chain.big = at, end, header, int(big)
    count = _call(_tables(data=_bytes(data), starts=starts, chain=rows), headers.FOLLOW_RECORDS, 0)
    return _array(starts, count).copy(), int(rows[0].at)


class Recent:
    """The latest segments of a run, see `kwsniff.net.copies`. What is pickled goes on in another process
    whether kernels are compiled there or not."""

    def __init__(self) -> None:
        self.rows = _rows("recent", WINDOW)
        self.latest = _longs(np.full(HEADS, -1, np.int64))
        self.count = 0
        """Segments so far."""

    def __getstate__(self) -> dict[str, Any]:
        rows = _values("recent", self.rows, min(self.count, WINDOW))
        return {"rows": rows, "latest": _array(self.latest, HEADS).copy(), "count": self.count}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.rows = _rows("recent", WINDOW)
        _set_values("recent", self.rows, state["rows"])
        self.latest, self.count = _longs(state["latest"]), state["count"]


def find_copies(recent: Recent, segments: Segments, times: Integers) -> Mask:
    """Which of these segments are copies of an earlier one, of these or of the `recent` ones, which they
    become."""
    count = len(segments)
    copies = _empty(("copies",), count)["copies"]
    number = _rows("chain", 1)
    number[0].count = recent.count
    tables = _tables(
        times=_longs(times), copies=copies, recent=recent.rows, latest=recent.latest, chain=number,
        **{name: _longs(getattr(segments, name)) for name in SEGMENT_ARRAYS},
    )  # fmt: skip
    _call(tables, headers.FIND_COPIES, count)
    recent.count += count
    found: Mask = _array(copies, count) != 0
    return found


def views(segments: Segments, buffer: Integers, buffers: list[Bytes]) -> NDArray[np.int32]:
    """Payloads as binary views, see `kwsniff.net.inout`; `buffer` says in which of the buffers each lies."""
    count = len(segments)
    made: Any = np.zeros(VIEW_WORDS * count, np.int32)
    written = made if compiled() else made.tolist()
    columns = {name: _longs(getattr(segments, name)) for name in ("start", "captured", "length")}
    for index, data in enumerate(buffers):
        tables = _tables(data=_bytes(data), views=written, buffer=_longs(buffer), **columns)
        _call(tables, headers.VIEW + index, count)
    return np.asarray(written, np.int32).reshape(-1, VIEW_WORDS)


def compiled() -> bool:
    """Whether there is compiled code for this machine."""
    return load(READ) is not None


def _longs(column: Integers) -> Any:
    return np.ascontiguousarray(column, np.int64) if compiled() else column.tolist()


def _bytes(data: Bytes) -> Any:
    return data if compiled() else data.data


def _empty(names: Iterable[str], count: int) -> dict[str, Any]:
    """Arrays that are filled as far as they are used."""
    return {name: np.empty(count, np.int64) if compiled() else [0] * count for name in names}


def _rows(name: str, count: int) -> Any:
    if compiled():
        return np.empty(count, _RECORDS[name]).view(np.recarray)
    return [_ROWS[name]() for _ in range(count)]


def _values(name: str, rows: Any, count: int) -> Integers:
    """The first rows of a table, a row of numbers each."""
    fields = _RECORDS[name].names or ()
    if isinstance(rows, list):
        made = np.array([[getattr(row, field) for field in fields] for row in rows[:count]], np.int64)
    else:
        made = np.asarray(rows[:count]).view(np.int64).copy()
    return made.reshape(count, len(fields))


def _set_values(name: str, rows: Any, values: Integers) -> None:
    """Write the first rows of a table."""
    fields = _RECORDS[name].names or ()
    if not isinstance(rows, list):
        np.asarray(rows).view(np.int64).reshape(len(rows), len(fields))[: len(values)] = values
        return
    for row, numbers in zip(rows, values.tolist(), strict=False):
        for field, number in zip(fields, numbers, strict=True):
            setattr(row, field, number)


def _array(values: Any, count: int) -> Integers:
    if isinstance(values, list):
        return np.array(values[:count], np.int64)
    return values[:count]  # type: ignore[no-any-return]


def _tables(**given: Any) -> Any:
    """All tables; those not given are empty."""
    if compiled():
        missing = np.zeros(0, np.uint8)
        return Tables(*(given.get(name, missing) for name in Tables._fields))
    return Tables(*(given.get(name, ()) for name in Tables._fields))


def _call(tables: Any, what: int, how: int, known: Integers | None = None) -> int:
    """`known` are the places of tables that stay where they are."""
    native = load(READ)
    if native is None:
        return headers.read(tables, what, how)
    addresses = places(tables) if known is None else known
    return native(addresses.ctypes.data, what, how)
