"""What handshakes of TLS say that somebody should know, with and without keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from kwsniff.analysis.network import who
from kwsniff.analysis.rule import Context, Finding, Rule, both, command, is_broker, literal
from kwsniff.analysis.tabular import columns
from kwsniff.count.codes import Keys
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.tally import Tally
from kwsniff.output.units import client, duration, listed, many

DAY_US = 86_400_000_000
WEAK_VERSIONS = frozenset(("SSL 3.0", "TLS 1.0", "TLS 1.1"))
"""Deprecated by RFC 7568 and RFC 8996."""
WEAK = re.compile("NULL|EXPORT|anon|RC4|DES|MD5|^TLS_(RSA|ECDH|DH)_")
"""Suites that RFC 9325, 4.1 and 4.2, advises against: without encryption or authentication, with broken
ciphers, or without forward secrecy."""
CLIENT_SIDE = "does not accept the broker's certificate: it does not know the CA, or the host name differs"
BROKER_SIDE = "was turned away: it has no certificate, or none that the broker trusts"
REASONS = {
    "client_alert_hidden": f"the client probably {CLIENT_SIDE}",
    "broker_alert_hidden": f"the client probably {BROKER_SIDE}",
    "client_closed": "the client closed the connection without a word, as one does that gave up waiting",
    "broker_closed": "the broker closed the connection without a word",
}
"""What is said of `tls_failed`."""
OF_ALERTS = {
    ("client", "unknown_ca"): "the client's trust store lacks the CA of the broker's certificate",
    ("client", "certificate_expired"): "the broker's certificate has expired",
    ("client", "bad_certificate"): f"the client {CLIENT_SIDE}",
    ("client", "certificate_unknown"): f"the client {CLIENT_SIDE}",
    ("broker", "bad_certificate"): f"the client {BROKER_SIDE}",
    ("broker", "certificate_required"): "the client sent no certificate, and the broker asks for one",
    ("broker", "handshake_failure"): "they have no cipher suite in common, or the client has no certificate",
    ("broker", "protocol_version"): "they have no version of TLS in common",
    ("client", "protocol_version"): "they have no version of TLS in common",
}
"""What alerts mean, by who sent them (RFC 8446, 6.2)."""


class TlsHandshakes(Rule):
    """Handshakes of TLS fail. In the clear an alert says why; in TLS 1.3 most alerts are encrypted, so the
    reason is a guess from who ended the handshake, and when. Clients try again for ever."""

    code = "tls_handshake_failed"
    about = "TLS handshakes"
    several = "{connections:TLS handshake} failed, of {count} pairs of client and broker."
    needs = columns("tls_failed tls_alert tls_alert_by tls_ja4 broker_bytes")
    missing = "no TLS handshake"

    failed: Tally
    begun: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        hello = rows.known("tls_ja4")
        self.looked += int(hello.sum())
        ends: Keys = [rows.client, rows.broker]
        self.begun.add(rows, hello, ends)
        why = (rows.coded(each) for each in ("tls_failed", "tls_alert", "tls_alert_by"))
        # Who gets no byte back at all speaks TLS to a port that does not: that is another rule's.
        self.failed.add(rows, rows.known("tls_failed") & (rows.ints("broker_bytes") > 0), [*ends, *why])

    def findings(self, context: Context) -> Iterable[Finding]:
        for key, entry in self.failed.entries.items():
            client_id, ip, broker, how, alert, by = key
            of = self.begun.by(0, 1, 2).get((client_id, ip, broker))
            whole = many(of.count if of else entry.count, "handshake")
            brief = f"{entry.count:,} of {whole}, {_why(how, alert, by)}"
            yield self.found(
                "critical" if of and of.count == entry.count else "warning",
                f"{client(client_id, ip)}, {broker}",
                f"TLS handshakes of {who(client_id, ip, context)} with {broker} fail: {brief}.",
                {"connections": entry.count}, entry,
                command("decode", both(f"tls_failed == {literal(how)}", is_broker(broker))),
                share=context.of_connections(entry.count), brief=brief,
            )  # fmt: skip


def _why(how: str, alert: str | None, by: str | None) -> str:
    if how in REASONS:
        return REASONS[how]
    name = (alert or "").split(" ")[1] if alert else "unknown"
    reason = OF_ALERTS.get((by or "", name))
    return f"the {by} sent {name}" + (f": {reason}" if reason else "")


class Certificates(Rule):
    """A broker's certificate has expired, or will within 30 days: when it does, no client can connect any
    more. Shown up to TLS 1.2, and with keys; TLS 1.3 encrypts certificates."""

    code = "certificate_expires"
    about = "certificates"
    several = "The certificates of {count} brokers expire within {days:day} at most, or have."
    needs = columns("tls_expires tls_subject last_time")
    missing = "no certificate in the clear or decrypted"

    seen: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        known = rows.known("tls_expires")
        self.looked += int(known.sum())
        left = (rows.ints("tls_expires") - rows.ints("last_time")) / DAY_US
        ends = rows.ints("tls_expires")
        soon = known & (left < self.thresholds.certificate_days)
        self.seen.add(rows, soon, [rows.broker, rows.coded("tls_subject")], maxes=[-left, ends])

    def findings(self, context: Context) -> Iterable[Finding]:
        for (broker, subject), entry in self.seen.entries.items():
            left = -entry.maxes[0]
            when = datetime.fromtimestamp(entry.maxes[1] / 1e6, UTC)
            brief = f"{'expired' if left < 0 else 'expires'} on {when:%Y-%m-%d}, {subject}"
            yield self.found(
                "critical" if left < 0 else "warning", str(broker),
                f"The certificate of {broker} {brief}: renew it.",
                {"days": left}, entry, command("auth"), weight=-left,
                share=context.of_connections(entry.count), brief=brief,
            )  # fmt: skip


class TlsChurn(Rule):
    """A client opens TLS connections again and again, and none of them goes on with an earlier session: each
    costs the broker a signature and the client a round trip or two. Keep connections open, and share one
    TLS context among the connections of a process."""

    code = "tls_without_resumption"
    about = "TLS sessions"
    several = "{count} clients made {connections:full TLS handshake}."
    needs = columns("tls_resumed tls_failed")
    missing = "no TLS handshake"

    full: Tally
    resumed: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        known = rows.known("tls_resumed") & ~rows.known("tls_failed")
        self.looked += int(known.sum())
        resumed = rows.ints("tls_resumed") == 1
        self.full.add(rows, known & ~resumed, [rows.client, rows.broker])
        self.resumed.add(rows, known & resumed, [rows.client])

    def findings(self, context: Context) -> Iterable[Finding]:
        limits = self.thresholds
        for (client_id, ip), entry in self.full.by(0, 1).items():
            slow = entry.count <= limits.churn_per_s * entry.span_s
            if slow or entry.count < limits.churn_connections or (client_id, ip) in self.resumed.entries:
                continue
            brief = f"{many(entry.count, 'full TLS handshake')} within {duration(entry.span_s)}, none resumed"
            yield self.found(
                "notice", client(client_id, ip), f"{who(client_id, ip, context)} made {brief}.",
                {"connections": entry.count}, entry, command("clients"),
                share=context.of_connections(entry.count), brief=brief,
            )  # fmt: skip


class WeakTls(Rule):
    """Connections agreed on a version of TLS that is deprecated, or on a cipher suite that is broken or has
    no forward secrecy: whoever gets the broker's key can read what was captured years before."""

    code = "weak_tls"
    about = "TLS suites"
    several = "{connections:connection} to {count} brokers with old TLS or weak suites."
    needs = columns("tls_version tls_cipher")
    missing = "no TLS handshake"

    weak: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += int(rows.known("tls_version").sum())
        version, cipher = rows.coded("tls_version"), rows.coded("tls_cipher")
        weak = version.matching(WEAK_VERSIONS.__contains__) | cipher.matching(_is_weak)
        self.weak.add(rows, weak, [rows.broker, version, cipher, *rows.client.plain])

    def findings(self, context: Context) -> Iterable[Finding]:
        for (broker,), entry in self.weak.by(0).items():
            mine = self.weak.of(0, broker)
            what = listed(dict.fromkeys(f"{key[1]} with {key[2]}" for key in mine))
            clients = listed(dict.fromkeys(client(key[3], key[4]) for key in mine))
            brief = f"{many(entry.count, 'connection')} with {what}, from {clients}"
            yield self.found(
                "notice", str(broker), f"Old TLS or weak suites at {broker}: {brief}.",
                {"connections": entry.count}, entry, command("decode", is_broker(broker)),
                share=context.of_connections(entry.count), brief=brief,
            )  # fmt: skip


def _is_weak(cipher: str | None) -> bool:
    return cipher is not None and WEAK.search(cipher) is not None
