"""Who created, changed and deleted what, with what result.

Administrative calls name their resources in their bodies, so a call of several topics is a line for each.
Where EVENTS has no bodies its list of resources is used, and where that is empty too the call is told as a
whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.changes import ACTIONS, Change, changes_of
from kwsniff.analysis.tabular import COUNT, FLAG, TEXT, TIME, AnswerField, AnswerTable, Row, calls_of, ends_of
from kwsniff.count.eventrows import address
from kwsniff.spec.load import catalog

NEEDS = frozenset(
    (
        *("event", "time", "connection", "client_ip", "client_id", "broker_ip", "broker_port", "api"),
        *("api_key", "api_version", "status", "error_code", "error", "topics", "topic_ids", "resources"),
        *("user", "request", "response", "request_packet", "group_id", "unanswered_because"),
    )
)
MAX_ROWS = 200_000
ENVELOPE = 58
"""Carries a client's request from a broker to the controller (KIP-590)."""
SENT_ON = "sent on to the controller"


class Audit:
    """Takes EVENTS and gives what was changed."""

    def __init__(self) -> None:
        self.needs = NEEDS
        self._rows: list[dict[str, Any]] = []
        self._users: dict[str, str] = {}
        self._closed = self._beyond = 0

    def take(self, batch: pa.RecordBatch) -> None:
        """Take one batch of EVENTS."""
        calls = calls_of(batch)
        changing = pc.fill_null(pc.is_in(calls["api_key"], pa.array([*ACTIONS, ENVELOPE], pa.int32())), False)
        for row in calls.filter(changing).select(sorted(NEEDS)).to_pylist():
            if len(self._rows) >= MAX_ROWS:
                self._beyond += 1
                continue
            self._rows += self._lines(row)
        for row in ends_of(batch).select(["connection", "user"]).to_pylist():
            if row["user"] is not None and len(self._users) < MAX_ROWS:
                self._users[row["connection"]] = row["user"]

    def _lines(self, row: Row) -> Iterator[dict[str, Any]]:
        if row["api_key"] == ENVELOPE:
            inner = _forwarded(row)
            if inner is None:
                return
            row = inner
        common = {
            "time": row["time"], "client": row["client_id"], "address": row["client_ip"],
            "user": row["user"], "connection": row["connection"], "api": row["api"],
            "action": ACTIONS[row["api_key"]].verb, "packet": row["request_packet"],
            "broker": address(row["broker_ip"], row["broker_port"]),
        }  # fmt: skip
        for change, code, dry in self._changes(row):
            yield common | {
                "type": change.type, "name": change.name, "what": _what(change),
                "detail": change.detail or None, "result": _result(row, code), "validate_only": dry,
            }  # fmt: skip

    def _changes(self, row: Row) -> Iterator[tuple[Change, int | None, bool | None]]:
        if row["request"] is not None:
            request = orjson.loads(row["request"])
            response = orjson.loads(row["response"]) if row["response"] is not None else {}
            names = dict(zip(row["topic_ids"] or (), row["topics"] or (), strict=False))
            for change, code in changes_of(row["api_key"], request, response):
                named = change._replace(name=names.get(change.name) or change.name)
                yield named, code if row["response"] is not None else None, request.get("validate_only")
            return
        self._closed += 1
        if row["resources"]:
            for each in row["resources"]:
                yield Change(each["type"], each["name"], each["detail"] or ""), each["error_code"], None
            return
        for name in row["topics"] or [row["group_id"]]:
            yield Change("topic" if row["topics"] else "", name), row["error_code"], None

    # What was found

    def tables(self) -> list[AnswerTable]:
        """Every change in the order of time."""
        rows: list[Row] = [
            {**row, "user": row["user"] or self._users.get(row["connection"])} for row in self._rows
        ]
        rows.sort(key=lambda row: row["time"])
        return [AnswerTable("changes", "Changes", CHANGES, rows, top=50)]

    def notes(self) -> list[str]:
        """What could not be told."""
        found = []
        if self._closed:
            found.append(f"{self._closed:,} calls have no bodies: read the capture to see what they changed")
        if self._beyond:
            found.append(f"{self._beyond:,} calls beyond the first {MAX_ROWS:,} changes are not told")
        return found


def _forwarded(row: Row) -> dict[str, Any] | None:
    """The call that a broker sends on to the controller for a client, None if it changes nothing. What came
    of it is in bytes that are not shown; only whether the controller took it is known."""
    request = orjson.loads(row["request"]) if row["request"] is not None else {}
    inner = request.get("request_data")
    if not isinstance(inner, dict) or inner["api_key"] not in ACTIONS:
        return None
    principal = request.get("request_principal")
    known = principal.get("data", {}) if isinstance(principal, dict) else {}
    refused = row["error_code"] or row["status"] not in ("ok", "error")
    return {
        **row, "api_key": inner["api_key"], "api": inner["api"], "api_version": inner["api_version"],
        "client_id": inner["client_id"], "user": known.get("name"), "request": orjson.dumps(inner["body"]),
        "response": row["response"] if refused else None, "status": row["status"] if refused else SENT_ON,
    }  # fmt: skip


def _what(change: Change) -> str:
    return " ".join(filter(None, (change.type, change.name)))


def _result(row: Row, code: int | None) -> str:
    if row["status"] not in ("ok", "error"):
        return str(row["unanswered_because"] or row["status"])
    if code is None:
        code = row["error_code"] or 0
    return "ok" if code == 0 else catalog().error(code).name


CHANGES = (
    AnswerField("time", TIME, "time", "packet time of the request"),
    AnswerField("user", TEXT, "user", "SASL user, where the mechanism shows it", 3),
    AnswerField("client", TEXT, "client", "client id", 4),
    AnswerField("address", TEXT, "address", "its address", 6),
    AnswerField("action", TEXT, "action", "what was asked"),
    AnswerField("what", TEXT, "of what", "kind and name of the resource"),
    AnswerField("detail", TEXT, "detail", "what was asked of it; credentials are hidden", 2),
    AnswerField("result", TEXT, "result", "ok, or the error of this resource", 1),
    AnswerField("type", TEXT, "type", "kind of the resource", 11),
    AnswerField("name", TEXT, "name", "its name", 12),
    AnswerField("validate_only", FLAG, "dry run", "only to be checked, not done", 6),
    AnswerField("api", TEXT, "API", "name of the API", 8),
    AnswerField("broker", TEXT, "broker", "address and port of the broker", 9),
    AnswerField("packet", COUNT, "packet", "packet of the request, for `kwsniff show`", 4),
)
