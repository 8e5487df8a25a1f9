"""A call store whose memory does not grow with the calls: for sessions that last, and may be asked again and
again for the tables so far, and for captures of any size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from kwsniff.count.coverage import Coverage
from kwsniff.count.percentiles import LIMIT, Condensed, Integers, percentile_columns
from kwsniff.count.store import CallStore
from kwsniff.rows.columns import Floats, Ints


class BoundedStore(CallStore):
    """Percentiles are exact until more than `exact` samples are kept (calls, and topics of calls), and then
    until more than a quarter of that, or `kwsniff.count.percentiles.LIMIT`, are kept of a metric; then they
    are off by no more than `error`, but for the greatest values, which stay exact. All other figures are
    exact.

    After `finish` it takes further batches, unless `exact` was given and is not used up."""

    def __init__(
        self,
        exact: int = 0,
        limit: int | None = None,
        *,
        topics: bool = True,
        coverage: Coverage | None = None,
    ) -> None:
        """`exact` are samples that are kept as its base does, 28 bytes for a call and a topic; 0: none.
        `limit`: that of values of a metric, if it is to be another one. The others: see its base."""
        super().__init__(topics=topics, coverage=coverage)
        self._room = exact
        limit = limit or max(exact // 4, LIMIT)  # four times 20 bytes a value
        self._by_cell = {"latency": Condensed(limit), "duration": Condensed(limit)}
        self._by_topic = {"latency": Condensed(limit), "duration": Condensed(limit)}

    @property
    def error(self) -> float:
        """How far a percentile may be from the true one, as a part of it."""
        return max(each.error for each in (*self._by_cell.values(), *self._by_topic.values()))

    def condense(self) -> None:
        """Take less room, now, and be off by up to `error`."""
        for each in (*self._by_cell.values(), *self._by_topic.values()):
            each.condense()

    def merge(self, other: BoundedStore) -> None:
        """Take all that another store took, as if its batches had come after those of this one. Neither may
        have been made with `exact`."""
        assert not self._room
        assert not other._room
        cells, topics = self._merge(other)
        keys = np.repeat(topics * 2, 2)
        keys[1::2] += 1
        for name, values in other._by_cell.items():
            self._by_cell[name].merge(values, cells)
        for name, values in other._by_topic.items():
            self._by_topic[name].merge(values, keys)

    def _keep(
        self, latency: Floats, duration: Floats, cell: Ints, waited: Ints, row: Ints, topic: Ints
    ) -> None:
        if not self._room:
            self._condense({"latency": latency, "duration": duration}, cell, waited, row, topic)
            return
        super()._keep(latency, duration, cell, waited, row, topic)
        self._room = max(self._room - len(cell) - len(row), 0)
        if not self._room:
            self._condense_kept()

    def _condense_kept(self) -> None:
        """There are too many samples to keep them all: treat those kept as if that had been clear before."""
        waited = np.array([kind[-1] for kind in self._cube.kinds], np.int64)
        first = 0
        while self._cell:
            cell, row = self._cell.pop(0).astype(np.int64), self._call.pop(0).astype(np.int64) - first
            metrics = {"latency": self._latency.pop(0), "duration": self._duration.pop(0)}
            self._condense(metrics, cell, waited[cell], row, self._topic.pop(0).astype(np.int64))
            first += len(cell)

    def _condense(
        self, metrics: Mapping[str, Floats], cell: Ints, waited: Ints, row: Ints, topic: Ints
    ) -> None:
        for name, values in metrics.items():
            self._by_cell[name].add(cell, values)
            self._by_topic[name].add(topic * 2 + waited[row], values[row])

    def _finish_samples(self) -> None:
        if self._room:
            super()._finish_samples()
            return
        self.samples = CondensedSamples(self._by_cell)
        numbers = np.repeat(self.topics.numbers * 2, 2)
        numbers[1::2] += 1
        self.topic_samples = CondensedSamples(
            {name: values.rekeyed(numbers) for name, values in self._by_topic.items()}
        )


class CondensedSamples:
    """Percentiles of what a bounded store kept."""

    def __init__(self, metrics: Mapping[str, Condensed]) -> None:
        self._metrics = metrics

    def percentiles(self, codes: Integers, groups: int) -> dict[str, Floats]:
        """See `kwsniff.count.percentiles.Samples`."""
        found = {name: values.quantiles(codes, 2 * groups) for name, values in self._metrics.items()}
        return percentile_columns(found)
