"""Calls that the engine yields as columns, as columns of EVENTS."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.columns import column, flags, places
from kwsniff.engine.block import CallBlock
from kwsniff.engine.bulk import columns as c
from kwsniff.events import MAX_TOPIC
from kwsniff.table import EVENTS, PARTITION, TEXTS
from kwsniff.wire.records import CODEC_NAMES

Ints = NDArray[np.int64]
Columns = dict[str, pa.Array]

NONE = -(1 << 63)
STATUSES = pa.array(["ok", "error", "no_reply_expected"])
_CODECS = pa.array(CODEC_NAMES)

NUMBERS = {
    "correlation_id": c.CALL_CORRELATION_ID,
    "request_bytes": c.REQUEST_BYTES,
    "response_bytes": c.RESPONSE_BYTES,
    "error_code": c.CALL_ERROR,
    "error_count": c.CALL_ERRORS,
    "throttle_ms": c.CALL_THROTTLE,
    "acks": c.CALL_ACKS,
    "max_wait_ms": c.CALL_MAX_WAIT,
    "record_count": c.CALL_RECORDS,
    "record_bytes": c.CALL_RECORD_BYTES,
    "in_flight": c.CALL_IN_FLIGHT,
}
TEXT_COLUMNS = {
    "client_id": c.CALL_CLIENT_ID,
    "group_id": c.CALL_GROUP,
    "member_id": c.CALL_MEMBER,
    "transactional_id": c.CALL_TRANSACTIONAL_ID,
}


def plain_columns(block: CallBlock, wanted: frozenset[str]) -> Columns:
    """The wanted columns that the kernels computed as they are; the caller derives times and names."""
    table = block.calls
    texts = pa.array(block.texts, pa.string())
    columns: Columns = {"status": STATUSES.take(places(table[c.STATUS]))}
    for name in wanted.intersection(NUMBERS):
        columns[name] = numbers(table[NUMBERS[name]], EVENTS.field(name).type)
    for name in wanted.intersection(TEXT_COLUMNS):
        columns[name] = chosen(texts, table[TEXT_COLUMNS[name]])
    if "topics" in wanted:
        columns["topics"] = _lists(table[c.TOPICS], chosen(texts, block.topics[:, 0]))
    if "topic_ids" in wanted:
        columns["topic_ids"] = _topic_ids(table, block.topics[:, 1], texts)
    if "partitions" in wanted:
        columns["partitions"] = _partitions(table[c.PARTS], block.rows, texts)
    for at, name in enumerate(("request", "response")):
        if name in wanted and block.bodies is not None:
            columns[name] = pa.array(block.bodies[at], pa.string())
    place = places(table[c.CALL_CONNECTION])
    for at, name in enumerate(("software_name", "software_version")):
        if name in wanted:
            columns[name] = pa.array([pair[at] for pair in block.software], pa.string()).take(place)
    return columns


def numbers(values: Ints, kind: pa.DataType) -> pa.Array:
    """Integers, NONE as null."""
    missing = values == NONE
    return column(np.where(missing, 0, values), kind, missing)


def chosen(texts: pa.Array, at: Ints) -> pa.Array:
    """Texts by their places, -1 as null."""
    missing = at < 0
    if missing.all():
        return pa.nulls(len(at), pa.string())
    return texts.take(places(np.where(missing, 0, at), missing))


def _lists(lengths: Ints, values: pa.Array, kind: pa.DataType = TEXTS) -> pa.Array:
    """Lists of so many values each, one after the other; -1 is null."""
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.maximum(lengths, 0), out=offsets[1:])
    return pa.ListArray.from_arrays(column(offsets, pa.int32()), values, type=kind, mask=flags(lengths < 0))


def _topic_ids(table: NDArray[Any], ids: Ints, texts: pa.Array) -> pa.Array:
    """As `topics`, but only of the calls that name uuids."""
    wanted = np.repeat(table[c.IDS] >= 0, np.maximum(table[c.TOPICS], 0))
    return _lists(table[c.IDS], chosen(texts, ids[wanted]))


def _partitions(lengths: Ints, rows: Ints, texts: pa.Array) -> pa.Array:
    columns = [np.ascontiguousarray(rows[:, at]) for at in range(c.ROW_COLUMNS)]
    fields = list(PARTITION)
    topics = pc.utf8_slice_codeunits(texts, 0, MAX_TOPIC)
    arrays = [chosen(topics, columns[c.ROW_TOPIC]), chosen(texts, columns[c.ROW_TOPIC_ID])]
    arrays += [numbers(columns[at], fields[at].type) for at in range(c.ROW_PARTITION, c.ROW_CODEC)]
    arrays.append(chosen(_CODECS, columns[c.ROW_CODEC]))
    arrays += [pa.nulls(len(rows), field.type) for field in fields[len(arrays) :]]
    return _lists(lengths, pa.StructArray.from_arrays(arrays, fields=fields), pa.list_(PARTITION))
