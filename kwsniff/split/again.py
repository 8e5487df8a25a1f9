"""Decoding again, from a known state on and from their segments alone, what a split could not guess."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from kwsniff.arrow import events_batch, segment_columns
from kwsniff.config import Config
from kwsniff.engine import Engine
from kwsniff.engine.rows import Endpoints, Rows
from kwsniff.net.columns import Ints, SegmentColumns
from kwsniff.pace import Pace
from kwsniff.pipeline import Part
from kwsniff.split.engine import ORDER_BITS
from kwsniff.split.state import thaw
from kwsniff.split.stitch import Again

Read = Callable[[int], Iterable[pa.RecordBatch]]
"""Takes the number of a split; gives its SEGMENTS batches."""


class ChosenEngine(Engine):
    """Follows only the endpoints it was given, each from its split on."""

    def __init__(self, config: Config, given: Sequence[Again]) -> None:
        super().__init__(config, (1, 2))  # notes on packets are not its business
        self._given = {again.endpoints: again for again in given}
        self._followed_here: set[Endpoints] = set()
        self._hashes: Ints = np.zeros(0, np.int64)

    def begin(self, split: int) -> None:
        """The segments that follow are those of that split."""
        self._order = split << ORDER_BITS
        for endpoints, again in self._given.items():
            if again.split == split:
                self._followed_here.add(endpoints)
                if again.state is not None:
                    self._put(again.state)
        ends = [list(endpoints) for endpoints in self._followed_here]
        self._hashes = hashes(np.array(ends, np.int64).reshape(len(ends), 6))

    def over(self, clock: int) -> None:
        """Nothing follows."""
        self._clock = clock

    def _put(self, state: bytes) -> None:
        self.opened += 1
        shared = {
            "config": self.config, "versions": self._versions, "calls": self._events.calls,
            "anomalies": self._events.anomalies,
        }  # fmt: skip
        connection = thaw(state, shared, self.opened)
        self._table[connection.endpoints] = self._by_number[self.opened] = connection

    def _share(self, perm: Ints, group: Ints) -> Ints:
        return perm[np.isin(group[perm], self._hashes)]

    def _feed_connection(self, endpoints: Endpoints, rows: Rows, begin: int, end: int) -> None:
        if endpoints in self._followed_here:  # and not merely of the same hash
            super()._feed_connection(endpoints, rows, begin, end)


def hashes(ends: Ints) -> Ints:
    """The engine's hashes of endpoints, one in each row."""
    from kwsniff.engine import _flow_hash

    none = np.zeros(len(ends), np.int64)
    a_hi, a_lo, a_port, b_hi, b_lo, b_port = (np.ascontiguousarray(column) for column in ends.T)
    columns = SegmentColumns(
        None,
        none,
        none,
        a_hi,
        a_lo,
        b_hi,
        b_lo,
        a_port,
        b_port,
        none,
        none,
        none,
        none,
        none,
        none,
        none,
        [],
        [],
    )
    return _flow_hash(columns)[1]


def decode_again(given: Sequence[Again], read: Read, config: Config, clock: int) -> Iterator[Part]:
    """Events, with keys that order them, of these endpoints from their splits on."""
    engine, pace = ChosenEngine(config, given), Pace(config)
    for split in sorted({split for again in given for split in again.splits}):
        engine.begin(split)
        for batch in read(split):
            for part in pace.slices(batch):
                columns = segment_columns(part)
                yield events_batch(engine.feed(columns), columns.capture, config)
    engine.over(clock)
    yield events_batch(engine.finish(), None, config)
