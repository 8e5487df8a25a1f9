"""The rows of a grouping: which keys have one, what is counted of it in the last minute, and its last calls.

Theory of operation. A key gets a free row when it is first seen; without a free row it counts under `OTHER`.
A row without a call in the window becomes free again. So that names used once or twice cannot keep out what
is busy, keys without a row are counted for the length of a slot, as far as they are among the most frequent
ones of their batch; one that then turns out twice as busy as the least busy row takes its place, and that
row's figures go to `OTHER`.

Packet time is cut into slots of three seconds. A ring holds the sums of each of the last slots, and one more
set of sums the total over them: what is counted goes into its slot and into the total; a slot that falls out
of the window is taken off the total. So the window covers whole slots and the one that has begun: 60 to 63
seconds.

Invariants: at most `ROWS` keys are known; `OTHER` is never free; nothing that was counted is lost; total =
sum over the slots; memory is fixed by the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.count.codes import Coded, Joint
from kwsniff.count.eventrows import EventBatch, EventRows
from kwsniff.count.keyed import SUM, Columns, Measure, fold
from kwsniff.count.percentiles import BUCKETS
from kwsniff.count.topicstore import TopicCalls
from kwsniff.rows.columns import Ints, Mask

# Which keys a batch of calls has, and which call belongs to which. Texts come from the wire and may be long;
# keys longer than `MAX_TEXT` characters are cut, so two that begin alike are one.

MAX_TEXT = 250
"""Characters; Kafka allows 249 in the name of a topic."""

Key = tuple[str | None, str]
"""A name, and what tells it from others of the same name: a client's address, a broker's port. Else empty."""
GROUPINGS = ("api", "client", "topic", "broker", "group")


class Entries(NamedTuple):
    """What a grouping counts of a batch: one for each call, or for each topic of each call."""

    keys: list[Key]
    """Distinct."""
    codes: Ints
    """Which key each entry has."""
    calls: Ints
    """The call that each entry is about."""


def by_column(calls: EventRows) -> dict[str, Entries]:
    """All groupings but that by topic."""
    every = np.arange(len(calls), dtype=np.int64)
    named = np.flatnonzero(calls.known("group_id"))
    ports = Joint.of(calls.coded("broker_ip"), calls.coded("broker_port"))
    apis = Joint.of(calls.coded("api"), calls.coded("api_key"))
    return {
        "api": Entries(*_keyed(apis, _api), every),
        "client": Entries(*_keyed(calls.client, lambda name, ip: (cut(name), ip or "")), every),
        "broker": Entries(*_keyed(ports, lambda ip, port: (ip, "" if port is None else str(port))), every),
        "group": Entries(*_keyed(calls.coded("group_id").at(named), lambda name: (cut(name), "")), named),
    }


def by_topic(seen: EventBatch, names: Mapping[str, str]) -> tuple[Entries, TopicCalls]:
    """Topics: an entry for each that a call names. `names` gives those of uuids."""
    places: dict[Key, int] = {}

    def numbers(topics: Coded) -> Ints:
        found = [
            -1 if topic is None else places.setdefault((cut(names.get(topic, topic)), ""), len(places))
            for topic in topics.values
        ]
        return np.array(found, np.int64)[topics.codes]

    pairs = TopicCalls.of(seen, numbers(seen.topics.key), numbers(seen.partitions.key))
    return Entries(list(places), pairs.topic, pairs.row), pairs


def first_topics(calls: EventBatch, names: Mapping[str, str]) -> tuple[list[str | None], Ints]:
    """The first topic that each call names, None if none, and how many it names."""
    row, key = calls.topics
    counts = np.bincount(row, minlength=len(calls.calls))
    shown = [None if topic is None else cut(names.get(topic, topic)) for topic in key.values]
    first = np.append(key.codes, 0)[np.cumsum(counts) - counts].tolist()
    return [shown[at] if count else None for at, count in zip(first, counts.tolist(), strict=True)], counts


def cut(text: str | None) -> str | None:
    """A text that is not too long."""
    return text and text[:MAX_TEXT]


def _api(name: str | None, number: int | None) -> Key:
    return name if name is not None or number is None else f"API {number}", ""


def _keyed(column: Coded | Joint, key: Callable[..., Key]) -> tuple[list[Key], Ints]:
    """The keys of a column, each once: cutting or naming may make some equal."""
    places: dict[Key, int] = {}
    values: list[list[Any]] = column.named(list(range(column.size)))
    numbers = [places.setdefault(key(*each), len(places)) for each in zip(*values, strict=True)]
    return list(places), np.array(numbers, np.int64)[column.codes]


# Sums and latencies of rows over the last minute.

SLOT_NS = 3_000_000_000
SLOTS = 21
WINDOW_S = 60
"""What `SLOTS` cover at least."""

MEASURES = ("calls", "errors", "unanswered", "waited", "bytes")

LATENCIES = "latencies"
"""Counted by `kwsniff.count.percentiles.buckets`."""
_COLUMNS = dict.fromkeys(MEASURES, SUM) | {LATENCIES: Measure(np.add, np.int32, 0, BUCKETS)}


class ScreenTimeline:
    """Which slots the window covers, and where in the ring each is."""

    def __init__(self) -> None:
        self.now_ns = 0
        self._newest: int | None = None

    def advance(self, now_ns: int) -> list[int]:
        """Move on to `now_ns`, nanoseconds since 1970. Returns the places in the ring that are to be emptied.

        Time doesn't run backwards here, except when the clock was set back by more than the window: then
        the window starts anew."""
        newest = now_ns // SLOT_NS
        if self._newest is None or self._newest - newest >= SLOTS:
            gone = SLOTS
        elif newest <= self._newest:
            self.now_ns = max(self.now_ns, now_ns)
            return []
        else:
            gone = min(newest - self._newest, SLOTS)
        self.now_ns, self._newest = now_ns, newest
        return [(newest - back) % SLOTS for back in range(gone)]

    @property
    def begin_ns(self) -> int:
        """When the oldest slot begins."""
        return max((self._newest or 0) - SLOTS + 1, 0) * SLOT_NS

    def places(self, time_ns: Ints) -> Ints:
        """Place in the ring of each time, -1 for what is older than the window. What is later than now
        belongs to the newest slot."""
        newest = self._newest or 0
        slots = np.minimum(time_ns // SLOT_NS, newest)
        return np.where(slots > newest - SLOTS, slots % SLOTS, -1)


class ScreenWindow:
    """MEASURES and latencies of `rows` rows."""

    def __init__(self, rows: int) -> None:
        self.totals = {name: measure.column(rows) for name, measure in _COLUMNS.items()}
        self._slots = {name: measure.column(SLOTS * rows) for name, measure in _COLUMNS.items()}
        self._rows = rows

    def count(self, rows: Ints, places: Ints, values: Columns) -> None:
        """Add values to their rows, in the slots at `places`."""
        fold(_COLUMNS, self.totals, rows, values)
        fold(_COLUMNS, self._slots, places * self._rows + rows, values)

    def forget(self, place: int) -> None:
        for name, slots in self._slots.items():
            slot = slots[place * self._rows : (place + 1) * self._rows]
            self.totals[name] -= slot
            slot[:] = 0

    def merge(self, row: int, into: int) -> None:
        """Add one row to another, and empty it."""
        for columns in (self.totals, self._slots):
            for column in columns.values():
                column[into :: self._rows] += column[row :: self._rows]
                column[row :: self._rows] = 0

    @property
    def busy(self) -> Mask:
        """Which rows count anything."""
        found: Mask = np.any([self.totals[name] for name in MEASURES], axis=0)
        return found


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
    topic, topics = first_topics(EventBatch(calls).counted, names)
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
