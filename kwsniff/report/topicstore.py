"""What the report keeps of the topics that calls name: the second cube of `kwsniff.report.store`.

A call counts for each topic it names. Its size, throttling and times count in full for each; records, record
bytes and error codes are those of the topic's own partitions. The error of a topic in a call is the first
non-zero one of its partitions; if no partition of the call has one, the error of the whole call.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.report import lists
from kwsniff.report.codes import MAX_NAMES, OTHERS, Codes
from kwsniff.report.cube import Cube
from kwsniff.report.topics import elements, lookup

Ints = npt.NDArray[np.int64]
KEYS = ["cell", "topic", "topic_error"]
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
        calls: pa.RecordBatch,
        cell: Ints,
        measures: pd.DataFrame,
        names: Mapping[str, str],
    ) -> tuple[Ints, Ints]:
        """Take the topics of `calls`; `cell` and `measures` are parallel to its rows. Returns row and topic
        of each pair."""
        named = self._named(calls, names)
        parts = self._partitions(calls, names)
        size = max(len(self.codes), 1)
        parts["pair"] = parts["row"] * size + parts["topic"]
        pairs = pd.unique(np.concatenate([named["row"] * size + named["topic"], parts["pair"]]))
        row, topic = pairs // size, pairs % size
        if not len(pairs):
            return row, topic
        place = pd.Index(pairs).get_indexer(pd.Index(parts["pair"]))
        error = _errors(calls, row, place, parts["error"])
        records, sizes = (_sums(place, parts[name], len(pairs)) for name in ("records", "bytes"))
        codes = np.maximum(_sums(place, (parts["error"] != 0).astype(np.int64), len(pairs)), error != 0)
        if self._cube.rows > MAX_CELLS:
            topic = np.full(len(topic), self.codes.number(OTHERS), dtype=np.int64)
        for first in range(0, len(pairs), MAX_PAIRS):
            some = slice(first, first + MAX_PAIRS)
            own = measures.take(row[some]).reset_index(drop=True)
            own["records"], own["record_bytes"], own["error_codes"] = records[some], sizes[some], codes[some]
            keys = {"cell": cell[row[some]], "topic": topic[some], "topic_error": error[some]}
            self._cube.add(keys, own)
        self._see(parts)
        return row, topic

    def finish(self, names: Mapping[str, str]) -> None:
        """Bring together what the batches left, with names for the uuids known by now."""
        self.cells = self._cube.result(KEYS)
        self.numbers, changed = self._renumbered(names)
        seen = self.numbers[self._seen >> _SHIFT] << _SHIFT | self._seen & 0xFFFFFFFF
        if changed:
            self._renumber(self.numbers)
        self.partitions = np.bincount(pd.unique(seen) >> _SHIFT, minlength=len(self.codes))

    def merge(self, other: TopicStore, cells: Ints) -> Ints:
        """Take the topics of another one, which is not finished; `cells` has the number here of each cell
        there. Returns the number here of each topic there."""
        numbers = self.codes.taken(other.codes)
        measures = other._cube.result(KEYS)
        topic = numbers[measures.pop("topic").to_numpy()]
        if self._cube.rows > MAX_CELLS and len(topic):
            topic[:] = self.codes.number(OTHERS)
        if len(topic):
            error = measures.pop("topic_error").to_numpy()
            cell = cells[measures.pop("cell").to_numpy()]
            self._cube.add({"cell": cell, "topic": topic, "topic_error": error}, measures)
        seen = numbers[other._seen >> _SHIFT] << _SHIFT | other._seen & 0xFFFFFFFF
        self._seen = pd.unique(np.concatenate([self._seen, seen]))[:MAX_PARTITIONS]
        return numbers

    def _renumbered(self, names: Mapping[str, str]) -> tuple[Ints, bool]:
        """New number of each topic number: that of its name, if the topic was keyed by uuid."""
        keys = list(self.codes.values)
        numbers = [self.codes.number(names.get(key, key)) for key in keys]
        return np.array(numbers, dtype=np.int64), numbers != list(range(len(keys)))

    def _renumber(self, numbers: Ints) -> None:
        self.cells["topic"] = numbers[self.cells["topic"].to_numpy()]
        cube = Cube()
        cube.add({name: self.cells[name].to_numpy() for name in KEYS}, self.cells.drop(columns=KEYS))
        self.cells = cube.result(KEYS)

    def _named(self, calls: pa.RecordBatch, names: Mapping[str, str]) -> dict[str, Ints]:
        counts, given, ids = elements(calls["topics"], calls["topic_ids"])
        rows, codes = self._coded(lists.parents(counts), given, ids, names)
        return {"row": rows[codes >= 0], "topic": codes[codes >= 0]}

    def _partitions(self, calls: pa.RecordBatch, names: Mapping[str, str]) -> dict[str, Ints]:
        column = calls["partitions"]
        flat = column.flatten()
        rows, codes = self._coded(
            lists.parents(lists.lengths(column)),
            pc.struct_field(flat, "topic"),
            pc.struct_field(flat, "topic_id"),
            names,
        )
        fields = {"partition": "partition", "error": "error_code", "records": "records", "bytes": "bytes"}
        parts = {name: _ints(pc.struct_field(flat, field)) for name, field in fields.items()}
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
        self._seen = pd.unique(np.concatenate([self._seen, pd.unique(both)]))


def _errors(calls: pa.RecordBatch, row: Ints, place: Ints, error: Ints) -> Ints:
    """Error code of each pair, whose call is `row`; `place` and `error` are those of the partitions."""
    failed = error != 0
    codes = _ints(calls["error_code"])[row]
    own = np.zeros(calls.num_rows, dtype=bool)
    own[row[place[failed]]] = True
    codes[own[row]] = 0
    codes[place[failed][::-1]] = error[failed][::-1]
    return codes


def _sums(place: Ints, values: Ints, size: int) -> Ints:
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, place, values)
    return total


def _ints(column: pa.Array) -> Ints:
    values: Ints = pc.fill_null(column.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return values
