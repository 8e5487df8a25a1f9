"""Comparing what splits come to with what one process yields."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import pyarrow as pa

from kwsniff.capture.source import CaptureTotals, resolve
from kwsniff.config import Config
from kwsniff.rows.schema import EVENTS
from kwsniff.run.join import Joiner
from kwsniff.run.offline import events
from kwsniff.run.part import ORDER_BITS, PartEngine, SplitReader, independent
from kwsniff.run.plan import Split, cut
from tests.parts.decoded import Decoded, joined

SMALL = Config(block_packets=50, block_bytes=1 << 13)
SEED = 20_261_122
COPIES = ["duplicates", "client_retransmissions", "broker_retransmissions"]


def counted(rows: Iterable[dict[str, Any]]) -> Counter[str]:
    """Rows in no order, each with how often it is there."""
    return Counter(json.dumps(row, sort_keys=True, default=str) for row in rows)


@dataclass
class One:
    """What one process makes of an input."""

    rows: Counter[str]
    totals: CaptureTotals


def one_process(paths: Sequence[str], config: Config = SMALL) -> One:
    totals = CaptureTotals()
    rows = [row for batch in events(paths, config, totals=totals) for row in batch.to_pylist()]
    return One(counted(rows), totals)


def cut_at(paths: Sequence[str], fractions: Iterable[float], config: Config = SMALL) -> list[Split]:
    """Every file cut at the first records behind these parts of it."""
    fractions = list(fractions)
    files = [(file.path, file.size or 0) for file in resolve(paths)]
    return [
        split for path, size in files for split in cut(path, [int(size * part) for part in fractions], config)
    ]


@dataclass
class Outcome:
    """What decoding in splits came to."""

    events: pa.Table
    totals: CaptureTotals
    independent: bool
    """Whether the splits could be read apart, see `reading.independent`: else the events may differ."""
    again: int
    """Pairs of endpoints that were decoded again ..."""
    whole: int
    """... and splits all of whose segments were, because a limit over all connections could be reached."""
    joining: float
    """CPU seconds that joining took, with what was decoded again of single connections."""


class _Counting(Joiner):
    again = alone = 0
    seconds = 0.0

    def join(self, *what: Any) -> Any:
        began = time.thread_time()
        done = super().join(*what)
        self.seconds += time.thread_time() - began
        self.again += done.again
        return done

    def whole(self, *what: Any) -> Any:
        self.alone += 1
        return super().whole(*what)


def decode(splits: Sequence[Split], config: Config) -> Outcome:
    """All splits in this process, one after the other: what the pipeline does on many machines."""
    joiner, totals = _Counting(config, SEED), CaptureTotals()
    rows, emitted = [], []
    for number in range(len(splits)):
        reader = SplitReader(splits, number, config)
        columns = list(reader.columns())
        order = number << ORDER_BITS
        engine = PartEngine(config, SEED, order, first=number == 0)
        part = Decoded(columns, order, deque(engine.part(columns)), engine.summary())
        rows += list(joined(joiner, part))
        emitted.append(reader.emitted)
        totals.merge(reader.emitted.totals)
    rows += joiner.finish()
    events = pa.Table.from_batches([each.batch for each in rows], EVENTS)
    return Outcome(events, totals, independent(splits, emitted), joiner.again, joiner.alone, joiner.seconds)


@lru_cache(maxsize=1)
def _undivided(
    paths: tuple[str, ...], written: tuple[int, ...], config: Config
) -> tuple[pa.Table, CaptureTotals]:
    """What one process makes of files that were `written` at these times."""
    totals = CaptureTotals()
    return pa.Table.from_batches(list(events(paths, config, totals=totals)), EVENTS), totals


def differences(paths: Sequence[str], splits: Sequence[Split], config: Config = SMALL) -> Outcome:
    """Decode `splits`; fails if a row or their order differs from one process over the same files, unless the
    splits say of themselves that they cannot be read apart."""
    expected, totals = _undivided(tuple(paths), tuple(os.stat(path).st_mtime_ns for path in paths), config)
    assert expected.num_rows
    outcome = decode(splits, config)
    if not outcome.independent:
        assert totals.fragments
        return outcome
    # Of packets captured twice, a copy is taken for a retransmission where the cut lies between the two.
    unsure = COPIES if outcome.totals.duplicates < totals.duplicates else []
    assert outcome.events.drop_columns(unsure).equals(expected.drop_columns(unsure))
    assert outcome.totals.duplicates <= totals.duplicates
    assert replace(outcome.totals, duplicates=0) == replace(totals, duplicates=0)
    return outcome
