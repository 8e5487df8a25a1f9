"""A call store for sessions that last: its memory does not grow with the calls, and it may be asked again
and again for the tables so far."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from kwsniff.report.condensed import LIMIT, Condensed
from kwsniff.report.samples import Integers, percentile_columns
from kwsniff.report.store import CallStore, Floats, Ints


class BoundedStore(CallStore):
    """Percentiles are exact until more than `limit` values are kept of a metric; then they are off by no more
    than `error`, but for the greatest values, which stay exact. All other figures are exact. Unlike its base,
    it takes further batches after `finish`."""

    def __init__(self, limit: int = LIMIT) -> None:
        super().__init__()
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
        """Take all that another store took, as if its batches had come after those of this one."""
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
        for name, values in (("latency", latency), ("duration", duration)):
            self._by_cell[name].add(cell, values)
            self._by_topic[name].add(topic * 2 + waited[row], values[row])

    def _finish_samples(self) -> None:
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

    def percentiles(self, codes: Integers, groups: int) -> pd.DataFrame:
        """See `kwsniff.report.samples.Samples`."""
        found = {name: values.quantiles(codes, 2 * groups) for name, values in self._metrics.items()}
        return percentile_columns(found)
