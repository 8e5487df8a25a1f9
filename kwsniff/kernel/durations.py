"""Where the time of calls went, from their rows."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.columns import Columns, durations
from kwsniff.kernel import tables as k
from kwsniff.kernel.numbers import NONE

Rows = NDArray[Any]
Ints = NDArray[np.int64]
FETCHES, GROUP_WAITS = (1, 78), (11, 14)
REBALANCE_IN_PROGRESS = 27
MILLISECOND = 1_000_000


def waits(calls: Rows, left: Ints) -> tuple[Ints, Ints]:
    """How long each call waited on purpose, and how long it may have, ns. `left` is the time in which it was
    neither queued nor held back by a quota.

    - **JoinGroup and SyncGroup** wait for the other members of the group. Every answered one waited, but
      those refused with an error, which come at once; REBALANCE_IN_PROGRESS is what ends a wait early.
    - **Fetch and ShareFetch** wait until there are `min_bytes` of data, for `max_wait` at the most. What is
      beyond that is the broker's own time, the rest may have been waiting; it was
      if less came than was asked for, `max_wait` or more after the request (brokers count in milliseconds: an
      answer up to one early counts too, or half of `max_wait` where that is less);
      or if what came reaches the end of each partition and could only just have been enough, within
      `max_wait` but not in the first millisecond: one batch of each, as who waits is answered with the
      first that comes, or several where they are less than twice the `min_bytes` of more than one.

    A Produce with acks=all waits for replicas, and that is service: it is what the client asked for."""
    fetches, group_waits = (
        functools.reduce(np.logical_or, (calls["key"] == key for key in keys))
        for keys in (FETCHES, GROUP_WAITS)
    )
    served = (calls["error"] == 0) | (calls["error"] == REBALANCE_IN_PROGRESS)
    allowed = np.where(fetches & (calls["max_wait"] != NONE), calls["max_wait"], 0) * MILLISECOND
    most = np.minimum(left, np.maximum(allowed, 0))
    size, asked = calls["record_bytes"], np.maximum(calls["min_bytes"], 1)
    in_time = left >= allowed - np.minimum(MILLISECOND, allowed // 2)
    lacking = in_time & (size != NONE) & (size < asked) & (calls["status"] == k.OK_)
    enough = (calls["tail"] > 1) | ((calls["tail"] > 0) & (asked > 1) & (size < 2 * asked))
    arrived = enough & (left >= MILLISECOND) & (left <= np.maximum(allowed, MILLISECOND) + MILLISECOND)
    together = group_waits & served
    waited = np.where((lacking | arrived) & (allowed > 0), most, np.where(together, left, 0))
    return waited, np.where(fetches, most, waited)


def time_parts(calls: Rows) -> Columns:
    """Where the time of each call went; the parts add up to its duration. Null without a latency.

    A broker handles the requests of a connection one after the other, so it began with one no earlier than
    the response before it ended; nor while it read nothing because it throttled (KIP-219)."""
    asked, begun = calls["last_time"], calls["response_first"]
    unknown = (asked < 0) | (begun < 0) | (begun < asked) | (calls["response_last"] < 0)
    free = np.clip(calls["response_end"], asked, np.maximum(begun, asked))
    heard = np.clip(calls["throttled_until"], free, np.maximum(begun, free))
    left = begun - heard
    waited, may_have = waits(calls, left)
    parts = {
        "request_transfer_us": asked - calls["first_time"],
        "queued_us": free - asked,
        "throttled_us": heard - free,
        "waited_us": waited,
        "broker_us": left - waited,
        "broker_least_us": left - may_have,
        "response_transfer_us": calls["response_last"] - begun,
    }
    columns = {name: durations(value, unknown) for name, value in parts.items()}
    open_until, handshake = calls["open_until"], calls["handshake"]
    columns["waited_open_us"] = durations(open_until - asked, (open_until < 0) | (asked < 0))
    columns["rtt_us"] = durations(handshake, handshake < 0)
    return columns
