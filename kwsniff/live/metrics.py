"""`--prometheus ADDR:PORT`: what a live session finds, for Prometheus to scrape.

Theory of operation. Events are counted some thousand at a time; a tick and a scrape count what waits
(`kwsniff.live.counted`). A scrape, in a thread of the HTTP server, copies the sums under the session's lock
and writes them out after it let go, so that a slow scraper never holds up the capture.

The metrics have names, types and help texts as Prometheus has them
(https://prometheus.io/docs/practices/naming/): `_total` on counters, base units, one name for one thing.

Invariants: a metric only grows, but for the gauges; the series are bounded whatever clients call themselves
(`kwsniff.live.counted`); the registry is the session's own, so nothing of the process is shown.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from socketserver import TCPServer, ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pyarrow as pa
import pyarrow.compute as pc
from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from kwsniff import __version__
from kwsniff.capture.error import LiveError
from kwsniff.live.counted import BUCKETS_US, MAX_SERIES, NEEDED, Calls, MetricsTally, Series, Topics, cleaned
from kwsniff.live.session import Health, Waiting

ENOUGH = 4096
"""Events counted at a time."""


class Metrics:
    """Counts events and serves the counts over HTTP until `close`."""

    def __init__(
        self, address: str, *, topics: bool = False, lag: Callable[[], pa.Table] | None = None
    ) -> None:
        """Listen on `address`: `host:port`, or `:port` for the loopback address.

        `topics` adds metrics by topic; `lag` gives rows of `kwsniff.analysis.lag.LAG` to any thread.

        Raises:
            MetricsError: with one line that says why nothing can be served there.
        """
        self._tally = MetricsTally(topics=topics)
        self._lag = lag
        self._waiting = Waiting(NEEDED, ENOUGH)
        self._health: Health | None = None
        self._lock = threading.Lock()
        registry = CollectorRegistry()
        registry.register(_Collector(self))
        self._endpoint = Endpoint(address, make_wsgi_app(registry))

    @property
    def url(self) -> str:
        return self._endpoint.url

    def add(self, events: pa.RecordBatch) -> None:
        with self._lock:
            if self._waiting.add(events):
                self._count()

    def tick(self, health: Health) -> None:
        with self._lock:
            self._health = health
            self._count()

    def close(self) -> None:
        self._endpoint.close()

    def collect(self) -> list[Metric]:
        with self._lock:
            self._count()
            found = list(_families(self._tally, self._health))
        return found + ([] if self._lag is None else list(_of_lag(self._lag())))

    def _count(self) -> None:
        for events in self._waiting.taken():
            self._tally.add(events)


class _Collector(Collector):
    """What the registry asks; apart from the sink, whose metrics it does not want to know beforehand."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.collect()

    def describe(self) -> Iterable[Metric]:
        """No names: they are the registry's own alone, nothing can clash."""
        return []


# The metrics

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


def _families(tally: MetricsTally, health: Health | None) -> Iterator[Metric]:
    """All metrics as of now."""
    version = {(__version__,): 1.0}
    yield _family(GaugeMetricFamily, "kwsniff_build_info", "Version of kwsniff.", ("version",), version)
    yield from _of_calls(tally.calls)
    if tally.topics is not None:
        yield from _of_topics(tally.topics)
    anomalies = {(code,): count for code, count in tally.anomalies.items()}
    yield _family(CounterMetricFamily, "kwsniff_anomalies", "Anomalies by code.", ("code",), anomalies)
    yield _family(
        CounterMetricFamily,
        "kwsniff_label_overflows",
        "How often a label value, or a combination of them, found no room and was counted under other.",
        ("label",),
        {(label,): count for label, count in tally.overflowed().items()},
    )
    if health is not None:
        yield from _of_health(health)


def _of_calls(calls: Calls) -> Iterator[Metric]:
    yield from _counters(calls.series, CALLS)
    yield _histogram(
        "kwsniff_request_latency_seconds",
        "From the last byte of a request to the first of its response, of requests that did not wait on "
        "purpose.",
        calls.series,
    )
    text = "Calls by status: requests, and responses without a request."
    yield _family(CounterMetricFamily, "kwsniff_calls", text, ("api", "status"), calls.statuses)
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
    )
    errors = {"kwsniff_topic_errors": ("partitions", 1.0, "Errors of the topic's partitions in responses.")}
    yield from _counters(topics.errors, errors)


def _of_lag(rows: pa.Table) -> Iterator[Metric]:
    """How far groups and consumers are behind: of the rows of `kwsniff.analysis.lag.LAG` the MAX_SERIES
    that are furthest behind."""
    by = pc.is_valid(rows["group_id"])
    for who, labels, chosen in (
        ("group", ("group_id", "topic", "partition"), by),
        ("consumer", ("client_id", "client_ip", "topic", "partition"), pc.invert(by)),
    ):
        found: dict[tuple[str, ...], int] = {}
        for row in rows.filter(pc.and_(chosen, pc.is_valid(rows["lag"]))).to_pylist():
            key = tuple(cleaned(None if row[name] is None else str(row[name])) for name in labels)
            if key in found or len(found) < MAX_SERIES:
                found.setdefault(key, row["lag"])
        text = f"Records from where a {who} stands in a partition to its end."
        yield _family(GaugeMetricFamily, f"kwsniff_{who}_lag_records", text, labels, found)


def _of_health(health: Health) -> Iterator[Metric]:
    counts = (("packets", "Packets captured.", health.packets),
              ("captured_bytes", "Of them, on the wire, link layer and all.", health.bytes))  # fmt: skip
    for name, text, count in counts:
        yield _family(CounterMetricFamily, f"kwsniff_{name}", text, (), {(): count})
    text = "Packets lost: by the kernel, whose buffer was full, or by kwsniff, which could not keep up."
    dropped = {("kernel",): health.kernel_dropped, ("kwsniff",): health.own_dropped}
    yield _family(CounterMetricFamily, "kwsniff_dropped_packets", text, ("by",), dropped)
    for name, (text, value) in HEALTH.items():
        yield _family(GaugeMetricFamily, name, text, (), {(): value(health)})


def _counters(series: Series, shown: Counters) -> Iterator[Metric]:
    labels, columns = series.snapshot()
    for name, (column, unit, text) in shown.items():
        sums = columns[column].tolist()
        values = {key: each if unit == 1 else each * unit for key, each in zip(labels, sums, strict=True)}
        yield _family(CounterMetricFamily, name, text, series.labels, values)


def _histogram(name: str, text: str, series: Series) -> Metric:
    labels, columns = series.snapshot()
    family = HistogramMetricFamily(name, text, labels=series.labels)
    counts = zip(labels, columns["buckets"].tolist(), columns["latency_s"].tolist(), strict=True)
    for key, row, total in counts:
        family.add_metric(key, list(zip(_BOUNDS, row, strict=True)), total)
    return family


def _family(
    kind: type[CounterMetricFamily | GaugeMetricFamily],
    name: str,
    text: str,
    labels: Sequence[str],
    values: Mapping[Any, float],
) -> Metric:
    family = kind(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


# Where the metrics are to be had: an HTTP server that answers scrapes and nothing else.
#
# It stands beside a capture on a host that has other work to do, so it takes few connections at a time and
# lets none of them stay: a scraper asks a few times a minute.

LOOPBACK = "127.0.0.1"
MAX_REQUESTS = 4
"""Connections served at a time; further ones are closed at once."""
TIMEOUT_S = 5.0
"""How long a client may take to send its request, or to take a piece of the answer."""

_ADDRESS = re.compile(
    r"(?:\[(?P<bracketed>[^\]]*)\]|(?P<host>[^:\[\]]*)):(?P<port>\d{1,5})|(?P<only>\d{1,5})"
)


class MetricsError(LiveError):
    """The metrics cannot be served there: one line that says why."""


def parsed(address: str) -> tuple[str, int]:
    """Host and port of `host:port`, `[IPv6]:port`, or `:port` or `port`, which mean the loopback address.

    Raises:
        MetricsError: it is none of these.
    """
    found = _ADDRESS.fullmatch(address.strip())
    port = int(found["port"] or found["only"]) if found else -1
    if found is None or not 0 <= port <= 65535:
        raise MetricsError(f"{address!r} is no ADDR:PORT such as :9308 or 0.0.0.0:9308")
    return found["bracketed"] or found["host"] or LOOPBACK, port


class _Handler(WSGIRequestHandler):
    timeout = TIMEOUT_S

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base names it so
        """Say nothing: standard error belongs to the session."""


class _Server(ThreadingMixIn, WSGIServer):
    """A thread for each request, up to `MAX_REQUESTS`."""

    daemon_threads = True

    def __init__(self, *arguments: Any) -> None:
        self._places = threading.Semaphore(MAX_REQUESTS)
        super().__init__(*arguments)

    def server_bind(self) -> None:
        # HTTPServer asks DNS for the name of this host, which may take long and serves nothing here.
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scrape that fails is the scraper's to report: its client went away, or was too slow."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class Endpoint:
    """Serves a WSGI application until `close`."""

    def __init__(self, address: str, application: Callable[..., Any]) -> None:
        """Listen on `address`.

        Raises:
            MetricsError: the address is none, cannot be had, or is taken.
        """
        host, port = parsed(address)
        try:
            family, *_, found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            server = _Server6 if family == socket.AF_INET6 else _Server
            self._server = make_server(str(found[0]), port, application, server, _Handler)
        except OSError as error:
            raise MetricsError(f"cannot serve metrics on {address}: {error.strerror or error}") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, name="metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}/metrics" if ":" in str(host) else f"http://{host!s}:{port}/metrics"

    def close(self) -> None:
        """Stop listening. May be called again."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
