"""Events as CSV: all of them as `kwsniff decode` writes them, or calls.csv, which has one row a call with
the scalar columns of EVENTS that a call can have. Lists are text.

`topics` joins the names by `;`, with the uuid where the name is not known, `topic_ids` joins the uuids.
`partitions` joins `topic-partition`, `resources` types and names. What each partition carried is in the
Parquet and JSONL output of `kwsniff decode`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from kwsniff.count import sessions
from kwsniff.count.topics import elements, fill
from kwsniff.output.writers import Sink, shown, shown_schema, write_batches
from kwsniff.rows import lists
from kwsniff.rows.events import CALL
from kwsniff.rows.schema import COLUMNS, EVENTS

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
    number = pc.fill_null(pc.struct_field(flat, "partition").cast(pa.string()), _text(""))
    return _joined(pc.binary_join_element_wise(topic, number, _text("-")), partitions)


def _brokers(brokers: pa.ListArray) -> pa.Array:
    flat = brokers.flatten()
    host = pc.fill_null(pc.struct_field(flat, "host"), _text(""))
    port = pc.fill_null(pc.struct_field(flat, "port").cast(pa.string()), _text(""))
    return _joined(pc.binary_join_element_wise(host, port, _text(":")), brokers)


def _resources(resources: pa.ListArray) -> pa.Array:
    flat = resources.flatten()
    parts = [pc.fill_null(pc.struct_field(flat, name), _text("")) for name in ("type", "name")]
    return _joined(pc.binary_join_element_wise(*parts, _text(" ")), resources)


def _joined(values: pa.Array, like: pa.ListArray) -> pa.Array:
    return pc.binary_join(lists.rebuilt(values, lists.lengths(like), lists.is_null(like)), _text(";"))


_TEXTS: Mapping[str, Callable[[pa.RecordBatch], pa.Array]] = {
    "topics": lambda batch: _topics(batch["topics"], batch["topic_ids"]),
    "topic_ids": lambda batch: _joined(
        pc.fill_null(batch["topic_ids"].flatten(), _text("")), batch["topic_ids"]
    ),
    "partitions": lambda batch: _partitions(batch["partitions"]),
    "resources": lambda batch: _resources(batch["resources"]),
    "asked": lambda batch: _partitions(batch["asked"]),
    "advertised": lambda batch: _brokers(batch["advertised"]),
}
