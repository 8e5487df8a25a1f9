"""Splits put together: tasks that take their summaries in turn, each its share of the connections.

Theory of operation. A summary holds what its split leaves open (`kwsniff.parts.part`), some percent of its
bytes, so a task that takes all of them has little to do. What it tells of a split (names, connections whose
rows are not to be believed, further rows) goes to the group that finishes the split's rows. It reads packets
only of splits in which connections have to be decoded again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.config import MIB, Config
from kwsniff.lake.place import Place
from kwsniff.net.columns import SegmentColumns
from kwsniff.parts.dealt import together
from kwsniff.parts.heads import with_block, without_block
from kwsniff.parts.join import Joiner
from kwsniff.parts.part import ORDER_BITS, Emitted, PartSummary
from kwsniff.parts.plan import Split
from kwsniff.parts.reading import SplitReader
from kwsniff.parts.share import COLUMNS, Placed, of_endpoints, picked
from kwsniff.parts.share import placed as placed_segments
from kwsniff.parts.weave import Joined
from kwsniff.spark.carrying import calls_of_sessions
from kwsniff.spark.control import EMITTED, EVENTS, JOINED, Row
from kwsniff.spark.decode import RUN_BITS
from kwsniff.spark.naming import Namings
from kwsniff.spark.packing import packed_object, packed_rows, unpacked_object
from kwsniff.spark.staged import STAGED

HELD_BYTES = 64 * MIB
"""Segments of a split that are kept to be looked through again; beyond that the split is read each time."""
Rows = NDArray[Any]


def placed(emitted: Emitted, run: int) -> pa.RecordBatch:
    """Rows as STAGED, behind those of earlier runs."""
    place = (emitted.keys + (run << RUN_BITS), emitted.ranks, emitted.numbers)
    return pa.RecordBatch.from_arrays([*emitted.batch.columns, *map(pa.array, place)], schema=STAGED)


@dataclass(slots=True)
class Count:
    """What joining came to."""

    again: int = 0
    """Pairs of endpoints that were decoded again in a split."""
    splits_again: list[int] = field(default_factory=list)
    """Splits that were read again for them ..."""
    whole: int = 0
    """... and those all of whose segments were decoded again, see `kwsniff.parts.join.Joiner.whole`."""
    shuffled_bytes: int = 0
    """What was told of the splits."""
    held: list[tuple[int, ...]] = field(default_factory=list)
    """What was held behind each split but the last, see `Joiner.held`."""
    limited: bool = False
    """A limit over all connections was reached."""
    names: dict[str, Any] = field(default_factory=dict)
    """`Namings` of the rows that joining told ..."""
    doubted: list[list[int] | None] = field(default_factory=list)
    """... and in each split those connections that name topics but are not to be believed; None: all."""
    sessions: bool = False
    """Rows that joining told are of fetch sessions."""


class SplitAgain:
    """A split whose segments are wanted again; those of `edges`, by connection."""

    def __init__(self, splits: Sequence[Split], number: int, config: Config, edges: Rows) -> None:
        self._splits, self._number, self._config = splits, number, config
        self._edges = edges
        self.order = number << ORDER_BITS
        self._held: list[Placed] | None = None

    def segments(self) -> Iterator[SegmentColumns]:
        """All of them."""
        return SplitReader(self._splits, self._number, self._config).columns()

    def again(self, endpoints: set[bytes], after: int) -> Iterator[Placed]:
        """The segments of some endpoints behind a place in the input, and their places."""
        kept = self._keeping() if self._held is None else self._held
        for segments, orders in of_endpoints(kept, endpoints, after):
            yield with_block(segments), orders

    def _keeping(self) -> Iterator[Placed]:
        """All segments, of which those are kept that may be wanted: of these ports, without their payload if
        it can be read again."""
        held: list[Placed] | None = []
        ports = np.unique(self._edges["src_port"] + self._edges["dst_port"])
        size = 0
        for segments, orders in placed_segments(self.segments(), self.order):
            yield segments, orders
            if held is None:
                continue
            rows = np.flatnonzero(np.isin(segments.src_port + segments.dst_port, ports))
            own = without_block(picked(segments, rows))
            held.append((own, orders[rows]))
            size += 8 * (len(COLUMNS) + 1) * len(own) + sum(each.nbytes for each in own.buffers)
            held = held if size <= HELD_BYTES else None
        self._held = held


class Joining:
    """Joins the summaries of `splits`, or what `kwsniff.parts.dealt` dealt out of them, which lie at
    `places`: for each split one, or all."""

    def __init__(
        self, splits: Sequence[Split], places: Sequence[Sequence[str]], config: Config, seed: int, run: int,
        *, shared: bool, namers: Sequence[set[int]],
    ) -> None:  # fmt: skip
        """`seed` is that of the tasks that decoded the splits; `run` as for `placed`. `shared`: other tasks
        join other shares, so that all parts are taken to fit till somebody sees what all of them held.
        `namers`: of each split the connections that name topics."""
        self._splits, self._places, self._config, self._run = splits, places, config, run
        self._shared = shared
        self._joiner = Joiner(config, seed)
        self._count = Count()
        self._namers, self._namings = namers, Namings(kept=1)

    def rows(self, group_of: Sequence[int]) -> Iterator[Row]:
        """What is to be put right in each split, for its group; at last what it came to."""
        for number, places in enumerate(self._places):
            summary = together([unpacked_object(Place(place).read()) for place in places])
            for row in self._split(number, summary):
                self._count.shuffled_bytes += len(row["data"])
                yield {**row, "split": group_of[number], "key": str(number)}
            self._count.held.append(self._joiner.held())
        self._count.limited = self._joiner.limited
        self._count.names = self._namings.plain()
        yield {"kind": EMITTED, "detail": json.dumps(asdict(self._count))}

    def _split(self, number: int, summary: PartSummary) -> Iterator[Row]:
        joined: Joined | None = Joined()
        rows: Iterable[Emitted] = ()
        split = SplitAgain(self._splits, number, self._config, summary.edges)
        if number == 0:
            self._joiner.first(summary)
        elif self._shared or self._joiner.fits(summary):
            joined = self._joiner.join(summary, split.again)
            rows, joined.rows = joined.rows, []
            self._count.again += joined.again
            self._count.splits_again += [number] if joined.again else []
        else:
            joined = None
            rows = self._joiner.whole(split.segments(), split.order)
            self._count.whole += 1
        doubted = None if joined is None else sorted(joined.wrong & self._namers[number])
        self._count.doubted.append(doubted)
        serial = 0
        for emitted in rows:
            yield self._added(serial, emitted)
            serial += 1
        if number + 1 == len(self._places):
            for emitted in self._joiner.finish():
                yield self._added(serial, emitted)
                serial += 1
        yield {"kind": JOINED, "data": packed_object(joined)}

    def _added(self, serial: int, emitted: Emitted) -> Row:
        rows = placed(emitted, self._run)
        self._namings.add(rows)
        self._count.sessions = self._count.sessions or calls_of_sessions(rows) is not None
        return {"kind": EVENTS, "detail": str(serial), "data": packed_rows(rows)}
