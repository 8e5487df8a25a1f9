"""What the report keeps of the calls while the events pass by.

Theory of operation. A *cell* is one combination of API, client, broker, error code, status and "waited on
purpose" (a cube, sparse). Sums and extremes are kept per cell; of a single call only its cell number, latency
and duration stay, for exact percentiles: 20 bytes a call. A second cube has a cell for each (cell, topic,
error of that topic), and for each topic a call names, the numbers of call and topic stay (8 bytes). Texts are
numbered; lists are dropped with the batch they came in. All tables are then groupings of the two cubes.

A topic is keyed by its name where the batch knows it, else by its uuid; `finish` gives uuids whose name came
later the number of the name.

Invariants: `cells[i]` describes every call whose cell number is i; the sums over cells are the sums over
calls; a call and topic are one pair, however often the call names the topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.count import waited as waiting
from kwsniff.count.coded import Rows
from kwsniff.count.codes import MAX_NAMES, OTHERS, Codes, combined
from kwsniff.count.coverage import FIRST, LAST, Coverage
from kwsniff.count.cube import LEAST, NEVER, PARTS, Cube, Measures, is_steady, joined, steady
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.percentiles import ExactSamples, Samples
from kwsniff.count.rebatch import BATCH_BYTES, even
from kwsniff.count.topics import TopicNames
from kwsniff.count.topicstore import TopicStore
from kwsniff.rows.columns import Floats, Ints

Columns = dict[str, npt.NDArray[Any]]

CODED = ("api_key", "client_id", "client_ip", "broker_ip", "broker_port", "error_code", "status")
TEXTS = ("client_id", "client_ip", "broker_ip")
KEYS = (*CODED, "waited")
MAX_CELLS = 50_000
"""Cells beyond it become one, of `OTHERS` and of no API."""

MAX_SOFTWARE = 100
"""Client libraries listed for one client; one that names another each time may go on for ever."""

MAX_LIBRARIES = 20_000
"""The same of all clients."""

LISTS = frozenset(("topics", "topic_ids", "partitions"))
"""Columns that nothing but what is counted by topic uses of calls."""

NEEDED = (
    *("event", "capture", *CODED, "api", "error", "software_name", "software_version"),
    *("request_time", "request_end_time", "response_time", "response_end_time", "first_time", "last_time"),
    *("latency_us", "duration_us", "request_bytes", "response_bytes", "throttle_ms", "broker_least_us"),
    *("record_count", "record_bytes", "in_flight", "error_count", "topics", "topic_ids", "partitions"),
    *PARTS,
)
"""Columns of EVENTS that the statistics use."""


class Takes(Protocol):
    """What counts batches, too."""

    def take(self, batch: EventBatch) -> None: ...


class CallStore:
    """Takes EVENTS batches and keeps what the statistics need."""

    def __init__(self, *, topics: bool = True, coverage: Coverage | None = None) -> None:
        """`topics`: whether anything is asked by topic; calls name several, so that costs as much as the
        rest. `coverage`: what the input covers, where others see more of it than this store."""
        self.codes = {name: Codes(MAX_NAMES if name in TEXTS else None) for name in CODED}
        self.api_names: dict[int, str] = {}
        self.error_names: dict[int, str] = {}
        self.software: dict[tuple[str | None, str | None], set[str]] = {}
        self._libraries = 0
        self.coverage = coverage or Coverage()
        self._covers = coverage is None
        self.names = TopicNames()
        self.topics = TopicStore()
        self._topics_wanted = topics
        self._cube = Cube()
        self._cell: list[npt.NDArray[np.int32]] = []
        self._latency: list[Floats] = []
        self._duration: list[Floats] = []
        self._call: list[npt.NDArray[np.integer]] = []
        self._topic: list[npt.NDArray[np.int32]] = []
        self._calls = 0

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
        seen = EventBatch.of(batch)
        calls = seen.calls
        if self._covers:
            self.coverage.take(seen)
        if self._topics_wanted:
            self.names.know(seen.named)
        if not len(calls):
            return
        keys = {name: codes.numbers(*calls.coded(name)) for name, codes in self.codes.items()}
        self._learn(calls, keys)
        keys["waited"] = waiting.waited(calls).astype(np.int64)
        cell = self._cells_of(keys)
        measures = _measures(calls, keys["waited"])
        self._cube.add(cell, measures)
        self._learn_software(calls, keys)
        row = topic = np.zeros(0, np.int64)
        if self._topics_wanted:
            row, topic = self.topics.add(seen, cell, measures, self.names.names)
        latency, duration = (_own(calls.floats(name)) for name in ("latency_us", "duration_us"))
        self._keep(latency, duration, cell, keys["waited"], row, topic)
        self._calls += len(calls)

    @property
    def error(self) -> float:
        """How far a percentile may be from the true one, as a part of it."""
        return 0.0

    def _keep(
        self, latency: Floats, duration: Floats, cell: Ints, waited: Ints, row: Ints, topic: Ints
    ) -> None:
        """Keep what percentiles need of some calls, and of the pairs of call (by `row`) and topic."""
        self._cell.append(cell.astype(np.int32))
        self._latency.append(latency)
        self._duration.append(duration)
        self._call.append(_small(row + self._calls))
        self._topic.append(topic.astype(np.int32))

    def finish(self) -> None:
        """Bring together what the batches left. Afterwards `cells`, `samples` and `topic_samples` hold."""
        self.cells: Columns = {**self._cube.keys(KEYS), **self._cube.measures()}
        self.topics.finish(self.names.names)
        self._finish_samples()

    def _finish_samples(self) -> None:
        cell = joined(self._cell, np.int32)
        metrics = {
            "latency": joined(self._latency, np.float64),
            "duration": joined(self._duration, np.float64),
        }
        self.samples: Samples = ExactSamples(cell, metrics)
        call, topic = joined(self._call, np.uint32), joined(self._topic, np.int32)
        key = self.topics.numbers.astype(np.int32)[topic] * np.int32(2)
        key += self.cells["waited"].astype(np.int32)[cell[call]]
        self.topic_samples: Samples = ExactSamples(key, metrics, call)
        """Their keys are twice the topic, plus 1 if it waited."""

    def _merge(self, other: CallStore) -> tuple[Ints, Ints]:
        """Take what another store knows but for its samples; the numbers here of its cells and topics."""
        numbers = {name: self.codes[name].taken(codes) for name, codes in other.codes.items()}
        kinds = (
            (*(int(numbers[name][code]) for name, code in zip(CODED, kind, strict=False)), kind[-1])
            for kind in other._cube.kinds
        )
        cells = np.array([self._cell_number(kind) for kind in kinds], np.int64)
        self._cube.add(cells, other._cube.measures())
        self.api_names = other.api_names | self.api_names
        self.error_names = other.error_names | self.error_names
        for client, names in other.software.items():
            self._add_software(client, names)
        self.coverage.merge(other.coverage)
        self.names.merge(other.names)
        self._calls += other._calls
        return cells, self.topics.merge(other.topics, cells)

    def _cells_of(self, keys: dict[str, Ints]) -> Ints:
        columns = [keys[name] for name in KEYS]
        codes, rows = combined(columns, [*(len(self.codes[name]) for name in CODED), 2])
        kinds = zip(*(column[rows].tolist() for column in columns), strict=True)
        numbers = [self._cell_number(kind) for kind in kinds]
        return np.array(numbers, dtype=np.int64)[codes]

    def _cell_number(self, kind: tuple[int, ...]) -> int:
        if len(self._cube) >= MAX_CELLS and kind not in self._cube.kinds:
            rest = [self.codes[name].number(OTHERS if name in TEXTS else None) for name in CODED[:-1]]
            kind = (*rest, *kind[-2:])
        return self._cube.row(kind)

    def _learn(self, calls: Rows, keys: Mapping[str, Ints]) -> None:
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

    def _learn_software(self, calls: Rows, keys: Mapping[str, Ints]) -> None:
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


def _measures(calls: Rows, waited: Ints) -> Measures:
    throttle = calls.ints("throttle_ms")
    fetch = calls.is_in("api_key", waiting.FETCHES)
    return steady({
        "calls": np.broadcast_to(np.int64(1), len(calls)),
        "request_bytes": calls.ints("request_bytes"),
        "response_bytes": calls.ints("response_bytes"),
        "records": calls.ints("record_count"),
        "record_bytes": calls.ints("record_bytes"),
        "error_codes": calls.ints("error_count"),
        "throttled_calls": (throttle > 0).astype(np.int64),
        "throttle_ms": throttle,
        "duration_us": _or_zero(calls.floats("duration_us")),
        **_parts(calls),
        "last_us": calls.first_known(*LAST, null=0),
        "in_flight_max": calls.ints("in_flight", -1),
        "throttle_max_ms": throttle,
        "overrun_us": np.where(waited * fetch == 1, calls.floats("broker_us"), np.nan),
        "first_us": calls.first_known(*FIRST, null=NEVER),
    })  # fmt: skip


def _parts(calls: Rows) -> dict[str, npt.NDArray[Any]]:
    """The parts of each call's time, 0 where they are not known, and whether they are."""
    known = calls.known("broker_us").astype(np.int64)
    return {"parted_calls": known} | {name: _or_zero(calls.floats(name)) for name in (*PARTS, LEAST)}


def _or_zero(values: Floats) -> Floats:
    return np.broadcast_to(np.float64(0), len(values)) if is_steady(values) else np.nan_to_num(values)


def _small(numbers: Ints) -> npt.NDArray[np.integer]:
    """In four bytes each, as long as they fit."""
    return numbers.astype(np.uint32) if numbers.max(initial=0) < 1 << 32 else numbers


def _own(values: Floats) -> Floats:
    """The same, not looking into the batch, which is one piece of memory if another process made it."""
    return values if values.base is None else values.copy()


def _needed(batch: pa.RecordBatch, topics: bool) -> pa.RecordBatch:
    """The columns that are used."""
    return batch.select([name for name in NEEDED if topics or name not in LISTS])
