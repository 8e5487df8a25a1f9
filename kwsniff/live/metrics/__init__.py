"""`--prometheus ADDR:PORT`: what a live session finds, for Prometheus to scrape.

Theory of operation. Events wait until there are enough of them to be worth counting, for a batch costs two
milliseconds however small it is; a tick and a scrape count what waits (`kwsniff.live.metrics.counted`). A
scrape, in a thread of the HTTP server, copies the sums under the session's lock and writes them out after it
let go, so that a slow scraper never holds up the capture.

Invariants: a metric only grows, but for the gauges; the series are bounded whatever clients call themselves
(`kwsniff.live.metrics.counted`); the registry is the session's own, so nothing of the process is shown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

import pyarrow as pa
from prometheus_client import CollectorRegistry, Metric, make_wsgi_app
from prometheus_client.registry import Collector

from kwsniff.live.metrics.counted import NEEDED, MetricsTally
from kwsniff.live.metrics.exposition import Endpoint, MetricsError, families, of_lag
from kwsniff.live.session import Health

__all__ = ["Metrics", "MetricsError"]

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
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0
        self._health: Health | None = None
        self._lock = threading.Lock()
        registry = CollectorRegistry()
        registry.register(_Collector(self))
        self._endpoint = Endpoint(address, make_wsgi_app(registry))

    @property
    def url(self) -> str:
        """Where to scrape."""
        return self._endpoint.url

    def add(self, events: pa.RecordBatch) -> None:
        """Count events (see `kwsniff.rows.schema.EVENTS`)."""
        with self._lock:
            self._waiting.append(events.select(list(NEEDED)))
            self._rows += events.num_rows
            if self._rows >= ENOUGH:
                self._count()

    def tick(self, health: Health) -> None:
        """Take note of how well the capture keeps up."""
        with self._lock:
            self._health = health
            self._count()

    def close(self) -> None:
        """End the endpoint. May be called again."""
        self._endpoint.close()

    def collect(self) -> list[Metric]:
        """All metrics as of now."""
        with self._lock:
            self._count()
            found = list(families(self._tally, self._health))
        return found + ([] if self._lag is None else list(of_lag(self._lag())))

    def _count(self) -> None:
        waiting, self._waiting, self._rows = self._waiting, [], 0
        if waiting:
            self._tally.add(waiting[0] if len(waiting) == 1 else pa.concat_batches(waiting))


class _Collector(Collector):
    """What the registry asks; apart from the sink, whose metrics it does not want to know beforehand."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        return self._metrics.collect()

    def describe(self) -> Iterable[Metric]:
        """No names: they are the registry's own alone, nothing can clash."""
        return []
