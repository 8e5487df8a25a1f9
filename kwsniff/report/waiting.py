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
import pyarrow as pa

from kwsniff.report.arrays import Floats, Mask
from kwsniff.report.rows import Rows

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


def waited(batch: pa.RecordBatch | Rows) -> Mask:
    """True for each call that waited, as the head of this module defines it. Where it is known how long, that
    decides."""
    calls = batch if isinstance(batch, Rows) else Rows(batch)
    return calls.once("waited", "", lambda: _waited(calls))


def _waited(calls: Rows) -> Mask:
    mask: Mask = _empty_fetch(calls) | _group_wait(calls)
    if not calls.filled("waited_us"):
        return mask
    long = calls.floats("waited_us")
    known: Mask = np.where(np.isnan(long), mask, long > 0)
    return known


def overrun_us(calls: Rows) -> Floats:
    """Microseconds by which an answer came after `max_wait_ms`; negative if before, NaN without either."""
    return calls.floats("latency_us") - 1000.0 * calls.floats("max_wait_ms")


def _empty_fetch(calls: Rows) -> Mask:
    wait_us = 1000.0 * calls.floats("max_wait_ms")
    tolerance = np.minimum(1000.0, wait_us / 2)
    with np.errstate(invalid="ignore"):
        in_time = (wait_us > 0) & (calls.floats("latency_us") >= wait_us - tolerance)
    empty = (calls.ints("record_bytes") == 0) & (calls.ints("record_count") == 0)
    mask: Mask = calls.is_in("api_key", FETCHES) & calls.coded("status").equals("ok") & in_time & empty
    return mask


def _group_wait(calls: Rows) -> Mask:
    asked = calls.is_in("api_key", GROUP_WAITS) & calls.known("latency_us")
    error = calls.ints("error_code")
    mask: Mask = asked & ((error == 0) | (error == REBALANCE_IN_PROGRESS))
    return mask
