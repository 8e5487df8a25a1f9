"""What the report keeps of the calls while the events pass by.

Theory of operation. A *cell* is one combination of API, client, broker, error code, status and "waited on
purpose". Sums and extremes are kept per cell; of a single call only its cell number, latency and duration
stay, for exact percentiles: 20 bytes a call. A second table has a cell for each (cell, topic, error of that
topic), and for each topic a call names, the numbers of call and topic stay (8 bytes). Texts are numbered;
lists are dropped with the batch they came in. All tables are then groupings of the two. Where only so many
samples are to be kept, and there are more, they are condensed (`kwsniff.count.percentiles.Condensed`), and so
is what comes then.

A topic is keyed by its name where the batch knows it, else by its uuid; `finish` gives uuids whose name came
later the number of the name.

Invariants: `cells[i]` describes every call whose cell number is i; the sums over cells are the sums over
calls; a call and topic are one pair, however often the call names the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.count.codes import MAX_NAMES, OTHERS, Codes, combined
from kwsniff.count.eventrows import BROKER_LEAST, FETCHES, PARTS, EventBatch, EventRows, waited
from kwsniff.count.keyed import (
    GREATEST,
    LEAST,
    NEVER,
    REAL_SUM,
    SUM,
    Array,
    Key,
    Keyed,
    Measure,
    is_steady,
)
from kwsniff.count.percentiles import LIMIT, Condensed, Exact, Samples
from kwsniff.count.spans import FIRST, LAST, Coverage
from kwsniff.count.spool import BATCH_BYTES, even
from kwsniff.count.topics import TopicNames
from kwsniff.count.topicstore import TopicStore
from kwsniff.rows.columns import Floats, Ints

CODED = ("api_key", "client_id", "client_ip", "broker_ip", "broker_port", "error_code", "status")
TEXTS = ("client_id", "client_ip", "broker_ip")
KEYS = (*CODED, "waited")
Counted = Callable[[EventRows, Ints], Array]
"""What calls have of a measure; whether they waited on purpose is known already."""


def _ints(column: str, null: int = 0) -> Counted:
    return lambda calls, _: calls.ints(column, null)


def _floats(column: str) -> Counted:
    """Nulls count as 0."""
    return lambda calls, _: _or_zero(calls.floats(column))


def _overrun(calls: EventRows, waited: Ints) -> Array:
    fetch = calls.is_in("api_key", FETCHES)
    return np.where(waited * fetch == 1, calls.floats("broker_us"), np.nan)


_COUNTED: dict[str, tuple[Measure, Counted]] = {
    "calls": (SUM, lambda calls, _: np.broadcast_to(np.int64(1), len(calls))),
    "request_bytes": (SUM, _ints("request_bytes")),
    "response_bytes": (SUM, _ints("response_bytes")),
    "records": (SUM, _ints("record_count")),
    "record_bytes": (SUM, _ints("record_bytes")),
    "error_codes": (SUM, _ints("error_count")),
    "throttled_calls": (SUM, lambda calls, _: (calls.ints("throttle_ms") > 0).astype(np.int64)),
    "throttle_ms": (SUM, _ints("throttle_ms")),
    "throttle_max_ms": (GREATEST, _ints("throttle_ms")),
    "in_flight_max": (GREATEST, _ints("in_flight", -1)),
    "duration_us": (REAL_SUM, _floats("duration_us")),
    "parted_calls": (SUM, lambda calls, _: calls.known("broker_us").astype(np.int64)),
    **{name: (REAL_SUM, _floats(name)) for name in (*PARTS, BROKER_LEAST)},
    "overrun_us": (Measure(np.fmax, np.float64, np.nan), _overrun),
    "first_us": (LEAST, lambda calls, _: calls.first_known(*FIRST, null=NEVER)),
    "last_us": (GREATEST, lambda calls, _: calls.first_known(*LAST, null=0)),
}
"""What is counted of calls, and how. `parted_calls`: calls the parts of whose time are known. A greatest
number below 0 is not known, nor is a first time of NEVER."""
MEASURES = {name: measure for name, (measure, _) in _COUNTED.items()}
MAX_CELLS = 50_000
"""Cells beyond it become one, of `OTHERS` and of no API."""

MAX_SOFTWARE = 100
"""Client libraries listed for one client; one that names another each time may go on for ever."""

MAX_LIBRARIES = 20_000
"""The same of all clients."""

METRICS = ("latency", "duration")
"""Of which there are percentiles."""

LISTS = frozenset(("topics", "topic_ids", "partitions"))
"""Columns that nothing but what is counted by topic uses of calls."""

NEEDED = (
    *("event", "capture", *CODED, "api", "error", "software_name", "software_version"),
    *("request_time", "request_end_time", "response_time", "response_end_time", "first_time", "last_time"),
    *("latency_us", "duration_us", "request_bytes", "response_bytes", "throttle_ms", BROKER_LEAST),
    *("record_count", "record_bytes", "in_flight", "error_count", "topics", "topic_ids", "partitions"),
    *PARTS,
)
"""Columns of EVENTS that the statistics use."""


class Takes(Protocol):
    """What counts batches, too."""

    def take(self, batch: EventBatch) -> None: ...


class CallStore:
    """Takes EVENTS batches and keeps what the statistics need; with `samples` in memory that does not grow
    with the calls.

    Percentiles are exact until more than `samples` are kept (calls, and topics of calls), and then until more
    than a quarter of that, or `LIMIT`, are kept of a metric; then they are off by no more than `error`, but
    for the greatest values, which stay exact. All other figures are exact. After `finish` it takes further
    batches if samples are condensed."""

    def __init__(
        self,
        samples: int | None = None,
        limit: int | None = None,
        *,
        topics: bool = True,
        coverage: Coverage | None = None,
    ) -> None:
        """`samples` that are kept as they are, 28 bytes for a call and a topic; None: all. `limit`: of values
        kept of a metric then. `topics`: whether anything is asked by topic; calls name several, so that costs
        as much as the rest. `coverage`: what the input covers, where others see more of it than this
        store."""
        self.codes = {name: Codes(MAX_NAMES if name in TEXTS else None) for name in CODED}
        self.api_names: dict[int, str] = {}
        self.error_names: dict[int, str] = {}
        self.software: dict[tuple[str | None, str | None], set[str]] = {}
        self._libraries = 0
        self.coverage = coverage or Coverage()
        self._covers = coverage is None
        self.names = TopicNames()
        self.topics = TopicStore(MEASURES)
        self._topics_wanted = topics
        self._calls = Keyed(MEASURES, MAX_CELLS, self._rest)
        self._room = samples
        limit = limit or max((samples or 0) // 4, LIMIT)  # four times 20 bytes a value
        self._by_cell = {metric: Condensed(limit) for metric in METRICS}
        self._by_topic = {metric: Condensed(limit) for metric in METRICS}
        self._cell: list[npt.NDArray[np.int32]] = []
        self._metrics: dict[str, list[Floats]] = {metric: [] for metric in METRICS}
        self._call: list[npt.NDArray[np.integer]] = []
        self._topic: list[npt.NDArray[np.int32]] = []
        self._count = 0

    def add_all(self, batches: Iterable[pa.RecordBatch], others: Sequence[Takes] = ()) -> None:
        """Take all batches, joining small ones first; with `others`, which take them first, as they are."""
        narrow = partial(_needed, topics=self._topics_wanted)
        for batch in batches if others else even(batches, narrow=narrow):
            seen = EventBatch(batch)
            for other in others:
                other.take(seen)
            self.add(seen)
            is_large = batch.nbytes >= 2 * BATCH_BYTES  # a call with 100,000 partitions
            del batch, seen  # before the next is made
            if is_large:
                pa.default_memory_pool().release_unused()

    def add(self, batch: pa.RecordBatch | EventBatch) -> None:
        """Take one EVENTS batch."""
        seen = EventBatch.of(batch).counted
        calls = seen.calls
        if self._covers:
            self.coverage.take(seen)
        if self._topics_wanted:
            self.names.know(seen.named)
        if not len(calls):
            return
        keys = {name: codes.numbers(*calls.coded(name)) for name, codes in self.codes.items()}
        self._learn(calls, keys)
        keys["waited"] = waited(calls).astype(np.int64)
        sizes = [*(len(self.codes[name]) for name in CODED), 2]
        cell = self._calls.placed([keys[name] for name in KEYS], sizes)
        measures = {name: _steady(of(calls, keys["waited"])) for name, (_, of) in _COUNTED.items()}
        self._calls.add(cell, measures)
        self._learn_software(calls, keys)
        row = topic = np.zeros(0, np.int64)
        if self._topics_wanted:
            row, topic = self.topics.add(seen, cell, measures, self.names.names)
        metrics = {name: _own(calls.floats(f"{name}_us")) for name in METRICS}
        self._keep(metrics, cell, keys["waited"], row, topic)
        self._count += len(calls)

    @property
    def error(self) -> float:
        """How far a percentile may be from the true one, as a part of it."""
        return max(each.error for each in (*self._by_cell.values(), *self._by_topic.values()))

    def condense(self) -> None:
        """Take less room, now, and be off by up to `error`."""
        for each in (*self._by_cell.values(), *self._by_topic.values()):
            each.condense()

    def _keep(self, metrics: Mapping[str, Floats], cell: Ints, waited: Ints, row: Ints, topic: Ints) -> None:
        """Keep what percentiles need of some calls, and of the pairs of call (by `row`) and topic."""
        if self._room == 0:
            self._condense(metrics, cell, waited, row, topic)
            return
        self._cell.append(cell.astype(np.int32))
        for name, values in metrics.items():
            self._metrics[name].append(values)
        self._call.append(_small(row + self._count))
        self._topic.append(topic.astype(np.int32))
        if self._room is not None:
            self._room = max(self._room - len(cell) - len(row), 0)
            if not self._room:
                self._condense_kept()

    def _condense_kept(self) -> None:
        """There are too many samples to keep them all: treat those kept as if that had been clear before."""
        waited = self._calls.keys(KEYS)["waited"]
        first = 0
        while self._cell:
            cell, row = self._cell.pop(0).astype(np.int64), self._call.pop(0).astype(np.int64) - first
            metrics = {name: values.pop(0) for name, values in self._metrics.items()}
            self._condense(metrics, cell, waited[cell], row, self._topic.pop(0).astype(np.int64))
            first += len(cell)

    def _condense(
        self, metrics: Mapping[str, Floats], cell: Ints, waited: Ints, row: Ints, topic: Ints
    ) -> None:
        for name, values in metrics.items():
            self._by_cell[name].add(cell, values)
            self._by_topic[name].add(topic * 2 + waited[row], values[row])

    def finish(self) -> None:
        """Bring together what the batches left. Afterwards `cells`, `samples` and `topic_samples` (whose keys
        are twice the topic, plus 1 if it waited) hold."""
        self.cells = {**self._calls.keys(KEYS), **self._calls.columns()}
        self.topics.finish(self.names.names)
        self.samples: Samples
        self.topic_samples: Samples
        if self._room == 0:
            self.samples = self._by_cell
            numbers = _with_waited(self.topics.numbers)
            self.topic_samples = {name: values.rekeyed(numbers) for name, values in self._by_topic.items()}
            return
        cell = _joined(self._cell, np.int32)
        metrics = {name: _joined(values, np.float64) for name, values in self._metrics.items()}
        self.samples = {name: Exact(cell, values) for name, values in metrics.items()}
        call, topic = _joined(self._call, np.uint32), _joined(self._topic, np.int32)
        key = self.topics.numbers.astype(np.int32)[topic] * np.int32(2)
        key += self.cells["waited"].astype(np.int32)[cell[call]]
        self.topic_samples = {name: Exact(key, values, call) for name, values in metrics.items()}

    def merge(self, other: CallStore) -> None:
        """Take all that another store took, as if its batches had come after those of this one. Both condense
        their samples from the first one on."""
        assert self._room == other._room == 0
        numbers = {name: self.codes[name].taken(codes) for name, codes in other.codes.items()}
        kinds = (
            (*(int(numbers[name][code]) for name, code in zip(CODED, kind, strict=False)), kind[-1])
            for kind in other._calls.rows
        )
        cells = self._calls.numbers(kinds)
        self._calls.add(cells, other._calls.columns())
        self.api_names = other.api_names | self.api_names
        self.error_names = other.error_names | self.error_names
        for client, names in other.software.items():
            self._add_software(client, names)
        self.coverage.merge(other.coverage)
        self.names.merge(other.names)
        self._count += other._count
        topics = _with_waited(self.topics.merge(other.topics, cells))
        for name in METRICS:
            self._by_cell[name].merge(other._by_cell[name], cells)
            self._by_topic[name].merge(other._by_topic[name], topics)

    def _rest(self, kind: Key) -> Key:
        """The cell of what finds no cell of its own."""
        rest = [self.codes[name].number(OTHERS if name in TEXTS else None) for name in CODED[:-1]]
        return (*rest, *kind[-2:])

    def _learn(self, calls: EventRows, keys: Mapping[str, Ints]) -> None:
        for known, key, name in (
            (self.api_names, "api_key", "api"),
            (self.error_names, "error_code", "error"),
        ):
            (names, codes), values = calls.coded(name), self.codes[key].values
            new = np.array([value is not None and value not in known for value in values])[keys[key]]
            new &= np.array([text is not None for text in names])[codes]
            rows = np.flatnonzero(new)
            if not len(rows):
                continue
            pairs = [keys[key][rows], codes[rows]]
            for row in rows[combined(pairs, [len(values), len(names)])[1]].tolist():
                known.setdefault(values[keys[key][row]], names[codes[row]])

    def _learn_software(self, calls: EventRows, keys: Mapping[str, Ints]) -> None:
        if not calls.has("software_name"):
            return
        (names, name), (versions, version) = (
            calls.coded(each) for each in ("software_name", "software_version")
        )
        ids, ips = self.codes["client_id"].values, self.codes["client_ip"].values
        columns = [keys["client_id"], keys["client_ip"], name, version]
        for row in combined(columns, [len(ids), len(ips), len(names), len(versions)])[1].tolist():
            software = names[name[row]]
            if software is not None:
                client = ids[keys["client_id"][row]], ips[keys["client_ip"][row]]
                self._add_software(client, [f"{software} {versions[version[row]] or ''}".strip()])

    def _add_software(self, client: tuple[str | None, str | None], names: Iterable[str]) -> None:
        if len(self.software) >= MAX_NAMES:
            return
        found = self.software.setdefault(client, set())
        before = len(found)
        found.update(list(names)[: max(min(MAX_SOFTWARE - before, MAX_LIBRARIES - self._libraries), 0)])
        self._libraries += len(found) - before


def _steady(values: Array) -> Array:
    """The same, but that what is one value throughout takes room for one, and little time."""
    if not len(values) or is_steady(values):
        return values
    first = values[:1]
    same = values == first if first == first else np.isnan(values)
    return np.broadcast_to(first[0], values.shape) if same.all() else values


def _or_zero(values: Floats) -> Floats:
    return np.broadcast_to(np.float64(0), len(values)) if is_steady(values) else np.nan_to_num(values)


def _with_waited(topics: Ints) -> Ints:
    """Keys of samples by topic: of each topic that of calls that did not wait, and that of those that did."""
    keys = np.repeat(topics * 2, 2)
    keys[1::2] += 1
    return keys


def _joined(parts: list[Any], kind: Any) -> Any:
    """The arrays of `parts` as one, taken out of the list so that both are in memory only briefly."""
    whole = np.concatenate(parts) if parts else np.array([], dtype=kind)
    parts.clear()
    return whole


def _small(numbers: Ints) -> npt.NDArray[np.integer]:
    """In four bytes each, as long as they fit."""
    return numbers.astype(np.uint32) if numbers.max(initial=0) < 1 << 32 else numbers


def _own(values: Floats) -> Floats:
    """The same, not looking into the batch, which is one piece of memory if another process made it."""
    return values if values.base is None else values.copy()


def _needed(batch: pa.RecordBatch, topics: bool) -> pa.RecordBatch:
    """The columns that are used."""
    return batch.select([name for name in NEEDED if topics or name not in LISTS])
