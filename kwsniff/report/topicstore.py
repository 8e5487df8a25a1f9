"""What the report keeps of the topics that calls name: the second cube of `kwsniff.report.store`.

A call counts for each topic it names. Its size, throttling and times count in full for each; records, record
bytes and error codes are those of the topic's own partitions. The error of a topic in a call is the first
non-zero one of its partitions; if no partition of the call has one, the error of the whole call.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.report import lists
from kwsniff.report.arrays import Ints, integers
from kwsniff.report.codes import MAX_NAMES, OTHERS, Codes, combined
from kwsniff.report.cube import MEASURES, Cube, Measures, taken
from kwsniff.report.rows import Rows
from kwsniff.report.topics import elements, lookup

KEYS = ("cell", "topic", "topic_error")
_SHIFT = 32
MAX_CELLS = 100_000
"""Rows of the cube beyond which topics are no longer told apart."""
MAX_PAIRS = 65_536
"""Pairs that are counted at a time: a batch of calls that name many topics has ten times as many."""
MAX_PARTITIONS = 1_000_000
"""Partitions beyond which no more are counted."""


class TopicStore:
    """Pairs of call and topic. After `finish`, which may be called again: `cells` (by KEYS), `numbers`, which
    number a topic goes by that was given one, and `partitions`, the number of partitions seen by number."""

    def __init__(self) -> None:
        self.codes = Codes(MAX_NAMES)
        self._cube = Cube()
        self._seen = np.array([], dtype=np.int64)

    def add(
        self,
        calls: Rows,
        cell: Ints,
        measures: Measures,
        names: Mapping[str, str],
    ) -> tuple[Ints, Ints]:
        """Take the topics of `calls`; `cell` and `measures` are parallel to its rows. Returns row and topic
        of each pair."""
        named = self._named(calls, names)
        parts = self._partitions(calls, names)
        size = max(len(self.codes), 1)
        pair = np.concatenate([part["row"] * size + part["topic"] for part in (named, parts)])
        encoded = pa.array(pair).dictionary_encode()
        pairs = encoded.dictionary.to_numpy()
        row, topic = pairs // size, pairs % size
        if not len(pairs):
            return row, topic
        place = encoded.indices.to_numpy()[len(named["row"]) :].astype(np.int64)
        error = _errors(calls, row, place, parts["error"])
        records, sizes = (_sums(place, parts[name], len(pairs)) for name in ("records", "bytes"))
        codes = np.maximum(_sums(place, (parts["error"] != 0).astype(np.int64), len(pairs)), error != 0)
        if len(self._cube) > MAX_CELLS:
            topic = np.full(len(topic), self.codes.number(OTHERS), dtype=np.int64)
        for first in range(0, len(pairs), MAX_PAIRS):
            some = slice(first, first + MAX_PAIRS)
            own = taken(measures, row[some])
            own["records"], own["record_bytes"], own["error_codes"] = records[some], sizes[some], codes[some]
            _count(self._cube, [cell[row[some]], topic[some], error[some]], own)
        self._see(parts)
        return row, topic

    def finish(self, names: Mapping[str, str]) -> None:
        """Bring together what the batches left, with names for the uuids known by now."""
        self.numbers, changed = self._renumbered(names)
        self.cells = {**self._cube.keys(KEYS), **self._cube.measures()}
        if changed:
            self._renumber(self.numbers)
        seen = self.numbers[self._seen >> _SHIFT] << _SHIFT | self._seen & 0xFFFFFFFF
        self.partitions = np.bincount(_unique(seen) >> _SHIFT, minlength=len(self.codes))

    def merge(self, other: TopicStore, cells: Ints) -> Ints:
        """Take the topics of another one, which is not finished; `cells` has the number here of each cell
        there. Returns the number here of each topic there."""
        numbers = self.codes.taken(other.codes)
        keys = other._cube.keys(KEYS)
        topic = numbers[keys["topic"]]
        if len(self._cube) > MAX_CELLS and len(topic):
            topic[:] = self.codes.number(OTHERS)
        _count(self._cube, [cells[keys["cell"]], topic, keys["topic_error"]], other._cube.measures())
        seen = numbers[other._seen >> _SHIFT] << _SHIFT | other._seen & 0xFFFFFFFF
        self._seen = _unique(np.concatenate([self._seen, seen]))[:MAX_PARTITIONS]
        return numbers

    def _renumbered(self, names: Mapping[str, str]) -> tuple[Ints, bool]:
        """New number of each topic number: that of its name, if the topic was keyed by uuid."""
        keys = list(self.codes.values)
        numbers = [self.codes.number(names.get(key, key)) for key in keys]
        return np.array(numbers, dtype=np.int64), numbers != list(range(len(keys)))

    def _renumber(self, numbers: Ints) -> None:
        cells, cube = self.cells, Cube()
        keys = [cells["cell"], numbers[cells["topic"]], cells["topic_error"]]
        _count(cube, keys, {name: cells[name] for name in MEASURES})
        self.cells = {**cube.keys(KEYS), **cube.measures()}

    def _named(self, calls: Rows, names: Mapping[str, str]) -> dict[str, Ints]:
        counts, given, ids = elements(calls.column("topics"), calls.column("topic_ids"))
        rows, codes = self._coded(lists.parents(counts), given, ids, names)
        return {"row": rows[codes >= 0], "topic": codes[codes >= 0]}

    def _partitions(self, calls: Rows, names: Mapping[str, str]) -> dict[str, Ints]:
        column = calls.unfiltered("partitions")  # nothing but calls has any
        flat = column.flatten()
        rows, codes = self._coded(
            calls.places[lists.parents(lists.lengths(column))],
            pc.struct_field(flat, "topic"),
            pc.struct_field(flat, "topic_id"),
            names,
        )
        fields = {"partition": "partition", "error": "error_code", "records": "records", "bytes": "bytes"}
        parts = {name: integers(pc.struct_field(flat, field)) for name, field in fields.items()}
        parts |= {"row": rows, "topic": codes}
        return {name: values[codes >= 0] for name, values in parts.items()}

    def _coded(
        self, rows: Ints, given: pa.Array, ids: pa.Array, names: Mapping[str, str]
    ) -> tuple[Ints, Ints]:
        """Number of each topic by its name or else its uuid, -1 where it has neither."""
        keys = pc.coalesce(given, lookup(ids, names), ids) if given.null_count else given
        if keys.null_count == 0:
            return rows, self.codes.encode(keys)
        codes = np.full(len(keys), -1, dtype=np.int64)
        codes[~lists.is_null(keys)] = self.codes.encode(keys.drop_null())
        return rows, codes

    def _see(self, parts: dict[str, Ints]) -> None:
        if len(self._seen) >= MAX_PARTITIONS:
            return
        both = parts["topic"] << _SHIFT | parts["partition"] & 0xFFFFFFFF
        self._seen = _unique(np.concatenate([self._seen, _unique(both)]))


def _count(cube: Cube, keys: list[Ints], measures: Measures) -> None:
    """Add what has KEYS to a cube."""
    least = int(keys[2].min(initial=0))  # error codes may be negative
    columns = [*keys[:2], keys[2] - least]
    numbers, rows = combined(columns, [int(each.max(initial=0)) + 1 for each in columns])
    kinds = zip(*(key[rows].tolist() for key in keys), strict=True)
    places = np.array([cube.row(kind) for kind in kinds], np.int64)
    cube.add(places[numbers], measures)


def _errors(calls: Rows, row: Ints, place: Ints, error: Ints) -> Ints:
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
