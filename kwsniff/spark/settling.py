"""The rows of splits as they are true: what the tasks of splits told, put right by what joining them told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.parts.part import Emitted
from kwsniff.parts.weave import Joined, woven
from kwsniff.spark.control import EVENTS, JOINED, Row
from kwsniff.spark.decode import ascending
from kwsniff.spark.packing import unpacked_object, unpacked_rows
from kwsniff.spark.staged import PLACE, Staged, stored

Ints = NDArray[np.int64]
ASKED = ("request_packet", "correlation_id")
"""What tells which request a call is of, to fill in how many were in flight."""


class Settling:
    """What is to be put right in the rows of some splits that follow each other."""

    def __init__(self, rows: Iterable[Row]) -> None:
        """`rows` are what `kwsniff.spark.joining` made for these splits, in any order."""
        self._joined: dict[int, Joined | None] = {}
        """None: nothing that the split told is to be believed."""
        added: dict[int, list[tuple[int, bytes]]] = {}
        for row in rows:
            if row["kind"] == JOINED:
                self._take(int(row["key"]), unpacked_object(row["data"]))
            elif row["kind"] == EVENTS:
                added.setdefault(int(row["key"]), []).append((int(row["detail"]), row["data"]))
        self._added = {split: [data for _, data in sorted(own)] for split, own in added.items()}
        self._last = -1

    def _take(self, split: int, joined: Joined | None) -> None:
        """What joining a share of the connections told of a split."""
        known = self._joined.get(split)
        if known is None or joined is None:
            self._joined[split] = joined
            return
        known.names.update(joined.names)
        known.wrong.update(joined.wrong)

    def rows(self, file: Staged, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of a split, in the order of one process and with positions of their own."""
        assert file.split is not None
        names = [name for name in columns if name != "position"]
        for emitted in self._told(file, file.split, names):
            batch = emitted.batch.select(names)
            columns_of = dict(zip(names, batch.columns, strict=True))
            columns_of["position"] = pa.array(self._positions(emitted.keys))
            yield pa.RecordBatch.from_pydict({name: columns_of[name] for name in columns})

    def _told(self, file: Staged, split: int, names: list[str]) -> Iterator[Emitted]:
        names = [*names, *(name for name in ASKED if name not in names)] if "in_flight" in names else names
        joined = self._joined.get(split, Joined())
        added = map(unpacked_rows, self._added.get(split, ()))
        late = (_placed(batch, names) for batch in added)
        if joined is None:
            return late
        joined.rows = list(late)
        return woven((_placed(batch, names) for batch in stored(file.path, [*names, *PLACE])), joined)

    def _positions(self, positions: Ints) -> Ints:
        made = ascending(positions, self._last)
        if len(made):
            self._last = int(made[-1])
        return made


def _placed(batch: pa.RecordBatch, names: list[str]) -> Emitted:
    return Emitted(batch.select(names), *(batch[name].to_numpy() for name in PLACE))
