"""Which keys have a row of their own, of as many as a stranger may make up.

Theory of operation. A key gets a free row when it is first seen; without a free row it counts under `OTHER`.
A row without a call in the window becomes free again. So that names used once or twice cannot keep out what
is busy, keys without a row are counted for the length of a slot, as far as they are among the most frequent
ones of their batch; one that then turns out twice as busy as the least busy row takes its place, and that
row's figures go to `OTHER`.

Invariants: at most `ROWS` keys are known; `OTHER` is never free; nothing that was counted is lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.eventrows import EventBatch, EventRows
from kwsniff.live.screen.grouping import MAX_TEXT, Key, first_topics
from kwsniff.live.screen.window import SLOTS, ScreenWindow
from kwsniff.rows.columns import Ints, Mask

# The last calls of each row.
#
# Calls stay in Arrow columns. What a batch holds beyond the last `CALLS` of a row is dropped at once; the
# rest is appended, and now and then the same is done to what has come together. So of each row at most a few
# times `CALLS` are in memory, and a call costs no Python object before it is shown.

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
_NAMING = ("event", "topics", "topic_ids")


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
        self, calls: EventRows, waited: Mask, rows: Ints, owners: Ints, of: Ints, names: Mapping[str, str]
    ) -> None:
        """Remember calls: entry i is call number `of[i]` and belongs to row `rows[i]`, whose owner is
        `owners[rows[i]]`. `waited`: which calls did on purpose. `names` gives topics by uuid."""
        chosen = _last(rows)
        if not len(chosen):
            return
        table = _shortened(calls.some(of[chosen], [*KEPT, *_NAMING]), names)
        columns = {"waited": waited[of[chosen]], "owner": owners[rows[chosen]]}
        for name, values in columns.items():
            table = table.append_column(name, pa.array(values))
        self._tables.append(table)
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


def _shortened(calls: pa.RecordBatch, names: Mapping[str, str]) -> pa.RecordBatch:
    columns = {
        name: pc.utf8_slice_codeunits(calls[name], 0, MAX_TEXT) if name in LONG else calls[name]
        for name in KEPT
    }
    topic, topics = first_topics(EventBatch(calls), names)
    columns |= {"topic": pa.array(topic, pa.string()), "topics": pa.array(topics)}
    return pa.RecordBatch.from_pydict(columns)


ROWS = 200
"""Keys with a row of their own, in each grouping."""
OTHER = 0
"""Row of all others."""

CANDIDATES = 256
"""Keys without a row that are counted."""
BATCH_CANDIDATES = 64
"""The same, of one batch."""
SWAPS = 10
"""Rows, at most, that change hands in a slot."""
LEAST_CALLS = 3
"""Calls in a slot below which a key isn't worth a row that is taken."""


class ScreenRows:
    """Numbers keys from 1 to ROWS, and all others `OTHER`."""

    def __init__(self) -> None:
        self.keys: list[Key | None] = [None] * (ROWS + 1)
        """Key of each row, None for a free one and for `OTHER`."""
        self.owners = np.zeros(ROWS + 1, np.int64)
        """A number for each key that ever had a row, by row: what was noted of a row's former key has
        another one. 0 for a free row."""
        self.since_ns = np.zeros(ROWS + 1, np.int64)
        """When a row was taken from another key; 0 if its key was counted from its first call on."""
        self._numbers: dict[Key, int] = {}
        self._free = list(range(ROWS, 0, -1))
        self._given = 0
        self._candidates: dict[Key, int] = {}

    def numbers(self, keys: list[Key], counts: Ints) -> Ints:
        """The row of each of distinct `keys`, which were seen `counts` times."""
        known = self._numbers
        rows = np.fromiter((known.get(key, OTHER) for key in keys), np.int64, len(keys))
        unknown = np.flatnonzero((rows == OTHER) & (counts > 0))
        if not len(unknown):
            return rows
        most = len(self._free) + BATCH_CANDIDATES
        if len(unknown) > most:
            unknown = unknown[np.argpartition(-counts[unknown], most)[:most]]
        for place in unknown[np.argsort(-counts[unknown], kind="stable")].tolist():
            if self._free:
                rows[place] = self._give(keys[place], 0)
            else:
                self._candidates[keys[place]] = self._candidates.get(keys[place], 0) + int(counts[place])
        if len(self._candidates) > CANDIDATES:
            self._candidates = dict(self._by_count()[: CANDIDATES // 2])
        return rows

    def renew(self, window: ScreenWindow, now_ns: int) -> None:
        """A slot has gone by: free the rows that are silent, and let busy keys have the rows of others."""
        calls = window.totals["calls"]
        # A topic's bytes may be counted without its calls, if a body names it twice in different ways.
        silent = ~window.busy & (self.owners > 0)
        for row in np.flatnonzero(silent).tolist():
            self._take(row)
            self._free.append(row)
        taken = np.flatnonzero(self.owners > 0)
        for key, count in self._by_count()[:SWAPS]:
            if count < LEAST_CALLS or key in self._numbers:
                break
            if not self._free:
                weakest = int(taken[np.argmin(calls[taken])])
                if count * SLOTS < 2 * calls[weakest]:
                    break
                window.merge(weakest, OTHER)
                self._take(weakest)
                self._free.append(weakest)
                taken = taken[taken != weakest]
            self._give(key, now_ns)
        self._candidates = {}

    def _by_count(self) -> list[tuple[Key, int]]:
        return sorted(self._candidates.items(), key=lambda item: -item[1])

    def _give(self, key: Key, since_ns: int) -> int:
        row = self._free.pop()
        self._given += 1
        self.keys[row], self.owners[row], self.since_ns[row] = key, self._given, since_ns
        self._numbers[key] = row
        return row

    def _take(self, row: int) -> None:
        key = self.keys[row]
        if key is not None:
            del self._numbers[key]
        self.keys[row], self.owners[row], self.since_ns[row] = None, 0, 0
