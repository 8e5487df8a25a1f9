"""Events that were stored: Parquet files as `kwsniff decode -f parquet` writes them, folders of them, and the
tables that `kwsniff pipeline` writes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kwsniff.capture.error import CaptureError
from kwsniff.rows.events import ANOMALY, CALL, CONNECTION
from kwsniff.rows.schema import EVENTS

ENDINGS = (".parquet", ".pq")
MAGIC = b"PAR1"
BATCH_ROWS = 32_768
MANIFEST = "manifest.json"
"""Of what the pipeline writes: names the files of its tables."""
KINDS = {"calls": CALL, "anomalies": ANOMALY, "connections": CONNECTION}
"""Its tables, and the kind of their rows."""


def is_stored(path: str) -> bool:
    """Whether a path is a file or folder of stored events rather than a capture."""
    if os.path.isdir(path):
        return _tables(path) is not None or any(True for _ in _files(path))
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
    tables = _tables(path) if os.path.isdir(path) else None
    if tables is not None:
        with _plain(path):
            yield from _of_tables(path, tables, columns)
        return
    files = list(_files(path)) if os.path.isdir(path) else [path]
    for file in files:
        with _plain(file):
            yield from _batches(file, columns)


@contextmanager
def _plain(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, pa.ArrowInvalid) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise CaptureError(f"{path}: {reason}") from None


def _tables(path: str) -> dict[str, Any] | None:
    """The files of each table of a result of the pipeline; None if the folder is none."""
    try:
        with open(os.path.join(path, MANIFEST), "rb") as file:
            tables = json.load(file).get("tables")
    except (OSError, ValueError, AttributeError):
        return None
    return tables if isinstance(tables, dict) else None


def _of_tables(path: str, tables: dict[str, Any], columns: frozenset[str] | None) -> Iterator[pa.RecordBatch]:
    """The rows of the three tables, hour by hour, within an hour in the order of one process."""
    hours: dict[int, list[tuple[str, str]]] = {}
    for table, kind in KINDS.items():
        for file in tables.get(table, ()):
            hours.setdefault(file["hour"], []).append((kind, os.path.join(path, file["path"])))
    for hour in sorted(hours):
        rows, positions = [], []
        for kind, file in hours[hour]:
            source = ds.dataset(file, format="parquet")
            asked = EVENTS.names if columns is None else [name for name in EVENTS.names if name in columns]
            present = [name for name in asked if name in source.schema.names]
            for batch in source.to_batches(columns=[*present, "position"], batch_size=BATCH_ROWS):
                positions.append(batch["position"])
                kinds = pa.array([kind] * len(batch), pa.string())
                rows.append(as_events(batch.append_column("event", kinds)))
        whole = pa.Table.from_batches(rows, EVENTS)
        order = pc.sort_indices(pa.chunked_array(positions, pa.int64()))
        yield from whole.take(order).combine_chunks().to_batches(BATCH_ROWS)


def _files(path: str) -> Iterator[str]:
    for folder, folders, names in os.walk(path):
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
