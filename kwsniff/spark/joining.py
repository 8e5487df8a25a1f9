"""Splits put together: tasks that take their summaries in turn, each its share of the connections, and what
comes of it in the rows of the splits.

Theory of operation. A summary holds what its split leaves open (`kwsniff.run.part`), some percent of its
bytes, so a task that takes all of them has little to do. What it says of a split (names, connections whose
rows are not to be believed, further rows) is a `Correction` in files of its own, for the tasks that finish
the split's rows (`settled`). It reads packets only of splits in which connections have to be decoded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.capture.place import Place
from kwsniff.config import MIB, Config
from kwsniff.net.segments import SegmentColumns
from kwsniff.run.dealt import together
from kwsniff.run.heads import COLUMNS, Placed, chosen, of_endpoints, with_block, without_block
from kwsniff.run.heads import placed as placed_segments
from kwsniff.run.join import Joiner
from kwsniff.run.part import ORDER_BITS, Emitted, PartSummary, SplitReader
from kwsniff.run.plan import Split
from kwsniff.run.weave import Joined, woven
from kwsniff.spark.learnt import Namings, calls_of_sessions
from kwsniff.spark.staged import PLACE, STAGED, Staged, StagedFile, ascending, placed, stored
from kwsniff.spark.tasks import fetched, kept

HELD_BYTES = 64 * MIB
"""Segments of a split that are kept to be looked through again; beyond that the split is read each time."""
ASKED = ("request_packet", "correlation_id")
"""What tells which request a call is of, to fill in how many were in flight."""
Rows = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Correction:
    """What joining a share of the connections says of a split."""

    joined: str
    """Where its `Joined` lies, without rows; None lies there if nothing that the split told is to be
    believed."""
    rows: str | None
    """Where rows (STAGED) lie that the split could not tell, if there are any."""


@dataclass(slots=True)
class JoinedShare:
    """What joining a share of the connections came to."""

    corrections: list[Correction] = field(default_factory=list)
    """Of each split."""
    again: int = 0
    """Pairs of endpoints that were decoded again in a split."""
    splits_again: list[int] = field(default_factory=list)
    """Splits that were read again for them ..."""
    whole: int = 0
    """... and those all of whose segments were decoded again, see `kwsniff.run.join.Joiner.whole`."""
    bytes: int = 0
    """Size of the corrections."""
    held: list[tuple[int, ...]] = field(default_factory=list)
    """What was held behind each split but the last, see `Joiner.held`."""
    limited: bool = False
    """A limit over all connections was reached."""
    namings: Namings = field(default_factory=lambda: Namings(kept=1))
    """Of the rows that joining told ..."""
    doubted: list[set[int] | None] = field(default_factory=list)
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
            own = without_block(chosen(segments, rows))
            held.append((own, orders[rows]))
            size += 8 * (len(COLUMNS) + 1) * len(own) + sum(each.nbytes for each in own.buffers)
            held = held if size <= HELD_BYTES else None
        self._held = held


@dataclass(frozen=True, slots=True)
class RunOfSplits:
    """What all tasks know of the run that they are of."""

    splits: list[Split]
    config: Config
    place: Place
    """Of files between jobs."""
    number: int
    """Positions are behind those of runs with a lower one."""
    seed: int


@dataclass(frozen=True, slots=True)
class Joining:
    """Joins summaries of splits, or what `kwsniff.run.dealt` dealt out of them."""

    run: RunOfSplits
    shared: bool
    """Other tasks join other shares, so that all parts are taken to fit till somebody sees what all of them
    held."""
    namers: Sequence[set[int]]
    """Of each split the connections that name topics."""

    def join(self, summaries: Sequence[Sequence[str]]) -> JoinedShare:
        """Join a share: of each split where summaries lie. Raises CaptureError, OSError."""
        joiner, share = Joiner(self.run.config, self.run.seed), JoinedShare()
        for number, urls in enumerate(summaries):
            summary = together([fetched(url) for url in urls])
            joined, rows = self._split(joiner, number, summary, share)
            own = () if joined is None else joined.wrong & self.namers[number]
            share.doubted.append(None if joined is None else set(own))
            share.corrections.append(self._written(share, number, joined, rows))
            share.held.append(joiner.held())
        share.limited = joiner.limited
        return share

    def _split(
        self, joiner: Joiner, number: int, summary: PartSummary, share: JoinedShare
    ) -> tuple[Joined | None, Iterator[Emitted]]:
        """What is to be said of a split, and rows that it could not tell."""
        split = SplitAgain(self.run.splits, number, self.run.config, summary.edges)
        joined: Joined | None = Joined()
        rows: Iterable[Emitted] = ()
        if number == 0:
            joiner.first(summary)
        elif self.shared or joiner.fits(summary):
            joined = joiner.join(summary, split.again)
            rows, joined.rows = joined.rows, []
            share.again += joined.again
            share.splits_again += [number] if joined.again else []
        else:
            joined = None
            rows = joiner.whole(split.segments(), split.order)
            share.whole += 1
        return joined, self._to_the_end(joiner, number, rows)

    def _to_the_end(self, joiner: Joiner, number: int, rows: Iterable[Emitted]) -> Iterator[Emitted]:
        """The rows, and those that the end of the input tells, if this is the last split."""
        yield from rows
        if number + 1 == len(self.run.splits):
            yield from joiner.finish()

    def _written(
        self, share: JoinedShare, number: int, joined: Joined | None, rows: Iterator[Emitted]
    ) -> Correction:
        place = self.run.place / "joined"
        with StagedFile(place / f"{number:06}.arrow", STAGED) as file:
            for emitted in rows:
                batch = placed(emitted, self.run.number)
                share.namings.add(batch)
                share.sessions = share.sessions or calls_of_sessions(batch) is not None
                file.add(batch)
        url, size = kept(place, joined)
        late = file.emitted()
        share.bytes += size + (late.bytes if late.rows else 0)
        return Correction(url, late.path if late.rows else None)


def settled(
    files: Sequence[Staged],
    before: Sequence[Staged],
    corrections: Sequence[Correction],
    columns: Sequence[str],
) -> Iterator[pa.RecordBatch]:
    """The rows of files of a split that follow each other as they are true, what its task told put right by
    `corrections`: in the order of one process, with positions of their own and these columns. `before` are
    the files of the split before them. Raises OSError."""
    joined = _one([fetched(each.joined) for each in corrections])
    last = -1
    for emitted in _true(before, joined, corrections, ["event"]):
        last = int(ascending(emitted.keys, last)[-1])
    names = [name for name in columns if name != PLACE[0]]
    for emitted in _true(files, joined, corrections, names):
        columns_of = dict(zip(names, emitted.batch.select(names).columns, strict=True))
        positions = ascending(emitted.keys, last)
        last = int(positions[-1])
        columns_of[PLACE[0]] = pa.array(positions)
        yield pa.RecordBatch.from_pydict({name: columns_of[name] for name in columns})


def _true(
    files: Sequence[Staged], joined: Joined | None, corrections: Sequence[Correction], names: list[str]
) -> Iterator[Emitted]:
    """Rows of files of a split, which `joined` says what to believe of, and those of its corrections that
    belong there."""
    if not files:
        return
    names = [*names, *(name for name in ASKED if name not in names)] if "in_flight" in names else names
    late = [
        _within(_emitted(batch, names), files[0].first, files[-1].end)
        for each in corrections
        if each.rows is not None
        for batch in stored(each.rows, [*names, *PLACE])
    ]
    if joined is not None:
        told = (batch for file in files for batch in stored(file.path, [*names, *PLACE]))
        rows = woven((_emitted(batch, names) for batch in told), replace(joined, rows=late))
    else:
        rows = iter(late)
    yield from (emitted for emitted in rows if len(emitted.keys))


def _one(shares: Sequence[Joined | None]) -> Joined | None:
    """What all shares say of a split."""
    whole = Joined()
    for each in shares:
        if each is None:
            return None
        whole.names.update(each.names)
        whole.wrong.update(each.wrong)
    return whole


def _emitted(batch: pa.RecordBatch, names: list[str]) -> Emitted:
    return Emitted(batch.select(names), *(batch[name].to_numpy() for name in PLACE))


def _within(rows: Emitted, first: int | None, end: int | None) -> Emitted:
    """Of rows those between two positions."""
    own = np.ones(len(rows.keys), np.bool_)
    if first is not None:
        own &= rows.keys >= first
    if end is not None:
        own &= rows.keys < end
    return rows if own.all() else rows.where(own)
