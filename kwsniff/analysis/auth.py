"""Who authenticates how, who fails, who is refused what, and what crosses the network in the clear.

SASL runs inside the connection: PLAIN and OAUTHBEARER send the password or token itself, so without TLS it
can be read by anybody on the way; SCRAM and GSSAPI don't, but what follows is still plain. What TLS hides is
only counted.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.errors import (
    AUTHENTICATION,
    AUTHORIZATION,
    THROTTLING,
    ErrorRule,
    NotableErrors,
    failed_items,
    figures,
    look,
    place,
    ranked,
)
from kwsniff.analysis.rule import Context, Finding, Rule, command, literal
from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, Seen, calls_of, columns, ends_of, grouped
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.tally import Tally
from kwsniff.output.units import client, counted, duration, listed, many, name
from kwsniff.spec.load import catalog

SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS = 17, 36, 18
LOGGING_IN = (SASL_HANDSHAKE, SASL_AUTHENTICATE, API_VERSIONS)
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


@dataclass
class Login(Seen):
    """What was seen of one connection's login."""

    client: str | None = None
    asked: int = 0
    """Requests of the login."""
    answered: int = 0
    refusing: bool = False
    """It was closed, and the capture has all of it: who got no answer was refused."""
    refusal: str | None = None
    """The error that it was refused with."""
    packet: int | None = None
    time: Any = None
    used: bool = False
    """Something else was asked on this connection."""
    user: str | None = None
    mechanism: str | None = None
    address: str | None = None
    security: str = "unknown"
    bytes: int = 0

    @property
    def error(self) -> str | None:
        """How it ended: `ok`, the error, or None where the connection has none or nothing tells."""
        if self.refusal is not None or (self.mechanism is None and not self.asked):
            return self.refusal
        if self.used or self.answered > 1:
            return "ok"
        # Tokens of the oldest way (SaslHandshake v0) are no calls: a refusal is a closed connection.
        return "closed without an answer" if self.refusing else None

    @property
    def is_failed(self) -> bool:
        """Whether it was refused."""
        return self.error not in ("ok", None)


@dataclass
class Logins(Seen):
    """Logins that are told together."""

    connections: int = 0
    ok: int = 0
    failed: int = 0
    clients: set[str] = field(default_factory=set)
    addresses: set[str] = field(default_factory=set)
    bytes: int = 0


@dataclass
class Denials(Seen):
    """Refusals of the same."""

    count: int = 0


class Auth:
    """Takes EVENTS and gives logins, failures, refusals, and what went in the clear."""

    def __init__(self) -> None:
        self.needs = NEEDS
        self._logins: dict[str, Login] = {}
        self._denied: dict[tuple[Any, ...], Denials] = {}
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
        failed = calls.filter(pc.fill_null(pc.not_equal(calls["error_code"], 0), False))
        for row in failed.select(_FAILED).to_pylist():
            self._take_failed(row)
        for row in ends_of(batch).select(_END).to_pylist():
            self._take_end(row)

    def _login(self, row: Row) -> Login | None:
        found = self._logins.get(row["connection"])
        if found is None:
            if len(self._logins) >= MAX_CONNECTIONS:
                self._beyond += 1
                return None
            found = self._logins[row["connection"]] = Login()
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
            login.refusal, login.packet, login.time = row["error"], row["request_packet"], row["time"]

    def _take_end(self, row: Row) -> None:
        if row["frames"] == 0 and row["security"] == "unknown":
            return
        login = self._login(row)
        if login is not None:
            login.user, login.mechanism = row["user"], row["sasl_mechanism"]
            login.security = row["security"] or "unknown"
            login.bytes = (row["client_bytes"] or 0) + (row["broker_bytes"] or 0)
            login.first_time, login.last_time = row["first_time"], row["last_time"]
            missing = row["client_missing_bytes"] or row["broker_missing_bytes"]
            login.refusing = not missing and bool(row["fin"] or row["rst"])

    def _take_failed(self, row: Row) -> None:
        """Each code of the partitions of an answer, else of its resources, else the first of the answer."""
        parts, resources = failed_items(row)
        named = [(part["error_code"], part["topic"] or part["topic_id"]) for part in parts]
        named += [(item["error_code"], item["name"]) for item in resources]
        first = next((topic for topic in row["topics"] or () if topic), None)
        for code, of in named or [(row["error_code"], first)]:
            about = of or row["group_id"] or row["transactional_id"]
            key = (row["client_id"], row["client_ip"], row["connection"], row["api"], code, about)
            if code in AUTHORIZATION and (key in self._denied or len(self._denied) < MAX_DENIALS):
                denials = self._denied.setdefault(key, Denials())
                denials.count += 1
                denials.see(row["time"], row["time"])

    def tables(self) -> list[AnswerTable]:
        """Logins, failures, refusals."""
        failed = [(key, login) for key, login in self._logins.items() if login.is_failed]
        failures = [
            {**vars(login), "time": login.time or login.last_time, "error": login.error, "connection": key}
            for key, login in sorted(failed, key=lambda item: str(item[1].time or item[1].last_time))
        ]
        return [
            AnswerTable("logins", "Who authenticates how", LOGINS, list(self._login_rows())),
            AnswerTable("failures", "Failed logins", FAILURES, failures),
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
        sums: dict[tuple[str, str | None, str | None], Logins] = {}
        for login in self._logins.values():
            found = sums.setdefault((login.security, login.mechanism, login.user), Logins())
            found.connections += 1
            found.failed += login.is_failed
            found.ok += login.error == "ok"
            found.bytes += login.bytes
            found.clients.update(filter(None, (login.client,)))
            found.addresses.update(filter(None, (login.address,)))
            found.see(login.first_time, login.last_time)
        for (security, mechanism, user), found in sorted(sums.items(), key=lambda item: -item[1].connections):
            yield {
                **vars(found), "user": user, "mechanism": mechanism or "none", "security": security,
                "clear": _clear(security, mechanism), "clients": sorted(found.clients),
                "addresses": sorted(found.addresses),
            }  # fmt: skip

    def _denied_rows(self) -> Iterator[Row]:
        sums: dict[tuple[Any, ...], Denials] = {}
        for (client_id, address, connection, api, code, about), found in self._denied.items():
            login = self._logins.get(connection)
            key = (login and login.user, client_id, address, api, about, catalog().error(code).name)
            row = sums.setdefault(key, Denials())
            row.count += found.count
            row.see(found.first_time, found.last_time)
        for key, row in sorted(sums.items(), key=lambda item: (-item[1].count, item[1].first_time)):
            yield dict(zip(("user", "client", "address", "api", "about", "error"), key, strict=True)) | vars(
                row
            )


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
_FAILED = [
    *("client_id", "client_ip", "connection", "api", "group_id", "transactional_id", "time", "error_code"),
    *("partitions", "resources", "topics"),
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

# Who is refused, and TLS where there is none, none where there is TLS, and passwords in the clear.

TLS_ALERT = range(0x150300, 0x150305)
"""The first three bytes of a TLS record with an alert: type 21, version 3.0 to 3.4 (RFC 8446, 5.1). Taken
for the length of a Kafka frame they are some 352 million."""
LENGTH = re.compile(r"length (\d+) of the response stream")
CERTAIN = 3
"""Connections without an answer that are enough where nothing is known of the port."""


class NotAuthorized(ErrorRule):
    """A client was refused what it asked for: an ACL is missing, or it came as the wrong user."""

    code = "not_authorized"
    about = "authorization"
    several = "{answers:answer} refused what clients asked for: ACLs are missing, or the users are wrong."
    needs = NotableErrors.needs | {"group_id", "transactional_id"}
    codes = AUTHORIZATION

    def findings(self, context: Context) -> Iterable[Finding]:
        for key, entry in self.errors.calls.by(0, 2, 3, 4).items():
            code, client_id, ip, user = key
            apis = [(str(k[1]), e.count) for k, e in self.errors.calls.of((0, 2, 3, 4), key).items()]
            places = self.errors.places.of((0, 4, 5), (code, client_id, ip))
            where = ranked((place(k, context), e) for k, e in places.items())
            brief = f"{context.error(code)} in {many(entry.count, 'answer')} ({counted(apis)})"
            brief += f", topic {listed(where)}" if where else ""
            sentence = (
                f"{_client(client_id, ip, user)} may not do what it asks for: {brief}. An ACL is missing, "
            )
            yield self.found(
                "warning", client(client_id, ip), f"{sentence}or it is the wrong user.",
                figures(code, answers=entry.count), entry, look(code), weight=entry.count,
                share=context.of_calls(entry.count), brief=brief,
            )  # fmt: skip


class QuotaExceeded(ErrorRule):
    """The broker refuses to make or delete topics or partitions faster than a quota allows
    (THROTTLING_QUOTA_EXCEEDED, KIP-599)."""

    code = "quota_exceeded"
    about = "quotas"
    several = "{count} clients change more than their quotas allow: {answers:refusal}."
    needs = NotAuthorized.needs
    codes = THROTTLING

    def findings(self, context: Context) -> Iterable[Finding]:
        for (code, client_id, ip, _), entry in self.errors.calls.by(0, 2, 3, 4).items():
            who, brief = client(client_id, ip), many(entry.count, "refusal")
            yield self.found(
                "warning", who, f"{who} changes more than its quota allows: {brief}.",
                {"answers": entry.count}, entry, look(code), share=context.of_calls(entry.count),
                brief=brief,
            )  # fmt: skip


class AuthenticationFailed(Rule):
    """A client failed to authenticate: a wrong password, a user the broker does not know, an expired token,
    or a mechanism that it does not offer. Clients try again for ever, so it costs connections as well."""

    code = "authentication_failed"
    about = "authentication"
    several = "{count} clients failed to authenticate, in {attempts:attempt}."
    needs = columns("error_code user")
    missing = "no SaslAuthenticate in the clear"

    calls: Tally

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        # After SaslHandshake v0 a failure shows in nothing but that the broker closes the connection.
        told = calls.is_in("api_key", (36,)) | calls.is_in("error_code", AUTHENTICATION)
        self.looked += int(told.sum())
        names = ("client_id", "client_ip", "user", "error_code")
        keys = [*(calls.coded(each) for each in names), calls.broker]
        self.calls.add(calls, calls.is_in("error_code", AUTHENTICATION), keys)

    def findings(self, context: Context) -> Iterable[Finding]:
        for key, entry in self.calls.by(0, 1, 2, 3).items():
            client_id, ip, user, code = key
            brokers = listed(str(k[4]) for k in self.calls.of((0, 1, 2, 3), key))
            brief = f"{context.error(code)} in {many(entry.count, 'attempt')} within {duration(entry.span_s)}"
            yield self.found(
                "warning", client(client_id, ip),
                f"{_client(client_id, ip, user)} failed to authenticate at {brokers}: {brief}.",
                figures(code, attempts=entry.count), entry, command("auth"), weight=entry.count,
                share=context.of_clients(), brief=brief,
            )  # fmt: skip


def _client(client_id: Any, ip: Any, user: Any) -> str:
    return f"{client(client_id, ip)}{f' (user {name(user)})' if user else ''}"


class PlaintextOnTls(Rule):
    """A client sent Kafka in the clear, and the broker answered with a TLS alert: the port speaks TLS. Set
    `security.protocol` of the client to SSL or SASL_SSL, or give it the address of another listener. What it
    sent until then could be read by anybody on the way."""

    code = "plaintext_on_tls"
    about = "TLS ports"
    several = (
        "Clients speak plaintext to {count} TLS ports: {connections:connection} ended with a TLS alert. Set "
        "security.protocol to SSL or SASL_SSL."
    )
    needs = columns("code detail tls_alert security")
    missing = "no connections"

    alerts: Tally
    """By broker and client address."""
    unanswered: Tally
    """Calls without answer by broker, client address and client id."""

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += len(rows)
        alerted = rows.known("tls_alert") & rows.coded("security").equals("plaintext")
        if alerted.any():
            self.alerts.add(rows, alerted, [rows.broker, rows.coded("client_ip")])
        odd = batch.anomalies
        invalid = odd.coded("code").equals("frame_size_invalid")
        if not alerted.any() and invalid.any():
            alerts = invalid & odd.coded("detail").matching(_is_alert)
            self.alerts.add(odd, alerts, [odd.broker, odd.coded("client_ip")])
        calls = batch.calls
        lost = calls.coded("status").equals("unanswered")
        keys = [calls.broker, calls.coded("client_ip"), calls.coded("client_id")]
        self.unanswered.add(calls, lost, keys)

    def findings(self, context: Context) -> Iterable[Finding]:
        for (broker,), entry in self.alerts.by(0).items():
            ips = {key[1] for key in self.alerts.of(0, broker)}
            clients = [client(k[2], k[1]) for k in self.unanswered.of(0, broker) if k[1] in ips]
            some = listed(clients or map(str, ips))
            what = many(entry.count, "connection")
            yield self.found(
                "critical", str(broker),
                f"{some} {'speaks' if len(clients) < 2 else 'speak'} plaintext to {broker}, which is a TLS "
                f"port: {what} ended with a TLS alert. Set security.protocol to SSL or SASL_SSL.",
                {"connections": entry.count}, entry, command("auth"),
                share=context.of_connections(entry.count), brief=f"{what} from {some}",
                explains=("unanswered",),
            )  # fmt: skip


class TlsOnPlaintext(Rule):
    """A client opened TLS, and the broker closed the connection without a word: the port speaks plaintext,
    and took the ClientHello for a request of 369 million bytes (`Invalid receive` in its log). Set
    `security.protocol` of the client to PLAINTEXT or SASL_PLAINTEXT, or, better, give it the address of a
    TLS listener."""

    code = "tls_on_plaintext"
    about = "plaintext ports"
    several = (
        "Clients speak TLS to {count} ports that do not: {connections:connection} got no answer. Set "
        "security.protocol to PLAINTEXT or use TLS listeners."
    )
    needs = columns("security client_bytes broker_bytes frames")
    missing = "no connections"

    silent: Tally
    answered: Tally
    plain: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += len(rows)
        tls = rows.coded("security").equals("tls")
        answered = rows.ints("broker_bytes") > 0
        spoke = rows.ints("client_bytes") > 0
        keys = [rows.broker, rows.coded("client_ip"), rows.coded("client_id")]
        self.silent.add(rows, tls & spoke & ~answered, keys)
        self.answered.add(rows, tls & answered, keys[:1])
        plain = rows.coded("security").equals("plaintext") & answered & (rows.ints("frames") > 1)
        self.plain.add(rows, plain, keys[:1])

    def findings(self, context: Context) -> Iterable[Finding]:
        for (broker,), entry in self.silent.by(0).items():
            sure = (broker,) in self.plain.entries
            if (broker,) in self.answered.entries or not (sure or entry.count >= CERTAIN):
                continue
            clients = listed(client(key[2], key[1]) for key in self.silent.of(0, broker))
            proof = "which speaks plaintext" if sure else "which does not answer them"
            what = many(entry.count, "connection")
            yield self.found(
                "critical", str(broker),
                f"{clients} speaks TLS to {broker}, {proof}: {what} got no answer. Set security.protocol to "
                "PLAINTEXT or use a TLS listener.",
                {"connections": entry.count}, entry, command("auth"),
                share=context.of_connections(entry.count), brief=f"{what} from {clients}",
            )  # fmt: skip


class ClearPasswords(Rule):
    """A client authenticated with a mechanism that sends its secret as it is (PLAIN: the password,
    OAUTHBEARER: the token) over a connection without TLS. Whoever can capture can read it, as this capture
    could; kwsniff never shows it. Use SASL_SSL, or SCRAM, and change the password."""

    code = "password_in_clear"
    about = "passwords"
    several = "Passwords and tokens cross the network in the clear, on {connections:connection} without TLS."
    needs = columns("sasl_mechanism security user")
    missing = "no SASL"
    connections: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += int(rows.known("sasl_mechanism").sum())
        clear = rows.coded("security").equals("plaintext") & rows.coded("sasl_mechanism").matching(
            IN_THE_CLEAR.__contains__
        )
        names = ("client_id", "client_ip", "user", "sasl_mechanism")
        self.connections.add(rows, clear, [*(rows.coded(each) for each in names), rows.broker])

    def findings(self, context: Context) -> Iterable[Finding]:
        for (mechanism,), entry in self.connections.by(3).items():
            mine = self.connections.of(3, mechanism)
            users = listed((name(key[2]) for key in mine if key[2]), 4)
            secrets = "Passwords" if mechanism == "PLAIN" else "Tokens"
            known = f"users: {users}" if users else "users not shown"
            many_to = f"to {listed(str(key[4]) for key in mine)} ({known})"
            what = many(entry.count, "connection")
            yield self.found(
                "warning", str(mechanism),
                f"{secrets} cross the network in the clear: {what} with SASL {mechanism} and without TLS "
                f"{many_to}.",
                {"connections": entry.count}, entry,
                command("auth", f"sasl_mechanism == {literal(mechanism)}"),
                share=context.of_connections(entry.count), brief=f"{what} {many_to}",
            )  # fmt: skip


def _is_alert(detail: str | None) -> bool:
    found = LENGTH.search(detail or "")
    return found is not None and int(found[1]) >> 8 in TLS_ALERT
