"""The last calls of each row.

Calls stay in Arrow columns. What a batch holds beyond the last `CALLS` of a row is dropped at once; the rest
is appended, and now and then the same is done to what has come together. So of each row at most a few times
`CALLS` are in memory, and a call costs no Python object before it is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.live.screen.grouping import MAX_TEXT, first_topics

CALLS = 20
"""Calls remembered of each row."""
PIECES = 32
"""Appended batches that are kept apart."""
PENDING = 4000
"""Calls appended before superfluous ones are dropped."""

KEPT = (
    *("time", "client_id", "client_ip", "client_port", "broker_ip", "broker_port", "api_key", "api"),
    *("api_version", "latency_us", "request_bytes", "response_bytes", "status", "error_code", "error"),
    *("throttle_ms", "group_id", "unanswered_because"),
)
"""Columns of EVENTS that are remembered; with `waited`, `topic`, the first that is named, and `topics`, how
many."""
LONG = frozenset(("client_id", "group_id"))

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Pieces:
    """Remembered calls as they were at one moment."""

    tables: tuple[pa.RecordBatch, ...] = ()

    def of(self, owner: int) -> list[dict[str, Any]]:
        """The last calls of a row's owner, by the time of the request, newest first."""
        rows: list[dict[str, Any]] = []
        for table in reversed(self.tables):
            own = np.flatnonzero(table["owner"].to_numpy() == owner)[::-1][: CALLS - len(rows)]
            rows += table.take(pa.array(own)).to_pylist()
            if len(rows) >= CALLS:
                break
        rows.sort(key=lambda call: call["time"].timestamp() if call["time"] else 0.0, reverse=True)
        return rows


class Recent:
    """Remembers the last calls of each owner of a row."""

    def __init__(self) -> None:
        self._tables: list[pa.RecordBatch] = []
        self._rows = 0

    def add(
        self, calls: pa.RecordBatch, rows: Ints, owners: Ints, of: Ints, names: Mapping[str, str]
    ) -> None:
        """Remember calls: entry i is call number `of[i]` and belongs to row `rows[i]`, whose owner is
        `owners[rows[i]]`. `names` gives topics by uuid; `calls` has one more column than EVENTS, `waited`."""
        chosen = _last(rows)
        if not len(chosen):
            return
        self._tables.append(_shortened(calls.take(pa.array(of[chosen])), owners[rows[chosen]], names))
        self._rows += len(chosen)

    def tidy(self, alive: Ints) -> None:
        """Forget calls that are too many, and those of owners that are not among `alive`."""
        if self._rows <= PENDING and len(self._tables) <= PIECES:
            return
        whole = pa.concat_batches(self._tables)
        owners = whole["owner"].to_numpy()
        present = np.flatnonzero(np.isin(owners, alive))
        numbers = np.unique(owners[present], return_inverse=True)[1]
        kept = whole.take(pa.array(present[_last(numbers)]))
        self._tables, self._rows = [kept], 0

    def pieces(self) -> Pieces:
        """What is remembered now."""
        return Pieces(tuple(self._tables))


def _last(numbers: Ints) -> Ints:
    """Places of the last CALLS of each number, in their order. The numbers are small: of rows."""
    order = np.argsort(numbers.astype(np.uint16), kind="stable")  # linear in time, for 16 bits
    ends = np.cumsum(np.bincount(numbers))[numbers[order]]
    kept: Ints = np.sort(order[ends - np.arange(len(numbers)) <= CALLS])
    return kept


def _shortened(calls: pa.RecordBatch, owners: Ints, names: Mapping[str, str]) -> pa.RecordBatch:
    columns = {
        name: pc.utf8_slice_codeunits(calls[name], 0, MAX_TEXT) if name in LONG else calls[name]
        for name in KEPT
    }
    columns["topic"], topics = first_topics(calls, names)
    columns["topics"] = pa.array(topics)
    columns["waited"] = calls["waited"]
    columns["owner"] = pa.array(owners)
    return pa.RecordBatch.from_pydict(columns)
