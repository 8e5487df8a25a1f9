"""calls.csv: one row a call, with the scalar columns of EVENTS that a call can have, and lists as text.

`topics` joins the names by `;`, with the uuid where the name is not known, `topic_ids` joins the uuids.
`partitions` joins `topic-partition`. What each partition carried is in the Parquet and JSONL output of
`kwsniff decode`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.events import CALL
from kwsniff.report import lists
from kwsniff.report.csv import write_batches
from kwsniff.report.topics import elements, fill
from kwsniff.table import EVENTS

NOT_OF_A_CALL = frozenset(
    (
        *("event", "code", "detail", "packet", "first_time", "last_time", "client_packets", "broker_packets"),
        *(
            "client_bytes",
            "broker_bytes",
            "client_missing_bytes",
            "broker_missing_bytes",
            "syn",
            "fin",
            "rst",
        ),
        *("handshake_us", "security", "sasl_mechanism", "user", "resynchronisations", "skipped_bytes"),
        *("frames", "undecoded_frames", "request", "response"),
    )
)
"""Columns of anomalies and connections, and the bodies, which are no part of a report."""

LISTS = frozenset(("topics", "topic_ids", "partitions"))

CALLS = pa.schema(
    [
        pa.field(field.name, pa.string() if field.name in LISTS else field.type, metadata=field.metadata)
        for field in EVENTS
        if field.name not in NOT_OF_A_CALL
    ]
)
"""Columns of calls.csv."""


def write_calls(path: Path, batches: Iterable[pa.RecordBatch], names: Mapping[str, str]) -> None:
    """Write calls.csv from EVENTS batches; rows that are no calls are passed over. `names` gives topics by
    uuid. Raises OSError if the file cannot be written."""
    write_batches(path, CALLS, flattened(batches, names))


def flattened(batches: Iterable[pa.RecordBatch], names: Mapping[str, str]) -> Iterator[pa.RecordBatch]:
    """The calls among EVENTS batches, with the columns CALLS."""
    for batch in batches:
        calls = fill(batch.filter(pc.equal(batch["event"], CALL)), names)
        texts = {
            "topics": _topics(calls["topics"], calls["topic_ids"]),
            "topic_ids": _joined(pc.fill_null(calls["topic_ids"].flatten(), ""), calls["topic_ids"]),
            "partitions": _partitions(calls["partitions"]),
        }
        columns = [texts[name] if name in texts else calls[name] for name in CALLS.names]
        yield pa.RecordBatch.from_arrays(columns, schema=CALLS)


def _topics(topics: pa.ListArray, ids: pa.ListArray) -> pa.Array:
    counts, names, uuids = elements(topics, ids)
    absent = lists.is_null(topics) & lists.is_null(ids)
    return pc.binary_join(lists.rebuilt(pc.coalesce(names, uuids, ""), counts, absent), ";")


def _partitions(partitions: pa.ListArray) -> pa.Array:
    flat = partitions.flatten()
    topic = pc.coalesce(pc.struct_field(flat, "topic"), pc.struct_field(flat, "topic_id"), "")
    number = pc.fill_null(pc.struct_field(flat, "partition").cast(pa.string()), "")
    return _joined(pc.binary_join_element_wise(topic, number, "-"), partitions)


def _joined(values: pa.Array, like: pa.ListArray) -> pa.Array:
    return pc.binary_join(lists.rebuilt(values, lists.lengths(like), lists.is_null(like)), ";")
