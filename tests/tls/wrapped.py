"""A plaintext capture as it would be over TLS: the same segments at the same times, what they carry encrypted
by OpenSSL.

Each payload is written by the `ssl` object of its end, after a handshake that stands before the first of
them; sequence numbers and acknowledgements follow. So a decrypted connection has to give the very calls that
the plaintext gives.
"""

from __future__ import annotations

import ssl
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from kwsniff.net.segments import SEGMENTS

SYN, ACK = 2, 16
MASK = 0xFFFFFFFF
Row = dict[str, Any]


@cache
def certificate(folder: Path) -> Path:
    """A self-signed certificate with its key, valid for a day."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "broker.test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    path = folder / "broker.pem"
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(secret + made.public_bytes(serialization.Encoding.PEM))
    return path


class Ends:
    """Both ends of a TLS connection."""

    def __init__(self, folder: Path, keylog: Path, version: ssl.TLSVersion, ciphers: str = "") -> None:
        client, server = (ssl.SSLContext(kind) for kind in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER))
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        client.keylog_filename = str(keylog)
        server.load_cert_chain(certificate(folder))
        for context in (client, server):
            context.minimum_version = context.maximum_version = version
            if ciphers:
                context.set_ciphers(ciphers)
        self._in = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._ends = (
            client.wrap_bio(self._in[0], self._out[0], server_hostname="broker.test"),
            server.wrap_bio(self._in[1], self._out[1], server_side=True),
        )

    def handshake(self) -> Iterator[tuple[int, bytes]]:
        """What each end (0: the client) sends until both are done."""
        done = [False, False]
        while not all(done):
            for end in range(2):
                try:
                    self._ends[end].do_handshake()
                    done[end] = True
                except ssl.SSLWantReadError:
                    pass
                if flight := self._out[end].read():
                    self._in[1 - end].write(flight)
                    yield end, flight

    def write(self, end: int, payload: bytes) -> bytes:
        """Encrypted."""
        self._ends[end].write(payload)
        return self._out[end].read()


@dataclass
class Stream:
    """One direction: where bytes of the plaintext are in the encrypted stream."""

    first: int = -1
    plain: list[int] = field(default_factory=lambda: [0])
    wire: list[int] = field(default_factory=lambda: [0])

    def grow(self, plain: int, wire: int) -> None:
        """So many bytes more."""
        self.plain.append(self.plain[-1] + plain)
        self.wire.append(self.wire[-1] + wire)

    def at(self, offset: int) -> int:
        """Where an offset is: behind all that was sent with what ends there."""
        place = bisect_right(self.plain, offset) - 1
        return self.wire[place] + max(offset - self.plain[-1], 0)


@dataclass
class Connection:
    """What was made of a connection so far."""

    ends: Ends
    streams: dict[tuple[Any, ...], Stream] = field(default_factory=dict)
    client: tuple[Any, ...] = ()
    begun: bool = False
    sent: dict[tuple[Any, ...], tuple[int, bytes]] = field(default_factory=dict)


def end_of(row: Row, which: str) -> tuple[Any, ...]:
    """Address and port."""
    return row[f"{which}_hi"], row[f"{which}_lo"], row[f"{which}_port"]


def wrapped(
    rows: Iterable[Row], folder: Path, keylog: Path, version: ssl.TLSVersion, ciphers: str = ""
) -> Iterator[Row]:
    """Segments of whole connections over TLS. A segment that repeats bytes repeats the encrypted ones."""
    connections: dict[frozenset[Any], Connection] = {}
    for row in rows:
        source, target = end_of(row, "src"), end_of(row, "dst")
        ends = frozenset((source, target))
        if row["flags"] & SYN and not row["flags"] & ACK:
            connections[ends] = Connection(Ends(folder, keylog, version, ciphers), client=source)
        connection = connections.get(ends)
        if connection is None:
            continue
        own, other = (connection.streams.setdefault(each, Stream()) for each in (source, target))
        if row["flags"] & SYN:
            own.first = (row["seq"] + 1) & MASK
            yield row
            continue
        if row["payload"] and not connection.begun:
            connection.begun = True
            yield from _handshake(row, connection, source, target)
        ack = (other.first + other.at((row["ack"] - other.first) & MASK)) & MASK
        yield {**row, "ack": ack} | _written(row, connection, source)


def _written(row: Row, connection: Connection, source: Any) -> Row:
    """Sequence number and payload of a segment."""
    own = connection.streams[source]
    offset = (row["seq"] - own.first) & MASK
    if not row["payload"]:
        return {"seq": (own.first + own.at(offset)) & MASK if offset < 1 << 31 else row["seq"]}
    key = (source, offset, len(row["payload"]))
    if key not in connection.sent:
        if offset != own.plain[-1]:
            raise ValueError("the capture lacks bytes, or they are in another order")
        payload = connection.ends.write(0 if source == connection.client else 1, row["payload"])
        connection.sent[key] = (own.first + own.wire[-1]) & MASK, payload
        own.grow(len(row["payload"]), len(payload))
    seq, payload = connection.sent[key]
    return {"seq": seq, "payload": payload, "length": len(payload)}


def _handshake(row: Row, connection: Connection, source: Any, target: Any) -> Iterator[Row]:
    for end, flight in connection.ends.handshake():
        sender = connection.client if end == 0 else (target if source == connection.client else source)
        receiver = target if sender == source else source
        own, other = connection.streams[sender], connection.streams[receiver]
        made = {**row, "flags": 24, "payload": flight, "length": len(flight), "tsval": -1}
        for which, (high, low, port) in (("src", sender), ("dst", receiver)):
            made |= {f"{which}_hi": high, f"{which}_lo": low, f"{which}_port": port}
        made["seq"] = (own.first + own.wire[-1]) & MASK
        made["ack"] = (other.first + other.wire[-1]) & MASK
        own.grow(0, len(flight))
        yield made


def batches(rows: Iterable[Row], count: int = 1000) -> Iterator[pa.RecordBatch]:
    """SEGMENTS batches of rows."""
    rows = list(rows)
    for at in range(0, len(rows), count):
        yield pa.RecordBatch.from_pylist(rows[at : at + count], schema=SEGMENTS)
