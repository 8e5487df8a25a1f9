"""A conversation in the order of time: of a connection, a client, a group or about a topic.

Each call is two lines, its request and its response, with the packets that completed them; what happened to
the connections stands between.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, columns, topics_of
from kwsniff.count.eventrows import address
from kwsniff.output import suggestion
from kwsniff.output.units import closer
from kwsniff.rows.events import CALL, CONNECTION

NEEDS = columns(
    """
    event time capture connection client_ip client_port broker_ip broker_port api api_key api_version
    correlation_id client_id request_time request_end_time response_time response_end_time latency_us
    request_bytes response_bytes status request_packet response_packet error error_code topics topic_ids
    partitions group_id member_id record_count record_bytes unanswered_because throttle_ms acks
    transactional_id code detail packet first_time last_time syn fin rst closed_by security user
    generation reason
    """
)
CONNECTION_ID = re.compile(r"[0-9a-f]{4,16}")
KINDS = ("connection", "client", "group", "topic")
MAX_CALLS = 200_000
PARTS_SHOWN = 4


class Follow:
    """Takes EVENTS and gives the lines of one conversation. `kind`: what `wanted` names, None for any."""

    def __init__(self, wanted: str, kind: str | None = None) -> None:
        self.needs = NEEDS
        self._wanted, self._kind = wanted, kind
        self._calls: list[Row] = []
        self._others: list[Row] = []
        self._connections: set[str] = set()
        self._names: dict[str, None] = {}
        self._beyond = 0

    def take(self, batch: pa.RecordBatch) -> None:
        calls = batch.filter(pc.equal(batch["event"], CALL))
        own = calls.filter(self._test(calls))
        for row in own.select(sorted(self.needs)).to_pylist():
            if len(self._calls) >= MAX_CALLS:
                self._beyond += 1
                continue
            self._calls.append(row)
            self._connections.add(row["connection"])
        if not self._calls:
            self._remember(calls)
        others = batch.filter(pc.not_equal(batch["event"], CALL))
        for row in others.select(sorted(self.needs)).to_pylist():
            if len(self._others) < MAX_CALLS:
                self._others.append(row)

    def _test(self, calls: pa.RecordBatch) -> pa.Array:
        wanted, kinds = self._wanted, (self._kind,) if self._kind else KINDS
        tests = []
        if self._kind == "connection" or ("connection" in kinds and CONNECTION_ID.fullmatch(wanted)):
            tests.append(pc.starts_with(calls["connection"], wanted))
        if "client" in kinds:
            tests += [pc.equal(calls[name], wanted) for name in ("client_id", "client_ip")]
        if "group" in kinds:
            tests.append(pc.equal(calls["group_id"], wanted))
        if "topic" in kinds:
            tests += [_names_topic(calls, name, wanted) for name in ("topics", "topic_ids")]
        mask = pa.repeat(False, len(calls))
        for test in tests:
            mask = pc.or_(mask, pc.fill_null(test, False))
        return mask

    def _remember(self, calls: pa.RecordBatch) -> None:
        """Names that there are, for a suggestion."""
        for column in (calls["client_id"], calls["group_id"], calls["topics"].flatten()):
            for value in pc.unique(column).to_pylist():
                if value is not None and len(self._names) < 1000:
                    self._names[value] = None

    def tables(self) -> list[AnswerTable]:
        """The lines of the conversation."""
        lines = [line for row in self._calls for line in _call_lines(row)]
        for row in self._others:
            if row["connection"] in self._connections:
                lines += _connection_lines(row) if row["event"] == CONNECTION else _anomaly_lines(row)
        lines.sort(key=_place)
        first = next((line["time"] for line in lines if line["time"] is not None), None)
        for line in lines:
            if first is not None and line["time"] is not None:
                line["since_us"] = (line["time"] - first).total_seconds() * 1e6
        title = f"{self._wanted}: {len(self._calls):,} calls on {len(self._connections):,} connections"
        return [AnswerTable("lines", title, LINES, lines, top=200)]

    def notes(self) -> list[str]:
        found = []
        if not self._calls:
            near = suggestion(self._wanted, self._names)
            found.append(f"no connection, client, group or topic {self._wanted!r}{near}")
        if self._beyond:
            found.append(f"{self._beyond:,} calls beyond the first {MAX_CALLS:,} are left out: --since")
        return found


def _place(line: dict[str, Any]) -> tuple[Any, ...]:
    """By time; a connection opens before its packets and ends behind them."""
    order = {"opened": -1, "ended": 1}.get(line.get("stage", ""), 0)
    return line["time"] is None, line["time"], order, line["packet"] or 0


def _names_topic(calls: pa.RecordBatch, name: str, wanted: str) -> pa.Array:
    lists = calls[name]
    rows = pc.list_parent_indices(lists).filter(pc.fill_null(pc.equal(lists.flatten(), wanted), False))
    return pc.is_in(pa.array(range(len(calls)), rows.type), rows)


def _call_lines(row: Row) -> Iterator[dict[str, Any]]:
    common = _common(row) | {"call": _name(row)}
    if row["request_time"] is not None:
        answered = row["response_time"] is not None or row["status"] == "no_reply_expected"
        why = f" ({row['unanswered_because']})" if row["unanswered_because"] else ""
        yield common | {
            "time": row["request_time"], "packet": row["request_packet"], "way": "->",
            "bytes": row["request_bytes"], "about": "  ".join(_asked(row)),
            "outcome": None if answered else f"{row['status']}{why}",
        }  # fmt: skip
    if row["response_time"] is not None:
        yield common | {
            "time": row["response_time"], "packet": row["response_packet"], "way": "<-",
            "bytes": row["response_bytes"], "latency_us": row["latency_us"],
            "outcome": row["error"] if row["error_code"] else row["status"],
            "about": "  ".join(_told(row)),
        }  # fmt: skip


def _common(row: Row) -> dict[str, Any]:
    return {
        "client": row["client_id"], "connection": row["connection"],
        "broker": address(row["broker_ip"], row["broker_port"]),
    }  # fmt: skip


def _name(row: Row) -> str:
    api = row["api"] or ("?" if row["api_key"] is None else f"API {row['api_key']}")
    return f"{api} v{row['api_version']} #{row['correlation_id']}"


def _asked(row: Row) -> Iterator[str]:
    """What a request is about."""
    if row["group_id"]:
        yield f"group {row['group_id']}"
    if row["generation"] is not None:
        yield f"generation {row['generation']}"
    if row["transactional_id"]:
        yield f"transaction {row['transactional_id']}"
    parts = _partitions(row)
    if parts:
        yield parts
    elif row["topics"]:
        yield ", ".join(name or "?" for name in topics_of(row))
    if row["acks"] is not None:
        yield f"acks {'all' if row['acks'] == -1 else row['acks']}"
        yield f"{row['record_count']} records" if row["record_count"] is not None else "records"
    if row["reason"]:
        yield str(row["reason"])


def _partitions(row: Row) -> str:
    parts = [f"{part['topic'] or part['topic_id']}-{part['partition']}" for part in row["partitions"] or ()]
    more = f" +{len(parts) - PARTS_SHOWN}" if len(parts) > PARTS_SHOWN else ""
    return ", ".join(parts[:PARTS_SHOWN]) + more


def _told(row: Row) -> Iterator[str]:
    """What a response says."""
    if row["acks"] is None and row["record_count"]:
        yield f"{row['record_count']} records"
    for part in row["partitions"] or ():
        if part["error_code"] and part["error_code"] != row["error_code"]:
            yield f"{part['topic'] or part['topic_id']}-{part['partition']} error {part['error_code']}"
    if row["throttle_ms"]:
        yield f"throttled {row['throttle_ms']} ms"
    if row["member_id"] and row["api"] == "JoinGroup":
        yield f"member {row['member_id']}"


def _anomaly_lines(row: Row) -> list[dict[str, Any]]:
    return [_common(row) | {"time": row["time"], "packet": row["packet"], "way": "!", "call": row["code"],
                            "about": row["detail"]}]  # fmt: skip


def _connection_lines(row: Row) -> list[dict[str, Any]]:
    ends = [address(row[f"{side}_ip"], row[f"{side}_port"]) for side in ("client", "broker")]
    who = " to ".join(map(str, ends))
    opened = "opened" if row["syn"] else "joined when it was open"
    ended = {
        (True, True): "ended by FIN and RST",
        (True, False): "ended by FIN",
        (False, True): "ended by RST",
    }.get((bool(row["fin"]), bool(row["rst"])), "still open at the end of the capture")
    user = f"  user {row['user']}" if row["user"] else ""
    by = f", {closer(row['closed_by'])} first" if row["closed_by"] else ""
    common = _common(row) | {"packet": None, "call": "connection", "way": "--"}
    return [
        common | {"time": row["first_time"], "about": f"{opened}: {who}{user}", "stage": "opened"},
        common | {"time": row["last_time"], "about": f"{ended}{by}", "stage": "ended"},
    ]


LINES = (
    AnswerField("time", "time", "time", "packet time of its first byte"),
    AnswerField("since_us", "duration", "since start", "time since the first line", 9),
    AnswerField("packet", "count", "packet", "packet that completed it"),
    AnswerField("way", "text", "", "-> request, <- response, -- connection, ! anomaly"),
    AnswerField("client", "text", "client", "client id", 4),
    AnswerField("connection", "text", "connection", "id of the connection", 8),
    AnswerField("broker", "text", "broker", "address and port of the broker", 9),
    AnswerField("call", "text", "call", "API, version and correlation id"),
    AnswerField("bytes", "bytes", "size", "size of the message", 5),
    AnswerField("latency_us", "duration", "latency", "from request to response", 3),
    AnswerField("outcome", "text", "outcome", "how it went", 1),
    AnswerField("about", "text", "about", "what it is about, and what was answered", 2),
)
