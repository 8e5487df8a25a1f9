"""Batches of events counted by some of their columns, by Arrow: what comes of it is few rows of plain
values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.events import CALL, CONNECTION

Row = dict[str, Any]


def calls_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are calls."""
    is_call = pc.equal(batch["event"], CALL)
    return batch if is_call.true_count == batch.num_rows else batch.filter(is_call)


def ends_of(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows that are connections."""
    return batch.filter(pc.equal(batch["event"], CONNECTION))


def grouped(batch: pa.RecordBatch, keys: Sequence[str], sums: Sequence[tuple[str, str]] = ()) -> list[Row]:
    """One row for each combination of `keys`; `sums` are columns with an Arrow aggregation, whose result
    goes by `column_aggregation`."""
    if not batch.num_rows:
        return []
    wanted = list(dict.fromkeys((*keys, *(name for name, _ in sums))))
    table = pa.Table.from_batches([batch.select(wanted)])
    rows: list[Row] = table.group_by(list(keys), use_threads=False).aggregate(list(sums)).to_pylist()
    return rows


def exploded(batch: pa.RecordBatch, name: str, fields: Sequence[str], keys: Sequence[str]) -> pa.RecordBatch:
    """A row for each item of a list column, with `fields` of the item and `keys` of its event. An item that
    has no name for its topic is given its uuid."""
    lists = batch[name]
    items = lists.flatten()
    rows = pc.list_parent_indices(lists)
    columns = {key: batch[key].take(rows) for key in keys}
    for field in fields:
        columns[field] = pc.struct_field(items, field)
    if "topic" in columns:
        columns["topic"] = pc.coalesce(columns["topic"], pc.struct_field(items, "topic_id"))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
