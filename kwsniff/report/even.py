"""Batches of a size that whoever counts over them likes.

What is counted by batch costs something for each batch and for each key in it, however few rows it has:
small batches of the engine are joined first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from kwsniff.columns import record_batch

BATCH_ROWS = 32_768
BATCH_BYTES = 8 << 20
"""Rows and bytes of a batch, about: fewer rows take as long, more take several kilobytes each."""


def even(batches: Iterable[pa.RecordBatch], most: int = BATCH_BYTES) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of about BATCH_ROWS or `most` bytes. Columns that are null cost nothing."""
    waiting: list[pa.RecordBatch] = []
    rows = held = 0
    for batch in batches:
        size = _filled(batch)
        parts = max(round(batch.num_rows / BATCH_ROWS), round(size / most), 1)
        count = -(-batch.num_rows // parts)
        for part in range(parts):
            waiting.append(batch.slice(part * count, count))
            rows += waiting[-1].num_rows
            held += size // parts
            if rows >= BATCH_ROWS or held >= most:
                yield _joined(waiting)
                rows = held = 0
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
