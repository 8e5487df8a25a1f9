"""Handshakes that fail, and what is told of them, against what both ends logged when they were recorded."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from kwsniff.analysis.encryption import Certificates, TlsChurn, TlsHandshakes, WeakTls
from kwsniff.analysis.findings import Finding, Findings
from kwsniff.analysis.rule import NOT_SHOWN, OK
from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.parts.cutting import in_parts, input_of, parts, stretch, whole
from tests.samples import Row, encrypted, sample

FAILURES = sample("tls-failures")
CONFIG = Config(ports=frozenset(FAILURES.note["ports"]))
REFUSES = {
    "unknown-ca": "client", "other-host": "client", "expired": "client",
    "no-certificate": "broker", "strange-client": "broker", "late-client": "broker",
    "no-version": "broker", "no-suite": "broker", "gave-up": "",
}  # fmt: skip
"""Which end refuses the other one in a case; nobody does where it is not named."""
OPENSSL = {"unknown-ca": "unknown_ca", "other-host": "bad_certificate", "expired": "certificate_expired"}
"""What it sends in the clear even in TLS 1.3, where Java cannot read it, by its own error codes."""
RULES = (TlsHandshakes, Certificates, TlsChurn, WeakTls)
SAID = {
    9094: "warning: .* unknown_ca: the client does not know the CA; so probably the client does not know "
    "the CA; probably the client does not accept; closed the connection without a word",
    9095: "critical: .* is for another host",
    9096: "critical: .* the broker's certificate has expired",
    9098: "warning: .* probably the client has no certificate; sent bad_certificate: the client has no "
    "certificate; the broker does not know the CA of the client's certificate, or it has expired",
    9099: "critical: .* no version of TLS in common",
    9100: "critical: .* no version of TLS in common",
    9101: "critical: .* no cipher suite or group in common",
}
"""What a finding says of the listeners where handshakes failed, as expressions."""


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return [row for row in FAILURES.events(ports=CONFIG.ports) if row["event"] == "connection"]


def attempts(rows: list[Row]) -> Iterator[tuple[str, str, str, Row]]:
    """Each connection with its case, its client, and what that one said."""
    for told in FAILURES.note["clients"]:
        for note in told["notes"]:
            for row in rows:
                if "case" in note and note["begin"] - 0.01 <= row["first_time"].timestamp() <= note["end"]:
                    yield note["case"], told["client"], note["says"], row


def test_who_refused_whom_and_why_is_what_they_logged(rows: list[Row]) -> None:
    broker_said = {
        note["port"]: note["says"]
        for told in FAILURES.note["clients"]
        for note in told["notes"]
        if "port" in note
    }
    wrong, seen = [], 0
    for case, client, client_said, row in attempts(rows):
        seen += 1
        refuses = REFUSES.get(case.rpartition("-")[0])
        received = re.match("Received fatal alert: (.*)", broker_said.get(row["client_port"], ""))
        if refuses is None:
            right = row["tls_failed"] is None
        elif "closing inbound" in broker_said.get(row["client_port"], ""):  # librdkafka's next one, too
            right = row["tls_failed"] == "client_closed"
        elif row["tls_alert"]:
            name = row["tls_alert"].split()[1]
            said = client_said.lower().replace("_", " ").replace("unknown certificate", "certificate unknown")
            sent = received[1] if received else OPENSSL.get(case[:-4])
            right = row["tls_failed"] == f"{refuses}_alert" and row["tls_alert_by"] == refuses
            right &= sent == name if refuses == "client" else name.split("_")[0] in said
        else:
            right = row["tls_failed"] == f"{refuses}_alert_hidden" and row["tls_version"] == "TLS 1.3"
            right &= refuses == "broker" or received is not None
        if not right:
            wrong.append(
                (case, client, client_said[:60], row["tls_failed"], row["tls_alert"], row["client_port"])
            )
    assert not wrong
    assert seen == len(rows)


def told(batches: Iterable[pa.RecordBatch]) -> list[Finding]:
    rules = Findings()
    for batch in batches:
        rules.take(batch)
    return [each for each in rules.found({}) if each.severity not in (OK, NOT_SHOWN)]


def test_findings_say_what_happened_at_each_listener() -> None:
    failed: dict[str, str] = defaultdict(str)
    others = set()
    for each in told(events(FAILURES.paths, CONFIG)):
        if each.code == "tls_handshake_failed":
            failed[each.subject] += f"{each.severity}: {each.sentence}\n"
        else:
            others.add((each.code, each.severity, each.subject))
    for port, words in SAID.items():
        text = failed.pop(f"127.0.0.1, 127.0.0.1:{port}")
        assert all(re.search(word, text) for word in words.split("; ")), (port, text)
    assert not failed
    assert others == {
        ("certificate_expires", "critical", "127.0.0.1:9096"),
        ("certificate_expires", "warning", "127.0.0.1:9097"),
        ("connection_churn", "warning", "127.0.0.1"),
        ("connection_churn", "warning", "127.0.0.9"),
        ("tls_without_resumption", "notice", "127.0.0.9"),
        ("weak_tls", "notice", "127.0.0.1:9102"),
    }


@pytest.mark.parametrize("name", encrypted())
def test_findings_about_tls_are_silent_about_other_samples(name: str) -> None:
    """But for the client without a certificate, and the suites that one is there to show. Their certificates
    are good for all of the 30 days that they were made for."""
    sealed = [replace(each, secrets=b"") for each in input_of(name)]
    codes = {each.code for each in told(whole(sealed, Config()).to_batches())} & {rule.code for rule in RULES}
    speaks = {"tls-mutual": {"tls_handshake_failed"}, "tls-kafka-python": {"weak_tls"}}
    assert codes == speaks.get(name, set())


@pytest.mark.parametrize("size", [1, 13, 5000])
def test_neither_batches_nor_parts_matter(size: int) -> None:
    segments = [each for each in input_of("tls-failures") if len(each)]
    expected = whole(segments, CONFIG)
    assert sum(each is not None for each in expected["tls_failed"].to_pylist()) > 40
    cut = [stretch(each, at, at + size) for each in segments for at in range(0, len(each), size)]
    assert whole(cut, CONFIG).equals(expected)
    assert whole(segments, CONFIG, compiled=False).equals(expected)
    many = sum(map(len, segments))
    given = parts(segments, sorted({(many * at // 11 + size) % many for at in range(1, 11)}))
    assert in_parts(given, CONFIG).events.equals(expected)
