"""TLS where there is none, none where there is TLS, and passwords in the clear."""

from __future__ import annotations

import re
from typing import Any

from kwsniff.analysis.rule import CRITICAL, WARNING, Context, Finding, Rule, command, evidence, literal
from kwsniff.count.eventrows import EventBatch, EventRows
from kwsniff.count.tally import Tally
from kwsniff.output.units import client, listed, many, name
from kwsniff.rows.columns import Mask

import numpy as np  # isort: skip

TLS_ALERT = range(0x150300, 0x150305)
"""The first three bytes of a TLS record with an alert: type 21, version 3.0 to 3.4 (RFC 8446, 5.1). Taken
for the length of a Kafka frame they are some 352 million."""
LENGTH = re.compile(r"length (\d+) of the response stream")
CERTAIN = 3
"""Connections without an answer that are enough where nothing is known of the port."""


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
    needs = frozenset(("code", "detail", "tls_alert", "security"))
    missing = "no connections"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.alerts = Tally()
        """By broker and client address."""
        self.unanswered = Tally()
        """Calls without answer by broker, client address and client id."""

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += len(rows)
        alerted = rows.known("tls_alert") & rows.coded("security").equals("plaintext")
        if alerted.any():
            self.alerts.add(rows, alerted, [rows.broker, rows.coded("client_ip")])
        odd = batch.anomalies
        if not alerted.any() and odd.coded("code").equals("frame_size_invalid").any():
            self.alerts.add(odd, _alerts(odd), [odd.broker, odd.coded("client_ip")])
        calls = batch.calls
        lost = calls.coded("status").equals("unanswered")
        keys = [calls.broker, calls.coded("client_ip"), calls.coded("client_id")]
        self.unanswered.add(calls, lost, keys)

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for (broker,), entry in self.alerts.by(0).items():
            ips = {key[1] for key in self.alerts.of(0, broker)}
            clients = [client(k[2], k[1]) for k in self.unanswered.of(0, broker) if k[1] in ips]
            some = listed(clients or map(str, ips))
            sentence = (
                f"{some} {'speaks' if len(clients) < 2 else 'speak'} plaintext to {broker}, which is a TLS "
                f"port: {many(entry.count, 'connection')} ended with a TLS alert. "
                "Set security.protocol to SSL or SASL_SSL."
            )
            found.append(
                Finding(
                    self.code, CRITICAL, str(broker), sentence, {"connections": entry.count}, evidence(entry),
                    command("auth"), entry.count, share=context.of_connections(entry.count),
                    brief=f"{many(entry.count, 'connection')} from {some}", explains=("unanswered",),
                )
            )  # fmt: skip
        return found


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
    needs = frozenset(("security", "client_bytes", "broker_bytes", "frames"))
    missing = "no connections"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.silent = Tally()
        self.answered = Tally()
        self.plain = Tally()

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

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for (broker,), entry in self.silent.by(0).items():
            sure = (broker,) in self.plain.entries
            if (broker,) in self.answered.entries or not (sure or entry.count >= CERTAIN):
                continue
            clients = listed(client(key[2], key[1]) for key in self.silent.of(0, broker))
            proof = "which speaks plaintext" if sure else "which does not answer them"
            sentence = (
                f"{clients} speaks TLS to {broker}, {proof}: {many(entry.count, 'connection')} got no "
                f"answer. "
                "Set security.protocol to PLAINTEXT or use a TLS listener."
            )
            found.append(
                Finding(
                    self.code, CRITICAL, str(broker), sentence, {"connections": entry.count}, evidence(entry),
                    command("auth"), entry.count, share=context.of_connections(entry.count),
                    brief=f"{many(entry.count, 'connection')} from {clients}",
                )
            )  # fmt: skip
        return found


class ClearPasswords(Rule):
    """A client authenticated with a mechanism that sends its secret as it is (PLAIN: the password,
    OAUTHBEARER: the token) over a connection without TLS. Whoever can capture can read it, as this capture
    could; kwsniff never shows it. Use SASL_SSL, or SCRAM, and change the password."""

    code = "password_in_clear"
    about = "passwords"
    several = "Passwords and tokens cross the network in the clear, on {connections:connection} without TLS."
    needs = frozenset(("sasl_mechanism", "security", "user"))
    missing = "no SASL"
    mechanisms = ("PLAIN", "OAUTHBEARER")

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.connections = Tally()

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += int(rows.known("sasl_mechanism").sum())
        clear = rows.coded("security").equals("plaintext") & _any(rows, "sasl_mechanism", self.mechanisms)
        names = ("client_id", "client_ip", "user", "sasl_mechanism")
        self.connections.add(rows, clear, [*(rows.coded(each) for each in names), rows.broker])

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for (mechanism,), entry in self.connections.by(3).items():
            mine = self.connections.of(3, mechanism)
            users = listed((name(key[2]) for key in mine if key[2]), 4)
            what = "passwords" if mechanism == "PLAIN" else "tokens"
            known = f"users: {users}" if users else "users not shown"
            many_to = f"to {listed(str(key[4]) for key in mine)} ({known})"
            sentence = (
                f"{what.capitalize()} cross the network in the clear: {many(entry.count, 'connection')} with "
                f"SASL {mechanism} and without TLS {many_to}."
            )
            found.append(
                Finding(
                    self.code, WARNING, str(mechanism), sentence, {"connections": entry.count},
                    evidence(entry), command("auth", f"sasl_mechanism == {literal(mechanism)}"), entry.count,
                    share=context.of_connections(entry.count),
                    brief=f"{many(entry.count, 'connection')} {many_to}",
                )
            )  # fmt: skip
        return found


def _alerts(anomalies: EventRows) -> Mask:
    invalid = anomalies.coded("code").equals("frame_size_invalid")
    detail = anomalies.coded("detail")
    hit = np.array([_is_alert(each) for each in detail.values] or [False])
    found: Mask = invalid & hit[detail.codes]
    return found


def _is_alert(detail: str | None) -> bool:
    found = LENGTH.search(detail or "")
    return found is not None and int(found[1]) >> 8 in TLS_ALERT


def _any(rows: EventRows, column: str, values: tuple[str, ...]) -> Mask:
    found: Mask = np.logical_or.reduce([rows.coded(column).equals(value) for value in values])
    return found
