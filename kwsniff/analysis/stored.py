"""Events in files. What was stored is read again: Parquet files as `kwsniff decode -f parquet` writes them,
folders of them, and the tables that `kwsniff pipeline` writes. CSV is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from kwsniff.capture.error import CaptureError
from kwsniff.count import sessions
from kwsniff.count.topics import elements, fill
from kwsniff.output.writers import Sink, shown, shown_schema, write_batches
from kwsniff.rows import lists
from kwsniff.rows.events import ANOMALY, CALL, CONNECTION, EXCHANGE
from kwsniff.rows.schema import COLUMNS, EVENTS

ENDINGS = (".parquet", ".pq")
MAGIC = b"PAR1"
BATCH_ROWS = 32_768
MANIFEST = "manifest.json"
"""Of what the pipeline writes: names the files of its tables."""
KINDS = {"calls": CALL, "exchanges": EXCHANGE, "anomalies": ANOMALY, "connections": CONNECTION}
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
            if os.path.isabs(file["path"]) or ".." in Path(file["path"]).parts:  # somebody else's work
                raise CaptureError(f"{path}: {MANIFEST} names a file that is not in the folder")
            hours.setdefault(file["hour"], []).append((kind, os.path.join(path, file["path"])))
    for hour in sorted(hours):
        rows, positions = [], []
        for kind, file in hours[hour]:
            for batch in _read(file, columns, "position"):
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
    for batch in _read(file, columns):
        yield as_events(batch)


def _read(file: str, columns: frozenset[str] | None, *more: str) -> Iterator[pa.RecordBatch]:
    """A file with those columns of EVENTS that are asked for and that it has."""
    import pyarrow.dataset as ds  # which takes a tenth of a second, and writing CSV does without

    source = ds.dataset(file, format="parquet")
    names = source.schema.names
    if not more and "event" not in names:
        raise pa.ArrowInvalid("holds no events of kwsniff")
    wanted = [name for name in EVENTS.names if name in names and (columns is None or name in columns)]
    yield from source.to_batches(columns=[*wanted, *more], batch_size=BATCH_ROWS)


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


# Events as CSV: all of them as `kwsniff decode` writes them, or calls.csv, which has one row a call with
# the scalar columns of EVENTS that a call can have. Lists are text.
#
# `topics` joins the names by `;`, with the uuid where the name is not known, `topic_ids` joins the uuids.
# `partitions` joins `topic-partition`, `resources` types and names. What each partition carried is in the
# Parquet and JSONL output of `kwsniff decode`.

PART_BYTES = 8 << 20
"""Bytes of events made into lines at a time: their texts are there several times over meanwhile."""

NAMED = frozenset(("topics", "topic_ids", "partitions"))
"""The columns that get names of topics."""
NAMING = NAMED | sessions.NEEDED
"""The columns that naming topics takes."""
LISTS = NAMED | {"resources", "asked", "advertised"}


def scalar_schema(names: Iterable[str]) -> pa.Schema:
    """These columns of EVENTS, with text in place of lists."""
    fields = [EVENTS.field(name) for name in names]
    return pa.schema([field.with_type(pa.string()) if field.name in LISTS else field for field in fields])


LEFT_OUT = frozenset(("event", "request", "response"))
"""The bodies are no part of a report, and all its rows are calls."""
CALLS = scalar_schema(each.name for each in COLUMNS if CALL in each.kinds and each.name not in LEFT_OUT)
"""Columns of calls.csv."""


def write_calls(path: Path, batches: Iterable[pa.RecordBatch], names: Mapping[str, str]) -> None:
    """Write calls.csv from EVENTS batches; rows that are no calls are passed over. `names` gives topics by
    uuid. Raises OSError if the file cannot be written."""
    write_batches(path, CALLS, flattened(batches, names))


def flattened(batches: Iterable[pa.RecordBatch], names: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """The calls among EVENTS batches, with the columns CALLS."""
    for batch in batches:
        parts = max(batch.nbytes // PART_BYTES, 1)
        size = -(-batch.num_rows // parts)
        for first in range(0, batch.num_rows, max(size, 1)):
            part = batch.slice(first, size)
            calls = fill(part.filter(pc.equal(part["event"], CALL)), names)
            yield scalar_columns(calls, CALLS)


def scalar_columns(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Columns of an EVENTS batch as `scalar_schema` gives them: lists as text."""
    columns = [_TEXTS[name](batch) if name in LISTS else batch[name] for name in schema.names]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class CsvWriter:
    """Streams rows; the header stands even above no rows at all."""

    note = ""

    def __init__(self, stream: IO[bytes], columns: list[str] | None = None) -> None:
        self._scalars = scalar_schema(columns if columns is not None else EVENTS.names)
        self._shown = shown_schema(self._scalars)
        self._writer = csv.CSVWriter(Sink(stream), self._shown)

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of `batch`, which has the columns of EVENTS."""
        self._writer.write_batch(shown(scalar_columns(batch, self._scalars), self._shown))

    def close(self) -> None:
        """Nothing follows the last row."""
        self._writer.close()


@cache
def _text(value: str) -> pa.Scalar:
    """A text as Arrow has it: given one of Python's, pyarrow loads dateutil to see what it is."""
    return pa.scalar(value, pa.string())


def _topics(topics: pa.ListArray, ids: pa.ListArray) -> pa.Array:
    counts, names, uuids = elements(topics, ids)
    absent = lists.is_null(topics) & lists.is_null(ids)
    return pc.binary_join(lists.rebuilt(pc.coalesce(names, uuids, _text("")), counts, absent), _text(";"))


def _partitions(partitions: pa.ListArray) -> pa.Array:
    flat = partitions.flatten()
    topic = pc.coalesce(pc.struct_field(flat, "topic"), pc.struct_field(flat, "topic_id"), _text(""))
    return _joined(pc.binary_join_element_wise(topic, _field(flat, "partition"), _text("-")), partitions)


def _pairs(items: pa.ListArray, first: str, second: str, between: str) -> pa.Array:
    """Two fields of each item."""
    flat = items.flatten()
    parts = [_field(flat, name) for name in (first, second)]
    return _joined(pc.binary_join_element_wise(*parts, _text(between)), items)


def _field(flat: pa.Array, name: str) -> pa.Array:
    return pc.fill_null(pc.struct_field(flat, name).cast(pa.string()), _text(""))


def _joined(values: pa.Array, like: pa.ListArray) -> pa.Array:
    return pc.binary_join(lists.rebuilt(values, lists.lengths(like), lists.is_null(like)), _text(";"))


_TEXTS: Mapping[str, Callable[[pa.RecordBatch], pa.Array]] = {
    "topics": lambda batch: _topics(batch["topics"], batch["topic_ids"]),
    "topic_ids": lambda batch: _joined(
        pc.fill_null(batch["topic_ids"].flatten(), _text("")), batch["topic_ids"]
    ),
    "partitions": lambda batch: _partitions(batch["partitions"]),
    "resources": lambda batch: _pairs(batch["resources"], "type", "name", " "),
    "asked": lambda batch: _partitions(batch["asked"]),
    "advertised": lambda batch: _pairs(batch["advertised"], "host", "port", ":"),
}
