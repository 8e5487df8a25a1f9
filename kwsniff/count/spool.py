"""Keeps events on disk until the pass is over.

Topic names may come after the calls that need them, so rows that are to show them have to wait; in memory
they would be as large as the input. The file is anonymous: it is gone when the spool is, whatever
happens.
"""

from __future__ import annotations

import contextlib
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.rows.arrays import record_batch
from kwsniff.rows.schema import EVENTS

_OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


class Spool:
    """EVENTS batches written once, then read any number of times. Raises OSError if the disk is full."""

    def __init__(self, event: str | None = None) -> None:
        """Keep the events of one kind only, or all of them."""
        self._event = event
        self._file = tempfile.TemporaryFile(prefix="kwsniff-")  # noqa: SIM115, lives as long as the spool
        self._writer = pa.ipc.new_stream(self._file, EVENTS, options=_OPTIONS)
        self._open = True
        self._closer = weakref.finalize(self, _close, self._file)

    def tee(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Pass batches on and keep them."""
        for batch in batches:
            self.add(batch)
            yield batch

    def add(self, batch: pa.RecordBatch) -> None:
        """Keep one batch."""
        kept = batch if self._event is None else batch.filter(pc.equal(batch["event"], self._event))
        if kept.num_rows:
            self._writer.write_batch(kept)

    def read(self) -> Iterator[pa.RecordBatch]:
        """All batches kept, in order. Nothing can be added afterwards."""
        if self._open:
            self._writer.close()
            self._open = False
        self._file.seek(0)
        yield from pa.ipc.open_stream(self._file)

    def close(self) -> None:
        """Give the disk space back."""
        self._closer()


def _close(file: IO[bytes]) -> None:
    # What a full disk kept from being written is not needed any more; who wrote it was told.
    with contextlib.suppress(OSError):
        file.close()


# Batches joined or cut to the size at which counting over them is quickest.
#
# What is counted by batch costs something for each batch and for each key in it, however few rows it has:
# small batches of the engine are joined first.

BATCH_ROWS = 32_768
BATCH_BYTES = 8 << 20
"""Rows and bytes of a batch, about: fewer rows take as long, more take several kilobytes each."""
KEPT = 32 << 20
"""Bytes of batches of which some columns wait to be joined: what another process made is one piece of memory,
there as long as anything of it is."""


def even(
    batches: Iterable[pa.RecordBatch],
    most: int = BATCH_BYTES,
    narrow: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about BATCH_ROWS or `most` bytes, with the columns that `narrow` leaves of
    each. Columns that are null cost nothing."""
    waiting: list[pa.RecordBatch] = []
    rows = held = kept = 0
    for batch in batches:
        whole = 0
        if narrow is not None:
            whole = _filled(batch)
            batch = narrow(batch)
        size = _filled(batch)
        kept += whole
        parts = max(round(batch.num_rows / BATCH_ROWS), round(size / most), 1)
        count = -(-batch.num_rows // parts)
        first = 0
        for part in range(parts):
            if part and waiting:  # what it was cut into is one again: joining would copy it
                rows -= waiting.pop().num_rows
            else:
                first = part * count
            waiting.append(batch.slice(first, (part + 1) * count - first))
            rows += waiting[-1].num_rows
            held += size // parts
            if rows >= BATCH_ROWS or held >= most or kept >= KEPT:
                yield _joined(waiting)
                rows = held = kept = 0
        del batch
    if waiting:
        yield _joined(waiting)


def _filled(batch: pa.RecordBatch) -> int:
    """Bytes of the columns that have values."""
    return sum(column.nbytes for column in batch.columns if column.null_count < len(column))


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """All as one, taken out of the list so that both are in memory only briefly."""
    if len(batches) == 1:
        return batches.pop()
    columns = {}
    for place, name in enumerate(batches[0].schema.names):
        parts = [batch.column(place) for batch in batches]
        if any(part.null_count < len(part) for part in parts):
            columns[name] = pa.concat_arrays(parts)
    count = sum(batch.num_rows for batch in batches)
    schema = batches[0].schema
    batches.clear()
    return record_batch(columns, count, schema)
