"""Every error a broker answered with: which code, to whom, in which API, for which topic and partition, when.

A response has an error code of its own, or one for each partition or resource. EVENTS names the first of a
response, those of its partitions and of its resources; what else a body holds is found in the body itself
(`--full`), and without it counted as not told.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, calls_of, columns
from kwsniff.spec.load import catalog

NEEDS = columns(
    """
    event time client_ip client_id api api_key error_code error_count topics topic_ids partitions
    resources broker_ip broker_port request_packet capture response_packet group_id transactional_id
    """
)
SLOTS = 10
"""Parts of the covered time that `over_time` counts in."""
BARS = " ▁▂▃▄▅▆▇█"
MAX_ROWS = 100_000
TOPIC_NAMES = ("topic", "name", "topic_name")
PARTITIONS = ("partition_index", "partition", "index")


class ErrorKey(NamedTuple):
    """What is told apart."""

    code: int
    api: str | None
    client: str | None
    address: str | None
    topic: str | None
    partition: int | None
    about: str | None


@dataclass(slots=True)
class Seen:
    """How often one error was seen, and when."""

    count: int = 0
    calls: int = 0
    first: datetime | None = None
    last: datetime | None = None
    packet: int | None = None
    minutes: dict[int, int] = field(default_factory=dict)
    """Errors by second since 1970: at most an hour of them, by minute after that."""


class Errors:
    """Takes EVENTS and gives the errors."""

    def __init__(self, *, full: bool = False) -> None:
        self.needs = NEEDS | {"response"} if full else NEEDS
        self._full = full
        self._seen: dict[ErrorKey, Seen] = {}
        self._untold = self._beyond = self._calls = self._failed = 0
        self._span: list[datetime] = []

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        self._calls += len(calls)
        if len(calls):
            bounds = pc.min_max(calls["time"]).as_py()
            self._span = [*self._span, *(time for time in bounds.values() if time is not None)]
            self._span = [min(self._span), max(self._span)] if self._span else []
        failed = pc.fill_null(pc.not_equal(calls["error_code"], 0), False)
        for row in calls.filter(failed).select(sorted(self.needs)).to_pylist():
            self._failed += 1
            self._take_call(row)

    def _take_call(self, row: Row) -> None:
        found = list(self._codes(row))
        self._untold += max((row["error_count"] or 1) - len(found), 0)
        seen: set[ErrorKey] = set()
        for code, topic, partition, about in found:
            key = ErrorKey(code, row["api"], row["client_id"], row["client_ip"], topic, partition, about)
            self._add(key, row, first=key not in seen)
            seen.add(key)

    def _codes(self, row: Row) -> Iterator[tuple[int, str | None, int | None, str | None]]:
        """The codes of one response, each with topic, partition and what else it is about."""
        if self._full and row.get("response"):
            found = list(_in_body(orjson.loads(row["response"]), None, _names(row)))
            if found:
                yield from found
                return
        items = [item for item in row["partitions"] or () if item["error_code"]]
        if items:
            for item in items:
                yield item["error_code"], item["topic"] or item["topic_id"], item["partition"], None
            return
        resources = [item for item in row["resources"] or () if item["error_code"]]
        if resources:
            for item in resources:
                named = item["type"] is None and item["name"] in (row["topics"] or ())
                topic = item["name"] if named or item["type"] == "topic" else None
                about = None if topic else " ".join(filter(None, (item["type"], item["name"])))
                yield item["error_code"], topic, None, about
            return
        yield row["error_code"], _only(row), None, _about(row)

    def _add(self, key: ErrorKey, row: Row, *, first: bool) -> None:
        if key not in self._seen and len(self._seen) >= MAX_ROWS:
            self._beyond += 1
            return
        seen = self._seen.setdefault(key, Seen())
        seen.count += 1
        seen.calls += first
        time = row["time"]
        if time is not None:
            seen.first = time if seen.first is None else min(seen.first, time)
            seen.last = time if seen.last is None else max(seen.last, time)
            second = int(time.timestamp())
            seen.minutes[second] = seen.minutes.get(second, 0) + 1
            if len(seen.minutes) > 3600:
                seen.minutes = _coarser(seen.minutes)
        if seen.packet is None:
            seen.packet = row["response_packet"]

    def tables(self) -> list[AnswerTable]:
        """Errors, most frequent first; and the sum of each code."""
        rows: list[Row] = [self._row(key, seen) for key, seen in self._seen.items()]
        rows.sort(key=lambda row: (-row["count"], row["error"], str(row["client"]), str(row["topic"])))
        return [
            AnswerTable("errors", self._title(), ERRORS, rows),
            AnswerTable("codes", "By code", CODES, list(self._codes_in_all())),
        ]

    def _title(self) -> str:
        return f"Errors in {self._failed:,} of {self._calls:,} calls"

    def notes(self) -> list[str]:
        found = []
        if self._untold:
            found.append(
                f"{self._untold:,} more error codes stand in these responses; --full says what they are about"
            )
        if self._beyond:
            found.append(f"{self._beyond:,} errors beyond the first {MAX_ROWS:,} different ones are not told")
        return found

    def _row(self, key: ErrorKey, seen: Seen) -> Row:
        error = catalog().error(key.code)
        return {
            "error": error.name, "error_code": key.code, "retriable": error.retriable, "api": key.api,
            "client": key.client, "address": key.address, "topic": key.topic, "partition": key.partition,
            "about": key.about, "count": seen.count, "calls": seen.calls, "first_time": seen.first,
            "last_time": seen.last, "first_packet": seen.packet, "over_time": self._bars(seen),
        }  # fmt: skip

    def _bars(self, seen: Seen) -> str:
        """How the errors spread over the covered time, a character for each tenth of it."""
        if not self._span:
            return ""
        first, last = (time.timestamp() for time in self._span)
        slots = [0] * SLOTS
        for second, count in seen.minutes.items():
            at = (second - first) / max(last - first, 1.0)
            slots[min(max(int(at * SLOTS), 0), SLOTS - 1)] += count
        greatest = max(slots)
        return "".join(BARS[-(-count * (len(BARS) - 1) // greatest)] if greatest else " " for count in slots)

    def _codes_in_all(self) -> Iterator[Row]:
        sums: dict[int, list[tuple[ErrorKey, Seen]]] = {}
        for key, seen in self._seen.items():
            sums.setdefault(key.code, []).append((key, seen))
        for code, found in sorted(sums.items(), key=lambda item: -sum(seen.count for _, seen in item[1])):
            error = catalog().error(code)
            yield {
                "error": error.name, "error_code": code, "retriable": error.retriable,
                "count": sum(seen.count for _, seen in found),
                "clients": len({(key.client, key.address) for key, _ in found}),
                "topics": len({key.topic for key, _ in found if key.topic}), "meaning": error.doc,
            }  # fmt: skip


def _coarser(seconds: dict[int, int]) -> dict[int, int]:
    minutes: dict[int, int] = {}
    for second, count in seconds.items():
        minutes[second - second % 60] = minutes.get(second - second % 60, 0) + count
    return minutes


def _only(row: Row) -> str | None:
    """The topic of a call that names just one."""
    topics, ids = row["topics"] or (), row["topic_ids"] or ()
    names = [name or uuid for name, uuid in zip(topics, [*ids, *[None] * len(topics)], strict=False)]
    return names[0] if len(names) == 1 else None


def _about(row: Row) -> str | None:
    if row["group_id"]:
        return f"group {row['group_id']}"
    return f"transaction {row['transactional_id']}" if row["transactional_id"] else None


def _names(row: Row) -> dict[str, str]:
    """Topics of one call by uuid."""
    pairs = zip(row["topic_ids"] or (), row["topics"] or (), strict=False)
    parts = ((item["topic_id"], item["topic"]) for item in row["partitions"] or ())
    return {uuid: name for uuid, name in (*pairs, *parts) if uuid and name}


Code = tuple[int, str | None, int | None, str | None]


def _in_body(value: Any, topic: str | None, names: dict[str, str]) -> Iterator[Code]:
    """Every non-zero `error_code` of a decoded response, with the topic and partition around it."""
    if isinstance(value, list):
        for item in value:
            yield from _in_body(item, topic, names)
    elif isinstance(value, dict):
        topic = _topic_in(value, names) or topic
        code = value.get("error_code")
        if isinstance(code, int) and code:
            yield code, topic, _partition_in(value), None if topic else _named(value)
        for inner in value.values():
            yield from _in_body(inner, topic, names)


def _topic_in(value: Row, names: dict[str, str]) -> str | None:
    name = next((value[name] for name in TOPIC_NAMES if _is_topic(value, name)), None)
    uuid = value.get("topic_id")
    return name or (names.get(uuid, uuid) if isinstance(uuid, str) else None)


def _partition_in(value: Row) -> int | None:
    return next((value[name] for name in PARTITIONS if isinstance(value.get(name), int)), None)


def _is_topic(value: Row, name: str) -> bool:
    """Whether a struct's name is that of a topic: resources of other kinds have a type beside it."""
    return isinstance(value.get(name), str) and "resource_type" not in value and "user" not in value


def _named(value: Row) -> str | None:
    for name in ("resource_name", "group_id", "user", "member_id", "transactional_id"):
        if isinstance(value.get(name), str):
            return f"{name.removesuffix('_id').removesuffix('_name')} {value[name]}"
    return None


ERROR = AnswerField("error", "text", "error", "name of the error code")
CODE = AnswerField("error_code", "count", "code", "its number", 9)
RETRIABLE = AnswerField("retriable", "flag", "retry", "whether clients try again", 6)
COUNTED = AnswerField("count", "count", "count", "error codes in responses")
ERRORS = (
    ERROR,
    CODE,
    RETRIABLE,
    AnswerField("api", "text", "API", "name of the API"),
    AnswerField("client", "text", "client", "client id", 1),
    AnswerField("address", "text", "address", "address of the client", 5),
    AnswerField("topic", "text", "topic", "topic that the error is about", 1),
    AnswerField("partition", "count", "part", "partition that the error is about", 2),
    AnswerField(
        "about", "text", "about", "what else the error is about: a group, a transaction, a resource", 4
    ),
    COUNTED,
    AnswerField("calls", "count", "calls", "calls with this error", 8),
    AnswerField("first_time", "time", "first", "time of the first", 3),
    AnswerField("last_time", "time", "last", "time of the last", 7),
    AnswerField("first_packet", "count", "packet", "packet of the first, for `kwsniff show`", 6),
    AnswerField("over_time", "text", "over time", "a character for each tenth of the covered time", 4),
)
CODES = (
    ERROR,
    CODE,
    RETRIABLE,
    COUNTED,
    AnswerField("clients", "count", "clients", "clients that got it", 2),
    AnswerField("topics", "count", "topics", "topics it was about", 2),
    AnswerField("meaning", "text", "meaning", "what it means"),
)
