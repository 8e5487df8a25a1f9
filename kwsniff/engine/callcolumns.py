"""Rows of `calls` and of what they list as columns of EVENTS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine import tables as k
from kwsniff.engine.details import REASONS
from kwsniff.engine.drained import Chosen, Drained, Placed, Strings
from kwsniff.engine.eventcolumns import CALLS, Arranged, closers
from kwsniff.native.rowcopies import NONE
from kwsniff.rows.arrays import (
    Columns,
    durations,
    lists,
    microseconds,
    names_of,
    not_negative,
    numbers,
    places,
    repeated,
    spread,
    timestamps,
)
from kwsniff.rows.events import ANOMALY, CALL, CONNECTION, EXCHANGE, MAX_TOPIC, STATUSES, TLS_APIS
from kwsniff.rows.schema import (
    ASKED,
    BROKER,
    COLUMNS,
    EVENTS,
    PARTITION,
    PARTITION_FIELDS,
    RESOURCE,
    TEXTS,
)  # fmt: skip
from kwsniff.spec import instructions as i
from kwsniff.spec.load import catalog

if TYPE_CHECKING:
    from kwsniff.tls.decrypter import Facts

Ints = NDArray[np.int64]
Rows = NDArray[Any]
_REASONS = pa.array(list(REASONS), pa.string())
_STATUSES = pa.array(list(STATUSES), pa.string())
BODIES = frozenset(("request", "response"))
ALWAYS = frozenset(("event", "time", "status", "request_time", "response_time"))
"""Columns of calls that are filled whatever was asked for: the summary of a run needs them."""

_EVENTS = pa.array([CALL, ANOMALY, CONNECTION], pa.string())
"""By kinds of rows."""
_SECURITY = pa.array(["plaintext", "tls", "unknown"], pa.string())
_SECURITY_OF = {k.KAFKA: 0, k.TLS: 1}

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
    "error_code": "error", "error_count": "errors", "record_count": "records",
    "record_bytes": "record_bytes", "in_flight": "in_flight",
    **{column.name: column.role for column in COLUMNS if column.role in i.NUMBERS},
}  # fmt: skip
_NOT_NEGATIVE = {
    "api_key": "key", "api_version": "version", "request_packet": "packet",
    "response_packet": "response_packet",
}  # fmt: skip
_TEXTS = {
    "client_id": "client_id", "software_name": "software", "software_version": "software_version",
    "user": "user", **{column.name: column.role for column in COLUMNS if column.role in i.TEXTS},
}  # fmt: skip
_SHARED = {
    "client_id": "client_id", "user": "user", "closed_by": "closed_by", "rtt_us": "handshake",
}  # fmt: skip
"""Columns that calls and connections have, and the fields of both that they are made from."""
_PARTS = frozenset(
    ("request_transfer_us", "queued_us", "throttled_us", "waited_us", "broker_us", "broker_least_us",
     "response_transfer_us", "waited_open_us", "rtt_us")
)  # fmt: skip
_ROW_FIELDS = {
    "partition": "partition", "error_code": "error", "records": "records", "bytes": "bytes",
    **{column.name: column.role for column in PARTITION_FIELDS if column.role},
}  # fmt: skip


class CallColumns:
    """Makes the columns of calls that are wanted, and those that connections have as well."""

    def __init__(self, config: Config) -> None:
        self._wanted = wanted_columns(config)

    def of(self, drained: Drained, rows: Arranged) -> Columns:
        """All but whose they are."""
        columns: Columns = {"event": _events(rows), "time": timestamps(rows.time)}
        wanted = self._wanted if len(drained.calls) else frozenset()
        calls = Placed(drained.calls, rows.calls, len(rows))
        if len(drained.ends):
            wanted = self._with_ends(calls, drained.ends, rows.ends)
        elif not wanted:
            return columns
        columns |= _scalars(calls, wanted) | _texts(calls, wanted, drained.texts)
        makers: dict[str, Callable[[], pa.Array]] = {
            "api": lambda: names_of(calls["key"], _api_name),
            "error": lambda: names_of(calls["error"], _error_name),
            "status": lambda: _STATUSES.take(places(calls["status"], calls["status"] < 0)),
            "unanswered_because": lambda: _reasons(calls["because"]),
            "closed_by": lambda: closers(calls["closed_by"]),
            "security": lambda: _security(drained, rows, of_calls="security" in self._wanted),
        }
        columns |= {name: makers[name]() for name in wanted.intersection(makers)}
        for key in (k.EXCHANGE, k.FETCH_EXCHANGE) if (drained.calls["key"] <= k.EXCHANGE).any() else ():
            columns |= _of_exchanges(calls["key"] == key, key, columns)
        if len(drained.calls):
            columns |= Listed(calls, drained).columns(wanted)
            for name in drained.bodies.keys() & wanted:
                columns[name] = spread(drained.bodies[name], rows.calls, len(rows))
        return columns

    def _with_ends(self, calls: Placed, ends: Rows, place: Ints) -> frozenset[str]:
        """Put what connections have as well into the fields of calls; the columns to make then."""
        for name, field in _SHARED.items():
            if name not in self._wanted:
                calls.blank(field)
            calls.put(field, ends, place)
        return (self._wanted if calls.any else frozenset()) | {*_SHARED, "security"}


class Listed:
    """What calls list, as list columns."""

    def __init__(self, calls: Placed, drained: Drained) -> None:
        self._calls, self._rows, self._texts = calls, drained.lists, drained.texts

    def columns(self, wanted: frozenset[str]) -> Columns:
        """Those that are wanted."""
        makers: dict[str, Callable[[], pa.Array]] = {
            "topics": self._topics,
            "topic_ids": self._topic_ids,
            "partitions": self._partitions,
            "resources": self._resources,
            "asked": self._asked,
            "advertised": self._advertised,
        }
        return {name: makers[name]() for name in wanted.intersection(makers)}

    def _chosen(self, name: str, *fields: str) -> Chosen:
        """The rows of a table in the order of the calls, which list so many."""
        own = self._calls.rows
        lengths = np.sum([np.maximum(own[field], 0) for field in fields], axis=0)
        return Chosen(self._rows[name], self._calls.moved(lengths))

    def _topics(self) -> pa.Array:
        rows, lengths = self._chosen("call_names", "names"), self._calls["names"]
        return lists(np.where(lengths > 0, lengths, -1), self._texts.chosen(rows["name"]), TEXTS)

    def _topic_ids(self) -> pa.Array:
        rows, named = self._chosen("call_names", "names"), self._calls["uuids"] != 0
        lengths = self._calls["names"]
        of = rows.where(np.repeat(named, np.maximum(lengths, 0)))
        return lists(np.where(named, lengths, -1), self._texts.uuids(of["uuid"]), TEXTS)

    def _partitions(self) -> pa.Array:
        rows = self._partition_rows(asked=False)
        makers: dict[str, Callable[[], pa.Array]] = {
            "topic": lambda: self._texts.chosen(rows["name"], MAX_TOPIC),
            "topic_id": lambda: self._texts.uuids(rows["uuid"]),
            "codec": lambda: names_of(rows["codecs"], _codec_names),
        }
        fields = list(PARTITION)
        arrays = [
            makers[field.name]()
            if field.name in makers
            else numbers(rows[_ROW_FIELDS[field.name]], field.type)
            for field in fields
        ]
        return _structs(self._calls["rows"], arrays, pa.list_(PARTITION))

    def _partition_rows(self, *, asked: bool) -> Chosen:
        """Of the calls' partitions those that the response, or only the request, names."""
        rows = self._chosen("call_rows", "rows", "asked")
        if not self._calls["asked"].any():
            return Chosen(self._rows["call_rows"][:0]) if asked else rows
        turns = np.stack([np.maximum(self._calls["rows"], 0), self._calls["asked"]], axis=1).reshape(-1)
        which = np.repeat(np.tile([False, True], len(turns) // 2), turns)
        return rows.where(which if asked else ~which)

    def _asked(self) -> pa.Array:
        rows = self._partition_rows(asked=True)
        arrays = [
            self._texts.chosen(rows["name"], MAX_TOPIC),
            self._texts.uuids(rows["uuid"]),
            numbers(rows["partition"], pa.int32()),
            numbers(rows["fetch_offset"], pa.int64()),
        ]
        return _structs(self._calls["asked"], arrays, pa.list_(ASKED))

    def _advertised(self) -> pa.Array:
        rows = self._chosen("call_brokers", "brokers")
        arrays = [
            numbers(rows["node"], pa.int32()),
            self._texts.chosen(rows["host"]),
            numbers(rows["port"], pa.int32()),
        ]
        return _structs(self._calls["brokers"], arrays, pa.list_(BROKER))

    def _resources(self) -> pa.Array:
        rows = self._chosen("call_resources", "resources")
        arrays = [
            names_of(rows["type"], _resource_type),
            self._texts.chosen(rows["name"]),
            numbers(rows["error"], pa.int32()),
            self._texts.chosen(rows["detail"]),
        ]
        return _structs(self._calls["resources"], arrays, pa.list_(RESOURCE))


def _structs(lengths: Ints, arrays: list[pa.Array], kind: pa.DataType) -> pa.Array:
    """Lists of so many structs each, none of them empty, of the fields in their order."""
    if not len(arrays[0]):
        return lists(np.full(len(lengths), -1), arrays[0], kind)
    values = pa.StructArray.from_arrays(arrays, fields=list(kind.value_type))
    return lists(np.where(lengths > 0, lengths, -1), values, kind)


def _events(rows: Arranged) -> pa.Array:
    if rows.calls is None:
        return repeated(CALL, len(rows))
    return _EVENTS.take(places(rows.kind))


def _of_exchanges(which: NDArray[np.bool_], key: int, columns: Columns) -> Columns:
    """The columns that say what calls are, with what they say of exchanges, which stand among calls."""
    name, number = TLS_APIS[key == k.FETCH_EXCHANGE]
    said = {"event": EXCHANGE, "api": name, "api_key": number, "security": "tls"}
    mask = pa.array(which)
    return {
        name: pc.if_else(mask, pa.scalar(value, columns[name].type), columns[name])
        for name, value in said.items()
        if name in columns
    }


def _scalars(calls: Placed, wanted: frozenset[str]) -> Columns:
    columns: Columns = {}
    for name in _TIMES.keys() & wanted:
        columns[name] = timestamps(calls[_TIMES[name]])
    for name, begin, end in _DURATIONS:
        if name in wanted:
            columns[name] = microseconds(calls[begin], calls[end])
    if wanted & _PARTS:
        columns |= {name: values for name, values in time_parts(calls).items() if name in wanted}
    for name in _NUMBERS.keys() & wanted:
        columns[name] = numbers(calls[_NUMBERS[name]], EVENTS.field(name).type)
    for name in _NOT_NEGATIVE.keys() & wanted:
        columns[name] = not_negative(calls[_NOT_NEGATIVE[name]], EVENTS.field(name).type)
    return columns


def _texts(calls: Placed, wanted: frozenset[str], texts: Strings) -> Columns:
    return {name: texts.chosen(calls[_TEXTS[name]]) for name in _TEXTS.keys() & wanted}


def _security(drained: Drained, rows: Arranged, *, of_calls: bool) -> pa.Array:
    """What `_seen` says, but of what was decrypted the version of TLS."""
    seen = _seen(drained, rows, of_calls=of_calls)
    if not drained.tls:
        return seen
    versions = [_decrypted(drained.tls.get(number)) for number in drained.owners["number"].tolist()]
    carried = pa.array([*versions, None], pa.string()).take(places(rows.owner))
    return pc.if_else(pc.equal(seen, "plaintext"), pc.coalesce(carried, seen), seen)


def _seen(drained: Drained, rows: Arranged, *, of_calls: bool) -> pa.Array:
    """As what rows were followed by the engine."""
    if rows.calls is None:
        return repeated("plaintext", len(rows))
    codes = np.where((rows.kind == CALLS) & of_calls, 0, -1)
    codes[rows.ends] = [_SECURITY_OF.get(state, 2) for state in drained.ends["state"].tolist()]
    return _SECURITY.take(places(codes, codes < 0))


def _decrypted(facts: Facts | None) -> str | None:
    """The version of TLS of a connection that was decrypted."""
    return facts.version if facts is not None and facts.decrypted else None


def wanted_columns(config: Config) -> frozenset[str]:
    """The columns of calls to fill."""
    every = frozenset(EVENTS.names) if config.full else frozenset(EVENTS.names) - BODIES
    return every if config.columns is None else every & (config.columns | ALWAYS)


def _reasons(because: Ints) -> pa.Array:
    return _REASONS.take(places(because, because == 0))


def _codec_names(codes: int) -> str | None:
    from kwsniff.spec.batches import CODEC_NAMES  # which loads what computes CRCs

    named = [CODEC_NAMES[(codes >> 4 * at & 15) - 1] for at in range(8) if codes >> 4 * at & 15]
    return "+".join(named) or None


def _api_name(key: int) -> str | None:
    api = catalog().apis.get(key)
    return api.name if api else None


def _error_name(code: int) -> str | None:
    return None if code == NONE else catalog().error(code).name


def _resource_type(value: int) -> str | None:
    """A type of resources by name (KIP-133, KIP-231), others by number."""
    return None if value == NONE else RESOURCES.get(value, str(value))


RESOURCES = {0: "unknown", 1: "any", 2: "topic", 3: "group", 4: "broker", 5: "transactional_id",
             6: "delegation_token", 7: "user", 8: "broker_logger", 16: "client_metrics",
             32: "group"}  # fmt: skip


# Where the time of calls went, from their rows.

FETCHES, GROUP_WAITS = (1, 78), (11, 14)
REBALANCE_IN_PROGRESS = 27
MILLISECOND = 1_000_000


def waits(calls: Rows, left: Ints) -> tuple[Ints, Ints]:
    """How long each call waited on purpose, and how long it may have, ns. `left` is the time in which it was
    neither queued nor held back by a quota.

    - **JoinGroup and SyncGroup** wait for the other members of the group. Every answered one waited, but
      those refused with an error, which come at once; REBALANCE_IN_PROGRESS is what ends a wait early.
    - **Fetch and ShareFetch** wait until there are `min_bytes` of data, for `max_wait` at the most. What is
      beyond that is the broker's own time, the rest may have been waiting; it was
      if less came than was asked for, `max_wait` or more after the request (brokers count in milliseconds: an
      answer up to one early counts too, or half of `max_wait` where that is less);
      or if what came reaches the end of each partition and could only just have been enough, within
      `max_wait` but not in the first millisecond: one batch of each, as who waits is answered with the
      first that comes, or several where they are less than twice the `min_bytes` of more than one.

    A Produce with acks=all waits for replicas, and that is service: it is what the client asked for."""
    fetches, group_waits = (
        functools.reduce(np.logical_or, (calls["key"] == key for key in keys))
        for keys in (FETCHES, GROUP_WAITS)
    )
    served = (calls["error"] == 0) | (calls["error"] == REBALANCE_IN_PROGRESS)
    allowed = np.where(fetches & (calls["max_wait"] != NONE), calls["max_wait"], 0) * MILLISECOND
    most = np.minimum(left, np.maximum(allowed, 0))
    size, asked = calls["record_bytes"], np.maximum(calls["min_bytes"], 1)
    in_time = left >= allowed - np.minimum(MILLISECOND, allowed // 2)
    lacking = in_time & (size != NONE) & (size < asked) & (calls["status"] == k.OK_)
    enough = (calls["tail"] > 1) | ((calls["tail"] > 0) & (asked > 1) & (size < 2 * asked))
    arrived = enough & (left >= MILLISECOND) & (left <= np.maximum(allowed, MILLISECOND) + MILLISECOND)
    together = group_waits & served
    waited = np.where((lacking | arrived) & (allowed > 0), most, np.where(together, left, 0))
    return waited, np.where(fetches, most, waited)


def time_parts(calls: Rows) -> Columns:
    """Where the time of each call went; the parts add up to its duration. Null without a latency.

    A broker handles the requests of a connection one after the other, so it began with one no earlier than
    the response before it ended; nor while it read nothing because it throttled (KIP-219)."""
    asked, begun = calls["last_time"], calls["response_first"]
    unknown = (asked < 0) | (begun < 0) | (begun < asked) | (calls["response_last"] < 0)
    free = np.clip(calls["response_end"], asked, np.maximum(begun, asked))
    heard = np.clip(calls["throttled_until"], free, np.maximum(begun, free))
    left = begun - heard
    waited, may_have = waits(calls, left)
    parts = {
        "request_transfer_us": asked - calls["first_time"],
        "queued_us": free - asked,
        "throttled_us": heard - free,
        "waited_us": waited,
        "broker_us": left - waited,
        "broker_least_us": left - may_have,
        "response_transfer_us": calls["response_last"] - begun,
    }
    # Of exchanges nothing is known but that some wait, and not how long they are to.
    nothing = unknown | (calls["key"] <= k.EXCHANGE)
    columns = {name: durations(value, nothing) for name, value in parts.items()}
    if (may_wait := calls["key"] == k.FETCH_EXCHANGE).any():
        waited = np.where(may_wait, begun - asked, waited)
        columns["waited_us"] = durations(waited, unknown | (calls["key"] == k.EXCHANGE))
    open_until, handshake = calls["open_until"], calls["handshake"]
    columns["waited_open_us"] = durations(open_until - asked, (open_until < 0) | (asked < 0))
    columns["rtt_us"] = durations(handshake, handshake < 0)
    return columns
