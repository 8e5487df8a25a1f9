"""What a TLS handshake says without keys, and how it failed.

Up to TLS 1.2 all of it but its last messages is in the clear; in TLS 1.3 the hellos alone, and an alert looks
as any other record of its length (RFC 8446, sections 2 and 5.2).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kwsniff.tls.decrypter import ALERT, Facts, Session
from kwsniff.tls.protection import APPLICATION_DATA
from kwsniff.tls.suites import HEADER_BYTES, TLS_1_3, VERSIONS

FATAL = "fatal"
ALERT_BYTES = 2
HIDDEN_ALERT = HEADER_BYTES + ALERT_BYTES + 1 + 16
"""Bytes of a record of TLS 1.3 that holds an alert: its content type and the tag come on top."""
FAILURES = {
    "client_alert": "the client sent an alert in the clear, see `tls_alert`",
    "broker_alert": "the broker did",
    "client_alert_hidden": "TLS 1.3: the client ended it with a record that has the size of an alert, "
    "instead of its Finished: it does not accept the broker's certificate",
    "broker_alert_hidden": "the broker answered the client's Finished with such a record, or with an "
    "encrypted alert of TLS 1.2: no certificate of the client, or none that it accepts",
    "client_closed": "the client closed the connection before the handshake was over",
    "broker_closed": "the broker did",
}
"""How a handshake failed, as far as it can be seen."""


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
    if end["exchanges"] or facts.decrypted or not facts.ja4:
        return None
    if facts.alert is not None and facts.alert[0] == FATAL:
        return f"{'client' if facts.alert[2] == end['client'] else 'broker'}_alert"
    if not end["closed_by"]:
        return None
    client, broker = (_is_hidden_alert(int(end[f"{who}_last_record"]), facts) for who in ("client", "broker"))
    if facts.version == VERSIONS[TLS_1_3]:
        if client and end["client_records"] == 1:
            return "client_alert_hidden"
        finished = end["client_records"] > 0
    else:
        finished = facts.history.count("i") > 0  # the broker's ChangeCipherSpec is the last but one
    if broker and not client:
        return "broker_alert_hidden"
    return None if finished else f"{'client' if end['closed_by'] & 1 else 'broker'}_closed"


def _is_hidden_alert(last: int, facts: Facts) -> bool:
    """Whether the latest record of an end, its content type above its size, may be an encrypted alert."""
    kind, size = last >> 16, last & 0xFFFF
    if facts.version == VERSIONS[TLS_1_3]:
        return kind == APPLICATION_DATA and size == HIDDEN_ALERT
    return kind == ALERT and size > HEADER_BYTES + ALERT_BYTES


_SOFTWARE = """
t13i181000_85036bcba153_d41ae481755e Python
"""
"""JA4 fingerprints of clients that were recorded with their own settings (captures/recording)."""
SOFTWARE: dict[str, str] = {}


def software(ja4: str) -> str | None:
    """The client libraries that say hello like that, a guess: what is told apart is their library of TLS."""
    return SOFTWARE.get(ja4)
