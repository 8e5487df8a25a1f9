"""Comparing what splits come to with what one process yields."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kwsniff.split.local import Outcome, decode

from kwsniff.capture.source import CaptureTotals, resolve
from kwsniff.config import Config
from kwsniff.offline import events
from kwsniff.split.plan import Split, cut

SMALL = Config(block_packets=50, block_bytes=1 << 13, kernels="never")


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


def differences(paths: Sequence[str], splits: Sequence[Split], config: Config = SMALL) -> Outcome:
    """Decode `splits`; fails if anything differs from one process over the same files, unless the splits say
    of themselves that they cannot be read apart."""
    expected = one_process(paths, config)
    assert expected.rows
    outcome = decode(splits, config)
    if not outcome.independent:
        assert expected.totals.fragments
        return outcome
    found = counted(outcome.events.to_pylist())
    assert found - expected.rows == Counter()
    assert expected.rows - found == Counter()
    # Of packets captured twice, a copy is not known where the cut lies between the two.
    assert outcome.totals.duplicates <= expected.totals.duplicates
    assert replace(outcome.totals, duplicates=0) == replace(expected.totals, duplicates=0)
    return outcome
