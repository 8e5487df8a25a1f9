"""Which calls waited on purpose.

Some requests ask the broker to hold its answer, so their latency says nothing about how fast it is:

- **Fetch and ShareFetch** wait up to `max_wait_ms` for data. One that was answered without an error and
  without record data, `max_wait_ms` or more after the request, *waited*. Brokers count in milliseconds,
  so an answer up to one millisecond early counts too (half of `max_wait_ms` where that is less).
- A **Fetch that brought data** *waited* for it if that was one batch of each partition and the last there
  is, since it is answered as soon as there is any; and if the answer came within `max_wait_ms`, but not in
  its first millisecond. One that brought several batches, or left some, found them there: that is service.
- **JoinGroup and SyncGroup** wait for the other members of the group. Every answered one waited, but
  those refused with an error, which come at once; REBALANCE_IN_PROGRESS is what ends a wait early.

A Produce with acks=all waits for replicas, and that is service: it is what the client asked to be done.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

FETCH, JOIN_GROUP, SYNC_GROUP, SHARE_FETCH = 1, 11, 14, 78
FETCHES = (FETCH, SHARE_FETCH)
GROUP_WAITS = (JOIN_GROUP, SYNC_GROUP)
REBALANCE_IN_PROGRESS = 27
NEEDED = (
    "waited_us",
    "api_key",
    "status",
    "latency_us",
    "max_wait_ms",
    "record_count",
    "record_bytes",
    "error_code",
)

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


def waited(batch: pa.RecordBatch) -> Mask:
    """True for each call that waited, as the head of this module defines it. Where it is known how long, that
    decides."""
    mask: Mask = _empty_fetch(batch) | _group_wait(batch)
    told = batch["waited_us"]
    if told.null_count == len(told):
        return mask
    long = _floats(told)
    known: Mask = np.where(np.isnan(long), mask, long > 0)
    return known


def overrun_us(batch: pa.RecordBatch) -> Floats:
    """Microseconds by which an answer came after `max_wait_ms`; negative if before, NaN without either."""
    return _floats(batch["latency_us"]) - 1000.0 * _floats(batch["max_wait_ms"])


def _empty_fetch(batch: pa.RecordBatch) -> Mask:
    wait_us = 1000.0 * _floats(batch["max_wait_ms"])
    tolerance = np.minimum(1000.0, wait_us / 2)
    with np.errstate(invalid="ignore"):
        in_time = (wait_us > 0) & (_floats(batch["latency_us"]) >= wait_us - tolerance)
    empty = (_ints(batch["record_bytes"]) == 0) & (_ints(batch["record_count"]) == 0)
    mask: Mask = _is_in(batch["api_key"], FETCHES) & _bools(pc.equal(batch["status"], "ok")) & in_time & empty
    return mask


def _group_wait(batch: pa.RecordBatch) -> Mask:
    error = _ints(batch["error_code"])
    answered = ~np.isnan(_floats(batch["latency_us"]))
    served = (error == 0) | (error == REBALANCE_IN_PROGRESS)
    mask: Mask = _is_in(batch["api_key"], GROUP_WAITS) & answered & served
    return mask


def _is_in(column: pa.Array, values: tuple[int, ...]) -> Mask:
    return _bools(pc.is_in(column, value_set=pa.array(values, column.type)))


def _bools(column: pa.Array) -> Mask:
    mask: Mask = pc.fill_null(column, False).to_numpy(zero_copy_only=False)
    return mask


def _ints(column: pa.Array) -> npt.NDArray[np.int64]:
    values: npt.NDArray[np.int64] = pc.fill_null(column, 0).to_numpy(zero_copy_only=False)
    return values.astype(np.int64, copy=False)


def _floats(column: pa.Array) -> Floats:
    values: Floats = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return values
