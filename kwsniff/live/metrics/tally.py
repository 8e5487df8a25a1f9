"""What the metrics count of the events: batches in, sums by label values kept.

Every step works on the columns of a batch; nothing is done call by call. Nothing here knows HTTP.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.live.metrics.series import HistogramSeries, Ints, Names, Series, addresses
from kwsniff.report import lists, waiting
from kwsniff.report.topics import TopicNames, elements, lookup
from kwsniff.spec.load import catalog

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
