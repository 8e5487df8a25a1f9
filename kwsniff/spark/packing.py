"""What goes from task to task, as few bytes.

Summaries are tables of whole numbers most of which are near those of the row before, or those of another
column (`kwsniff.spark.narrow`). Of the segments of heads, places and times are told in their order, and all
else by direction of a connection.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from kwsniff.native.records import picked, put
from kwsniff.net.views import INLINE
from kwsniff.parts.part import EDGE, ENDS, EXTRA, STORED, PartSummary
from kwsniff.spark.narrow import narrowed, widened

Rows = NDArray[Any]
Ints = NDArray[np.int64]
LEVEL = 3
"""Of zstd; the highest one saves 5 % more in a hundred times the time."""
SEVERAL = 64
"""Numbers that are worth the trouble."""
NOTHING = np.zeros(0, EDGE)
NEAR = (
    ("last_time", "first_time"), ("frame_time", "first_time"), ("packet", "order"),
    ("size", "record_bytes"), ("last_packet", "last_order"), ("frame_packet", "frame_order"),
)  # fmt: skip
"""Columns of tables that are told as differences to another one."""
IN_ORDER = ("order", "time")
REST = frozenset(EDGE.names or ()).difference(ENDS, IN_ORDER, ("start",))
"""Columns of segments of heads that are told by direction."""


def packed_summary(summary: PartSummary) -> bytes:
    """A summary as bytes."""
    rest = replace(summary, edges=NOTHING, payload=b"", spare=NOTHING, spare_payload=b"")
    heads = _grouped(summary.edges, summary.payload), _grouped(summary.spare, summary.spare_payload)
    return packed_object((rest, heads))


def unpacked_summary(data: bytes) -> PartSummary:
    """What `packed_summary` packed."""
    rest, heads = unpacked_object(data)
    summary: PartSummary = rest
    (edges, payload), (spare, spare_payload) = (_ungrouped(*each) for each in heads)
    return replace(summary, edges=edges, payload=payload, spare=spare, spare_payload=spare_payload)


# Heads


def _grouped(edges: Rows, payload: bytes) -> tuple[Rows, Rows, Rows, Ints, bytes]:
    """Segments as they are told: the directions there are; in the order of the segments, whose each is, its
    place and its time; by direction the rest; where the payload of those lies that is in a file, but for what
    came before; and the other payload."""
    which, first = _directions(edges)
    told = np.zeros(len(edges), [(name, np.int64) for name in ("which", *IN_ORDER)])
    told["which"] = which
    for name in IN_ORDER:
        told[name] = edges[name]
    own = picked(edges, np.argsort(told["which"], kind="stable"))
    stored = own["buffer"] == STORED
    places, sizes = own["start"][stored], own["captured"][stored]
    view = memoryview(payload)
    held = zip(own["start"][~stored].tolist(), own["captured"][~stored].tolist(), strict=True)
    data = b"".join(view[start : start + size] for start, size in held if size)
    rest = np.zeros(len(own), [(name, np.int64) for name in edges.dtype.names or () if name in REST])
    for name in rest.dtype.names or ():
        rest[name] = own[name]
    rest["packet"] -= own["order"]
    rest["captured"] -= own["length"]
    rest["buffer"] -= np.where(own["captured"] > INLINE, STORED, EXTRA)
    table = np.zeros(len(first), [(name, np.int64) for name in ENDS])
    for name in ENDS:
        table[name] = edges[name][first]
    return table, told, rest, places - (np.cumsum(sizes) - sizes), data


def _directions(edges: Rows) -> tuple[Ints, Ints]:
    """Which direction of which connection each segment is of, and the first segment of each."""
    which = np.zeros(len(edges), np.int64)
    first = which[:1]
    for name in ENDS:
        column = edges[name]
        if not len(column) or (column == column[0]).all():
            continue
        values, of_it = np.unique(column, return_inverse=True)
        _, first, which = np.unique(which * len(values) + of_it, return_index=True, return_inverse=True)
    return which, first


def _ungrouped(table: Rows, told: Rows, rest: Rows, places: Ints, data: bytes) -> tuple[Rows, bytes]:
    """Segments in their order, and their payload."""
    own = np.zeros(len(told), EDGE)
    by = np.argsort(told["which"], kind="stable")
    which = told["which"][by]
    for name in ENDS:
        own[name] = table[name][which]
    for name in IN_ORDER:
        own[name] = told[name][by]
    for name in rest.dtype.names or ():
        own[name] = rest[name]
    own["packet"] += own["order"]
    own["captured"] += own["length"]
    own["buffer"] += np.where(own["captured"] > INLINE, STORED, EXTRA)
    stored = own["buffer"] == STORED
    for rows, first in ((stored, places), (~stored, 0)):
        sizes = own["captured"][rows]
        own["start"][rows] = first + np.cumsum(sizes) - sizes
    made = np.zeros(len(own), EDGE)
    put(made, by, own)
    return made, data


# Anything


def packed_object(what: object) -> bytes:
    """Anything that can be pickled, as bytes."""
    sink = io.BytesIO()
    _Packer(sink, pickle.HIGHEST_PROTOCOL).dump(what)
    return zstandard.ZstdCompressor(LEVEL).compress(sink.getbuffer())


def unpacked_object(data: bytes) -> Any:
    """What `packed_object` packed."""
    return pickle.loads(zstandard.ZstdDecompressor().decompress(data))


class _Packer(pickle.Pickler):
    """Keeps tables of whole numbers as differences."""

    def reducer_override(self, what: Any) -> Any:
        """How an array is made again."""
        if type(what) is not np.ndarray or what.ndim != 1 or what.size < SEVERAL:
            return NotImplemented
        if what.dtype == np.int64:
            return _numbers, (len(what), narrowed([what]))
        if what.dtype.names and all(kind[0] == np.int64 for kind in what.dtype.fields.values()):
            names = what.dtype.names
            columns = {name: what[name] for name in names}
            for name, near in NEAR:
                if name in columns and near in columns:
                    columns[name] = what[name] - what[near]
            return _table, (names, len(what), narrowed(list(columns.values())))
        return NotImplemented


def _numbers(count: int, data: bytes) -> Ints:
    return widened(data, 1, count)[0]


def _table(names: tuple[str, ...], count: int, data: bytes) -> Rows:
    made = np.zeros(count, [(name, np.int64) for name in names])
    for name, column in zip(names, widened(data, len(names), count), strict=True):
        made[name] = column
    for name, near in reversed(NEAR):
        if name in names and near in names:
            made[name] += made[near]
    return made
