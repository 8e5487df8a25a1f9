"""Decoding again what a split could not guess.

Theory of operation. Where a guess was wrong, the split is read again, and the endpoints in question are
decoded from the state that is known to be true before it, from their segments alone. The state behind the
split is then true as well, so that the edge of the next split is judged as any other. A split is read once
for all endpoints that need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from kwsniff.config import Config
from kwsniff.engine.rows import Endpoints, Rows
from kwsniff.former import Analysis
from kwsniff.net.columns import Ints, SegmentColumns
from kwsniff.pipeline import Part
from kwsniff.split.edge import Edge
from kwsniff.split.engine import ORDER_BITS, FreezingEngine
from kwsniff.split.state import freeze
from kwsniff.split.stitch import Again, Stitched, Stitcher

Read = Callable[[int], Iterable[pa.RecordBatch]]
"""Takes the number of a split; gives its SEGMENTS batches."""


class Rerun:
    """Goes through the splits in their order, with endpoints of which some guess was wrong."""

    def __init__(self, read: Read, config: Config, clock: int) -> None:
        """`clock` is the latest packet time of the whole input, in nanoseconds."""
        self._read, self._config = read, config
        self._stitcher = Stitcher(config, clock)
        self._states: dict[Endpoints, bytes | None] = {}
        """What is true of the endpoints behind the split that was taken last."""

    def take(self, split: int, given: Iterable[Again], edges: Iterable[Edge]) -> Iterator[Stitched]:
        """One split: who is to be decoded again from it on, and the edges that it left of those who were
        before. Splits in which there are neither need not be taken."""
        wrong = {again.endpoints: again for again in given}
        for edge in edges:
            done = self._stitcher.step(self._states.pop(edge.endpoints, None), edge)
            if done.again is None:
                self._states[edge.endpoints] = done.state
            else:
                wrong[edge.endpoints] = done.again
            yield done
        if wrong:
            yield from (Stitched([part], []) for part in self._decoded(split, wrong) if part[0] is not None)

    def finish(self) -> Iterator[Stitched]:
        """The input is over."""
        for state in self._states.values():
            yield self._stitcher.end(state)
        self._states.clear()

    def _decoded(self, split: int, wrong: Mapping[Endpoints, Again]) -> Iterator[Part]:
        engine = ChosenEngine(self._config, split, wrong)
        analysis = Analysis(self._config, engine=engine)
        for batch in self._read(split):
            yield from analysis.feed(batch)
        self._states.update(engine.states())


class ChosenEngine(FreezingEngine):
    """Follows only the endpoints it was given, through one split."""

    def __init__(self, config: Config, split: int, given: Mapping[Endpoints, Again]) -> None:
        super().__init__(config, (1, 2))  # notes on packets are not its business
        self._order = split << ORDER_BITS
        self._given = given
        for again in given.values():
            if again.state is not None:
                self.put(self.thawed(again.state))
        ends = [list(endpoints) for endpoints in given]
        self._hashes = hashes(np.array(ends, np.int64).reshape(len(ends), 6))

    def states(self) -> dict[Endpoints, bytes | None]:
        """The split is over: the connections that the endpoints have, frozen."""
        states: dict[Endpoints, bytes | None] = dict.fromkeys(self._given)
        for endpoints, connection in self._table.items():
            states[endpoints] = freeze(connection, self.shared)
        return states

    def _share(self, perm: Ints, group: Ints) -> Ints:
        return perm[np.isin(group[perm], self._hashes)]

    def _feed_connection(self, endpoints: Endpoints, rows: Rows, begin: int, end: int) -> None:
        if endpoints in self._given:  # and not merely of the same hash
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
