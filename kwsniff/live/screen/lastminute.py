"""Figures of the last minute of calls, by API, client, topic, broker and group, from EVENTS batches.

Theory of operation. Batches wait until the next tick (or until they are many), for what is done with a batch
costs about the same whether it holds ten calls or ten thousand. Then, for each grouping, the keys of the
calls get row numbers, and sums and latencies are folded by row (`screenrows`). Nothing is done call by call
in Python.

A call counts from when it was complete: from the end of its response, or of its request if it wants none; an
unanswered one from when that became known. It counts for each topic that it names; a topic's bytes are those
of record data in its own partitions. If only some partitions of a call failed, only their topics have the
error. Calls that waited on purpose (`kwsniff.count.eventrows.waited`) are no part of the latencies.

Invariants: one thread uses it, but a `Snapshot` may be read by any; the memory does not depend on what is
counted; the rows of a grouping, with that of the others, add up to all its entries in the window.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.lag import LAG
from kwsniff.count.eventrows import WAITED, EventBatch, EventRows, waited
from kwsniff.count.percentiles import buckets, quantiles
from kwsniff.count.topics import TopicNames
from kwsniff.live.screen.screenrows import (
    GROUPINGS,
    KEPT,
    LATENCIES,
    MEASURES,
    OTHER,
    ROWS,
    SLOT_NS,
    WINDOW_S,
    Entries,
    Key,
    Pieces,
    Recent,
    ScreenRows,
    ScreenTimeline,
    ScreenWindow,
    by_column,
    by_topic,
    cut,
)
from kwsniff.live.session import Health, Waiting
from kwsniff.rows.columns import Floats, Ints, Mask
from kwsniff.rows.events import ANOMALY
from kwsniff.spec.load import catalog

PENDING_ROWS = 32_768
PENDING_BYTES = 16 << 20
"""What waits for the next tick at most."""

LAG_NS = 5_000_000_000
"""Packet time between looks at how far everybody lags, which costs milliseconds."""

_SHOWN = (
    *("event", *KEPT, "request_time", "request_end_time", "response_end_time"),
    *("topics", "topic_ids", "partitions", "code"),
)
NEEDED = tuple(dict.fromkeys((*_SHOWN, *WAITED)))
"""Columns of EVENTS that are used."""

QUANTILES = (0.5, 0.95, 0.99)

# The capture's health over time: packets and bytes each second, what was lost lately, anomalies.

LATELY_S = 10
"""Packets and bytes each second are those of the last seconds, so many."""


@dataclass(frozen=True, slots=True)
class Vitals:
    """The capture's health at one moment."""

    health: Health
    packets_per_s: float = 0.0
    bytes_per_s: float = 0.0
    dropped_lately: int = 0
    """Packets lost in the last WINDOW_S."""
    anomalies: tuple[tuple[str, int, int], ...] = ()
    """Code, number since the start, number in the last WINDOW_S; most in the window first."""


class Monitor:
    """Keeps a minute of health, about ten of each second at most, and counts anomalies by code."""

    def __init__(self) -> None:
        self._healths: deque[Health] = deque()
        self._anomalies: Counter[str] = Counter()
        self._slots: deque[tuple[int, Counter[str]]] = deque()

    def add(self, events: pa.RecordBatch, now_ns: int) -> None:
        """Count the anomalies among EVENTS rows."""
        found = events["code"].filter(pc.equal(events["event"], ANOMALY))
        if not len(found):
            return
        counts = {row["values"]: row["counts"] for row in pc.value_counts(found).to_pylist()}
        slot = now_ns // SLOT_NS
        if not self._slots or self._slots[-1][0] != slot:
            self._slots.append((slot, Counter()))
        self._slots[-1][1].update(counts)
        self._anomalies.update(counts)

    def tick(self, health: Health) -> None:
        healths = self._healths
        if healths and health.now_ns < healths[-1].now_ns:  # the clock was set back
            healths.clear()
        if len(healths) > 1 and health.now_ns - healths[-2].now_ns < 10**8:
            healths.pop()
        healths.append(health)
        while healths[0].now_ns < health.now_ns - WINDOW_S * 10**9:
            healths.popleft()
        oldest = health.now_ns // SLOT_NS - WINDOW_S * 10**9 // SLOT_NS
        while self._slots and not oldest <= self._slots[0][0] <= oldest + 2 * WINDOW_S:
            self._slots.popleft()

    def vitals(self) -> Vitals | None:
        """The health now; None before the first tick."""
        if not self._healths:
            return None
        now = self._healths[-1]
        packets, size = self._rates(now)
        young = now.now_ns - now.started_ns <= WINDOW_S * 10**9
        dropped = 0 if young else self._healths[0].dropped
        lately: Counter[str] = Counter()
        for _, counts in self._slots:
            lately.update(counts)
        anomalies = [(code, count, lately[code]) for code, count in self._anomalies.items()]
        anomalies.sort(key=lambda item: (-item[2], -item[1], item[0]))
        return Vitals(now, packets, size, now.dropped - dropped, tuple(anomalies))

    def _rates(self, now: Health) -> tuple[float, float]:
        recent = [health for health in self._healths if health.now_ns >= now.now_ns - LATELY_S * 10**9]
        first = recent[0]
        seconds = (now.now_ns - first.now_ns) / 1e9
        packets, size = now.packets - first.packets, now.bytes - first.bytes
        if (now.now_ns - now.started_ns) / 1e9 <= LATELY_S or seconds <= 0:
            seconds, packets, size = (now.now_ns - now.started_ns) / 1e9, now.packets, now.bytes
        seconds = max(seconds, 1.0)
        return packets / seconds, size / seconds


@dataclass(frozen=True, slots=True)
class Figures:
    """The rows of one grouping; the arrays have an element for each. The last row is that of all others, and
    its key is None."""

    keys: tuple[Key | None, ...]
    owners: Ints
    """What `recent` knows the rows by; 0 for the others."""
    seconds: Floats
    """What the sums cover: the window, or less if the capture or the row is younger."""
    sums: dict[str, Ints]
    """MEASURES, in the window."""
    quantiles: Floats
    """Latency in microseconds, a column for each of QUANTILES; NaN without any."""
    errors: tuple[str, ...]
    """Name of the last error of each row; empty without any."""
    recent: Pieces
    lag: Floats
    """Records behind the ends of partitions, all together, of groups and clients; NaN if it is not known."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything the screen shows, as it was at one moment."""

    now_ns: int = 0
    """Packet time."""
    calls: int = 0
    """Calls since the start."""
    groups: dict[str, Figures] | None = None
    """By grouping."""
    whole: Figures | None = None
    """One row: all calls."""
    vitals: Vitals | None = None


@dataclass(frozen=True, slots=True)
class _Measured:
    """What is counted of a batch's calls."""

    calls: EventRows
    places: Ints
    """Slots of the window, -1 for what is older."""
    codes: Ints
    """Error codes."""
    unanswered: Mask
    waited: Mask
    bytes: Ints
    latency_us: Floats
    """NaN for none."""
    names: Mapping[str, str]
    """Topics by uuid."""


class ScreenStatistics:
    """Takes EVENTS batches and the capture's health; makes snapshots."""

    def __init__(self, lag: Callable[[], pa.Table] = LAG.empty_table) -> None:
        """`lag` gives rows of `kwsniff.analysis.lag.LAG`."""
        self._lag, self._lag_ns = lag, 0
        self._behind: dict[str, dict[Key, int]] = {}
        """Records that groups and clients are behind, in all partitions together."""
        self._waiting = Waiting(NEEDED, PENDING_ROWS + 1, PENDING_BYTES)
        self._timeline = ScreenTimeline()
        self._groups = {name: _Group() for name in GROUPINGS}
        self._names = TopicNames()
        self._monitor = Monitor()
        self._started_ns = 0
        self._calls = 0

    def add(self, events: pa.RecordBatch) -> None:
        if self._waiting.add(events):
            self._digest()

    def tick(self, health: Health) -> None:
        self._digest()
        self._started_ns = health.started_ns
        self._advance(health.now_ns)
        self._monitor.tick(health)
        if not self._lag_ns <= health.now_ns < self._lag_ns + LAG_NS:
            self._lag_ns = health.now_ns
            self._behind = _behind(self._lag())

    def snapshot(self) -> Snapshot:
        self._digest()
        groups = {
            name: group.figures(self._timeline.now_ns, self._begin_ns, self._behind.get(name, {}))
            for name, group in self._groups.items()
        }
        return Snapshot(self._timeline.now_ns, self._calls, groups, self._whole(), self._monitor.vitals())

    def _digest(self) -> None:
        for whole in self._waiting.taken():
            for first in range(0, whole.num_rows, PENDING_ROWS):
                events = whole.slice(first, PENDING_ROWS)
                seen = EventBatch(events).counted
                if len(seen.calls):
                    self._count(seen)
                self._monitor.add(events, self._timeline.now_ns)

    def _count(self, seen: EventBatch) -> None:
        calls = seen.calls
        self._calls += len(calls)
        self._names.know(seen.named)
        unanswered = calls.coded("status").beginning(("unanswered",))
        times = calls.first_known("response_end_time", "request_end_time", "time", null=-1) * 1000
        if times.max() >= 0:
            self._started_ns = self._started_ns or int(times[times >= 0].min())
            # Of several old calls, none says that the clock was set back; the next tick would.
            self._advance(max(int(times.max()), self._timeline.now_ns))
        times[unanswered | (times < 0)] = self._timeline.now_ns
        on_purpose = waited(calls)
        measured = _Measured(
            calls=calls,
            places=self._timeline.places(times),
            codes=calls.ints("error_code"),
            unanswered=unanswered,
            waited=on_purpose,
            bytes=calls.ints("request_bytes") + calls.ints("response_bytes"),
            latency_us=np.where(on_purpose, np.nan, calls.floats("latency_us")),
            names=self._names.names,
        )
        for name, entries in by_column(calls).items():
            of = entries.calls
            self._groups[name].count(entries, measured, measured.codes[of] != 0, measured.bytes[of])
        entries, topics = by_topic(seen, self._names.names)
        self._groups["topic"].count(entries, measured, topics.error != 0, topics.bytes)

    def _advance(self, now_ns: int) -> None:
        places = self._timeline.advance(now_ns)
        for group in self._groups.values():
            for place in places:
                group.window.forget(place)
            if places:
                group.rows.renew(group.window, now_ns)

    @property
    def _begin_ns(self) -> int:
        """Since when calls count."""
        return max(self._timeline.begin_ns, self._started_ns)

    def _whole(self) -> Figures:
        """All calls, each of which has one API."""
        totals = self._groups["api"].window.totals
        return Figures(
            keys=(None,),
            owners=np.zeros(1, np.int64),
            seconds=_seconds(self._timeline.now_ns, np.array([self._begin_ns])),
            sums={name: totals[name].sum(keepdims=True) for name in MEASURES},
            quantiles=quantiles(totals[LATENCIES].sum(axis=0, keepdims=True), QUANTILES),
            errors=("",),
            recent=Pieces(),
            lag=np.full(1, np.nan),
        )


def error_name(code: int) -> str:
    """Name of an error; empty for 0."""
    known = catalog().errors.get(code)
    return (known.name if known else f"error {code}") if code else ""


class _Group:
    """One grouping."""

    def __init__(self) -> None:
        self.rows = ScreenRows()
        self.window = ScreenWindow(ROWS + 1)
        self.recent = Recent()
        self._last_errors = np.zeros(ROWS + 1, np.int64)

    def count(self, entries: Entries, measured: _Measured, failed: Mask, sizes: Ints) -> None:
        """Count entries; which of them failed, and their bytes."""
        inside = measured.places[entries.calls] >= 0
        codes, of = entries.codes[inside], entries.calls[inside]
        numbers = self.rows.numbers(entries.keys, np.bincount(codes, minlength=len(entries.keys)))
        if not len(codes):
            return
        rows, places, failed = numbers[codes], measured.places[of], failed[inside]
        values = {
            "calls": np.broadcast_to(np.int64(1), len(rows)),
            "errors": failed,
            "unanswered": measured.unanswered[of],
            "waited": measured.waited[of],
            "bytes": sizes[inside],
        }
        self.window.count(rows, places, values)
        timed = ~np.isnan(measured.latency_us[of])
        latencies = {LATENCIES: buckets(measured.latency_us[of[timed]])}
        self.window.count(rows[timed], places[timed], latencies)
        self._last_errors[rows[failed]] = measured.codes[of[failed]]
        owned = rows != OTHER
        self.recent.add(
            measured.calls, measured.waited, rows[owned], self.rows.owners, of[owned], measured.names
        )
        self.recent.tidy(self.rows.owners)

    def figures(self, now_ns: int, begin_ns: int, behind: Mapping[Key, int]) -> Figures:
        """The rows in use; what is counted begins at `begin_ns`. `behind`: how far each key lags."""
        used = [*np.flatnonzero(self.rows.owners > 0).tolist(), OTHER]
        since = np.maximum(self.rows.since_ns[used], begin_ns)
        return Figures(
            keys=tuple(self.rows.keys[row] for row in used),
            owners=self.rows.owners[used],
            seconds=_seconds(now_ns, since),
            sums={name: self.window.totals[name][used] for name in MEASURES},
            quantiles=quantiles(self.window.totals[LATENCIES][used], QUANTILES),
            errors=tuple(error_name(code) for code in self._last_errors[used].tolist()),
            recent=self.recent.pieces(),
            lag=np.array([behind.get(self.rows.keys[row] or ("", ""), np.nan) for row in used]),
        )


def _behind(rows: pa.Table) -> dict[str, dict[Key, int]]:
    found: dict[str, dict[Key, int]] = {"group": {}, "client": {}}
    for row in rows.filter(pc.is_valid(rows["lag"])).to_pylist():
        group = row["group_id"]
        by = found["client" if group is None else "group"]
        key = (row["client_id"], row["client_ip"] or "") if group is None else (group, "")
        key = (cut(key[0]), key[1])
        by[key] = by.get(key, 0) + row["lag"]
    return found


def _seconds(now_ns: int, since_ns: Ints) -> Floats:
    """At least one, so that the first calls of a capture don't look like thousands each second."""
    seconds: Floats = np.maximum((now_ns - since_ns) / 1e9, 1.0)
    return seconds
