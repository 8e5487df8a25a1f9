"""What the metrics count of the events: batches in, sums by label values kept.

Every step works on the columns of a batch; nothing is done call by call. Nothing here knows HTTP.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from kwsniff.count.codes import Coded, Codes, Joint
from kwsniff.count.eventrows import WAITED, EventBatch, EventRows, waited
from kwsniff.count.keyed import REAL_SUM, Columns, Key, Keyed, Measure
from kwsniff.count.topics import TopicNames
from kwsniff.count.topicstore import TopicCalls
from kwsniff.output.text import printable
from kwsniff.rows.columns import Floats, Ints, Mask
from kwsniff.spec.load import catalog

MAX_APIS = 200
"""Kafka has some 90; a damaged stream may name others."""
MAX_ERRORS = 200
MAX_CLIENTS = 100
MAX_BROKERS = 100
MAX_TOPICS = 200

_COUNTED = (
    *("event", "code", "status", "api", "client_id", "broker_ip", "broker_port", "latency_us", "throttle_ms"),
    *("request_bytes", "response_bytes", "record_count", "record_bytes", "error_code", "error"),
    *("unanswered_because", "topics", "topic_ids", "partitions"),
)
NEEDED = tuple(dict.fromkeys((*_COUNTED, *WAITED)))
"""Columns of EVENTS that are counted."""

CALL_SUMS = (
    *("requests", "request_bytes", "response_bytes", "records", "record_bytes"),
    *("throttled", "throttle_ms", "waited", "waited_us"),
)
TOPIC_SUMS = ("requests", "records", "record_bytes")


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


class Names(Codes):
    """Numbers the values of one label. 0 is `OTHER`.

    Values are told apart as they are shown: two series of the same labels would make Prometheus refuse all.
    """

    def __init__(self, most: int, unnamed: str = "") -> None:
        """`unnamed` stands for null."""
        super().__init__()
        self._most, self._unnamed = most, unnamed
        super().number(OTHER)
        self.overflowed = 0
        """Elements that were not given a number of their own."""

    def numbers(self, values: Sequence[Any], indices: Ints) -> Ints:
        """The number of each element of a column."""
        found = super().numbers(values, indices)
        self.overflowed += int((found < 0).sum())
        return np.maximum(found, 0)

    def number(self, value: str | None) -> int:
        """Negative if there is no room for it."""
        text = cleaned(value) or self._unnamed
        return super().number(text) if text in self or len(self) <= self._most else -1


# Sums for every combination of label values that occurs, as Prometheus wants them: only ever growing.
#
# Invariant: there are never more than `MAX_SERIES` combinations and as many as the kept labels have; a row
# whose combination finds no room counts under `other`, so that totals over all series stay whole.

MAX_SERIES = 1000

BUCKETS_US = (
    *(100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000),
    *(1_000_000, 2_500_000, 5_000_000, 10_000_000, 30_000_000),
)
"""Upper bounds of the latency buckets, inclusive: a broker answers from its page cache in a fraction of a
millisecond, and clients give up after 30 seconds (`request.timeout.ms`)."""
_LATENCY = {"buckets": Measure(np.add, np.int64, 0, len(BUCKETS_US) + 1), "latency_s": REAL_SUM}


class Series:
    """Sums, and latencies by bucket, for each combination of label values."""

    def __init__(self, labels: Mapping[str, Names], kept: str, sums: Sequence[str]) -> None:
        """`kept` is the label that stays where the others become `other` for lack of room."""
        self.labels = tuple(labels)
        self._names = list(labels.values())
        self._kept = self.labels.index(kept)
        self._table = Keyed(dict.fromkeys(sums, REAL_SUM) | _LATENCY, MAX_SERIES, self._others)

    def add(self, keys: Sequence[Ints], sums: Columns, latency_us: Floats | None = None) -> None:
        """Add rows with their label values by number; latencies that are NaN are passed over."""
        rows = self._table.placed(keys, [len(names) for names in self._names])
        self._table.add(rows, sums)
        if latency_us is not None:
            known = ~np.isnan(latency_us)
            latency_us = latency_us[known]
            bucket = np.searchsorted(BUCKETS_US, latency_us, side="left")
            self._table.add(rows[known], {"buckets": bucket, "latency_s": latency_us / 1e6})

    @property
    def overflowed(self) -> int:
        """Rows counted under `other` because there were too many combinations."""
        return self._table.overflowed

    def snapshot(self) -> tuple[list[tuple[str, ...]], Columns]:
        """Label values of each series; its sums, and counts of latencies up to each bound and in all, as of
        now."""
        values = [names.values for names in self._names]
        labels = [tuple(of[n] for of, n in zip(values, kind, strict=True)) for kind in self._table.rows]
        columns = {name: column.copy() for name, column in self._table.columns().items()}
        return labels, columns | {"buckets": np.cumsum(columns["buckets"], axis=1)}

    def _others(self, kind: Key) -> Key:
        return tuple(value if at == self._kept else 0 for at, value in enumerate(kind))


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
        self.errors = Series({**self.names, "error": self._errors}, "error", ("calls",))
        self.unanswered = Series({**self.names, "reason": self._reasons}, "reason", ("calls",))
        self.statuses: Counter[tuple[str, str]] = Counter()

    def add(self, calls: EventRows, waited: Mask) -> Ints:
        """Count calls; `waited` says which waited on purpose. Returns their APIs by number."""
        columns = (calls.coded("api"), calls.coded("client_id"), calls.broker)
        keys = [names.numbers(*column) for names, column in zip(self.names.values(), columns, strict=True)]
        self._count_statuses(keys[0], calls.coded("status"))
        throttle = calls.ints("throttle_ms")
        sums = {
            "requests": ~calls.coded("status").equals("orphan"),
            "request_bytes": calls.ints("request_bytes"),
            "response_bytes": calls.ints("response_bytes"),
            "records": calls.ints("record_count"),
            "record_bytes": calls.ints("record_bytes"),
            "throttled": throttle > 0,
            "throttle_ms": throttle,
            "waited": waited,
            "waited_us": np.nan_to_num(calls.floats("waited_us")),
        }
        self.series.add(keys, sums, np.where(waited, np.nan, calls.floats("latency_us")))
        failed, gone = calls.ints("error_code") != 0, calls.known("unanswered_because")
        _count_some(self.errors, keys, calls.coded("error"), failed, self._errors)
        _count_some(self.unanswered, keys, calls.coded("unanswered_because"), gone, self._reasons)
        return keys[0]

    def _count_statuses(self, apis: Ints, statuses: Coded) -> None:
        names = self.names["api"].values
        both = Joint.of(Coded(names, apis), statuses)
        labels = zip(*both.named(list(range(both.size))), strict=True)
        self.statuses.update(dict(zip(labels, np.bincount(both.codes).tolist(), strict=True)))


def _count_some(series: Series, keys: Sequence[Ints], column: Coded, which: Mask, names: Names) -> None:
    if which.any():
        further = names.numbers(*column.at(np.flatnonzero(which)))
        series.add([*(key[which] for key in keys), further], {"calls": np.ones(len(further))})


class Topics:
    """Calls by API and topic. A call counts for each topic it names; records, bytes and errors are those of
    the topic's own partitions. A topic of which only the uuid is known goes by that."""

    def __init__(self, apis: Names) -> None:
        self.names = {"api": apis, "topic": Names(MAX_TOPICS)}
        self._errors = Names(MAX_ERRORS, "unknown")
        self._learnt = TopicNames()
        self.series = Series(self.names, "api", TOPIC_SUMS)
        self.errors = Series({**self.names, "error": self._errors}, "error", ("partitions",))

    def add(self, seen: EventBatch, apis: Ints, waited: Mask) -> None:
        """Count the topics of calls, whose APIs are given."""
        self._learnt.know(seen.named)
        parts, told = seen.partitions, self._numbers(seen.partitions.key)
        pairs = TopicCalls.of(seen, self._numbers(seen.topics.key), told)
        asked = ~seen.calls.coded("status").equals("orphan")
        latency = np.where(waited, np.nan, seen.calls.floats("latency_us"))
        sums = {"requests": asked[pairs.row], "records": pairs.records, "record_bytes": pairs.bytes}
        self.series.add([apis[pairs.row], pairs.topic], sums, latency[pairs.row])
        codes = parts.ints("error_code")
        failed = (told >= 0) & (codes != 0)
        if failed.any():
            distinct, places = np.unique(codes[failed], return_inverse=True)
            errors = Coded([catalog().error(code).name for code in distinct.tolist()], places)
            keys = [apis[parts.row[failed]], told[failed], self._errors.numbers(*errors)]
            self.errors.add(keys, {"partitions": np.ones(len(places))})

    def _numbers(self, keys: Coded) -> Ints:
        """Number of each topic, negative where it has neither name nor uuid."""
        known = ~keys.equals(None)
        numbers = np.full(len(known), -1, np.int64)
        names = [self._learnt.names.get(key, key) for key in keys.values]
        numbers[known] = self.names["topic"].numbers(names, keys.codes[known])
        return numbers


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
        seen = EventBatch(events).counted
        if not len(seen.calls):
            return
        on_purpose = waited(seen.calls)
        apis = self.calls.add(seen.calls, on_purpose)
        if self.topics is not None:
            self.topics.add(seen, apis, on_purpose)

    def overflowed(self) -> dict[str, int]:
        """How often a label value, or a combination of them, found no room and became `other`."""
        counts = {name: names.overflowed for name, names in self.calls.names.items()}
        series = [self.calls.series, self.calls.errors, self.calls.unanswered]
        if self.topics is not None:
            counts["topic"] = self.topics.names["topic"].overflowed
            series += [self.topics.series, self.topics.errors]
        return counts | {"combination": sum(each.overflowed for each in series)}
