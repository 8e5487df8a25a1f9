"""Events that were stored: Parquet files as `kwsniff decode -f parquet` writes them, and folders of them as
`kwsniff pipeline` does."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.dataset as ds

from kwsniff.capture.error import CaptureError
from kwsniff.table import EVENTS

ENDINGS = (".parquet", ".pq")
MAGIC = b"PAR1"
BATCH_ROWS = 32_768
EVENTS_FOLDER = "events"
"""Of what the pipeline writes: the folder that holds the events."""


def is_stored(path: str) -> bool:
    """Whether a path is a file or folder of stored events rather than a capture."""
    if os.path.isdir(path):
        return any(True for _ in _files(path))
    if path.lower().endswith(ENDINGS):
        return True
    try:
        with open(path, "rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def stored_events(path: str, columns: frozenset[str] | None = None) -> Iterator[pa.RecordBatch]:
    """EVENTS batches of a file or folder, in the order of the files' names; of other columns than `columns`
    there are nulls only, and so of those that an older kwsniff did not write.

    Raises:
        CaptureError: it cannot be read, or holds no events.
    """
    files = list(_files(path)) if os.path.isdir(path) else [path]
    for file in files:
        try:
            yield from _batches(file, columns)
        except (OSError, pa.ArrowInvalid) as error:
            reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise CaptureError(f"{file}: {reason}") from None


def _files(path: str) -> Iterator[str]:
    inner = os.path.join(path, EVENTS_FOLDER)
    root = inner if os.path.isdir(inner) else path
    for folder, folders, names in os.walk(root):
        folders.sort(key=_natural)
        folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in sorted(names):
            if name.endswith(ENDINGS) and not name.startswith(("_", ".")):
                yield os.path.join(folder, name)


def _natural(name: str) -> tuple[str, int]:
    """`hour=7` before `hour=10`."""
    before, _, number = name.partition("=")
    return (before, int(number)) if number.isdecimal() else (name, 0)


def _batches(file: str, columns: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    source = ds.dataset(file, format="parquet")
    if "event" not in source.schema.names:
        raise pa.ArrowInvalid("holds no events of kwsniff")
    asked = EVENTS.names if columns is None else [name for name in EVENTS.names if name in columns]
    present = [name for name in asked if name in source.schema.names]
    for batch in source.to_batches(columns=present, batch_size=BATCH_ROWS):
        yield as_events(batch)


def as_events(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with all columns of EVENTS: what it lacks is null, structs get the fields they lack."""
    names = set(batch.schema.names)
    columns = [
        _fitted(batch[field.name], field.type) if field.name in names else pa.nulls(len(batch), field.type)
        for field in EVENTS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=EVENTS)


def _fitted(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if values.type == kind:
        return values
    if pa.types.is_list(kind) and pa.types.is_struct(kind.value_type):
        items = _struct(values.flatten(), kind.value_type)
        mask = values.is_null() if values.null_count else None
        return pa.ListArray.from_arrays(_offsets(values), items, type=kind, mask=mask)
    return values.cast(kind)


def _offsets(values: pa.Array) -> pa.Array:
    import pyarrow.compute as pc

    lengths = pc.fill_null(pc.list_value_length(values), 0).cast(pa.int32())
    ends = pc.cumulative_sum(lengths)
    return pa.concat_arrays([pa.array([0], pa.int32()), ends])


def _struct(items: pa.Array, kind: pa.DataType) -> pa.Array:
    there = {field.name for field in items.type}
    arrays: Sequence[pa.Array] = [
        items.field(field.name).cast(field.type) if field.name in there else pa.nulls(len(items), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(arrays, fields=list(kind))
