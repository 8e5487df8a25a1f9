"""Batches of a size that whoever counts over them likes.

What is counted by batch costs something for each batch and for each key in it, however few rows it has:
small batches of the engine are joined first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import pyarrow as pa

from kwsniff.rows.arrays import record_batch

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
