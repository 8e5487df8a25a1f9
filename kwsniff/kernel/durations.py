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


def waits(calls: Rows, left: Ints) -> NDArray[np.bool_]:
    """Which calls waited on purpose: see `kwsniff.report.waiting`, which has the rule in words. `left` is the
    time, ns, in which they were neither queued nor held back by a quota."""
    allowed = np.where(calls["max_wait"] == NONE, 0, calls["max_wait"]) * MILLISECOND
    in_time = (allowed > 0) & (left >= allowed - np.minimum(MILLISECOND, allowed // 2))
    empty = (calls["record_bytes"] == 0) & (calls["records"] == 0) & (calls["status"] == k.OK_)
    until = np.maximum(allowed, MILLISECOND) + MILLISECOND
    arrived = (calls["tail"] > 0) & (left >= MILLISECOND) & (left <= until) & (allowed > 0)
    served = (calls["error"] == 0) | (calls["error"] == REBALANCE_IN_PROGRESS)
    fetches, group_waits = (
        functools.reduce(np.logical_or, (calls["key"] == key for key in keys))
        for keys in (FETCHES, GROUP_WAITS)
    )
    return (fetches & ((in_time & empty) | arrived)) | (group_waits & served)


def time_parts(calls: Rows) -> Columns:
    """Where the time of each call went; the parts add up to its duration. Null without a latency.

    A broker handles the requests of a connection one after the other, so it began with one no earlier than
    the response before it ended; nor while it read nothing because it throttled (KIP-219)."""
    asked, begun = calls["last_time"], calls["response_first"]
    unknown = (asked < 0) | (begun < 0) | (begun < asked) | (calls["response_last"] < 0)
    free = np.clip(calls["response_end"], asked, np.maximum(begun, asked))
    heard = np.clip(calls["throttled_until"], free, np.maximum(begun, free))
    left = begun - heard
    waited = np.where(waits(calls, left), left, 0)
    parts = {
        "request_transfer_us": asked - calls["first_time"],
        "queued_us": free - asked,
        "throttled_us": heard - free,
        "waited_us": waited,
        "broker_us": left - waited,
        "response_transfer_us": calls["response_last"] - begun,
    }
    columns = {name: durations(value, unknown) for name, value in parts.items()}
    open_until, handshake = calls["open_until"], calls["handshake"]
    columns["waited_open_us"] = durations(open_until - asked, (open_until < 0) | (asked < 0))
    columns["rtt_us"] = durations(handshake, handshake < 0)
    return columns
