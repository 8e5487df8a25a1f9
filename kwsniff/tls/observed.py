"""What a TLS handshake says without keys, and how it failed.

Up to TLS 1.2 all of it but its last messages is in the clear; in TLS 1.3 the hellos alone, and an alert looks
as any other record of its length (RFC 8446, sections 2 and 5.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kwsniff.tls.decrypter import Facts, Session
from kwsniff.tls.protection import APPLICATION_DATA
from kwsniff.tls.suites import HEADER_BYTES, TLS_1_3, VERSIONS

FATAL = "fatal"
ALERT_BYTES = 2
TYPE_AND_TAG = 17
"""Bytes of a record of TLS 1.3 on top of its content: content type and tag."""
JSSE_PADDING = 16
"""Bytes of zeros that Java adds to each of its records of TLS 1.3."""
FLIGHT = 5
"""Messages of a broker's handshake in TLS 1.3 with a CertificateRequest, each in a record of its own as
OpenSSL has it; Java puts all of them into one."""
FAILURES = {
    "client_alert": "the client sent an alert in the clear, see `tls_alert`, or one that was decrypted",
    "broker_alert": "the broker did",
    "client_alert_hidden": "TLS 1.3: instead of its Finished the client sent a record of the size of an "
    "alert: it does not accept the broker's certificate",
    "broker_alert_hidden": "TLS 1.3: the broker answered the client's certificate, or first request, with "
    "such a record and nothing else: no certificate of the client, or none that it accepts",
    "client_closed": "the client closed the connection before the handshake was over",
    "broker_closed": "the broker did",
}
"""How a handshake failed, as far as it can be seen. Up to TLS 1.2 its alerts are in the clear."""


def records(kept: bytes) -> Iterator[tuple[int, bytes]]:
    """Records of a handshake as the engine keeps them, and the end (0 or 1) that sent each."""
    at = 0
    while at + HEADER_BYTES < len(kept):
        end = at + 1 + HEADER_BYTES + int.from_bytes(kept[at + 4 : at + 6], "big")
        yield kept[at], kept[at + 1 : end]
        at = end


def observed(kept: bytes) -> Facts:
    """What the records of a handshake say."""
    session = Session(None)
    for side, record in records(kept):
        session.take(side, record)
    return session.facts


def failure(facts: Facts, end: Any) -> str | None:
    """How the handshake of a connection failed, one of FAILURES; None if it did not, or if that cannot be
    said. `end` is the row of the connection in `ends` of `kwsniff.engine.tables`."""
    if max(end["exchanges"], end["frames"]) > 1 or not facts.ja4:  # a client may send a request at once
        return None
    if facts.alert is not None and facts.alert[0] == FATAL:
        return f"{'client' if facts.alert[2] == end['client'] else 'broker'}_alert"
    if facts.decrypted or not end["closed_by"]:
        return None
    if facts.version == VERSIONS[TLS_1_3]:
        if end["client_records"]:
            return _hidden(facts, end)
    elif end["client_records"] or {"i", "I"} <= set(facts.history):  # each end's ChangeCipherSpec
        return None
    return f"{'client' if end['closed_by'] & 1 else 'broker'}_closed"


def _hidden(facts: Facts, end: Any) -> str | None:
    """What the sizes of records say of a handshake of TLS 1.3, of which the client sent encrypted ones.

    A broker judges the client's certificate when the client has done its part and may have sent a request.
    Its alert looks as the close_notify that answers a client which only looked whether it is there (RFC 8446,
    6.1); but that one, unless it has a certificate, sent its Finished alone, and gets a ticket if it waits.
    """
    client, broker = (_alert_padding(int(end[f"{who}_last_record"])) for who in ("client", "broker"))
    sent = int(end["client_records"]) - (client is not None)
    if not sent:
        return "client_alert_hidden"
    if broker is None or end["broker_records"] > (1 if broker else FLIGHT) + 1:
        return None
    if sent == 1 and (client is not None or _is_finished(facts, int(end["client_last_record"]))):
        return None
    return "broker_alert_hidden"


def _content(last: int) -> int:
    """Bytes of content, with padding, in an encrypted record of TLS 1.3 of an end: `last` is its content type
    above its size."""
    kind, size = last >> 16, last & 0xFFFF
    return size - HEADER_BYTES - TYPE_AND_TAG if kind == APPLICATION_DATA else 0


def _alert_padding(last: int) -> int | None:
    """The padding of a record that has the size of an alert, None of any other."""
    padding = _content(last) - ALERT_BYTES
    return padding if padding in (0, JSSE_PADDING) else None


def _is_finished(facts: Facts, last: int) -> bool:
    """Whether a record has the size of a Finished and nothing else."""
    message = 4 + (48 if facts.cipher.endswith("SHA384") else 32)
    return _content(last) - message in (0, JSSE_PADDING)


_SOFTWARE = """
bd868743f55c Java 11
db35923f8641 0ca14b6c4d46 Java 17 or 21
1d947a95fc68 Java 25
f57a46bbacb6 a8cf61a50a39 Go 1.26
85036bcba153 d68b136fe8d9 Python
a33745022dd6 99d8c53049f3 Node.js 20
1d37bd780c83 a2460661a67a OpenSSL 3.5, as librdkafka's own packages
e8f1e7e78f70 d943125447b4 OpenSSL 3.0, as librdkafka of Debian 12
"""
"""Clients of Kafka that were recorded with their own settings: JA4's hash of the cipher suites, with and
without those of TLS 1.3. The rest of JA4 changes with the server name and with tickets of the same client."""
SOFTWARE = {
    ciphers: name
    for several, name in re.findall(r"^((?:[0-9a-f]{12} )+)(.*)", _SOFTWARE, re.MULTILINE)
    for ciphers in several.split()
}


def software(ja4: str) -> str | None:
    """What says hello like that, a guess: what is told apart is the library of TLS and how it is set up."""
    return SOFTWARE.get(ja4.split("_")[1]) if ja4 else None
