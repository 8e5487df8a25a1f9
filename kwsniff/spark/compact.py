"""Small files of a table made into larger ones: the same rows, sorted, in new files.

Only files of one hour are joined, and only ones that are small. The files that were joined stay where they
are until no manifest names them.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.capture.place import Place
from kwsniff.spark.files import Folders, Stored, rows_of
from kwsniff.spark.resulttables import TABLES, LakeTable

SMALL = 4 << 20
"""Bytes of a file that counts as small, of which a stream goes on making more: some ten thousand calls."""
TINY, SEVERAL = 1 << 20, 4
"""The same where no more will come, and how many of an hour are joined: it costs as much as writing did."""
FULL = 32 << 20
FULL_ROWS = 500_000
"""What is joined at a time."""
AT_ONCE = 1 << 14
"""Rows of a file that are read at a time."""
LATEST = 1 << 62


def bundles(
    files: Iterable[Stored], least: int = 2, *, small: int = SMALL, over: Container[int] = frozenset()
) -> list[list[Stored]]:
    """Files below `small` bytes to be joined, at least `least` each, or two of hours that are `over`; those
    that are well as they are are in none."""
    hours: dict[tuple[str, int], list[Stored]] = {}
    for file in files:
        if file.bytes < small and file.rows < FULL_ROWS:
            hours.setdefault((file.table, file.hour), []).append(file)
    found: list[list[Stored]] = []
    for (_, hour), together in hours.items():
        own: list[list[Stored]] = []
        size = rows = 0
        for file in together:
            if not own or size + file.bytes > FULL or rows + file.rows > FULL_ROWS:
                own.append([])
                size = rows = 0
            own[-1].append(file)
            size, rows = size + file.bytes, rows + file.rows
        wanted = 2 if hour in over else least
        found += [bundle for bundle in own if len(bundle) >= wanted]
    return found


def joined(
    bundle: Sequence[Stored], root: Place, below: str, metadata: Mapping[str, Any] | None = None
) -> Stored:
    """The rows of a bundle in one new file in the directory `below` of `root`. Raises OSError."""
    table = TABLES[bundle[0].table]
    with Folders(table, root, below, "joined", metadata) as folders:
        folders.add_sorted(bundle[0].hour, merged(bundle, table, root))
    return folders.stored[0]


def merged(files: Sequence[Stored], table: LakeTable, root: Place) -> Iterator[pa.Table]:
    """The rows of some files of an hour in their order, some of each file in memory at a time."""
    order = [(name, "ascending") for name in table.order]
    closed = sorted(files, key=lambda file: (file.first is None, file.first or 0))
    opened: list[_Sorted] = []
    while opened or closed:
        # A file that begins later than rows that are there is not wanted yet.
        while closed and (not opened or (closed[0].first or 0) <= min(each.safe for each in opened)):
            opened.append(_Sorted(rows_of(root / closed.pop(0).path, table.schema.names, AT_ONCE), table))
        upper = min(each.safe for each in opened)
        now = [rows for each in opened if (rows := each.before(upper)).num_rows]
        for each in opened:
            if each.safe == upper:
                each.extend()
        opened = [each for each in opened if each.more]
        if now:
            rows = pa.concat_tables(now)
            if len(now) > 1:
                rows = rows.combine_chunks()
                rows = rows.take(pc.sort_indices(rows, order))
            yield rows


class _Sorted:
    """The rows of a file that are still to be given, as far as they were read."""

    def __init__(self, source: Iterator[pa.RecordBatch], table: LakeTable) -> None:
        self._source, self._table = source, table
        self._rows = table.schema.empty_table()
        self.safe = -1
        """Rows with an earlier time are all there."""
        self._over = False
        self.extend()

    def extend(self) -> None:
        """Read on."""
        batch = next(self._source, None)
        if batch is None:
            self._over, self.safe = True, LATEST
            return
        read = pa.Table.from_batches([batch]).cast(self._table.schema)
        self._rows = pa.concat_tables([self._rows, read])
        if self._rows.num_rows:
            self.safe = int(_times(self._rows[self._table.time])[-1])

    def before(self, time: int) -> pa.Table:
        """Take the rows before a time."""
        count = int(np.searchsorted(_times(self._rows[self._table.time]), time))
        rows, self._rows = self._rows.slice(0, count), self._rows.slice(count)
        return rows

    @property
    def more(self) -> bool:
        """Whether there may be any."""
        return not self._over or self._rows.num_rows > 0


def _times(column: pa.ChunkedArray) -> NDArray[np.int64]:
    """Microseconds; 0 for rows without a time, which are in an hour of their own."""
    times: NDArray[np.int64] = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
    return times
