"""Rows of `calls` and of what they list as columns of EVENTS."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import (
    Columns,
    lists,
    microseconds,
    names_of,
    not_negative,
    numbers,
    places,
    timestamps,
)
from kwsniff.config import Config
from kwsniff.events import CALL, MAX_TOPIC, STATUSES
from kwsniff.kernel.durations import time_parts
from kwsniff.kernel.endcolumns import closers
from kwsniff.kernel.machine import Machine
from kwsniff.kernel.numbers import NONE
from kwsniff.kernel.strings import Texts
from kwsniff.schema import ASKED, BROKER, RESOURCE
from kwsniff.spec.load import catalog
from kwsniff.table import EVENTS, PARTITION, TEXTS

Ints = NDArray[np.int64]
Rows = NDArray[Any]
REASONS = pa.array(
    ["", "connection_closed", "connection_reset", "capture_ended", "gap_in_responses", "limit", "timeout"]
)
_STATUSES = pa.array(list(STATUSES))
LISTS = {
    "call_names": ("names",), "call_rows": ("rows", "asked"), "call_resources": ("resources",),
    "call_brokers": ("brokers",),
}  # fmt: skip
"""Tables of what calls list, and the fields of calls that say how much."""
BODIES = frozenset(("request", "response"))
ALWAYS = frozenset(("event", "time", "status", "request_time", "response_time"))
"""Columns of calls that are filled whatever was asked for: the summary of a run needs them."""

if TYPE_CHECKING:
    from kwsniff.kernel.bodytexts import Bodies


_TIMES = {
    "request_time": "first_time", "request_end_time": "last_time",
    "response_time": "response_first", "response_end_time": "response_last",
}  # fmt: skip
_DURATIONS = (
    ("latency_us", "last_time", "response_first"),
    ("duration_us", "first_time", "response_last"),
)
_NUMBERS = {
    "correlation_id": "correlation_id", "request_bytes": "size", "response_bytes": "response_size",
    "error_code": "error", "error_count": "errors", "throttle_ms": "throttle", "acks": "acks",
    "max_wait_ms": "max_wait", "record_count": "records", "record_bytes": "record_bytes",
    "in_flight": "in_flight", "generation": "generation",
    "session_id": "session_id", "session_epoch": "session_epoch",
}  # fmt: skip
_NOT_NEGATIVE = {
    "api_key": "key", "api_version": "version", "request_packet": "packet",
    "response_packet": "response_packet",
}  # fmt: skip
_TEXTS = {
    "client_id": "client_id", "group_id": "group", "member_id": "member",
    "transactional_id": "transactional_id", "software_name": "software",
    "software_version": "software_version", "group_protocol": "group_protocol", "reason": "reason",
    "rack": "rack", "user": "user",
}  # fmt: skip
_ROW_FIELDS = {
    "partition": "partition", "error_code": "error", "base_offset": "base_offset", "records": "records",
    "bytes": "bytes", "high_watermark": "high_watermark", "log_start_offset": "log_start_offset",
    "last_stable_offset": "last_stable_offset", "fetch_offset": "fetch_offset",
    "committed_offset": "committed_offset", "leader_epoch": "leader_epoch",
}  # fmt: skip


class CallColumns:
    """Makes the columns of calls that are wanted."""

    def __init__(self, machine: Machine, config: Config, texts: Texts, bodies: Bodies | None) -> None:
        self._machine, self._texts, self._bodies = machine, texts, bodies
        self._wanted = wanted_columns(config)
        self.lists_of: NDArray[np.bool_] | None = None
        """The calls in the tables whose lists are wanted, None for all."""

    def of(self, calls: Rows) -> Columns:
        """All but whose they are."""
        wanted, count = self._wanted, len(calls)
        columns: Columns = {"event": pa.repeat(CALL, count).cast(pa.string())}
        for name, field in _TIMES.items():
            if name in wanted:
                columns[name] = timestamps(calls[field])
        columns["time"] = timestamps(
            np.where(calls["first_time"] >= 0, calls["first_time"], calls["response_first"])
        )
        for name, begin, end in _DURATIONS:
            if name in wanted:
                columns[name] = microseconds(calls[begin], calls[end])
        columns |= {name: values for name, values in time_parts(calls).items() if name in wanted}
        columns["status"] = _STATUSES.take(places(calls["status"]))
        for name, field in _NUMBERS.items():
            if name in wanted:
                columns[name] = numbers(calls[field], EVENTS.field(name).type)
        for name, field in _NOT_NEGATIVE.items():
            if name in wanted:
                columns[name] = not_negative(calls[field], EVENTS.field(name).type)
        for name, field in _TEXTS.items():
            if name in wanted:
                columns[name] = self._texts.chosen(calls[field])
        makers: dict[str, Callable[[], pa.Array]] = {
            "api": lambda: names_of(calls["key"], _api_name),
            "error": lambda: names_of(numbers(calls["error"], pa.int32()), _error_name),
            "unanswered_because": lambda: _reasons(calls["because"]),
            "topics": lambda: self._topics(calls),
            "topic_ids": lambda: self._topic_ids(calls),
            "partitions": lambda: self._partitions(calls),
            "resources": lambda: self._resources(calls),
            "asked": lambda: self._asked(calls),
            "advertised": lambda: self._advertised(calls),
            "closed_by": lambda: closers(calls["closed_by"]),
            "security": lambda: pa.repeat("plaintext", count).cast(pa.string()),
        }
        if self._bodies is not None:
            for name in BODIES:
                texts = self._bodies.take(calls[f"{name}_body"])
                if name in wanted:
                    columns[name] = texts
        for name in wanted.intersection(makers):
            columns[name] = makers[name]()
        return columns

    def _list_rows(self, name: str, lengths: Ints) -> Rows:
        if self.lists_of is None:
            return self._machine.array(name, int(np.maximum(lengths, 0).sum()))
        calls = self._machine.array("calls", len(self.lists_of))
        every = sum(np.maximum(calls[field], 0) for field in LISTS[name])
        return self._machine.array(name, int(np.sum(every)))[np.repeat(self.lists_of, every)]

    def _topics(self, calls: Rows) -> pa.Array:
        rows = self._list_rows("call_names", calls["names"])
        return lists(
            np.where(calls["names"] > 0, calls["names"], -1), self._texts.chosen(rows["name"]), TEXTS
        )

    def _topic_ids(self, calls: Rows) -> pa.Array:
        rows = self._list_rows("call_names", calls["names"])
        named = calls["uuids"] != 0
        of = np.repeat(named, np.maximum(calls["names"], 0))
        lengths = np.where(named, calls["names"], -1)
        return lists(lengths, self._texts.uuids(rows["uuid"][of]), TEXTS)

    def _partitions(self, calls: Rows) -> pa.Array:
        rows = self._partition_rows(calls, asked=False)
        fields = list(PARTITION)
        arrays = []
        for field in fields:
            if field.name == "topic":
                arrays.append(self._texts.chosen(rows["name"], MAX_TOPIC))
            elif field.name == "topic_id":
                arrays.append(self._texts.uuids(rows["uuid"]))
            elif field.name == "codec":
                arrays.append(_codecs(rows["codecs"]))
            else:
                arrays.append(numbers(rows[_ROW_FIELDS[field.name]], field.type))
        values = pa.StructArray.from_arrays(arrays, fields=fields)
        return lists(np.where(calls["rows"] > 0, calls["rows"], -1), values, pa.list_(PARTITION))

    def _partition_rows(self, calls: Rows, *, asked: bool) -> Rows:
        """Of the calls' partitions those that the response, or only the request, names."""
        rows = self._list_rows("call_rows", np.maximum(calls["rows"], 0) + calls["asked"])
        if not calls["asked"].any():
            return rows[:0] if asked else rows
        turns = np.stack([np.maximum(calls["rows"], 0), calls["asked"]], axis=1).reshape(-1)
        which = np.repeat(np.tile([False, True], len(calls)), turns)
        return rows[which if asked else ~which]

    def _asked(self, calls: Rows) -> pa.Array:
        rows = self._partition_rows(calls, asked=True)
        makers: dict[str, pa.Array] = {
            "topic": self._texts.chosen(rows["name"], MAX_TOPIC),
            "topic_id": self._texts.uuids(rows["uuid"]),
            "partition": numbers(rows["partition"], pa.int32()),
            "fetch_offset": numbers(rows["fetch_offset"], pa.int64()),
        }
        fields = list(ASKED)
        values = pa.StructArray.from_arrays([makers[field.name] for field in fields], fields=fields)
        return lists(np.where(calls["asked"] > 0, calls["asked"], -1), values, pa.list_(ASKED))

    def _advertised(self, calls: Rows) -> pa.Array:
        rows = self._list_rows("call_brokers", calls["brokers"])
        makers: dict[str, pa.Array] = {
            "node_id": numbers(rows["node"], pa.int32()),
            "host": self._texts.chosen(rows["host"]),
            "port": numbers(rows["port"], pa.int32()),
        }
        fields = list(BROKER)
        values = pa.StructArray.from_arrays([makers[field.name] for field in fields], fields=fields)
        return lists(np.where(calls["brokers"] > 0, calls["brokers"], -1), values, pa.list_(BROKER))

    def _resources(self, calls: Rows) -> pa.Array:
        rows = self._list_rows("call_resources", calls["resources"])
        makers: dict[str, pa.Array] = {
            "type": _resource_types(rows["type"]),
            "name": self._texts.chosen(rows["name"]),
            "error_code": numbers(rows["error"], pa.int32()),
            "detail": self._texts.chosen(rows["detail"]),
        }
        fields = list(RESOURCE)
        values = pa.StructArray.from_arrays([makers[field.name] for field in fields], fields=fields)
        return lists(np.where(calls["resources"] > 0, calls["resources"], -1), values, pa.list_(RESOURCE))


def wanted_columns(config: Config) -> frozenset[str]:
    """The columns of calls to fill."""
    every = frozenset(EVENTS.names) if config.full else frozenset(EVENTS.names) - BODIES
    return every if config.columns is None else every & (config.columns | ALWAYS)


def _reasons(because: Ints) -> pa.Array:
    return REASONS.take(places(because, because == 0))


def _codecs(codes: Ints) -> pa.Array:
    from kwsniff.wire.records import CODEC_NAMES  # which loads what computes CRCs

    distinct, index = np.unique(codes, return_inverse=True)
    names = [
        "+".join(CODEC_NAMES[(code >> 4 * at & 15) - 1] for at in range(8) if code >> 4 * at & 15) or None
        for code in distinct.tolist()
    ]
    return pa.array(names, pa.string()).take(places(index))


def _api_name(key: int) -> str | None:
    api = catalog().apis.get(key)
    return api.name if api else None


def _error_name(code: int) -> str:
    return catalog().error(code).name


def _resource_types(values: Ints) -> pa.Array:
    """Types of resources by name (KIP-133, KIP-231), others by number."""
    distinct, index = np.unique(values, return_inverse=True)
    named = [None if value == NONE else RESOURCES.get(value, str(value)) for value in distinct.tolist()]
    return pa.array(named, pa.string()).take(places(index))


RESOURCES = {0: "unknown", 1: "any", 2: "topic", 3: "group", 4: "broker", 5: "transactional_id",
             6: "delegation_token", 7: "user", 8: "broker_logger", 16: "client_metrics",
             32: "group"}  # fmt: skip
