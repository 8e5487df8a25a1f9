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

from kwsniff.columns import nulls
from kwsniff.spark.packing import packed_object, unpacked_object
from kwsniff.spark.staged import PLACE, STAGED

Ints = NDArray[np.int64]
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
    places = [_numbers(batch[name]) for name in PLACE]
    by = pa.array(np.argsort(places[-1], kind="stable"))
    columns = {
        name: batch[name].take(by)
        for name in batch.schema.names
        if name not in PLACE and batch[name].null_count < len(batch)
    }
    told = {name: _told(column, _sum(columns, name, len(batch))) for name, column in columns.items()}
    return packed_object((len(batch), places, told))


def unpacked_rows(data: bytes) -> pa.RecordBatch:
    """What `packed_rows` packed."""
    count, places, told = unpacked_object(data)
    columns: dict[str, pa.Array] = {}
    for name in (
        *(each for each in told if each not in FOLLOWS),
        *(each for each in FOLLOWS if each in told),
    ):
        columns[name] = _made(told[name], count, STAGED.field(name).type, _sum(columns, name, count))
    back = np.empty(count, np.int64)
    back[np.argsort(places[-1], kind="stable")] = np.arange(count)
    order = pa.array(back)
    made = {name: column.take(order) for name, column in columns.items()}
    made |= {name: pa.array(values) for name, values in zip(PLACE, places, strict=True)}
    arrays = [made[each.name] if each.name in made else nulls(count, each.type) for each in STAGED]
    return pa.RecordBatch.from_arrays(arrays, schema=STAGED)


def _sum(columns: dict[str, pa.Array], name: str, count: int) -> Ints | None:
    """What a column is near to, in thousandths, if it is said of it."""
    if name not in FOLLOWS:
        return None
    made = np.zeros(count, np.int64)
    for other, sign in FOLLOWS[name]:
        if other in columns:
            made += sign * _thousandths(columns[other])
    return made


def _thousandths(column: pa.Array) -> Ints:
    """Values in thousandths, 0 where there is none."""
    if pa.types.is_floating(column.type):
        values = column.fill_null(0.0).to_numpy(zero_copy_only=False)
        sound = np.abs(values) < 1 << 50  # NaN is not, either
        return np.asarray(np.rint(np.where(sound, values, 0.0) * THOUSAND), np.int64)
    return _numbers(column.cast(pa.int64()).fill_null(0)) * THOUSAND


def _numbers(column: pa.Array) -> Ints:
    return np.asarray(column.to_numpy(zero_copy_only=False), np.int64)


# Of any type


def _told(column: pa.Array, near: Ints | None = None) -> Told | None:
    """A column as arrays of whole numbers, as far as it goes; None if there is no value in it."""
    if column.null_count == len(column):
        return None
    if not column.null_count:
        return None, _values(column, near)
    is_there = column.is_valid().to_numpy(zero_copy_only=False)
    near = None if near is None else near[is_there]
    return np.packbits(is_there), _values(column.drop_null(), near)


def _values(column: pa.Array, near: Ints | None) -> Any:
    kind = column.type
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        values = _numbers(column.cast(pa.int64()))
        return values if near is None else values * THOUSAND - near
    if pa.types.is_floating(kind):
        return _of_reals(column, near)
    if pa.types.is_boolean(kind):
        return np.packbits(column.to_numpy(zero_copy_only=False))
    if pa.types.is_string(kind):
        found = column.dictionary_encode()
        return _numbers(found.indices), found.dictionary.to_pylist()
    if pa.types.is_list(kind):
        return _numbers(column.value_lengths()), _told(column.flatten())
    if pa.types.is_struct(kind):
        return [_told(each) for each in column.flatten()]
    raise TypeError(f"no column of events has the type {kind}")


def _of_reals(column: pa.Array, near: Ints | None) -> NDArray[Any]:
    """Durations are whole nanoseconds, so they are told as such; any other number as it is."""
    values, whole = column.to_numpy(zero_copy_only=False), _thousandths(column)
    if not np.array_equal(whole / THOUSAND, values) or np.signbit(values[whole == 0]).any():
        return np.asarray(values, np.float64)
    return whole if near is None else whole - near


def _made(told: Told | None, count: int, kind: pa.DataType, near: Ints | None = None) -> pa.Array:
    """What `_told` told."""
    if told is None:
        return nulls(count, kind)
    bits, values = told
    if bits is None:
        return _array(values, count, kind, near)
    is_there = np.unpackbits(bits, count=count).astype(np.bool_)
    near = None if near is None else near[is_there]
    found = _array(values, int(is_there.sum()), kind, near)
    return found.take(pa.array(np.cumsum(is_there) - 1, mask=~is_there))


def _array(values: Any, count: int, kind: pa.DataType, near: Ints | None) -> pa.Array:
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        return pa.array(values if near is None else (values + near) // THOUSAND).cast(kind)
    if pa.types.is_floating(kind):
        if values.dtype == np.int64:
            values = (values if near is None else values + near) / THOUSAND
        return pa.array(values, kind)
    if pa.types.is_boolean(kind):
        return pa.array(np.unpackbits(values, count=count).astype(np.bool_))
    if pa.types.is_string(kind):
        places, texts = values
        return pa.array(texts, kind).take(pa.array(places))
    if pa.types.is_list(kind):
        lengths, inside = values
        ends = np.concatenate([[0], np.cumsum(lengths)])
        found = _made(inside, int(ends[-1]), kind.value_type)
        return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), found, type=kind)
    if pa.types.is_struct(kind):
        fields = list(kind)
        made = [_made(each, count, field.type) for each, field in zip(values, fields, strict=True)]
        return pa.StructArray.from_arrays(made, fields=fields)
    raise TypeError(f"no column of events has the type {kind}")
