"""What goes from task to task, as few bytes.

Summaries are tables of whole numbers most of which are near those of the row before, so of each column the
differences are kept, and compressed. The segments of heads are brought together by connection first, with
their payload: their order is that of their places.
"""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from kwsniff.kernel.tables import SWEEP
from kwsniff.parts.part import ENDS, PartSummary

Rows = NDArray[Any]
Ints = NDArray[np.int64]
LEVEL = 3
"""Of zstd; the highest one saves 5 % more in a hundred times the time."""
SEVERAL = 64
"""Numbers that are worth the trouble."""


def packed_summary(summary: PartSummary) -> bytes:
    """A summary as bytes."""
    edges, payload = _grouped(summary.edges, summary.payload)
    spare, spare_payload = _grouped(summary.spare, summary.spare_payload)
    return packed_object(
        replace(summary, edges=edges, payload=payload, spare=spare, spare_payload=spare_payload)
    )


def unpacked_summary(data: bytes) -> PartSummary:
    """What `packed_summary` packed."""
    summary: PartSummary = unpacked_object(data)
    return replace(summary, edges=_ungrouped(summary.edges), spare=_ungrouped(summary.spare))


def _grouped(edges: Rows, payload: bytes) -> tuple[Rows, bytes]:
    """Segments by connection and direction, and their payload in that order."""
    made = edges[np.lexsort((edges["order"], *(edges[name] for name in ENDS)))]
    view = memoryview(payload)
    places = zip(made["start"].tolist(), made["captured"].tolist(), strict=True)
    data = b"".join(view[start : start + size] for start, size in places if size)
    made["start"] = 0
    return made, data


def _ungrouped(edges: Rows) -> Rows:
    """Segments in their order, with the places of their payload."""
    edges["start"] = np.cumsum(edges["captured"]) - edges["captured"]
    # A time at which silent connections were looked for comes before the segment that made it.
    made: Rows = edges[np.lexsort((edges["stop"] != SWEEP, edges["order"]))]
    return made


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
            return _numbers, (_differences(what),)
        if what.dtype.names and all(kind[0] == np.int64 for kind in what.dtype.fields.values()):
            columns = b"".join(_differences(what[name]) for name in what.dtype.names)
            return _table, (what.dtype.names, columns)
        return NotImplemented


def _differences(column: Ints) -> bytes:
    with np.errstate(over="ignore"):
        return np.diff(column, prepend=0).astype(np.int64).tobytes()


def _numbers(data: bytes) -> Ints:
    with np.errstate(over="ignore"):
        return np.cumsum(np.frombuffer(data, np.int64))


def _table(names: tuple[str, ...], data: bytes) -> Rows:
    columns = np.frombuffer(data, np.int64).reshape(len(names), -1)
    made = np.zeros(columns.shape[1], [(name, np.int64) for name in names])
    for name, column in zip(names, columns, strict=True):
        made[name] = np.cumsum(column)
    return made
