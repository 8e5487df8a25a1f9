"""Handshake messages (RFC 8446, section 4; RFC 5246, section 7.4) as far as they say what a connection is.

Readers take the body of one message and raise `MalformedError` where it ends early or contradicts itself; no
length in it is believed before that many bytes are there.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from kwsniff.tls.suites import TLS_1_3

HELLO_REQUEST, CLIENT_HELLO, SERVER_HELLO, NEW_SESSION_TICKET, END_OF_EARLY_DATA = 0, 1, 2, 4, 5
ENCRYPTED_EXTENSIONS, CERTIFICATE, SERVER_KEY_EXCHANGE, CERTIFICATE_REQUEST = 8, 11, 12, 13
SERVER_HELLO_DONE, CERTIFICATE_VERIFY, CLIENT_KEY_EXCHANGE, FINISHED = 14, 15, 16, 20
CERTIFICATE_STATUS, KEY_UPDATE, COMPRESSED_CERTIFICATE = 22, 24, 25
MESSAGES = frozenset(
    (
        *(HELLO_REQUEST, CLIENT_HELLO, SERVER_HELLO, NEW_SESSION_TICKET, END_OF_EARLY_DATA),
        *(ENCRYPTED_EXTENSIONS, CERTIFICATE, SERVER_KEY_EXCHANGE, CERTIFICATE_REQUEST, SERVER_HELLO_DONE),
        *(CERTIFICATE_VERIFY, CLIENT_KEY_EXCHANGE, FINISHED, CERTIFICATE_STATUS, KEY_UPDATE),
        *(COMPRESSED_CERTIFICATE,),
    )
)

SERVER_NAME, SUPPORTED_GROUPS, SIGNATURE_ALGORITHMS, ALPN = 0, 10, 13, 16
ENCRYPT_THEN_MAC, EXTENDED_MASTER_SECRET, SESSION_TICKET, PRE_SHARED_KEY = 22, 23, 35, 41
EARLY_DATA, SUPPORTED_VERSIONS, KEY_SHARE = 42, 43, 51

RETRY_RANDOM = hashlib.sha256(b"HelloRetryRequest").digest()
"""The random of a ServerHello that is a HelloRetryRequest (RFC 8446, section 4.1.3)."""
MAX_TEXT = 255
NAMED_CURVE = 3


class MalformedError(ValueError):
    """A message that ends early or contradicts itself."""


class Fields:
    """Numbers and vectors of a message, one after the other (RFC 8446, section 3)."""

    __slots__ = ("_at", "_data")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise MalformedError
        return self._data[start : self._at]

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def vector(self, size: int) -> bytes:
        """Bytes after a length of `size` bytes."""
        return self.take(self.number(size))


@dataclass(frozen=True, slots=True)
class ClientHello:
    """What a client offers, in its order. Numbers are IANA's codes, GREASE (RFC 8701) among them."""

    legacy_version: int
    random: bytes
    session_id: bytes
    ciphers: tuple[int, ...]
    extensions: tuple[int, ...]
    sni: str = ""
    alpn: tuple[bytes, ...] = ()
    groups: tuple[int, ...] = ()
    signature_algorithms: tuple[int, ...] = ()
    versions: tuple[int, ...] = ()
    """Of supported_versions; empty without it."""
    ticket: bytes = b""
    """Digest of the session ticket (RFC 5077), if one is offered."""

    def offers(self, extension: int) -> bool:
        return extension in self.extensions


@dataclass(frozen=True, slots=True)
class ServerHello:
    """What a server selected; a HelloRetryRequest is one, too."""

    version: int
    random: bytes
    session_id: bytes
    cipher: int
    extensions: tuple[int, ...]
    group: int = 0
    """Of the key share; 0 before TLS 1.3."""
    alpn: str = ""

    @property
    def is_retry(self) -> bool:
        return self.random == RETRY_RANDOM


def read_client_hello(body: bytes) -> ClientHello:
    fields = Fields(body)
    version, random, session = fields.number(2), fields.take(32), fields.vector(1)
    ciphers = _numbers(fields.vector(2))
    fields.vector(1)  # compression methods
    found = dict(_extensions(fields))
    ticket = found.get(SESSION_TICKET, b"")
    return ClientHello(
        version,
        random,
        session,
        ciphers,
        tuple(found),
        sni=_server_name(found.get(SERVER_NAME, b"")),
        alpn=_protocols(found.get(ALPN, b"")),
        groups=_listed(found.get(SUPPORTED_GROUPS, b""), 2),
        signature_algorithms=_listed(found.get(SIGNATURE_ALGORITHMS, b""), 2),
        versions=_listed(found.get(SUPPORTED_VERSIONS, b""), 1),
        ticket=session_key(ticket) if ticket else b"",
    )


def read_server_hello(body: bytes) -> ServerHello:
    fields = Fields(body)
    version, random, session = fields.number(2), fields.take(32), fields.vector(1)
    cipher = fields.number(2)
    fields.take(1)  # compression method
    found = dict(_extensions(fields))
    if SUPPORTED_VERSIONS in found:
        version = Fields(found[SUPPORTED_VERSIONS]).number(2)
    share = found.get(KEY_SHARE, b"")
    protocols = _protocols(found.get(ALPN, b""))
    return ServerHello(
        version,
        random,
        session,
        cipher,
        tuple(found),
        group=Fields(share).number(2) if share else 0,
        alpn=clean(protocols[0].decode("utf-8", "backslashreplace")) if protocols else "",
    )


def read_encrypted_extensions(body: bytes) -> str:
    """The protocol of ALPN that the server selected, if any."""
    protocols = _protocols(dict(_extensions(Fields(body))).get(ALPN, b""))
    return clean(protocols[0].decode("utf-8", "backslashreplace")) if protocols else ""


def read_certificate(body: bytes, version: int) -> bytes | None:
    """The first certificate of a Certificate message in DER; None for an empty list."""
    fields = Fields(body)
    if version == TLS_1_3:
        fields.vector(1)  # certificate_request_context
    entries = Fields(fields.vector(3))
    return entries.vector(3) if entries else None


def read_key_exchange_group(body: bytes) -> int:
    """The group of a ServerKeyExchange of ECDHE (RFC 8422, section 5.4); 0 if it has no name."""
    fields = Fields(body)
    return fields.number(2) if fields.number(1) == NAMED_CURVE else 0


def read_ticket(body: bytes) -> bytes:
    """What `session_key` makes of the ticket in a NewSessionTicket of TLS 1.2; nothing for an empty one."""
    fields = Fields(body)
    fields.take(4)  # lifetime
    ticket = fields.vector(2)
    return session_key(ticket) if ticket else b""


def session_key(name: bytes) -> bytes:
    """A session id or a ticket in few bytes."""
    return hashlib.sha256(name).digest()[:16]


def ja4(hello: ClientHello, quic: bool = False) -> str:
    """FoxIO's JA4 fingerprint of a client (https://github.com/FoxIO-LLC/ja4, technical_details/JA4.md)."""
    ciphers = [f"{code:04x}" for code in hello.ciphers if not is_grease(code)]
    extensions = [code for code in hello.extensions if not is_grease(code)]
    versions = [version for version in hello.versions if not is_grease(version)]
    version = _JA4_VERSIONS.get(max(versions, default=hello.legacy_version), "00")
    hashed = sorted(f"{code:04x}" for code in extensions if code not in (SERVER_NAME, ALPN))
    algorithms = [f"{code:04x}" for code in hello.signature_algorithms if not is_grease(code)]
    return (
        f"{'q' if quic else 't'}{version}{'d' if SERVER_NAME in extensions else 'i'}"
        f"{min(len(ciphers), 99):02}{min(len(extensions), 99):02}{_alpn_ends(hello.alpn)}"
        f"_{_ja4_hash(','.join(sorted(ciphers)))}"
        f"_{_ja4_hash('_'.join(filter(None, (','.join(hashed), ','.join(algorithms)))) if hashed else '')}"
    )


def is_grease(code: int) -> bool:
    """Whether a code is one of those that mean nothing (RFC 8701)."""
    return code & 0x0F0F == 0x0A0A and code >> 8 == code & 0xFF


def clean(text: str) -> str:
    """A text from the wire that can be shown: printable and of bounded length."""
    return "".join(each if each.isprintable() else "\ufffd" for each in text[:MAX_TEXT])


class Owner(NamedTuple):
    """Whom a certificate is for."""

    subject: str = ""
    """RFC 4514."""
    not_before: int | None = None
    """Beginning of its validity, seconds since 1970, UTC."""
    not_after: int | None = None
    """End of it, the same."""
    names: tuple[str, ...] = ()
    """DNS names (RFC 6125), with wildcards."""


@lru_cache(maxsize=256)
def owner(der: bytes) -> Owner:
    """Who owns a certificate in DER (X.509, RFC 5280), as far as it can be read."""
    from cryptography import x509

    subject, not_before, not_after = "", None, None
    names: tuple[str, ...] = ()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of oddities, which are not ours to judge
        # The parser reads parts only when they are asked for, and raises what its parts raise.
        try:
            certificate = x509.load_der_x509_certificate(der)
            not_before = int(certificate.not_valid_before_utc.timestamp())
            not_after = int(certificate.not_valid_after_utc.timestamp())
            subject = clean(certificate.subject.rfc4514_string())
            alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
            names = tuple(alternative.value.get_values_for_type(x509.DNSName))
        except Exception:
            return Owner(subject, not_before, not_after)
    return Owner(subject, not_before, not_after, names)


def is_for(name: str, host: str) -> bool:
    """Whether a name of a certificate, which may begin with `*`, is that of a host (RFC 6125, 6.4)."""
    name, host = name.lower().rstrip("."), host.lower().rstrip(".")
    return host.partition(".")[2] == name[2:] if name.startswith("*.") else name == host


_JA4_VERSIONS = {0x0304: "13", 0x0303: "12", 0x0302: "11", 0x0301: "10", 0x0300: "s3", 0x0002: "s2"}


def _ja4_hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12] if text else "0" * 12


def _alpn_ends(alpn: tuple[bytes, ...]) -> str:
    """First and last character of the first protocol, of its hex form where either is not alphanumeric."""
    first = alpn[0] if alpn else b""
    if not first:
        return "00"
    ends = bytes((first[0], first[-1]))
    return ends.decode() if ends.isalnum() else first.hex()[0] + first.hex()[-1]


def _extensions(fields: Fields) -> Iterator[tuple[int, bytes]]:
    if not fields:
        return
    listed = Fields(fields.vector(2))
    while listed:
        yield listed.number(2), listed.vector(2)


def _numbers(data: bytes) -> tuple[int, ...]:
    if len(data) % 2:
        raise MalformedError
    return tuple(int.from_bytes(data[at : at + 2], "big") for at in range(0, len(data), 2))


def _listed(data: bytes, size: int) -> tuple[int, ...]:
    """Numbers of a vector whose length has `size` bytes, in an extension."""
    return _numbers(Fields(data).vector(size)) if data else ()


def _server_name(data: bytes) -> str:
    """The first host name (RFC 6066, section 3)."""
    if not data:
        return ""
    names = Fields(Fields(data).vector(2))
    while names:
        kind, name = names.number(1), names.vector(2)
        if kind == 0:
            return clean(name.decode("utf-8", "backslashreplace"))
    return ""


def _protocols(data: bytes) -> tuple[bytes, ...]:
    """Names of an ALPN extension (RFC 7301, section 3.1)."""
    if not data:
        return ()
    found, names = [], Fields(Fields(data).vector(2))
    while names:
        found.append(names.vector(1))
    return tuple(found)
