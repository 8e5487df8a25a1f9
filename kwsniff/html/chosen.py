"""Calls of groups that are worth a second look: what they joined with and were given stands in bodies.

Joins, synchronisations and leaves all count. Heartbeats of the newer protocols come every few seconds and
mostly say nothing: those are kept that are the first of their member, fail, or stand beside a change of the
member's epoch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kwsniff.answers.groups import NEEDS as GROUPS
from kwsniff.answers.membership import HEARTBEATS, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from kwsniff.message.many import NEEDED as MESSAGE
from kwsniff.report.rows import Rows
from kwsniff.table import EVENTS

Row = dict[str, Any]
CLASSIC = (JOIN_GROUP, SYNC_GROUP, LEAVE_GROUP)
BODIES = frozenset(("request", "response"))
NEEDED = (GROUPS | MESSAGE | {"generation"}) - BODIES
KEPT = 2_000
MAX_MEMBERS = 5_000
MAX_BODY = 100_000
"""Characters of a body that is kept."""
_KEEP = sorted(NEEDED | BODIES)
SCHEMA = pa.schema([EVENTS.field(name) for name in _KEEP])


class GroupCalls:
    """The first `KEPT` such calls; `beyond` counts the others."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self.rows: list[Row] = []
        self.beyond = 0
        self._last: dict[str, tuple[Any, Row | None]] = {}
        """By member: its epoch, and its last heartbeat unless that was kept."""

    def take(self, calls: Rows) -> None:
        """Take calls of EVENTS, in their order."""
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

    def _beat(self, row: Row) -> None:
        member = str(row["member_id"] or row["connection"])
        epoch, before = self._last.get(member, (None, None))
        if member in self._last and epoch == row["generation"] and not row["error_code"]:
            self._last[member] = (epoch, row)
            return
        if before is not None:
            self._keep(before)
        self._keep(row)
        if member in self._last or len(self._last) < MAX_MEMBERS:
            self._last[member] = (row["generation"], None)

    def _keep(self, row: Row) -> None:
        if len(self.rows) >= self._kept:
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
