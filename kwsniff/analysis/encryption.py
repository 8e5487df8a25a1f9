"""What handshakes of TLS say that somebody should know, with and without keys."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime

import numpy as np

from kwsniff.analysis.network import who
from kwsniff.analysis.rule import Context, Finding, Rule, both, command, is_broker, literal
from kwsniff.analysis.tabular import columns
from kwsniff.count.codes import Coded, Keys
from kwsniff.count.eventrows import EventBatch, EventRows
from kwsniff.count.tally import Tally
from kwsniff.output.units import client, duration, listed, many

DAY_US = 86_400_000_000
WEAK_VERSIONS = frozenset(("SSL 3.0", "TLS 1.0", "TLS 1.1"))
"""Deprecated by RFC 7568 and RFC 8996."""
WEAK = re.compile("NULL|EXPORT|anon|RC4|DES|MD5|^TLS_(RSA|ECDH|DH)_")
"""Suites that RFC 9325, 4.1 and 4.2, advises against: without encryption or authentication, with broken
ciphers, or without forward secrecy."""
CLIENT_SIDE = (
    "the client does not accept the broker's certificate: it does not know the CA, the host name differs, "
    "or it has expired"
)
BROKER_SIDE = "the client has no certificate, or none that the broker accepts"
REASONS = {
    "client_alert_hidden": f"probably {CLIENT_SIDE}",
    "broker_alert_hidden": f"probably {BROKER_SIDE}",
    "client_closed": "the client closed the connection without a word, as one does that gives up waiting "
    "or ends",
    "broker_closed": "the broker closed the connection without a word",
}
"""What is said of `tls_failed`."""
UNFIT = {
    "expired": "the broker's certificate has expired",
    "other host": "the broker's certificate is for another host",
    "fits": "the certificate is for that host and has not expired, so probably the client does not know "
    "the CA",
}
"""Why a client does not accept a certificate that is in the clear."""
OF_ALERTS = {
    ("client", "unknown_ca"): "the client does not know the CA of the broker's certificate",
    ("client", "certificate_expired"): UNFIT["expired"],
    ("client", "bad_certificate"): CLIENT_SIDE,
    ("client", "certificate_unknown"): CLIENT_SIDE,
    ("broker", "bad_certificate"): BROKER_SIDE,
    ("broker", "certificate_required"): "the client sent no certificate, and the broker asks for one",
    (
        "broker",
        "certificate_unknown",
    ): "the broker does not know the CA of the client's certificate, or it has expired",
    ("broker", "unknown_ca"): "the broker does not know the CA of the client's certificate",
    ("broker", "certificate_expired"): "the client's certificate has expired",
    ("broker", "handshake_failure"): "they have no cipher suite or group in common, or the client has no "
    "certificate",
    ("broker", "protocol_version"): "they have no version of TLS in common",
    ("client", "protocol_version"): "they have no version of TLS in common",
}
"""What alerts mean, by who sent them (RFC 8446, 6.2): Java and Go have one for all that is wrong with a
certificate, and Java calls an empty list of them bad."""


class TlsHandshakes(Rule):
    """Handshakes of TLS fail. In the clear an alert says why; in TLS 1.3 most alerts are encrypted, so the
    reason is a guess from who ended the handshake, and when. Clients try again for ever."""

    code = "tls_handshake_failed"
    about = "TLS handshakes"
    several = "{connections:TLS handshake} failed, in {count} ways."
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
        self.failed.add(
            rows, rows.known("tls_failed") & (rows.ints("broker_bytes") > 0), [*ends, *why, _unfit(rows)]
        )

    def findings(self, context: Context) -> Iterable[Finding]:
        failed = self.failed.by(0, 1, 2)
        for key, entry in self.failed.entries.items():
            client_id, ip, broker, how, alert, by, unfit = key
            pair = (client_id, ip, broker)
            of = self.begun.by(0, 1, 2).get(pair)
            whole = many(of.count if of else entry.count, "handshake")
            brief = f"{entry.count:,} of {whole}, {_why(how, alert, by, unfit)}"
            yield self.found(
                "critical" if of and of.count == failed[pair].count else "warning",
                f"{client(client_id, ip)}, {broker}",
                f"TLS handshakes of {who(client_id, ip, context)} with {broker} fail: {brief}.",
                {"connections": entry.count}, entry,
                command("decode", both(f"tls_failed == {literal(how)}", is_broker(broker))),
                share=context.of_connections(entry.count), brief=brief,
            )  # fmt: skip


def _unfit(rows: EventRows) -> Coded:
    """Which of UNFIT is true of a broker's certificate that a client does not accept for whatever reason, if
    both certificate and host name are in the clear."""
    any_reason = rows.coded("tls_alert").matching(lambda alert: _reason("client", alert) is CLIENT_SIDE)
    any_reason &= rows.coded("tls_alert_by").equals("client")
    late = rows.known("tls_expires") & (rows.ints("tls_expires") < rows.ints("last_time"))
    named = rows.ints("tls_sni_matches", -1)
    return Coded(
        [None, *UNFIT], np.where(any_reason, np.select([late, named == 0, named == 1], [1, 2, 3], 0), 0)
    )


def _reason(by: str, alert: str | None) -> str | None:
    return OF_ALERTS.get((by, alert.split()[1])) if alert else None


def _why(how: str, alert: str | None, by: str | None, unfit: str | None) -> str:
    if how in REASONS:
        return REASONS[how]
    if not alert:  # `tls_alert` has those in the clear only
        return f"the {how.partition('_')[0]} sent an encrypted alert"
    reason = UNFIT.get(unfit or "") or _reason(by or "", alert)
    return f"the {by} sent {alert.split()[1]}" + (f": {reason}" if reason else "")


class Certificates(Rule):
    """A broker's certificate has expired, or will within 30 days that are the last fifth of its life, so
    that renewing it is late: when it expires, no client can connect any more. Shown up to TLS 1.2, and with
    keys; TLS 1.3 encrypts certificates."""

    code = "certificate_expires"
    about = "certificates"
    several = "The certificates of {count} brokers expire soon, or have expired."
    needs = columns("tls_expires tls_valid_from tls_subject last_time")
    missing = "no certificate in the clear or decrypted"

    seen: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        known = rows.known("tls_expires")
        self.looked += int(known.sum())
        left = (rows.ints("tls_expires") - rows.ints("last_time")) / DAY_US
        ends = rows.ints("tls_expires")
        life = (ends - rows.ints("tls_valid_from")) / DAY_US
        limits = self.thresholds
        soon = known & (left < np.minimum(limits.certificate_days, limits.certificate_left * life))
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
