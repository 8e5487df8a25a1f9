"""What the metrics count of the events: batches in, sums by label values kept.

Every step works on the columns of a batch; nothing is done call by call. Nothing here knows HTTP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.count import waited as waiting
from kwsniff.count.codes import combined
from kwsniff.count.topics import TopicNames, elements, lookup
from kwsniff.output.text import printable
from kwsniff.rows import lists
from kwsniff.spec.load import catalog

Ints = NDArray[np.int64]

MAX_APIS = 200
"""Kafka has some 90; a damaged stream may name others."""
MAX_ERRORS = 200
MAX_CLIENTS = 100
MAX_BROKERS = 100
MAX_TOPICS = 200

_COUNTED = (
    *("code", "status", "api", "client_id", "broker_ip", "broker_port", "latency_us", "throttle_ms"),
    *("request_bytes", "response_bytes", "record_count", "record_bytes", "error_code", "error"),
    *("unanswered_because", "topics", "topic_ids", "partitions"),
)
NEEDED = tuple(dict.fromkeys((*_COUNTED, *waiting.NEEDED)))
"""Columns of EVENTS that are counted."""

CALL_SUMS = (
    *("requests", "request_bytes", "response_bytes", "records", "record_bytes"),
    *("throttled", "throttle_ms", "waited", "waited_us"),
)
TOPIC_SUMS = ("requests", "records", "record_bytes")


class Calls:
    """Calls by API, client id and broker; errors and what went unanswered beside them."""

    def __init__(self) -> None:
        self.names = {
            "api": Names(MAX_APIS, "unknown"),
            "client_id": Names(MAX_CLIENTS),
            "broker": Names(MAX_BROKERS, "unknown"),
        }
        self._errors, self._reasons = Names(MAX_ERRORS, "unknown"), Names(MAX_ERRORS, "unknown")
        self.series = Series(self.names, "api", CALL_SUMS)
        self.latency = HistogramSeries()
        self.errors = Series({**self.names, "error": self._errors}, "error", ("calls",))
        self.unanswered = Series({**self.names, "reason": self._reasons}, "reason", ("calls",))
        self.statuses: Counter[tuple[str, str]] = Counter()

    def add(self, calls: pa.RecordBatch, waited: NDArray[np.bool_]) -> None:
        """Count calls (EVENTS); `waited` says which waited on purpose."""
        columns = {
            "api": calls["api"],
            "client_id": calls["client_id"],
            "broker": addresses(calls["broker_ip"], calls["broker_port"]),
        }
        keys = {name: names.encode(columns[name]) for name, names in self.names.items()}
        self._count_statuses(keys["api"], calls["status"])
        latency = _floats(calls["latency_us"])
        throttle = _ints(calls["throttle_ms"])
        measures: dict[str, Ints | NDArray[np.float64]] = {
            "requests": _ints(pc.not_equal(calls["status"], "orphan")),
            "request_bytes": _ints(calls["request_bytes"]),
            "response_bytes": _ints(calls["response_bytes"]),
            "records": _ints(calls["record_count"]),
            "record_bytes": _ints(calls["record_bytes"]),
            "throttled": (throttle > 0).astype(np.int64),
            "throttle_ms": throttle,
            "waited": waited.astype(np.int64),
            "waited_us": np.nan_to_num(_floats(calls["waited_us"])),
        }
        series = self.series.add(list(keys.values()), measures)
        service = ~np.isnan(latency) & ~waited
        self.latency.add(series[service], latency[service])
        self._count_some(self.errors, keys, calls["error"], _ints(calls["error_code"]) != 0, self._errors)
        gone = calls["unanswered_because"]
        self._count_some(self.unanswered, keys, gone, ~lists.is_null(gone), self._reasons)

    def _count_statuses(self, apis: Ints, statuses: pa.Array) -> None:
        counted = pa.table({"api": apis, "status": statuses}).group_by(["api", "status"], use_threads=False)
        for row in counted.aggregate([([], "count_all")]).to_pylist():
            self.statuses[self.names["api"].values[row["api"]], row["status"]] += row["count_all"]

    @staticmethod
    def _count_some(
        series: Series, keys: dict[str, Ints], column: pa.Array, chosen: NDArray[np.bool_], names: Names
    ) -> None:
        if chosen.any():
            further = names.encode(column.filter(pa.array(chosen)))
            series.add(
                [*(key[chosen] for key in keys.values()), further],
                {"calls": np.ones(len(further), np.int64)},
            )


class Topics:
    """Calls by API and topic. A call counts for each topic it names; records, bytes and errors are those of
    the topic's own partitions. A topic of which only the uuid is known goes by that."""

    def __init__(self, apis: Names) -> None:
        self.names = {"api": apis, "topic": Names(MAX_TOPICS)}
        self._errors = Names(MAX_ERRORS, "unknown")
        self._learnt = TopicNames()
        self.series = Series(self.names, "api", TOPIC_SUMS)
        self.latency = HistogramSeries()
        self.errors = Series({**self.names, "error": self._errors}, "error", ("partitions",))

    def add(self, calls: pa.RecordBatch, waited: NDArray[np.bool_]) -> None:
        """Count the topics of calls (EVENTS)."""
        self._learnt.add(calls)
        apis = self.names["api"].encode(calls["api"])
        counts, given, ids = elements(calls["topics"], calls["topic_ids"])
        flat = calls["partitions"].flatten()
        part_rows = lists.parents(lists.lengths(calls["partitions"]))
        named = self._numbers(given, ids)
        parts = self._numbers(pc.struct_field(flat, "topic"), pc.struct_field(flat, "topic_id"))
        self._count_pairs(calls, waited, apis, (lists.parents(counts), named), (part_rows, parts))
        self._count_parts(apis[part_rows], parts, flat)

    def _numbers(self, given: pa.Array, ids: pa.Array) -> Ints:
        """Number of each topic, negative where it has neither name nor uuid."""
        keys = pc.coalesce(given, lookup(ids, self._learnt.names), ids)
        known = ~lists.is_null(keys)
        numbers = np.full(len(keys), -1, np.int64)
        numbers[known] = self.names["topic"].encode(keys.drop_null())
        return numbers

    def _count_pairs(
        self,
        calls: pa.RecordBatch,
        waited: NDArray[np.bool_],
        apis: Ints,
        *places: tuple[Ints, Ints],
    ) -> None:
        """Count each pair of call and topic once, wherever the call names it."""
        rows, topics = (np.concatenate(each) for each in zip(*places, strict=True))
        size = len(self.names["topic"])
        pairs = np.unique((rows * size + topics)[topics >= 0])
        if not len(pairs):
            return
        rows, topics = pairs // size, pairs % size
        none = np.zeros(len(pairs), np.int64)
        asked = _ints(pc.not_equal(calls["status"], "orphan"))[rows]
        measures = {"requests": asked, "records": none, "record_bytes": none}
        series = self.series.add([apis[rows], topics], measures)
        latency = _floats(calls["latency_us"])[rows]
        service = ~np.isnan(latency) & ~waited[rows]
        self.latency.add(series[service], latency[service])

    def _count_parts(self, apis: Ints, topics: Ints, flat: pa.StructArray) -> None:
        codes = _ints(pc.struct_field(flat, "error_code"))
        records, sizes = _ints(pc.struct_field(flat, "records")), _ints(pc.struct_field(flat, "bytes"))
        known = topics >= 0
        if known.any():
            measures = {
                "requests": np.zeros(int(known.sum()), np.int64),
                "records": records[known],
                "record_bytes": sizes[known],
            }
            self.series.add([apis[known], topics[known]], measures)
        failed = known & (codes != 0)
        if failed.any():
            distinct, places = np.unique(codes[failed], return_inverse=True)
            names = pa.array([catalog().error(code).name for code in distinct.tolist()], pa.string())
            errors = self._errors.encode(names)[places]
            one = {"partitions": np.ones(len(errors), np.int64)}
            self.errors.add([apis[failed], topics[failed], errors], one)


class MetricsTally:
    """Everything counted of the events."""

    def __init__(self, *, topics: bool) -> None:
        self.calls = Calls()
        self.topics = Topics(self.calls.names["api"]) if topics else None
        self.anomalies: Counter[str] = Counter()

    def add(self, events: pa.RecordBatch) -> None:
        """Count a batch of EVENTS; of its columns, NEEDED are looked at."""
        for row in events["code"].drop_null().value_counts().to_pylist():
            self.anomalies[row["values"]] += row["counts"]
        calls = events.filter(events["status"].is_valid())
        if not calls.num_rows:
            return
        waited = waiting.waited(calls)
        self.calls.add(calls, waited)
        if self.topics is not None:
            self.topics.add(calls, waited)

    def overflowed(self) -> dict[str, int]:
        """How often a label value, or a combination of them, found no room and became `other`."""
        counts = {name: names.overflowed for name, names in self.calls.names.items()}
        series = [self.calls.series, self.calls.errors, self.calls.unanswered]
        if self.topics is not None:
            counts["topic"] = self.topics.names["topic"].overflowed
            series += [self.topics.series, self.topics.errors]
        return counts | {"combination": sum(each.overflowed for each in series)}


def _ints(column: pa.Array) -> Ints:
    values: Ints = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return values


def _floats(column: pa.Array) -> NDArray[np.float64]:
    values: NDArray[np.float64] = column.to_numpy(zero_copy_only=False)
    return values


# Sums for every combination of label values that occurs, as Prometheus wants them: only ever growing.
#
# Invariant: there are never more than `limit` combinations and as many as the kept labels have; a row whose
# combination finds no room counts under `other`, so that totals over all series stay whole.


# Values of a metric's labels: from the wire, so made safe to show, and never more than a set number.
#
# The first values seen keep their names; what comes when there is no room left is counted under `other`. A
# metric's cost for Prometheus is its number of series, and a client may call itself something new with every
# connection.

OTHER = "other"
MAX_LENGTH = 200
"""Characters of a value; a client id may have 32767, a topic 249."""


def cleaned(value: str | None) -> str:
    """As a label shows it: unprintable characters as escapes, shortened; empty if there is none."""
    text = printable((value or "")[: MAX_LENGTH + 1])
    return text if len(text) <= MAX_LENGTH else text[: MAX_LENGTH - 1] + "…"


class Names:
    """Numbers the values of one label. 0 is `OTHER`.

    Values are told apart as they are shown: two series of the same labels would make Prometheus refuse all.
    """

    def __init__(self, limit: int, unnamed: str = "") -> None:
        """`unnamed` stands for null."""
        self._limit = limit
        self._unnamed = unnamed
        self.values = [OTHER]
        self._numbers = {OTHER: 0}
        self.overflowed = 0
        """Elements that were not given a number of their own."""

    def encode(self, column: pa.Array) -> Ints:
        """The number of each element (texts)."""
        encoded = column.dictionary_encode(null_encoding="encode")
        indices: Ints = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        found = [self._number(value) for value in encoded.dictionary.to_pylist()]
        numbers = np.array(found, dtype=np.int64)[indices] if found else indices
        self.overflowed += int((numbers < 0).sum())
        return np.maximum(numbers, 0)

    def __len__(self) -> int:
        return len(self.values)

    def _number(self, value: str | None) -> int:
        """Negative if there is no room for it."""
        text = cleaned(value) or self._unnamed
        number = self._numbers.get(text)
        if number is None and len(self.values) <= self._limit:
            number = self._numbers[text] = len(self.values)
            self.values.append(text)
        return -1 if number is None else number


def addresses(hosts: pa.Array, ports: pa.Array) -> pa.Array:
    """`host:port` of each row, an IPv6 address in brackets; null without host or port."""
    bracketed = pc.binary_join_element_wise("[", hosts, "]", "")
    shown = pc.if_else(pc.match_substring(hosts, ":"), bracketed, hosts)
    return pc.binary_join_element_wise(shown, ports.cast(pa.string()), ":")


Floats = NDArray[np.float64]

MAX_SERIES = 1000

BUCKETS_US = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000),
)
"""Upper bounds of the latency buckets, inclusive: a broker answers from its page cache in a fraction of a
millisecond, and clients give up after 30 seconds (`request.timeout.ms`)."""


class Series:
    """One row of sums for each combination of label values."""

    def __init__(self, labels: Mapping[str, Names], kept: str, sums: Sequence[str], limit: int = MAX_SERIES):
        """`kept` is the label that stays where the others become `other` for lack of room."""
        self.labels = tuple(labels)
        self.sums = tuple(sums)
        self._names = list(labels.values())
        self._kept = self.labels.index(kept)
        self._limit = limit
        self._numbers: dict[tuple[int, ...], int] = {}
        self._table: Floats = np.zeros((16, len(self.sums)))
        self.overflowed = 0
        """Rows counted under `other` because there were too many combinations."""

    def add(self, keys: Sequence[Ints], measures: Mapping[str, Floats | Ints]) -> Ints:
        """Add rows with their label values by number; returns the series of each row."""
        codes, examples = combined(list(keys), [len(names) for names in self._names])
        kinds = zip(*(column[examples].tolist() for column in keys), strict=True)
        counts = np.bincount(codes, minlength=len(examples))
        numbers = [self._number(kind, int(count)) for kind, count in zip(kinds, counts, strict=True)]
        series: Ints = np.array(numbers, dtype=np.int64)[codes] if numbers else codes
        self._grow()
        grouped = pa.table({"series": series, **measures}).group_by("series", use_threads=False)
        totals = grouped.aggregate([(name, "sum") for name in self.sums])
        rows = totals["series"].to_numpy()
        for place, name in enumerate(self.sums):
            self._table[rows, place] += totals[f"{name}_sum"].to_numpy()
        return series

    def __len__(self) -> int:
        return len(self._numbers)

    def snapshot(self) -> tuple[list[list[str]], Floats]:
        """Label values of each series and its sums, as of now."""
        values = [names.values for names in self._names]
        labels = [[of[n] for of, n in zip(values, kind, strict=True)] for kind in self._numbers]
        return labels, self._table[: len(labels)].copy()

    def _number(self, kind: tuple[int, ...], rows: int) -> int:
        number = self._numbers.get(kind)
        if number is None and len(self._numbers) >= self._limit:
            self.overflowed += rows
            kind = tuple(value if at == self._kept else 0 for at, value in enumerate(kind))
        return self._numbers.setdefault(kind, len(self._numbers)) if number is None else number

    def _grow(self) -> None:
        while len(self._numbers) > len(self._table):
            self._table = np.concatenate([self._table, np.zeros_like(self._table)])


class HistogramSeries:
    """Latencies by bucket for the rows of a `Series`."""

    def __init__(self) -> None:
        self._counts: NDArray[np.int64] = np.zeros((16, len(BUCKETS_US) + 1), np.int64)
        self._seconds: Floats = np.zeros(16)

    def add(self, series: Ints, latency_us: Floats) -> None:
        """Add one latency (microseconds) for each row, whose series is given."""
        while len(series) and series.max() >= len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros_like(self._counts)])
            self._seconds = np.concatenate([self._seconds, np.zeros_like(self._seconds)])
        bucket = np.searchsorted(BUCKETS_US, latency_us, side="left")
        np.add.at(self._counts, (series, bucket), 1)
        np.add.at(self._seconds, series, latency_us / 1e6)

    def snapshot(self, size: int) -> tuple[NDArray[np.int64], Floats]:
        """For the first `size` series: cumulative counts up to each bound and in all, and the sum."""
        missing = max(size - len(self._counts), 0)
        counts = np.pad(self._counts, ((0, missing), (0, 0)))[:size]
        return np.cumsum(counts, axis=1), np.pad(self._seconds, (0, missing))[:size]
