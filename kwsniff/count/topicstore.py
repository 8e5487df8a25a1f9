"""What the report keeps of the topics that calls name: the second table of
`kwsniff.count.store`.

A call counts for each topic it names. Its size, throttling and times count in full for each; records, record
bytes and error codes are those of the topic's own partitions. The error of a topic in a call is the first
non-zero one of its partitions; if no partition of the call has one, the error of the whole call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.count.codes import MAX_NAMES, OTHERS, Coded, Codes, combined
from kwsniff.count.eventrows import EventBatch, EventRows, Partitions
from kwsniff.count.keyed import Columns, Keyed, Measure, is_steady
from kwsniff.rows.columns import Ints

KEYS = ("cell", "topic", "topic_error")
_SHIFT = 32
MAX_CELLS = 100_000
"""Rows of the table beyond which topics are no longer told apart."""
MAX_PAIRS = 65_536
"""Pairs that are counted at a time: a batch of calls that name many topics has ten times as many."""
DENSE = 16
"""Possible pairs for each one up to which a table of all is made."""
MAX_PARTITIONS = 1_000_000
"""Partitions beyond which no more are counted."""


class TopicCalls(NamedTuple):
    """Pairs of call and topic, each once, with what the call's partitions of the topic say."""

    row: Ints
    """Of the call."""
    topic: Ints
    error: Ints
    codes: Ints
    """Partitions with an error."""
    records: Ints
    bytes: Ints

    @classmethod
    def of(cls, seen: EventBatch, named: Ints, told: Ints) -> TopicCalls:
        """Those of a batch; the numbers of the topics that calls name and of those of their partitions,
        negative where one has neither name nor uuid."""
        calls, parts = seen.calls, seen.partitions
        known = slice(None) if told.min(initial=0) >= 0 else told >= 0
        row, topic, place = _pairs(seen.topics.row, named, parts.row[known], told[known], len(calls))
        failures, *counted = (parts.ints(name)[known] for name in ("error_code", "records", "bytes"))
        sums = (_sums(place, each, len(row)) for each in ((failures != 0).astype(np.int64), *counted))
        return cls(row, topic, _errors(calls, row, place, failures), *sums)


class TopicStore:
    """Pairs of call and topic. After `finish`, which may be called again: `cells` (by KEYS), `numbers`, which
    number a topic goes by that was given one, and `partitions`, the number of partitions seen by number."""

    def __init__(self, measures: Mapping[str, Measure]) -> None:
        self.codes = Codes(MAX_NAMES)
        self._measures = measures
        self._pairs = Keyed(measures)
        self._seen = np.array([], dtype=np.int64)

    def add(
        self, seen: EventBatch, cell: Ints, measures: Columns, names: Mapping[str, str]
    ) -> tuple[Ints, Ints]:
        """Take the topics of the calls of a batch; `cell` and `measures` are parallel to them. Returns row
        and topic of each pair."""
        parts = seen.partitions
        told = self._numbers(parts.key, names)
        pairs = TopicCalls.of(seen, self._numbers(seen.topics.key, names), told)
        row, topic = pairs.row, pairs.topic
        if not len(row):
            return row, topic
        codes = np.maximum(pairs.codes, pairs.error != 0)
        if len(self._pairs) > MAX_CELLS:
            topic = np.full(len(topic), self.codes.number(OTHERS), dtype=np.int64)
        for first in range(0, len(row), MAX_PAIRS):
            some = slice(first, first + MAX_PAIRS)
            own = {
                name: np.broadcast_to(values[0], row[some].shape) if is_steady(values) else values[row[some]]
                for name, values in measures.items()
            }
            own["records"], own["record_bytes"] = pairs.records[some], pairs.bytes[some]
            own["error_codes"] = codes[some]
            _count(self._pairs, [cell[row[some]], topic[some], pairs.error[some]], own)
        self._see(parts, told)
        return row, topic

    def finish(self, names: Mapping[str, str]) -> None:
        """Bring together what the batches left, with names for the uuids known by now."""
        self.numbers, changed = self._renumbered(names)
        self.cells = {**self._pairs.keys(KEYS), **self._pairs.columns()}
        if changed:
            self._renumber(self.numbers)
        seen = self.numbers[self._seen >> _SHIFT] << _SHIFT | self._seen & 0xFFFFFFFF
        self.partitions = np.bincount(_unique(seen) >> _SHIFT, minlength=len(self.codes))

    def merge(self, other: TopicStore, cells: Ints) -> Ints:
        """Take the topics of another one, which is not finished; `cells` has the number here of each cell
        there. Returns the number here of each topic there."""
        numbers = self.codes.taken(other.codes)
        keys = other._pairs.keys(KEYS)
        topic = numbers[keys["topic"]]
        if len(self._pairs) > MAX_CELLS and len(topic):
            topic[:] = self.codes.number(OTHERS)
        _count(self._pairs, [cells[keys["cell"]], topic, keys["topic_error"]], other._pairs.columns())
        seen = numbers[other._seen >> _SHIFT] << _SHIFT | other._seen & 0xFFFFFFFF
        self._seen = _unique(np.concatenate([self._seen, seen]))[:MAX_PARTITIONS]
        return numbers

    def _renumbered(self, names: Mapping[str, str]) -> tuple[Ints, bool]:
        """New number of each topic number: that of its name, if the topic was keyed by uuid."""
        keys = list(self.codes.values)
        numbers = [self.codes.number(names.get(key, key)) for key in keys]
        return np.array(numbers, dtype=np.int64), numbers != list(range(len(keys)))

    def _renumber(self, numbers: Ints) -> None:
        cells, made = self.cells, Keyed(self._measures)
        keys = [cells["cell"], numbers[cells["topic"]], cells["topic_error"]]
        _count(made, keys, {name: cells[name] for name in self._measures})
        self.cells = {**made.keys(KEYS), **made.columns()}

    def _numbers(self, keys: Coded, names: Mapping[str, str]) -> Ints:
        """Number of each topic by its name or else its uuid, -1 where it has neither."""
        codes, rows = combined([keys.codes], [keys.size])
        chosen = [keys.values[code] for code in keys.codes[rows].tolist()]
        numbers = [-1 if key is None else self.codes.number(names.get(key, key)) for key in chosen]
        return np.array(numbers, np.int64)[codes]

    def _see(self, parts: Partitions, topic: Ints) -> None:
        if len(self._seen) >= MAX_PARTITIONS:
            return
        rows = parts.place.rows
        rows = rows[topic[rows] >= 0]
        both = topic[rows] << _SHIFT | parts.ints("partition")[rows] & 0xFFFFFFFF
        self._seen = _unique(np.concatenate([self._seen, both]))


def _pairs(row: Ints, topic: Ints, of: Ints, told: Ints, calls: int) -> tuple[Ints, Ints, Ints]:
    """The pairs of call and topic in the order in which they come: first those that calls name (-1: none),
    then those of which partitions are told. Gives row and topic of each, and which of them the partitions
    are of."""
    if (topic < 0).any():
        row, topic = row[topic >= 0], topic[topic >= 0]
    size = int(max(topic.max(initial=0), told.max(initial=0))) + 1
    named, parts = row * size + topic, of * size + told
    if calls * size <= DENSE * (len(named) + len(parts)):
        # Most calls name a topic once, and all of which they tell anything: then nothing has to be sorted.
        places = np.full(calls * size, -1, np.int64)
        order = np.arange(len(named), dtype=np.int64)
        places[named] = order
        place = places[parts]
        if np.array_equal(places[named], order) and (place >= 0).all():
            return row, topic, place
    pairs = np.concatenate([named, parts])
    numbers, firsts = combined([pairs], [calls * size])
    return *np.divmod(pairs[firsts], size), numbers[len(named) :]


def _count(table: Keyed, keys: list[Ints], values: Columns) -> None:
    """Add what has KEYS to a table."""
    table.add(table.placed(keys), values)


def _errors(calls: EventRows, row: Ints, place: Ints, error: Ints) -> Ints:
    """Error code of each pair, whose call is `row`; `place` and `error` are those of the partitions."""
    failed = error != 0
    codes = calls.ints("error_code")[row]
    own = np.zeros(len(calls), dtype=bool)
    own[row[place[failed]]] = True
    codes[own[row]] = 0
    codes[place[failed][::-1]] = error[failed][::-1]
    return codes


def _sums(place: Ints, values: Ints, size: int) -> Ints:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, place, values)
    return total


def _unique(values: Ints) -> Ints:
    """The distinct values, in the order in which they come."""
    found: Ints = pa.array(values).unique().to_numpy()
    return found
