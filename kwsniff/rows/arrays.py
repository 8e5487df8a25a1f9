"""NumPy arrays as Arrow arrays, straight from their buffers.

`pyarrow.array` would import pandas first, to see whether it was given any of it: a fifth of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Columns = dict[str, pa.Array]
NONE = -(1 << 63)
"""Stands for null among integers."""
LEAST = 4096
"""Rows of the arrays that hold nothing but nulls, or the same text over and over, and are cut to size."""
_NULLS: dict[pa.DataType, pa.Array] = {}
_REPEATED: dict[str, pa.Array] = {}
MOST_REPEATED = 16
"""Texts of which such arrays are kept: there may be one for each of many thousand capture files."""


def column(values: NDArray[Any], kind: pa.DataType, missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Numbers (or, as integers, timestamps) of an Arrow type; null where `missing`."""
    if pa.types.is_boolean(kind):
        data = np.packbits(values, bitorder="little")
    else:
        width = kind.bit_width // 8
        data = np.ascontiguousarray(values, np.dtype(f"{'f' if pa.types.is_floating(kind) else 'i'}{width}"))
        if len(data) == 1:
            data = data.copy()  # a field of one record is contiguous, and records of kernels are overwritten
    return pa.Array.from_buffers(kind, len(values), [validity(missing), pa.py_buffer(data)])


def places(values: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Row numbers to take."""
    return column(values, pa.int64(), missing)


def flags(values: NDArray[np.bool_]) -> pa.Array:
    """Booleans."""
    return column(values, pa.bool_())


def validity(missing: NDArray[np.bool_] | None) -> pa.Buffer | None:
    """The bits that say which values there are."""
    if missing is None or not missing.any():
        return None
    return pa.py_buffer(np.packbits(~missing, bitorder="little"))


TIME = pa.timestamp("us", tz="UTC")


def timestamps(nanoseconds: Ints) -> pa.Array:
    """Microsecond timestamps; -1 becomes null."""
    missing = nanoseconds < 0
    return nulls(len(missing), TIME) if missing.all() else column(nanoseconds // 1000, TIME, missing)


def microseconds(begin: Ints, end: Ints) -> pa.Array:
    """From one time in nanoseconds to another."""
    # A response captured before its request has no latency that the capture could show.
    return durations(end - begin, (begin < 0) | (end < begin))


def durations(nanoseconds: Ints, missing: NDArray[np.bool_]) -> pa.Array:
    """Durations in microseconds, exact to the nanosecond, null where `missing`."""
    if missing.all():
        return nulls(len(missing), pa.float64())
    return column(nanoseconds / 1000.0, pa.float64(), missing)


def numbers(values: Ints, kind: pa.DataType) -> pa.Array:
    """Integers, NONE as null."""
    missing = values == NONE
    return nulls(len(values), kind) if missing.all() else column(values, kind, missing)


def not_negative(values: Ints, kind: pa.DataType) -> pa.Array:
    """Numbers, negative ones as null."""
    missing = values < 0
    return nulls(len(values), kind) if missing.all() else column(values, kind, missing)


def names_of(codes: Ints, name: Callable[[int], str | None]) -> pa.Array:
    """Names of integers, each looked up once; a name of None is null."""
    encoded = places(codes).dictionary_encode()
    names = pa.array([name(code) for code in encoded.dictionary.to_pylist()], pa.string())
    return names.take(encoded.indices)


def spread(values: pa.Array, place: Ints | None, total: int) -> pa.Array:
    """Values brought to these rows of so many, which are null elsewhere; None: they are all rows."""
    if place is None or not len(place):
        return nulls(total, values.type) if place is not None else values
    if len(place) == total and (place == np.arange(total)).all():
        return values
    index = np.full(total, -1, np.int64)
    index[place] = np.arange(len(place))
    return values.take(places(index, index < 0))


def repeated(text: str, count: int) -> pa.Array:
    """The same text so many times."""
    made = _REPEATED.get(text)
    if made is None or len(made) < count:
        if text not in _REPEATED and len(_REPEATED) >= MOST_REPEATED:
            _REPEATED.clear()
        made = _REPEATED[text] = pa.repeat(pa.scalar(text, pa.string()), max(count, LEAST))
    return made.slice(0, count)


def lists(lengths: Ints, values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Lists of so many values each, one after the other; -1 is null."""
    missing = lengths < 0
    if missing.all():
        return nulls(len(lengths), kind)
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    return pa.ListArray.from_arrays(column(offsets, pa.int32()), values, type=kind, mask=flags(missing))


def in_order(parts: list[tuple[Columns, int]], order: Ints, schema: pa.Schema) -> Columns:
    """The rows of all parts (columns and how many rows) in this order, with the columns that any has."""
    starts = np.cumsum([0, *(count for _, count in parts)])
    names = list(dict.fromkeys(name for columns, _ in parts for name in columns))
    whose = np.searchsorted(starts, order, "right") - 1
    runs = np.flatnonzero((np.diff(whose, prepend=-1) != 0) | (np.diff(order, prepend=-1) != 1))
    if len(runs) * SHORT < len(order):
        stretches = _stretches(order - starts[whose], whose, runs)
        return {name: _laid(parts, name, stretches, schema.field(name).type) for name in names}
    picking = _Picking(parts, starts, order)
    return {name: picking.column(name, schema.field(name).type) for name in names}


SHORT = 32
"""Rows in a row of one part on average from which on they are laid one after the other rather than taken one
by one, which is slow for lists."""


def _stretches(rows: Ints, whose: Ints, runs: Ints) -> list[tuple[int, int, int]]:
    """Part, first row and count of what follows each other in the part and in the whole."""
    counts = np.diff(runs, append=len(whose))
    return list(zip(whose[runs].tolist(), rows[runs].tolist(), counts.tolist(), strict=True))


def _laid(
    parts: list[tuple[Columns, int]], name: str, stretches: list[tuple[int, int, int]], kind: pa.DataType
) -> pa.Array:
    pieces: list[pa.Array] = []
    absent = 0
    for part, first, count in stretches:
        values = parts[part][0].get(name)
        if values is None:
            absent += count
            continue
        if absent:
            pieces.append(nulls(absent, kind))
            absent = 0
        pieces.append(values.slice(first, count))
    if absent:
        pieces.append(nulls(absent, kind))
    return pa.concat_arrays(pieces)


class _Picking:
    """Rows of all parts taken one by one."""

    def __init__(self, parts: list[tuple[Columns, int]], starts: Ints, order: Ints) -> None:
        self._parts, self._starts, self._order = parts, starts, order
        self._places: dict[tuple[int, int], pa.Array] = {}

    def column(self, name: str, kind: pa.DataType) -> pa.Array:
        # Most columns are of one part: what others lack needs no room.
        having = [at for at, (part, _) in enumerate(self._parts) if name in part]
        first, end = having[0], having[-1] + 1
        arrays = [
            part[name] if name in part else nulls(count, kind) for part, count in self._parts[first:end]
        ]
        whole = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
        return whole.take(self._places_among(first, end))

    def _places_among(self, first: int, end: int) -> pa.Array:
        """Where the rows are in these parts; null in others. The same ones have most columns."""
        if (first, end) not in self._places:
            outside = (self._order < self._starts[first]) | (self._order >= self._starts[end])
            self._places[first, end] = places(self._order - self._starts[first], outside)
        return self._places[first, end]


def record_batch(columns: Columns, count: int, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of a schema; columns that are not there are null."""
    arrays = [columns[field.name] if field.name in columns else nulls(count, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def filled_columns(batch: pa.RecordBatch) -> Columns:
    """The columns that have values."""
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return {name: column for name, column in columns if column.null_count < len(column)}


def write_filled(sink: Any, batch: pa.RecordBatch) -> None:
    """Write a batch in Arrow's format, without columns that hold no value, which most columns of most do."""
    filled = filled_columns(batch)
    narrow = batch.select(list(filled)) if filled else batch
    with pa.ipc.new_stream(sink, narrow.schema) as writer:
        writer.write_batch(narrow)


def read_filled(data: Any, schema: pa.Schema) -> pa.RecordBatch:
    """The batch of a schema that `write_filled` wrote."""
    (narrow,) = pa.ipc.open_stream(pa.py_buffer(data))
    return record_batch(filled_columns(narrow), len(narrow), schema)


def nulls(count: int, kind: pa.DataType) -> pa.Array:
    """So many nulls, all slices of one array for each type: a batch has dozens of columns without a value."""
    made = _NULLS.get(kind)
    if made is None or len(made) < count:
        made = _NULLS[kind] = pa.nulls(max(count, LEAST), kind)
    return made.slice(0, count)


# How columns are encoded as Parquet.
#
# Texts repeat and get dictionaries; numbers hardly do, and theirs would cost more than they save. Readers
# skip row groups by what statistics say of a column, but not of what is in its lists: those have none.


def parquet_options(schema: pa.Schema) -> dict[str, Any]:
    """What `pyarrow.parquet.ParquetWriter` is to be told."""
    paths = list(_paths(schema))
    return {
        "compression": "zstd",
        "use_dictionary": [path for path, kind in paths if pa.types.is_string(kind)],
        "write_statistics": [path for path, _ in paths if "." not in path],
    }


def _paths(fields: Iterable[pa.Field]) -> Iterator[tuple[str, pa.DataType]]:
    """Path and type of each column that a file has for these fields."""
    for field in fields:
        kind = field.type
        if pa.types.is_list(kind):
            inner: Iterable[pa.Field] = [pa.field("list.element", kind.value_type)]
        elif pa.types.is_struct(kind):
            inner = kind
        else:
            yield field.name, kind
            continue
        yield from ((f"{field.name}.{path}", leaf) for path, leaf in _paths(inner))
