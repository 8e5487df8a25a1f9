"""What the page needs beside the report and the findings: taken from EVENTS in one pass, bounded, mergeable.

Invariant: taking two batches one after the other is the same as taking each with its own instance and
merging; only where calls are equally slow, or groups do more than is kept, which of them stay may differ.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kwsniff.analysis.bytestream import NEEDED as MESSAGE
from kwsniff.analysis.groups import NEEDS as GROUPS
from kwsniff.analysis.lag import COMMITS
from kwsniff.analysis.membership import HEARTBEAT, HEARTBEATS, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kwsniff.analysis.slow import NEEDS as SLOW
from kwsniff.analysis.slow import Slowest
from kwsniff.analysis.tabular import grouped
from kwsniff.count import timeline
from kwsniff.count.eventrows import EventBatch, EventRows, waited
from kwsniff.count.percentiles import Histogram
from kwsniff.count.timeline import Timeline
from kwsniff.rows.schema import EVENTS

# Calls of groups that are worth a second look: what they joined with and were given stands in bodies.
#
# Joins, synchronisations and leaves all count. Heartbeats of the newer protocols come every few seconds and
# mostly say nothing: those are kept that are the first of their member, fail, stand beside a change of the
# member's epoch, or are answered with more than the shortest of its answers, as with an assignment. Of all
# calls that name a member it is noted when they were.

Row = dict[str, Any]
NAMING = (JOIN_GROUP, SYNC_GROUP, HEARTBEAT, *HEARTBEATS, *COMMITS)
"""APIs whose calls name the member that makes them."""
CLASSIC = (JOIN_GROUP, SYNC_GROUP, LEAVE_GROUP)
BODIES = frozenset(("request", "response"))
NEEDED_OF_GROUPS = (GROUPS | MESSAGE | {"generation", "response_bytes"}) - BODIES
KEPT = 2_000
MAX_MEMBERS = 5_000
MEMBER = ("group_id", "member_id", "client_id", "client_ip")
MAX_BODY = 100_000
"""Characters of a body that is kept."""
_KEEP = sorted(NEEDED_OF_GROUPS | BODIES)
SCHEMA = pa.schema([EVENTS.field(name) for name in _KEEP])


class GroupCalls:
    """The first `KEPT` such calls; `beyond` counts the others."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.beyond = 0
        self._seen: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        """By MEMBER: when its first and its last call was."""
        self._last: dict[str, tuple[Any, Row | None, int]] = {}
        """By member: its epoch, its last heartbeat unless that was kept, and its shortest answer."""

    def take(self, calls: EventRows) -> None:
        """Take calls of EVENTS, in their order."""
        self._see(calls)
        wanted = calls.is_in("api_key", (*CLASSIC, *HEARTBEATS)) & calls.known("error_code")
        if not wanted.any():
            return
        for row in calls.some(np.flatnonzero(wanted), _KEEP).to_pylist():
            if row["api_key"] in CLASSIC:
                self._keep(row)
            else:
                self._beat(row)

    def merge(self, other: GroupCalls) -> None:
        """Take what another one kept, of calls that come after those of this one."""
        for row in other.rows:
            self._keep(row)
        self.beyond += other.beyond
        for key, (first, last) in other._seen.items():
            self._note(key, first, last)

    def seen(self) -> list[Row]:
        """When each member was seen: two rows, as of its first and its last call."""
        return [{**dict(zip(MEMBER, key, strict=True)), "time": time}
                for key, times in self._seen.items() for time in times]  # fmt: skip

    def _see(self, calls: EventRows) -> None:
        named = np.flatnonzero(calls.is_in("api_key", NAMING) & calls.known("error_code"))
        if not len(named):
            return
        for row in grouped(calls.some(named, [*MEMBER, "time"]), MEMBER, (("time", "min"), ("time", "max"))):
            if row["group_id"] and row["member_id"]:
                self._note(tuple(row[name] for name in MEMBER), row["time_min"], row["time_max"])

    def _note(self, key: tuple[Any, ...], first: Any, last: Any) -> None:
        known = self._seen.get(key)
        if known is not None or len(self._seen) < MAX_MEMBERS:
            begin, end = known or (first, last)
            self._seen[key] = min(begin, first), max(end, last)

    def _beat(self, row: Row) -> None:
        member = str(row["member_id"] or row["connection"])
        size = row["response_bytes"] or 0
        epoch, before, least = self._last.get(member, (None, None, size))
        least = min(least, size)
        same = member in self._last and epoch == row["generation"]
        if same and size == least and not row["error_code"]:
            self._last[member] = (epoch, row, least)
            return
        if before is not None and epoch != row["generation"]:
            self._keep(before)
        self._keep(row)
        if member in self._last or len(self._last) < MAX_MEMBERS:
            self._last[member] = (row["generation"], None, least)

    def _keep(self, row: Row) -> None:
        if len(self.rows) >= KEPT:
            self.beyond += 1
            return
        for name in BODIES:
            if row.get(name) is None or len(row[name]) > MAX_BODY:
                row[name] = None
        self.rows.append(row)

    def batch(self) -> pa.RecordBatch:
        """What was kept, as EVENTS has it, in the order of time."""
        rows = sorted(self.rows, key=lambda row: row["response_end_time"] or row["time"])
        return pa.RecordBatch.from_pylist(rows, schema=SCHEMA)


SHOWN = 50
"""Slowest calls on the page."""
NEEDED = (SLOW | MESSAGE | timeline.NEEDED | NEEDED_OF_GROUPS | {"latency_us", "duration_us"}) - BODIES
"""Columns of EVENTS; bodies are looked at where they are there."""


class Gathered:
    """Timeline, distributions of latencies, the slowest calls and what groups did."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.latencies = Histogram()
        """Of answered calls that did not wait on purpose, by API."""
        self.slowest = Slowest(SHOWN, sorted(MESSAGE))
        self.groups = GroupCalls()
        self.waited = 0
        """Calls that waited on purpose, which are not among the slowest."""

    def take(self, batch: pa.RecordBatch | EventBatch) -> None:
        batch = EventBatch.of(batch)
        counted = batch.counted.calls
        if not len(counted):
            return
        self.timeline.take(batch)
        on_purpose = waited(counted)
        self.waited += int((on_purpose & counted.known("duration_us")).sum())
        latency = np.where(on_purpose, np.nan, counted.floats("latency_us"))
        self.latencies.add([counted.coded("api")], latency)
        calls = batch.calls
        if len(calls):
            self.groups.take(calls)
            self.slowest.take(calls, waited(calls))

    def merge(self, other: Gathered) -> None:
        """Take what another one took, of batches that come after those of this one."""
        self.timeline.merge(other.timeline)
        self.latencies.merge(other.latencies)
        self.slowest.merge(other.slowest)
        self.groups.merge(other.groups)
        self.waited += other.waited
