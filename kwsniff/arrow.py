"""Events of the engine over objects as EVENTS batches.

Nothing here decides anything; it moves columns, and derives those that follow from others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from kwsniff.blocks import numbers, plain_columns
from kwsniff.columns import column, flags, places
from kwsniff.config import Config
from kwsniff.engine import Events
from kwsniff.engine.block import CallBlock
from kwsniff.engine.bulk import columns as c
from kwsniff.events import ANOMALY, CALL, CONNECTION, MAX_TOPIC, Anomaly, Call, ConnectionEnd
from kwsniff.spec.load import catalog
from kwsniff.table import EVENTS, PARTITION, TEXTS, TIMESTAMP

Columns = dict[str, pa.Array]
Ints = np.ndarray[Any, np.dtype[np.int64]]

KINDS = 3
"""Calls, anomalies and connections: the order of events of one packet."""


# Events to EVENTS


def events_batch(
    events: Events, capture: str | None, config: Config
) -> tuple[pa.RecordBatch | None, np.ndarray[Any, np.dtype[np.int64]]]:
    """One EVENTS batch, in the order of the packets that caused the events, with the keys of that order.

    None instead of a batch if there are no events.
    """
    wanted = call_columns(config)
    parts: list[tuple[Columns, int]] = []
    keys: list[Ints] = []
    ranks: list[Ints] = []
    """Of events with the same key: which comes first."""
    for block in filter(len, events.blocks):
        of = block.connections[block.calls[c.CALL_CONNECTION]]
        columns = _block_columns(block, wanted) | _connection_columns(events, of, capture)
        parts.append((columns, len(block)))
        keys.append(block.calls[c.CALL_ORDER] * KINDS)
        ranks.append(block.calls[c.CALL_SEQUENCE])
    makers: tuple[tuple[Sequence[Any], Callable[[Any], Columns]], ...] = (
        (events.calls, lambda calls: _call_columns(calls, wanted)),
        (events.anomalies, _anomaly_columns),
        (events.ends, _end_columns),
    )
    for rank, (rows, columns_of) in enumerate(makers):
        if rows:
            of = np.fromiter((row.connection for row in rows), np.int64, len(rows))
            parts.append((columns_of(rows) | _connection_columns(events, of, capture), len(rows)))
            keys.append(np.fromiter((row.order for row in rows), np.int64, len(rows)) * KINDS + rank)
            ranks.append(events.sequence() if rank == 0 else np.zeros(len(rows), np.int64))
    if not parts:
        return None, np.zeros(0, np.int64)
    key = np.concatenate(keys)
    batch = _joined(parts)
    if (np.diff(key) < 0).any():
        order = np.lexsort((np.concatenate(ranks), key))
        batch, key = batch.take(places(order)), key[order]
    return _batch(dict(zip(batch.schema.names, batch.columns, strict=True)), len(batch), EVENTS), key


def _joined(parts: list[tuple[Columns, int]]) -> pa.RecordBatch:
    """All parts below each other, with the columns that any of them has."""
    present = set().union(*(columns for columns, _ in parts))
    schema = pa.schema([field for field in EVENTS if field.name in present])
    batches = [_batch(columns, count, schema) for columns, count in parts]
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _batch(columns: Columns, count: int, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        columns[field.name] if field.name in columns else pa.nulls(count, field.type) for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _connection_columns(events: Events, numbers: Ints, capture: str | None) -> Columns:
    distinct, index = np.unique(numbers, return_inverse=True)
    rows: list[tuple[Any, ...]] = []
    for number in distinct.tolist():
        connection = events.connections.get(number)
        rows.append(
            (None,) * 6 if connection is None else (connection.id, *connection.ends(), connection.capture)
        )
    taken = places(index)
    names = ["connection", "client_ip", "client_port", "broker_ip", "broker_port"]
    columns = {
        name: pa.array(values, EVENTS.field(name).type).take(taken)
        for name, values in zip(names, zip(*rows, strict=True), strict=False)
    }
    # A connection that ends later, while another file is being read, ended in its own.
    captures = [capture if row[5] is None else row[5] for row in rows]
    columns["capture"] = pa.array(captures, pa.string()).take(taken)
    return columns


def _derived_columns(times: dict[str, Ints], count: int, wanted: frozenset[str]) -> Columns:
    """Columns of calls that follow from their four times in nanoseconds."""
    columns: Columns = {"event": pa.repeat(CALL, count).cast(pa.string())}
    for name in wanted.intersection(times):
        columns[name] = timestamps(times[name])
    columns["time"] = timestamps(
        np.where(times["request_time"] >= 0, times["request_time"], times["response_time"])
    )
    for name, begin, end in _DURATIONS:
        if name in wanted:
            columns[name] = _microseconds(times[begin], times[end])
    return columns


def _block_columns(block: CallBlock, wanted: frozenset[str]) -> Columns:
    table = block.calls
    columns = plain_columns(block, wanted)
    columns |= _derived_columns(dict(zip(_TIMES, table[c.REQUEST_TIME :], strict=False)), len(block), wanted)
    for name in wanted.intersection(_PLACES):
        at = _PLACES[name]
        columns[name] = _without_negative(table[at], EVENTS.field(name).type)
    if "api" in wanted:
        columns["api"] = _names(table[c.CALL_KEY], _api_name)
    if "error" in wanted:
        columns["error"] = _names(numbers(table[c.CALL_ERROR], pa.int32()), _error_name)
    return columns


_PLACES = {
    "api_key": c.CALL_KEY,
    "api_version": c.CALL_VERSION,
    "request_packet": c.REQUEST_PACKET,
    "response_packet": c.RESPONSE_PACKET,
}


def _call_columns(calls: Sequence[Call], wanted: frozenset[str]) -> Columns:
    raw = dict(zip(Call._fields, zip(*calls, strict=True), strict=True))
    count = len(calls)
    columns = _derived_columns({name: np.array(raw[name], np.int64) for name in _TIMES}, count, wanted)
    for name in wanted.intersection(_PLACES):
        columns[name] = _without_negative(raw[name], EVENTS.field(name).type)
    for name in wanted.intersection(_PLAIN):
        columns[name] = pa.array(raw[name], EVENTS.field(name).type)
    makers: dict[str, Callable[[], pa.Array]] = {
        "api": lambda: _names(pa.array(raw["api_key"], pa.int32()), _api_name),
        "error": lambda: _names(pa.array(raw["error_code"], pa.int32()), _error_name),
        "topics": lambda: pa.array(raw["topics"], TEXTS),
        "topic_ids": lambda: pa.array(raw["topic_ids"], TEXTS),
        "partitions": lambda: _partitions(raw["partitions"]),
        "request": lambda: pa.array(raw["request"], pa.string()),
        "response": lambda: pa.array(raw["response"], pa.string()),
    }
    for name in wanted.intersection(makers):
        columns[name] = makers[name]()
    return columns


_TIMES = ("request_time", "request_end_time", "response_time", "response_end_time")
_PLAIN = (
    "correlation_id", "client_id", "request_bytes", "response_bytes", "status", "error_code", "error_count",
    "throttle_ms", "acks", "max_wait_ms", "group_id", "member_id", "transactional_id", "record_count",
    "record_bytes", "in_flight", "software_name", "software_version", "unanswered_because",
)  # fmt: skip
_DURATIONS = (
    ("latency_us", "request_end_time", "response_time"),
    ("duration_us", "request_time", "response_end_time"),
)
BODIES = frozenset(("request", "response"))
ALWAYS = frozenset(("event", "time", "status", "request_time", "response_time"))
"""Columns of calls that are filled whatever was asked for: the summary of a run needs them."""


def call_columns(config: Config) -> frozenset[str]:
    """The columns of calls to fill."""
    every = frozenset(EVENTS.names) if config.full else frozenset(EVENTS.names) - BODIES
    return every if config.columns is None else every & (config.columns | ALWAYS)


def _anomaly_columns(anomalies: Sequence[Anomaly]) -> Columns:
    return {
        "event": pa.repeat(ANOMALY, len(anomalies)).cast(pa.string()),
        "time": timestamps(np.array([anomaly.time for anomaly in anomalies], np.int64)),
        "code": pa.array([anomaly.code for anomaly in anomalies], pa.string()),
        "detail": pa.array([anomaly.detail for anomaly in anomalies], pa.string()),
        "packet": _without_negative([anomaly.packet for anomaly in anomalies], pa.int64()),
    }


def _end_columns(ends: Sequence[ConnectionEnd]) -> Columns:
    raw = dict(zip(ConnectionEnd._fields, zip(*ends, strict=True), strict=True))
    columns: Columns = {"event": pa.repeat(CONNECTION, len(ends)).cast(pa.string())}
    for name in ("first_time", "last_time"):
        columns[name] = timestamps(np.array(raw[name], np.int64))
    columns["time"] = columns["first_time"]
    for name in ConnectionEnd._fields[4:]:
        columns[name] = pa.array(raw[name], EVENTS.field(name).type)
    return columns


def timestamps(nanoseconds: np.ndarray[Any, np.dtype[np.int64]]) -> pa.Array:
    """Microsecond timestamps; -1 becomes null."""
    return column(nanoseconds // 1000, TIMESTAMP, nanoseconds < 0)


def _microseconds(begin: np.ndarray[Any, Any], end: np.ndarray[Any, Any]) -> pa.Array:
    # A response captured before its request has no latency that the capture could show.
    return column((end - begin) / 1000.0, pa.float64(), (begin < 0) | (end < begin))


def _without_negative(values: Sequence[int] | Ints, kind: pa.DataType) -> pa.Array:
    found = np.asarray(values, np.int64)
    return column(found, kind, found < 0)


def _names(codes: Any, name: Callable[[int], str | None]) -> pa.Array:
    """Names of small integers, each looked up once."""
    codes = codes if isinstance(codes, pa.Array) else pa.array(codes)
    encoded = codes.cast(pa.int32()).dictionary_encode()
    names = pa.array([name(code.as_py()) for code in encoded.dictionary], pa.string())
    return names.take(encoded.indices)


def _api_name(key: int) -> str | None:
    api = catalog().apis.get(key)
    return api.name if api else None


def _error_name(code: int) -> str:
    return catalog().error(code).name


def _partitions(lists: Sequence[list[tuple[Any, ...]] | None]) -> pa.Array:
    lengths = np.fromiter((0 if rows is None else len(rows) for rows in lists), np.int32, len(lists))
    offsets = np.zeros(len(lists) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    columns = list(zip(*chain.from_iterable(rows for rows in lists if rows), strict=True))
    fields = list(PARTITION)
    arrays = [_repeating(values) for values in columns[:2]] if columns else []
    known = len(columns)
    arrays += [pa.array(columns[at], fields[at].type) for at in range(len(arrays), known)]
    arrays += [pa.nulls(len(columns[0]) if columns else 0, field.type) for field in fields[known:]]
    missing = flags(np.fromiter((rows is None for rows in lists), np.bool_, len(lists)))
    values = pa.StructArray.from_arrays(arrays, fields=fields)
    return pa.ListArray.from_arrays(
        column(offsets, pa.int32()), values, type=pa.list_(PARTITION), mask=missing
    )


def _repeating(values: Sequence[str | None]) -> pa.Array:
    """Texts each of which is there often, in no more memory than they take; of topics as much as may be."""
    numbers = {name: number for number, name in enumerate(dict.fromkeys(values))}
    texts = pa.array([name[:MAX_TOPIC] if name else name for name in numbers], pa.string())
    return texts.take(places(np.fromiter(map(numbers.__getitem__, values), np.int64, len(values))))
