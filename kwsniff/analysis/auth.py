"""Who authenticates how, who fails, who is refused what, and what crosses the network in the clear.

SASL runs inside the connection: PLAIN and OAUTHBEARER send the password or token itself, so without TLS it
can be read by anybody on the way; SCRAM and GSSAPI don't, but what follows is still plain. What TLS hides is
only counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.tabular import (
    AnswerField,
    AnswerTable,
    Row,
    calls_of,
    columns,
    ends_of,
    exploded,
    grouped,
)
from kwsniff.spec.load import catalog

SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS = 17, 36, 18
LOGGING_IN = (SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS)
DENIED = {
    29: "TOPIC_AUTHORIZATION_FAILED", 30: "GROUP_AUTHORIZATION_FAILED", 31: "CLUSTER_AUTHORIZATION_FAILED",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 65: "DELEGATION_TOKEN_AUTHORIZATION_FAILED",
}  # fmt: skip
"""Codes that say somebody may not do what he asks."""
IN_THE_CLEAR = {"PLAIN": "password", "OAUTHBEARER": "token"}
"""What a mechanism sends as it is."""
NEEDS = columns(
    """
    event time connection client_ip client_id broker_ip broker_port api api_key status error_code error
    topics topic_ids partitions group_id user security sasl_mechanism client_bytes broker_bytes
    request_packet transactional_id frames fin rst first_time last_time resources client_missing_bytes
    broker_missing_bytes
    """
)
MAX_CONNECTIONS = 300_000
MAX_DENIALS = 50_000


@dataclass(slots=True)
class Login:
    """What was seen of one connection's login."""

    client: str | None
    asked: int = 0
    """Requests of the login."""
    answered: int = 0
    refusing: bool = False
    """It was closed, and the capture has all of it: who got no answer was refused."""
    failed: int = 0
    error: str | None = None
    packet: int | None = None
    time: datetime | None = None
    used: bool = False
    """Something else was asked on this connection."""
    user: str | None = None
    mechanism: str | None = None
    address: str | None = None
    security: str = "unknown"
    bytes: int = 0
    first: datetime | None = None
    last: datetime | None = None


@dataclass(slots=True)
class Sum:
    """Logins that are told together."""

    connections: int = 0
    ok: int = 0
    failed: int = 0
    clients: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    bytes: int = 0
    first: datetime | None = None
    last: datetime | None = None


class Auth:
    """Takes EVENTS and gives logins, failures, refusals, and what went in the clear."""

    def __init__(self) -> None:
        self.needs = NEEDS
        self._logins: dict[str, Login] = {}
        self._denied: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._ended: set[str] = set()
        self._beyond = 0

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        for row in grouped(calls, ("connection", "client_id", "client_ip", "api_key"), (("time", "min"),)):
            login = self._login(row)
            if login is not None:
                login.used = login.used or row["api_key"] not in (None, *LOGGING_IN)
        keys = pa.array([SASL_HANDSHAKE, SASL_AUTHENTICATE], pa.int32())
        sasl = calls.filter(pc.fill_null(pc.is_in(calls["api_key"], keys), False))
        for row in sasl.select(_SASL).to_pylist():
            self._take_sasl(row)
        self._take_denied(calls)
        for row in ends_of(batch).select(_END).to_pylist():
            self._take_end(row)

    def _login(self, row: Row) -> Login | None:
        found = self._logins.get(row["connection"])
        if found is None:
            if len(self._logins) >= MAX_CONNECTIONS:
                self._beyond += 1
                return None
            found = self._logins[row["connection"]] = Login(row.get("client_id"))
        found.client = found.client or row.get("client_id")
        found.address = found.address or row["client_ip"]
        return found

    def _take_sasl(self, row: Row) -> None:
        login = self._login(row)
        if login is None:
            return
        login.asked += 1
        login.answered += row["status"] in ("ok", "error")
        if row["error_code"]:
            login.failed, login.error = login.failed + 1, row["error"]
            login.packet, login.time = row["request_packet"], row["time"]

    def _take_end(self, row: Row) -> None:
        if row["frames"] == 0 and row["security"] == "unknown":
            return
        login = self._login(row)
        if login is not None:
            self._ended.add(row["connection"])
            login.user, login.mechanism = row["user"], row["sasl_mechanism"]
            login.security = row["security"] or "unknown"
            login.bytes = (row["client_bytes"] or 0) + (row["broker_bytes"] or 0)
            login.first, login.last = row["first_time"], row["last_time"]
            missing = row["client_missing_bytes"] or row["broker_missing_bytes"]
            login.refusing = not missing and bool(row["fin"] or row["rst"])

    def _take_denied(self, calls: pa.RecordBatch) -> None:
        """Each code of the partitions of an answer, else of its resources, else the first of the answer."""
        codes = pa.array(list(DENIED), pa.int32())
        keys = ("at", "client_id", "client_ip", "connection", "api", "group_id", "transactional_id", "time")
        failed = calls.filter(pc.fill_null(pc.not_equal(calls["error_code"], 0), False))
        failed = failed.append_column("at", pa.array(range(len(failed)), pa.int64()))
        told: set[int] = set()
        for items, named in (("partitions", "topic"), ("resources", "name")):
            each = exploded(failed, items, (named, "error_code"), keys)
            each = each.filter(pc.fill_null(pc.not_equal(each["error_code"], 0), False))
            rows = [row for row in each.to_pylist() if row["at"] not in told]
            told.update(row["at"] for row in rows)
            for row in rows:
                if row["error_code"] in DENIED:
                    self._deny(row, row[named])
        whole = failed.filter(pc.is_in(failed["error_code"], codes))
        for row in whole.select([*keys, "error_code", "topics"]).to_pylist():
            if row["at"] not in told:
                self._deny(row, next((name for name in row["topics"] or () if name), None))

    def _deny(self, row: Row, named: str | None) -> None:
        about, time = named or row["group_id"] or row["transactional_id"], row["time"]
        key = (row["client_id"], row["client_ip"], row["connection"], row["api"], row["error_code"], about)
        if key not in self._denied and len(self._denied) >= MAX_DENIALS:
            return
        found = self._denied.setdefault(key, {"count": 0, "first": time, "last": time})
        found["count"] += 1
        found["first"] = min(found["first"], time)
        found["last"] = max(found["last"], time)

    def tables(self) -> list[AnswerTable]:
        """Logins, failures, refusals."""
        return [
            AnswerTable("logins", "Who authenticates how", LOGINS, list(self._login_rows())),
            AnswerTable("failures", "Failed logins", FAILURES, list(self._failure_rows())),
            AnswerTable("denied", "Refused", REFUSED, list(self._denied_rows())),
        ]

    def notes(self) -> list[str]:
        hidden = sum(login.security == "tls" for login in self._logins.values())
        found = []
        if hidden:
            found.append(f"{hidden:,} connections are encrypted: who authenticates in them is not seen")
        if self._beyond:
            found.append(f"connections beyond the first {MAX_CONNECTIONS:,} are not told")
        return found

    def _login_rows(self) -> Iterator[Row]:
        sums: dict[tuple[str, str | None, str | None], Sum] = {}
        for login in self._logins.values():
            found = sums.setdefault((login.security, login.mechanism, login.user), Sum())
            found.connections += 1
            outcome = _outcome(login)
            found.failed += outcome not in ("ok", None)
            found.ok += outcome == "ok"
            found.bytes += login.bytes
            found.clients.update(filter(None, (login.client,)))
            found.addresses.update(filter(None, (login.address,)))
            times = [time for time in (found.first, login.first) if time is not None]
            found.first = min(times, default=None)
            times = [time for time in (found.last, login.last) if time is not None]
            found.last = max(times, default=None)
        for (security, mechanism, user), found in sorted(sums.items(), key=lambda item: -item[1].connections):
            yield {
                "user": user, "mechanism": mechanism or "none", "security": security,
                "connections": found.connections, "ok": found.ok, "failed": found.failed,
                "clear": _clear(security, mechanism), "clients": sorted(found.clients),
                "addresses": sorted(found.addresses), "bytes": found.bytes, "first_time": found.first,
                "last_time": found.last,
            }  # fmt: skip

    def _failure_rows(self) -> Iterator[Row]:
        failed = [(key, login) for key, login in self._logins.items() if _outcome(login) not in ("ok", None)]
        for connection, login in sorted(failed, key=lambda item: str(item[1].time or item[1].last)):
            yield {
                "time": login.time or login.last, "user": login.user, "mechanism": login.mechanism,
                "client": login.client, "address": login.address, "error": _outcome(login),
                "connection": connection, "packet": login.packet,
            }  # fmt: skip

    def _denied_rows(self) -> Iterator[Row]:
        sums: dict[tuple[Any, ...], dict[str, Any]] = {}
        for (client, address, connection, api, code, about), found in self._denied.items():
            login = self._logins.get(connection)
            key = (client, address, login.user if login else None, api, code, about)
            row = sums.setdefault(key, {"count": 0, "first": found["first"], "last": found["last"]})
            row["count"] += found["count"]
            row["first"], row["last"] = min(row["first"], found["first"]), max(row["last"], found["last"])
        most = sorted(sums.items(), key=lambda item: (-item[1]["count"], item[1]["first"]))
        for (client, address, user, api, code, about), row in most:
            yield {
                "user": user, "client": client, "address": address, "api": api, "about": about,
                "error": catalog().error(code).name, "count": row["count"], "first_time": row["first"],
                "last_time": row["last"],
            }  # fmt: skip


def _outcome(login: Login) -> str | None:
    """How a login ended: `ok`, the error, or None where the connection has none or nothing tells."""
    if login.error is not None:
        return login.error
    if login.mechanism is None and not login.asked:
        return None
    if login.used or login.answered > 1:
        return "ok"
    # Tokens of the oldest way (SaslHandshake v0) are no calls: a refusal is a closed connection.
    return "closed without an answer" if login.refusing else None


def _clear(security: str, mechanism: str | None) -> str | None:
    if security != "plaintext":
        return None
    secret = IN_THE_CLEAR.get(mechanism or "")
    return f"{secret} and data" if secret else "data"


_SASL = ["connection", "client_id", "client_ip", "api_key", "error_code", "error", "request_packet", "time",
         "status"]  # fmt: skip
_END = [
    *("connection", "client_ip", "user", "sasl_mechanism", "security", "client_bytes", "broker_bytes"),
    *("frames", "first_time", "last_time", "fin", "rst", "client_missing_bytes", "broker_missing_bytes"),
]
USER = AnswerField("user", "text", "user", "SASL user, where the mechanism shows it")
CLIENT = AnswerField("client", "text", "client", "client id", 2)
ADDRESS = AnswerField("address", "text", "address", "its address", 3)
FIRST = AnswerField("first_time", "time", "first", "packet time of the first", 5)
LAST = AnswerField("last_time", "time", "last", "packet time of the last", 6)
LOGINS = (
    USER,
    AnswerField("mechanism", "text", "mechanism", "SASL mechanism, none where there was none"),
    AnswerField("security", "text", "security", "plaintext or tls"),
    AnswerField("clear", "text", "in the clear", "what anybody on the way can read", 1),
    AnswerField("connections", "count", "conns", "connections"),
    AnswerField("ok", "count", "ok", "logins that went well"),
    AnswerField("failed", "count", "failed", "logins that were refused"),
    AnswerField("clients", "list", "clients", "client ids", 3),
    AnswerField("addresses", "list", "addresses", "addresses of the clients", 4),
    AnswerField("bytes", "bytes", "bytes", "of the connections, both ways", 7),
    FIRST,
    LAST,
)
FAILURES = (
    AnswerField("time", "time", "time", "packet time of the refused request"),
    USER,
    AnswerField("mechanism", "text", "mechanism", "SASL mechanism"),
    CLIENT,
    ADDRESS,
    AnswerField("error", "text", "error", "why, as far as the broker said"),
    AnswerField("connection", "text", "connection", "id of the connection, for `kwsniff follow`", 5),
    AnswerField("packet", "count", "packet", "packet of the request, for `kwsniff show`", 4),
)
REFUSED = (
    USER,
    CLIENT,
    ADDRESS,
    AnswerField("api", "text", "API", "what was asked for"),
    AnswerField("about", "text", "about", "topic, group or transaction"),
    AnswerField("error", "text", "error", "name of the error"),
    AnswerField("count", "count", "count", "how often"),
    FIRST,
    LAST,
)
