"""The calls and the clients that took longest, and where the time went.

The time of a call is divided as EVENTS divides it: the request on its way, behind other requests of the
connection, held back by a quota, waiting on purpose, in the broker, the response on its way. Where a column
is empty, its part is not known; then the time between request and response (`latency`) is all there is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, calls_of, merged
from kwsniff.count.eventrows import BROKER_LEAST, PARTS, WAITED, EventRows, address, waited
from kwsniff.rows.columns import Mask

TIMES = (*PARTS, BROKER_LEAST)
MAYBE = "broker or waiting"
"""What `broker_us` of a Fetch is, but for `broker_least_us`."""
WHERE = {
    "request_transfer_us": "request on its way",
    "queued_us": "behind other requests",
    "throttled_us": "held back by a quota",
    "waited_us": "waited on purpose",
    BROKER_LEAST: "broker",
    "response_transfer_us": "response on its way",
}
SHOWN = (
    *("time", "capture", "connection", "client_ip", "client_id", "broker_ip", "broker_port", "api", "topics"),
    *("topic_ids", "api_version", "correlation_id", "latency_us", "duration_us", "status", "error"),
    *("request_packet", "response_packet", "group_id", "request_bytes", "response_bytes"),
)
NEEDS = frozenset((*SHOWN, *TIMES, *WAITED, "event", "throttle_ms"))
KEPT = 1000
"""Calls kept, at the most, when all are asked for."""
MAX_GROUPS = 100_000
MAX_SAMPLES = 2_000
"""Times kept of each client and API: with more, percentiles are of a sample."""


@dataclass(slots=True)
class Group:
    """The calls of one client in one API to one broker."""

    calls: int = 0
    sums: dict[str, float] = field(default_factory=dict)
    times: list[float] = field(default_factory=list)
    greatest: float = 0.0


class Slowest:
    """The calls that took longest, at most `kept` of them, with the columns SHOWN, TIMES and `more`."""

    def __init__(self, kept: int = KEPT, more: Sequence[str] = ()) -> None:
        self._kept = kept
        self._names = list(dict.fromkeys((*SHOWN, *TIMES, *more)))
        self.heap: list[tuple[float, int, Row]] = []
        self._order = 0

    def take(self, calls: EventRows, left_out: Mask | None = None) -> None:
        """Take calls of EVENTS but for those without `duration_us` and those of `left_out`."""
        durations = np.nan_to_num(calls.floats("duration_us"), nan=-1.0)
        if left_out is not None:
            durations = np.where(left_out, -1.0, durations)
        least = self.heap[0][0] if len(self.heap) == self._kept else -1.0
        candidates = np.flatnonzero(durations > least)
        if len(candidates) > self._kept:
            candidates = np.sort(candidates[np.argsort(-durations[candidates], kind="stable")[: self._kept]])
        for row in calls.some(candidates, self._names).to_pylist():
            self._put(row)

    def merge(self, other: Slowest) -> None:
        """Take what another one kept, of calls that come after those of this one."""
        for _, _, row in sorted(other.heap, key=lambda item: -item[1]):
            self._put(row)

    def _put(self, row: Row) -> None:
        self._order -= 1
        item = (row["duration_us"], self._order, row)
        if len(self.heap) < self._kept:
            heapq.heappush(self.heap, item)
        else:
            heapq.heappushpop(self.heap, item)

    def rows(self) -> list[Row]:
        """As EVENTS has them, the slowest first."""
        return [row for _, _, row in sorted(self.heap, key=lambda item: (-item[0], -item[1]))]

    def table(self) -> AnswerTable:
        """The same as people see them."""
        return AnswerTable("calls", "Slowest calls", CALLS, [_call_row(row) for row in self.rows()], top=15)


class Slow:
    """Takes EVENTS and gives the slowest calls and clients. `waiting`: also calls that waited on purpose."""

    def __init__(self, *, waiting: bool = False) -> None:
        self.needs = NEEDS
        self._waiting = waiting
        self._slowest = Slowest()
        self._groups: dict[tuple[Any, ...], Group] = {}
        self._calls = self._waited = self._parted = 0
        self._random = np.random.default_rng(7)

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        calls = calls.filter(pc.is_valid(calls["duration_us"]))
        self._calls += len(calls)
        if not self._waiting:
            on_purpose = waited(calls)
            self._waited += int(on_purpose.sum())
            calls = calls.filter(pa.array(~on_purpose))
        if len(calls):
            self._parted += len(calls) - calls["broker_us"].null_count
            self._slowest.take(EventRows(calls))
            self._take_groups(calls)

    def _take_groups(self, calls: pa.RecordBatch) -> None:
        keys = ["client_id", "client_ip", "api", "broker_ip", "broker_port"]
        sums = [("duration_us", "list"), *((part, "sum") for part in TIMES)]
        table = pa.Table.from_batches([calls.select([*keys, "duration_us", *TIMES])])
        for row in table.group_by(keys, use_threads=False).aggregate(sums).to_pylist():
            key = tuple(row[name] for name in keys)
            if key not in self._groups and len(self._groups) >= MAX_GROUPS:
                continue
            self._add(self._groups.setdefault(key, Group()), row)

    def _add(self, group: Group, row: Row) -> None:
        times = row["duration_us_list"]
        group.greatest = max(group.greatest, *times)
        for part in TIMES:
            if row[f"{part}_sum"] is not None:
                group.sums[part] = group.sums.get(part, 0.0) + row[f"{part}_sum"]
        group.sums["duration_us"] = group.sums.get("duration_us", 0.0) + sum(times)
        for time in times:
            group.calls += 1
            if len(group.times) < MAX_SAMPLES:
                group.times.append(time)
            else:  # each call has the same chance to be among those that are kept
                at = int(self._random.integers(group.calls))
                if at < MAX_SAMPLES:
                    group.times[at] = time

    def tables(self) -> list[AnswerTable]:
        """The slowest calls, and clients by the time their calls took in all."""
        groups = sorted(self._groups.items(), key=lambda item: -item[1].sums["duration_us"])
        return [
            self._slowest.table(),
            AnswerTable("clients", "Clients by time", CLIENTS, list(_client_rows(groups)), top=10),
        ]

    def notes(self) -> list[str]:
        """What was left out, and what could not be told."""
        found = []
        if self._waited:
            found.append(
                f"{self._waited:,} of {self._calls:,} calls waited on purpose and are left out: --waiting"
            )
        if self._calls - self._waited and not self._parted:
            found.append("these events say how long a call took, not where its time went")
        return found


def _call_row(row: Row) -> Row:
    topics = merged([name or uuid for name, uuid in zip(row["topics"] or (), _ids(row), strict=False)])
    return {
        **row, "client": row["client_id"], "address": row["client_ip"], "topics": topics,
        "broker": address(row["broker_ip"], row["broker_port"]), "mostly": _mostly(row),
        "call": f"{row['connection']}#{row['correlation_id']}", "group": row["group_id"],
        "packet": row["request_packet"],
    }  # fmt: skip


def _ids(row: Row) -> list[str | None]:
    return [*(row["topic_ids"] or ()), *[None] * len(row["topics"] or ())]


def _mostly(sums: Row) -> str | None:
    """Where most of the time went, with its share."""
    known = {where: sums[part] for part, where in WHERE.items() if sums.get(part) is not None}
    if not known or not sums["duration_us"]:
        return None
    known[MAYBE] = (sums["broker_us"] or 0.0) - (sums[BROKER_LEAST] or 0.0)
    where = max(known, key=known.__getitem__)
    return f"{where} {100 * known[where] / sums['duration_us']:.0f}%"


def _client_rows(groups: list[tuple[tuple[Any, ...], Group]]) -> Iterator[Row]:
    for (client, ip, api, host, port), group in groups:
        times = np.array(group.times)
        means = {part: group.sums[part] / group.calls for part in TIMES if part in group.sums}
        yield {
            "client": client, "address": ip, "api": api, "broker": address(host, port), "calls": group.calls,
            "total_us": group.sums["duration_us"], "p50_us": float(np.percentile(times, 50)),
            # Below a hundred calls the greatest says as much.
            "p99_us": float(np.percentile(times, 99)) if group.calls >= 100 else None,
            "max_us": group.greatest, "mostly": _mostly(group.sums), **means,
        }  # fmt: skip


CLIENT = AnswerField("client", "text", "client", "client id")
ADDRESS = AnswerField("address", "text", "address", "its address", 6)
MOSTLY = AnswerField("mostly", "text", "mostly", "where most of the time went", 1)
DIVIDED = (
    AnswerField("request_transfer_us", "duration", "request", "the request on its way", 8),
    AnswerField("queued_us", "duration", "queued", "behind earlier requests of the connection", 4),
    AnswerField("throttled_us", "duration", "throttled", "held back by a quota", 4),
    AnswerField("waited_us", "duration", "waited", "on purpose", 7),
    AnswerField("broker_us", "duration", "broker", "the broker's own time, at the most", 3),
    AnswerField(BROKER_LEAST, "duration", "at least", "of that what cannot have been waiting for data", 9),
    AnswerField("response_transfer_us", "duration", "response", "the response on its way", 8),
)
CALLS = (
    AnswerField("time", "time", "time", "packet time of its first byte"),
    AnswerField("api", "text", "API", "name of the API"),
    CLIENT,
    ADDRESS,
    AnswerField("broker", "text", "broker", "address and port of the broker", 2),
    AnswerField("topics", "list", "topics", "topics it names", 3),
    AnswerField(
        "duration_us", "duration", "took", "from the first byte of the request to the last of the response"
    ),
    AnswerField(
        "latency_us", "duration", "latency", "from the end of the request to the beginning of the response", 5
    ),
    MOSTLY,
    *DIVIDED,
    AnswerField("error", "text", "error", "name of its error code", 9),
    AnswerField("call", "text", "call", "connection and correlation id, for `kwsniff show`", 10),
    AnswerField("packet", "count", "packet", "packet that completed the request", 5),
)
CLIENTS = (
    CLIENT,
    ADDRESS,
    AnswerField("api", "text", "API", "name of the API"),
    AnswerField("broker", "text", "broker", "address and port of the broker", 2),
    AnswerField("calls", "count", "calls", "answered calls"),
    AnswerField("total_us", "duration", "in all", "time its calls took together"),
    AnswerField("p50_us", "duration", "p50", "half of the calls took no longer"),
    AnswerField("p99_us", "duration", "p99", "99 of a hundred took no longer; from a hundred calls on", 1),
    AnswerField("max_us", "duration", "max", "the longest"),
    MOSTLY,
    *DIVIDED,
)
