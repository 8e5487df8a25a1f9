"""Inputs cut into parts, and what the parts come to."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from kwsniff.capture.source import resolve, segments
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine
from kwsniff.net.segments import SegmentColumns, segment_columns
from kwsniff.run.heads import COLUMNS
from kwsniff.run.join import Joiner
from kwsniff.run.part import ORDER_BITS, PartEngine
from kwsniff.run.plan import Split, joined, pieces
from tests.parts.decoded import Decoded
from tests.parts.decoded import joined as joined_part
from tests.samples import sample

SEED = 20_261_122


@cache
def input_of(name: str) -> tuple[SegmentColumns, ...]:
    """The segments of a sample."""
    return tuple(segment_columns(batch) for batch in segments(sample(name).paths, Config(block_packets=300)))


def chosen(segments: SegmentColumns, rows: Any) -> SegmentColumns:
    """Some segments, in this order, without notes on packets."""
    return replace(segments, notes=[], **{name: getattr(segments, name)[rows] for name in COLUMNS})


def stretch(segments: SegmentColumns, first: int, end: int) -> SegmentColumns:
    """Segments that follow each other, with the notes before and, at the end, behind them."""
    last = end == len(segments)
    notes = [(at - first, *rest) for at, *rest in segments.notes if first <= at < end or (last and at >= end)]
    return replace(segments, notes=notes, **{name: getattr(segments, name)[first:end] for name in COLUMNS})


def parts(batches: Iterable[SegmentColumns], cuts: Iterable[int]) -> list[list[SegmentColumns]]:
    """The input in parts that begin at these segments."""
    made: list[list[SegmentColumns]] = [[]]
    begun, places = 0, sorted(set(cuts))
    for batch in batches:
        first = 0
        for place in [each - begun for each in places if begun < each < begun + len(batch)]:
            made[-1].append(stretch(batch, first, place))
            made.append([])
            first = place
        if begun in places and made[-1]:
            made.append([])
        made[-1].append(stretch(batch, first, len(batch)))
        begun += len(batch)
    return [each for each in made if each]


def whole(batches: Iterable[SegmentColumns], config: Config, compiled: bool | None = None) -> pa.Table:
    """What one run makes of an input."""
    engine = Engine(config, compiled=compiled)
    made = [batch for each in batches for batch in engine.feed(each)]
    return pa.Table.from_batches([*made, *engine.finish()])


@dataclass
class Outcome:
    """What the parts of an input come to."""

    events: pa.Table
    again: int = 0
    """Connections that were decoded again."""
    alone: int = 0
    """Parts that could not be joined and were taken whole."""
    heads: list[int] = field(default_factory=list)
    """Bytes of heads, by part."""


class _Counting(Joiner):
    again = alone = 0

    def join(self, *what: Any) -> Any:
        done = super().join(*what)
        self.again += done.again
        return done

    def whole(self, *what: Any) -> Any:
        self.alone += 1
        return super().whole(*what)


def in_parts(
    given: Sequence[Sequence[SegmentColumns]], config: Config, compiled: bool | None = None
) -> Outcome:
    """Decode each part on its own and join them."""
    joiner = _Counting(config, SEED, compiled=compiled)
    emitted, heads = [], []
    for number, part in enumerate(given):
        order = number << ORDER_BITS
        engine = PartEngine(config, SEED, order, first=number == 0, compiled=compiled)
        rows = deque(engine.part(part))
        done = Decoded(list(part), order, rows, engine.summary())
        heads.append(len(done.summary.payload))
        emitted += list(joined_part(joiner, done))
    emitted += joiner.finish()
    return Outcome(pa.Table.from_batches([each.batch for each in emitted]), joiner.again, joiner.alone, heads)


def without(batches: Iterable[SegmentColumns], share: float, seed: int) -> list[SegmentColumns]:
    """An input of which a share of the segments was not captured."""
    random = np.random.default_rng(seed)
    return [chosen(each, np.flatnonzero(random.random(len(each)) >= share)) for each in batches]


def shuffled(batches: Iterable[SegmentColumns], seed: int) -> list[SegmentColumns]:
    """An input in which neighbours were captured in another order, and some twice."""
    random = np.random.default_rng(seed)
    made = []
    for each in batches:
        places = np.arange(len(each)) + random.integers(0, 4, len(each)) * (random.random(len(each)) < 0.05)
        rows = np.argsort(places, kind="stable")
        made.append(chosen(each, np.repeat(rows, 1 + (random.random(len(rows)) < 0.02))))
    return made


def plan(paths: Sequence[str], config: Config, size: int) -> list[Split]:
    """The splits of the captures at `paths`, in the order of their packets."""
    files = resolve(paths)
    return joined(files, [pieces(file.path, config, size) for file in files], size)
