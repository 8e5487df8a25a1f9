"""The metrics with their names, types and help texts, as Prometheus has them
(https://prometheus.io/docs/practices/naming/): `_total` on counters, base units, one name for one thing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from kwsniff import __version__
from kwsniff.live.metrics.series import BUCKETS_US, MAX_SERIES, HistogramSeries, Series, cleaned
from kwsniff.live.metrics.tally import Calls, MetricsTally, Topics
from kwsniff.live.sink import Health

_BOUNDS = [*(str(bound / 1e6) for bound in BUCKETS_US), "+Inf"]

Counters = Mapping[str, tuple[str, float, str]]
"""By name of the metric: the sum it shows, its unit in base units, and its help text."""

CALLS: Counters = {
    "kwsniff_requests": ("requests", 1, "Requests captured, answered or not."),
    "kwsniff_request_bytes": ("request_bytes", 1, "Size of the requests, with their length bytes."),
    "kwsniff_response_bytes": ("response_bytes", 1, "Size of the responses, with their length bytes."),
    "kwsniff_records": ("records", 1, "Records in requests and responses, by their batch headers."),
    "kwsniff_record_bytes": ("record_bytes", 1, "Record data in them, as sent, compressed."),
    "kwsniff_throttled_requests": ("throttled", 1, "Requests whose response says the client is throttled."),
    "kwsniff_throttle_seconds": ("throttle_ms", 1e-3, "Throttle times that those responses name."),
    "kwsniff_waited_requests": (
        "waited",
        1,
        "Answered requests that waited on purpose: empty Fetches, JoinGroup, SyncGroup. "
        "They are not part of the latencies.",
    ),
    "kwsniff_waited_seconds": ("waited_us", 1e-6, "Latency of those requests."),
}

TOPICS: Counters = {
    "kwsniff_topic_requests": ("requests", 1, "Requests that name the topic; a request may name several."),
    "kwsniff_topic_records": ("records", 1, "Records of the topic, by their batch headers."),
    "kwsniff_topic_record_bytes": ("record_bytes", 1, "Record data of the topic, as sent, compressed."),
}

HEALTH: Mapping[str, tuple[str, Callable[[Health], float]]] = {
    "kwsniff_connections": ("TCP connections followed at present.", lambda health: health.connections),
    "kwsniff_outstanding_requests": (
        "Requests that wait for a response, with each topic and partition that they name.",
        lambda health: health.outstanding,
    ),
    "kwsniff_waiting_bytes": (
        "Captured bytes that are not decoded yet.",
        lambda health: health.waiting_bytes,
    ),
    "kwsniff_decoded_timestamp_seconds": (
        "Until when packets have been decoded, seconds since 1970 UTC.",
        lambda health: health.now_ns / 1e9,
    ),
    "kwsniff_start_time_seconds": (
        "When the capture began, seconds since 1970 UTC.",
        lambda health: health.started_ns / 1e9,
    ),
}


def families(tally: MetricsTally, health: Health | None) -> Iterator[Metric]:
    """All metrics as of now."""
    yield _gauge("kwsniff_build_info", "Version of kwsniff.", 1, {"version": __version__})
    yield from _of_calls(tally.calls)
    if tally.topics is not None:
        yield from _of_topics(tally.topics)
    anomalies = CounterMetricFamily("kwsniff_anomalies", "Anomalies by code.", labels=["code"])
    for code, count in tally.anomalies.items():
        anomalies.add_metric([code], count)
    yield anomalies
    overflowed = CounterMetricFamily(
        "kwsniff_label_overflows",
        "How often a label value, or a combination of them, found no room and was counted under other.",
        labels=["label"],
    )
    for label, count in tally.overflowed().items():
        overflowed.add_metric([label], count)
    yield overflowed
    if health is not None:
        yield from _of_health(health)


def _of_calls(calls: Calls) -> Iterator[Metric]:
    yield from _counters(calls.series, CALLS)
    yield _histogram(
        "kwsniff_request_latency_seconds",
        "From the last byte of a request to the first of its response, of requests that did not wait on "
        "purpose.",
        calls.series,
        calls.latency,
    )
    statuses = CounterMetricFamily(
        "kwsniff_calls",
        "Calls by status: requests, and responses without a request.",
        labels=["api", "status"],
    )
    for key, count in calls.statuses.items():
        statuses.add_metric(list(key), count)
    yield statuses
    errors = {"kwsniff_errors": ("calls", 1.0, "Answered with this error first in the response.")}
    yield from _counters(calls.errors, errors)
    unanswered = {"kwsniff_unanswered_requests": ("calls", 1.0, "No response was captured, and why.")}
    yield from _counters(calls.unanswered, unanswered)


def _of_topics(topics: Topics) -> Iterator[Metric]:
    yield from _counters(topics.series, TOPICS)
    yield _histogram(
        "kwsniff_topic_request_latency_seconds",
        "Latency of requests that name the topic, of those that did not wait on purpose.",
        topics.series,
        topics.latency,
    )
    errors = {"kwsniff_topic_errors": ("partitions", 1.0, "Errors of the topic's partitions in responses.")}
    yield from _counters(topics.errors, errors)


def of_lag(rows: pa.Table) -> Iterator[Metric]:
    """How far groups and consumers are behind: of the rows of `kwsniff.findings.positions.LAG` the MAX_SERIES
    that are furthest behind."""
    by = pc.is_valid(rows["group_id"])
    for who, labels, chosen in (
        ("group", ["group_id", "topic", "partition"], by),
        ("consumer", ["client_id", "client_ip", "topic", "partition"], pc.invert(by)),
    ):
        text = f"Records from where a {who} stands in a partition to its end."
        family = GaugeMetricFamily(f"kwsniff_{who}_lag_records", text, labels=labels)
        found: dict[tuple[str, ...], int] = {}
        for row in rows.filter(pc.and_(chosen, pc.is_valid(rows["lag"]))).to_pylist():
            key = tuple(cleaned(None if row[name] is None else str(row[name])) for name in labels)
            if key in found or len(found) < MAX_SERIES:
                found.setdefault(key, row["lag"])
        for key, lag in found.items():
            family.add_metric(key, lag)
        yield family


def _of_health(health: Health) -> Iterator[Metric]:
    yield _counter("kwsniff_packets", "Packets captured.", health.packets)
    yield _counter("kwsniff_captured_bytes", "Of them, on the wire, link layer and all.", health.bytes)
    dropped = CounterMetricFamily(
        "kwsniff_dropped_packets",
        "Packets lost: by the kernel, whose buffer was full, or by kwsniff, which could not keep up.",
        labels=["by"],
    )
    dropped.add_metric(["kernel"], health.kernel_dropped)
    dropped.add_metric(["kwsniff"], health.own_dropped)
    yield dropped
    for name, (text, value) in HEALTH.items():
        yield _gauge(name, text, value(health))


def _counters(series: Series, shown: Counters) -> Iterator[Metric]:
    labels, sums = series.snapshot()
    for name, (column, unit, text) in shown.items():
        family = CounterMetricFamily(name, text, labels=series.labels)
        for values, value in zip(labels, sums[:, series.sums.index(column)].tolist(), strict=True):
            family.add_metric(values, value if unit == 1 else value * unit)
        yield family


def _histogram(name: str, text: str, series: Series, latency: HistogramSeries) -> Metric:
    labels, _ = series.snapshot()
    counts, seconds = latency.snapshot(len(labels))
    family = HistogramMetricFamily(name, text, labels=series.labels)
    for values, row, total in zip(labels, counts.tolist(), seconds.tolist(), strict=True):
        family.add_metric(values, list(zip(_BOUNDS, row, strict=True)), total)
    return family


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=value)


def _gauge(name: str, text: str, value: float, labels: Mapping[str, str] | None = None) -> Metric:
    family = GaugeMetricFamily(name, text, labels=list(labels or {}))
    family.add_metric(list((labels or {}).values()), value)
    return family
