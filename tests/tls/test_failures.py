"""Handshakes that fail, and what is told of them, against what both ends logged when they were recorded."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pyarrow as pa
import pytest

from kwsniff.analysis.report import Report
from kwsniff.config import Config
from tests.samples import Row, sample

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
        note["port"]: note["says"] for told in FAILURES.note["clients"] for note in told["notes"] if "port" in note
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
            wrong.append((case, client, client_said[:60], row["tls_failed"], row["tls_alert"], row["client_port"]))
    assert not wrong
    assert seen == len(rows)
