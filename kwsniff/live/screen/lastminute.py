"""Figures of the last minute of calls, by API, client, topic, broker and group, from EVENTS batches.

Theory of operation. Batches wait until the next tick (or until they are many), for what is done with a batch
costs about the same whether it holds ten calls or ten thousand. Then, for each grouping, the keys of the
calls get row numbers (`rows`), and sums and latencies are counted by row in columns (`window`). Nothing is
done call by call in Python.

A call counts from when it was complete: from the end of its response, or of its request if it wants none; an
unanswered one from when that became known. It counts for each topic that it names; a topic's bytes are those
of record data in its own partitions. If only some partitions of a call failed, only their topics have the
error. Calls that waited on purpose (`kwsniff.count.waited`) are no part of the latencies.

Invariants: one thread uses it, but a `Snapshot` may be read by any; the memory does not depend on what is
counted; the rows of a grouping, with that of the others, add up to all its entries in the window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.positions import LAG
from kwsniff.count import waited as waiting
from kwsniff.count.topics import TopicNames
from kwsniff.live.screen import grouping, latency
from kwsniff.live.screen.grouping import GROUPINGS, Key, Keyed
from kwsniff.live.screen.health import Monitor, Vitals
from kwsniff.live.screen.screenrows import KEPT, OTHER, ROWS, Pieces, Recent, ScreenRows
from kwsniff.live.screen.window import MEASURES, ScreenTimeline, ScreenWindow
from kwsniff.live.session import Health
from kwsniff.rows.events import CALL

PENDING_ROWS = 32_768
PENDING_BYTES = 16 << 20
"""What waits for the next tick at most, and one batch."""

LAG_NS = 5_000_000_000
"""Packet time between looks at how far everybody lags, which costs milliseconds."""
MAX_ERRORS = 1000
"""Error codes whose names are kept; Kafka has fewer."""

_SHOWN = (
    *("event", *KEPT, "request_time", "request_end_time", "response_end_time"),
    *("topics", "topic_ids", "partitions", "code"),
)
NEEDED = tuple(dict.fromkeys((*_SHOWN, *waiting.NEEDED)))
"""Columns of EVENTS that are used."""

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


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
    """Latency in microseconds, a column for each of `latency.QUANTILES`; NaN without any."""
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

    places: Ints
    """Slots of the window, -1 for what is older."""
    codes: Ints
    """Error codes."""
    errors: Mask
    unanswered: Mask
    waited: Mask
    bytes: Ints
    bins: Ints
    """Bin of the latency, -1 for none."""
    names: Mapping[str, str]
    """Topics by uuid."""


class ScreenStatistics:
    """Takes EVENTS batches and the capture's health; makes snapshots."""

    def __init__(self, lag: Callable[[], pa.Table] = LAG.empty_table) -> None:
        """`lag` gives rows of `kwsniff.analysis.positions.LAG`."""
        self._lag, self._lag_ns = lag, 0
        self._behind: dict[str, dict[Key, int]] = {}
        """Records that groups and clients are behind, in all partitions together."""
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = self._pending_bytes = 0
        self._timeline = ScreenTimeline()
        self._groups = {name: _Group() for name in GROUPINGS}
        self._names = TopicNames()
        self._errors = ErrorNames()
        self._monitor = Monitor()
        self._started_ns = 0
        self._calls = 0

    def add(self, events: pa.RecordBatch) -> None:
        """Take events."""
        events = events.select(list(NEEDED))
        self._pending.append(events)
        self._pending_rows += events.num_rows
        self._pending_bytes += events.nbytes
        if self._pending_rows > PENDING_ROWS or self._pending_bytes > PENDING_BYTES:
            self._digest()

    def tick(self, health: Health) -> None:
        """Take note of time and health."""
        self._digest()
        self._started_ns = health.started_ns
        self._advance(health.now_ns)
        self._monitor.tick(health)
        if not self._lag_ns <= health.now_ns < self._lag_ns + LAG_NS:
            self._lag_ns = health.now_ns
            self._behind = _behind(self._lag())

    def snapshot(self) -> Snapshot:
        """What is known now."""
        self._digest()
        groups = {
            name: group.figures(
                self._timeline.now_ns, self._begin_ns, self._errors, self._behind.get(name, {})
            )
            for name, group in self._groups.items()
        }
        return Snapshot(self._timeline.now_ns, self._calls, groups, self._whole(), self._monitor.vitals())

    def _digest(self) -> None:
        if not self._pending:
            return
        whole = pa.concat_batches(self._pending)
        self._pending, self._pending_rows, self._pending_bytes = [], 0, 0
        for first in range(0, whole.num_rows, PENDING_ROWS):
            self._take(whole.slice(first, PENDING_ROWS))

    def _take(self, events: pa.RecordBatch) -> None:
        calls = events.filter(pc.equal(events["event"], CALL))
        if calls.num_rows:
            self._count(calls)
        self._monitor.add(events, self._timeline.now_ns)

    def _count(self, calls: pa.RecordBatch) -> None:
        self._calls += calls.num_rows
        self._names.add(calls)
        self._errors.learn(calls)
        unanswered = _bools(pc.starts_with(calls["status"], "unanswered"))
        times = _complete_ns(calls)
        if times.max() >= 0:
            self._started_ns = self._started_ns or int(times[times >= 0].min())
            # Of several old calls, none says that the clock was set back; the next tick would.
            self._advance(max(int(times.max()), self._timeline.now_ns))
        times[unanswered | (times < 0)] = self._timeline.now_ns
        measured = _measured(calls, unanswered, self._timeline.places(times), self._names.names)
        calls = calls.append_column("waited", pa.array(measured.waited))
        for name, by in grouping.BY.items():
            self._groups[name].count(calls, by(calls), measured)
        self._count_topics(calls, measured)

    def _count_topics(self, calls: pa.RecordBatch, measured: _Measured) -> None:
        topics, names = self._groups["topic"], measured.names
        keyed = grouping.by_topic(calls, names)
        parts = grouping.by_partition(calls, names)
        entries = keyed.codes >= 0
        keyed = Keyed(keyed.keys, keyed.codes[entries], keyed.calls[entries])
        topics.count(calls, keyed, measured, _own_errors(calls, keyed, parts, measured.errors))
        topics.count_bytes(parts, _ints(pc.struct_field(calls["partitions"].flatten(), "bytes")), measured)

    def _advance(self, now_ns: int) -> None:
        places = self._timeline.advance(now_ns)
        for group in self._groups.values():
            for place in places:
                group.window.forget(place)
            if places:
                group.renew(now_ns)

    @property
    def _begin_ns(self) -> int:
        """Since when calls count."""
        return max(self._timeline.begin_ns, self._started_ns)

    def _whole(self) -> Figures:
        """All calls, each of which has one API."""
        window = self._groups["api"].window
        return Figures(
            keys=(None,),
            owners=np.zeros(1, np.int64),
            seconds=_seconds(self._timeline.now_ns, np.array([self._begin_ns])),
            sums={name: window.sums[[place]].sum(axis=1) for place, name in enumerate(MEASURES)},
            quantiles=latency.quantiles(window.latencies.sum(axis=0, keepdims=True)),
            errors=("",),
            recent=Pieces(),
            lag=np.full(1, np.nan),
        )


class ErrorNames:
    """Learns the names of error codes, as far as they are not too many."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}

    def learn(self, calls: pa.RecordBatch) -> None:
        """Learn from calls with an error."""
        failed = calls.select(["error_code", "error"]).filter(pc.not_equal(calls["error_code"], 0))
        if not failed.num_rows:
            return
        _, rows = grouping.distinct([failed["error_code"]])
        for row in failed.take(pa.array(rows[:MAX_ERRORS])).to_pylist():
            if row["error"] is not None and len(self._names) < MAX_ERRORS:
                self._names.setdefault(row["error_code"], row["error"])

    def name(self, code: int) -> str:
        """Name of an error; empty for 0."""
        return self._names.get(code, f"error {code}") if code else ""


class _Group:
    """One grouping."""

    def __init__(self) -> None:
        self.rows = ScreenRows()
        self.window = ScreenWindow(ROWS + 1)
        self.recent = Recent()
        self._last_errors = np.zeros(ROWS + 1, np.int64)

    def count(
        self, calls: pa.RecordBatch, keyed: Keyed, measured: _Measured, errors: Mask | None = None
    ) -> None:
        """Count entries; `errors` are theirs, if not those of their calls."""
        of = keyed.calls
        inside = measured.places[of] >= 0
        codes, of = keyed.codes[inside], of[inside]
        numbers = self.rows.numbers(keyed.keys, np.bincount(codes, minlength=len(keyed.keys)))
        if not len(codes):
            return
        rows, places = numbers[codes], measured.places[of]
        window = self.window
        window.count("calls", rows, places)
        failed = measured.errors[of] if errors is None else errors[inside]
        for measure, mask in (
            ("errors", failed),
            ("unanswered", measured.unanswered[of]),
            ("waited", measured.waited[of]),
        ):
            if mask.any():
                window.count(measure, rows[mask], places[mask])
        self._last_errors[rows[failed]] = measured.codes[of[failed]]
        if errors is None:
            window.count("bytes", rows, places, measured.bytes[of])
        timed = measured.bins[of] >= 0
        window.time(rows[timed], places[timed], measured.bins[of[timed]])
        owned = rows != OTHER
        self.recent.add(calls, rows[owned], self.rows.owners, of[owned], measured.names)
        self.recent.tidy(self.rows.owners)

    def count_bytes(self, keyed: Keyed, sizes: Ints, measured: _Measured) -> None:
        """Count bytes of entries that were counted before."""
        inside = (measured.places[keyed.calls] >= 0) & (keyed.codes >= 0)
        codes, of = keyed.codes[inside], keyed.calls[inside]
        if len(codes):
            numbers = self.rows.numbers(keyed.keys, np.zeros(len(keyed.keys), np.int64))
            self.window.count("bytes", numbers[codes], measured.places[of], sizes[inside])

    def renew(self, now_ns: int) -> None:
        """A slot has gone by."""
        self.rows.renew(self.window, now_ns)

    def figures(self, now_ns: int, begin_ns: int, errors: ErrorNames, behind: Mapping[Key, int]) -> Figures:
        """The rows in use; what is counted begins at `begin_ns`. `behind`: how far each key lags."""
        used = [*np.flatnonzero(self.rows.owners > 0).tolist(), OTHER]
        since = np.maximum(self.rows.since_ns[used], begin_ns)
        return Figures(
            keys=tuple(self.rows.keys[row] for row in used),
            owners=self.rows.owners[used],
            seconds=_seconds(now_ns, since),
            sums={name: self.window.sums[place, used] for place, name in enumerate(MEASURES)},
            quantiles=latency.quantiles(self.window.latencies[used]),
            errors=tuple(errors.name(code) for code in self._last_errors[used].tolist()),
            recent=self.recent.pieces(),
            lag=np.array([behind.get(self.rows.keys[row] or ("", ""), np.nan) for row in used]),
        )


def _behind(rows: pa.Table) -> dict[str, dict[Key, int]]:
    found: dict[str, dict[Key, int]] = {"group": {}, "client": {}}
    for row in rows.filter(pc.is_valid(rows["lag"])).to_pylist():
        group = row["group_id"]
        by = found["client" if group is None else "group"]
        key = (row["client_id"], row["client_ip"] or "") if group is None else (group, "")
        key = (key[0] and key[0][: grouping.MAX_TEXT], key[1])
        by[key] = by.get(key, 0) + row["lag"]
    return found


def _seconds(now_ns: int, since_ns: Ints) -> Floats:
    """At least one, so that the first calls of a capture don't look like thousands each second."""
    seconds: Floats = np.maximum((now_ns - since_ns) / 1e9, 1.0)
    return seconds


def _measured(calls: pa.RecordBatch, unanswered: Mask, places: Ints, names: Mapping[str, str]) -> _Measured:
    waited = waiting.waited(calls)
    codes = _ints(calls["error_code"])
    latencies = calls["latency_us"].to_numpy(zero_copy_only=False)
    timed = ~np.isnan(latencies) & ~waited
    bins = np.full(calls.num_rows, -1, np.int64)
    bins[timed] = latency.bins(latencies[timed])
    return _Measured(
        places=places,
        codes=codes,
        errors=codes != 0,
        unanswered=unanswered,
        waited=waited,
        bytes=_ints(calls["request_bytes"]) + _ints(calls["response_bytes"]),
        bins=bins,
        names=names,
    )


def _complete_ns(calls: pa.RecordBatch) -> Ints:
    """When the last byte of each call was seen, nanoseconds since 1970; negative if that isn't known."""
    return _ints(pc.coalesce(calls["response_end_time"], calls["request_end_time"], calls["time"]), -1) * 1000


def _own_errors(calls: pa.RecordBatch, keyed: Keyed, parts: Keyed, errors: Mask) -> Mask:
    """For each topic of each call, whether it has an error: one of its own partitions failed, or the call
    without any of its partitions."""
    if not errors.any():
        return np.zeros(len(keyed.codes), bool)
    failed = _ints(pc.struct_field(calls["partitions"].flatten(), "error_code")) != 0
    places = {key: place for place, key in enumerate(keyed.keys)}
    numbers = np.array([places.get(key, -1) for key in parts.keys], np.int64)
    failed &= parts.codes >= 0
    rows, topics = parts.calls[failed], numbers[parts.codes[failed]]
    told = np.zeros(calls.num_rows, bool)
    told[rows] = True
    size = len(keyed.keys) + 1
    own = np.isin(keyed.calls * size + keyed.codes, rows * size + topics)
    return errors[keyed.calls] & (own | ~told[keyed.calls])


def _ints(column: pa.Array, null: int = 0) -> Ints:
    numbers = column.cast(pa.int64()).fill_null(null).to_numpy(zero_copy_only=False)
    return np.array(numbers, np.int64)


def _bools(column: pa.Array) -> Mask:
    mask: Mask = column.fill_null(False).to_numpy(zero_copy_only=False)
    return mask
