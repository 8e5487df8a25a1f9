"""Rows of events as few bytes.

Rows are told by connection, for what they say repeats itself there: all but their places, which have an order
of their own. Each text is told once, columns without a value are left out, and of columns that follow from
others (durations from times) what is told is how far they are off. All else are whole numbers, which become
few bytes in `kwsniff.spark.packing`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import column, lists, nulls
from kwsniff.report.arrays import Mask, integers, reals, valid
from kwsniff.report.lists import expanded, spread
from kwsniff.spark.packing import packed_object, unpacked_object
from kwsniff.spark.staged import PLACE, STAGED

Ints = NDArray[np.int64]
Reals = NDArray[np.float64]
Told = tuple[NDArray[np.uint8] | None, Any]
"""Which values there are, a bit each, None for all; and these."""
THOUSAND = 1000
FOLLOWS = {
    "time": (("request_time", 1),),
    "request_end_time": (("request_time", 1),),
    "response_time": (("request_end_time", 1),),
    "response_end_time": (("response_time", 1),),
    "request_transfer_us": (("request_end_time", 1), ("request_time", -1)),
    "response_transfer_us": (("response_end_time", 1), ("response_time", -1)),
    "latency_us": (("response_time", 1), ("request_end_time", -1)),
    "duration_us": (("response_end_time", 1), ("request_time", -1)),
    "broker_us": (("latency_us", 1), ("queued_us", -1), ("throttled_us", -1), ("waited_us", -1)),
}  # fmt: skip
"""What a column is near to: the sum of others, which do not follow any, or stand before it here."""


def packed_rows(batch: pa.RecordBatch) -> bytes:
    """Events (STAGED) as bytes."""
    places = [integers(batch[name]) for name in PLACE]
    order = np.argsort(places[-1], kind="stable")
    columns = {
        name: batch[name]
        for name in batch.schema.names
        if name not in PLACE and batch[name].null_count < len(batch)
    }
    sums = _Sums(columns, len(batch))
    told = {name: _told(column, order, sums.near(name)) for name, column in columns.items()}
    return packed_object((len(batch), places, told))


def unpacked_rows(data: bytes) -> pa.RecordBatch:
    """What `packed_rows` packed."""
    count, places, told = unpacked_object(data)
    order = np.argsort(places[-1], kind="stable")
    back = np.empty(count, np.int64)
    back[order] = np.arange(count)
    made = {name: column(values, pa.int64()) for name, values in zip(PLACE, places, strict=True)}
    sums = _Sums(made, count)
    for name in (each for each in told if each not in FOLLOWS):
        made[name] = _made(told[name], back, STAGED.field(name).type)
    for name in (each for each in FOLLOWS if each in told):
        kind, near = STAGED.field(name).type, sums.near(name)
        made[name] = _made(_added(told[name], near, order, kind), back, kind)
    arrays = [made[each.name] if each.name in made else nulls(count, each.type) for each in STAGED]
    return pa.RecordBatch.from_arrays(arrays, schema=STAGED)


class _Sums:
    """What columns are near to."""

    def __init__(self, columns: dict[str, pa.Array], count: int) -> None:
        self._columns, self._count = columns, count
        self._known: dict[str, Ints] = {}

    def near(self, name: str) -> Ints | None:
        """What a column is near to, in thousandths, if it is said of it."""
        if name not in FOLLOWS:
            return None
        made = np.zeros(self._count, np.int64)
        for other, sign in FOLLOWS[name]:
            if other in self._columns:
                made += sign * self._thousandths(other)
        return made

    def _thousandths(self, name: str) -> Ints:
        if name not in self._known:
            self._known[name] = _thousandths(self._columns[name])
        return self._known[name]


def _thousandths(column: pa.Array) -> Ints:
    """Values in thousandths, 0 where there is none."""
    if pa.types.is_floating(column.type):
        return _of_durations(np.where(valid(column), reals(column), 0.0))
    return integers(column) * THOUSAND


def _of_durations(values: Reals) -> Ints:
    """In thousandths; 0 for what is no duration."""
    sound = np.abs(values) < 1 << 50  # NaN is not, either
    return np.asarray(np.rint(np.where(sound, values, 0.0) * THOUSAND), np.int64)


# Of any type


def _told(column: pa.Array, rows: Ints, near: Ints | None = None) -> Told | None:
    """These rows of a column as arrays of whole numbers, as far as it goes; None if it holds no value."""
    if column.null_count == len(column):
        return None
    if not column.null_count:
        return None, _values(column, rows, near)
    is_there = valid(column)[rows]
    return np.packbits(is_there), _values(column, rows[is_there], near)


def _values(column: pa.Array, rows: Ints, near: Ints | None) -> Any:
    """The same of rows that have a value."""
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        values = integers(column)[rows]
        return values if near is None else values * THOUSAND - near[rows]
    if pa.types.is_floating(kind):
        return _of_reals(reals(column)[rows], None if near is None else near[rows])
    if pa.types.is_boolean(kind):
        return np.packbits(integers(column)[rows].astype(np.bool_))
    if pa.types.is_string(kind):
        found = column.dictionary_encode()
        return integers(found.indices)[rows], found.dictionary.to_pylist()
    if pa.types.is_list(kind):
        inside = spread(column)
        size = inside.size[rows]
        return size, _told(inside.values, inside.places(rows, size))
    if pa.types.is_struct(kind):
        return [_told(each, rows) for each in column.flatten()]
    raise TypeError(f"no column of events has the type {kind}")


def _of_reals(values: Reals, near: Ints | None) -> NDArray[Any]:
    """Durations are whole nanoseconds, so they are told as such; any other number as it is."""
    whole = _of_durations(values)
    if not np.array_equal(whole / THOUSAND, values) or np.signbit(values[whole == 0]).any():
        return values
    return whole if near is None else whole - near


def _added(told: Told, near: Ints | None, order: Ints, kind: pa.DataType) -> Told:
    """What was told of a column that is near to something, as of any other."""
    bits, values = told
    if near is None or values.dtype != np.int64:
        return told
    own = order if bits is None else order[np.unpackbits(bits, count=len(order)).astype(np.bool_)]
    sums = values + near[own]
    return bits, sums if pa.types.is_floating(kind) else sums // THOUSAND


def _made(told: Told | None, rows: Ints, kind: pa.DataType, missing: Mask | None = None) -> pa.Array:
    """These of the rows that `_told` told; null where `missing`."""
    if told is None:
        return nulls(len(rows), kind)
    bits, values = told
    if bits is None:
        return _array(values, rows, kind, missing)
    is_there = np.unpackbits(bits).view(np.bool_)
    absent = ~is_there[rows]
    missing = absent if missing is None else absent | missing
    return _array(values, (np.cumsum(is_there) - 1)[rows], kind, missing)


def _array(values: Any, places: Ints, kind: pa.DataType, missing: Mask | None) -> pa.Array:
    """The values at these places."""
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return column(values[places], kind, missing)
    if pa.types.is_floating(kind):
        found = values / THOUSAND if values.dtype == np.int64 else values
        return column(found[places], kind, missing)
    if pa.types.is_boolean(kind):
        return column(np.unpackbits(values)[places], kind, missing)
    if pa.types.is_string(kind):
        codes, texts = values
        return pa.array(texts, kind).take(column(codes[places], pa.int64(), missing))
    if pa.types.is_list(kind):
        sizes, inside = values
        size = sizes[places] if missing is None else np.where(missing, 0, sizes[places])
        begin = (np.cumsum(sizes) - sizes)[places]
        found = _made(inside, expanded(begin, size), kind.value_type)
        return lists(size if missing is None else np.where(missing, -1, size), found, kind)
    if pa.types.is_struct(kind):
        fields = list(kind)
        made = [_made(each, places, field.type, missing) for each, field in zip(values, fields, strict=True)]
        absent = None if missing is None else pa.array(missing)
        return pa.StructArray.from_arrays(made, fields=fields, mask=absent)
    raise TypeError(f"no column of events has the type {kind}")
