"""Record protection: what opens the records of one direction with one set of keys.

`open` takes a whole record (with its header) and its sequence number. It returns application data as bytes,
anything else as a pair of content type and content, and None where the tag, or the MAC, does not fit.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from struct import Struct
from typing import Any, Protocol

from kwsniff.tls import schedule
from kwsniff.tls.suites import (
    BLOCK_BYTES,
    CBC,
    CCM,
    CHACHA,
    EXPLICIT_NONCE_BYTES,
    HEADER_BYTES,
    TLS_1_0,
    Suite,
)

APPLICATION_DATA = 23
_ADDITIONAL = Struct(">QBHH").pack
"""Sequence number, type, version and length of the plaintext (RFC 5246, section 6.2.3.3)."""

Record = bytes | memoryview
Opened = bytes | tuple[int, bytes] | None


class Protection(Protocol):
    """See the module."""

    def open(self, record: Record, sequence: int) -> Opened: ...


def aead(suite: Suite, key: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESCCM, AESGCM, ChaCha20Poly1305

    if suite.mode == CCM:
        return AESCCM(key, tag_length=suite.tag_bytes)
    return ChaCha20Poly1305(key) if suite.mode == CHACHA else AESGCM(key)


def protection_1_3(suite: Suite, secret: bytes) -> Protection:
    """For the records under a traffic secret."""
    key, iv = schedule.traffic_keys(suite, secret)
    return Sealed(aead(suite, key), iv)


def protection_1_2(
    version: int, suite: Suite, keys: tuple[bytes, bytes, bytes], encrypt_then_mac: bool, chain: bytearray
) -> Protection:
    """For the records under one direction's part of a key block: MAC key, key and IV."""
    mac_key, key, iv = keys
    if suite.mode != CBC:
        return Numbered(aead(suite, key), iv, suite)
    chained = (iv, chain) if version <= TLS_1_0 else None
    return Blocks(key, mac_key, suite.mac, encrypt_then_mac, chained)


class Sealed:
    """AEAD of TLS 1.3 (RFC 8446, section 5.2)."""

    __slots__ = ("_invalid", "decrypt", "iv")

    def __init__(self, cipher: Any, iv: bytes) -> None:
        self.decrypt: Callable[[Any, Any, Any], bytes] = cipher.decrypt
        self.iv = int.from_bytes(iv, "big")
        self._invalid = _invalid()

    def open(self, record: Record, sequence: int) -> Opened:
        try:
            inner = self.decrypt((self.iv ^ sequence).to_bytes(12, "big"), record[5:], record[:5])
        except self._invalid:
            return None
        if inner and inner[-1] == APPLICATION_DATA:
            return inner[:-1]
        content = inner.rstrip(b"\0")  # padding
        if not content:
            return 0, b""
        return content[:-1] if content[-1] == APPLICATION_DATA else (content[-1], content[:-1])


class Numbered:
    """AEAD of TLS 1.2, whose tag covers the sequence number: with a part of the nonce in the record (AES-GCM
    and AES-CCM, RFC 5288, RFC 6655), or counted as in TLS 1.3 (ChaCha20-Poly1305, RFC 7905)."""

    __slots__ = ("_begin", "_decrypt", "_invalid", "_iv", "_number", "_overhead")

    def __init__(self, cipher: Any, iv: bytes, suite: Suite) -> None:
        self._decrypt: Callable[[Any, Any, Any], bytes] = cipher.decrypt
        self._iv, self._number = iv, int.from_bytes(iv, "big")
        self._begin = HEADER_BYTES if suite.mode == CHACHA else HEADER_BYTES + EXPLICIT_NONCE_BYTES
        self._overhead = self._begin + suite.tag_bytes
        self._invalid = _invalid()

    def open(self, record: Record, sequence: int) -> Opened:
        size = len(record) - self._overhead
        if size < 0:
            return None
        kind, begin = record[0], self._begin
        additional = _ADDITIONAL(sequence, kind, 0x0303, size)
        if begin == HEADER_BYTES:
            nonce = (self._number ^ sequence).to_bytes(12, "big")
        else:
            nonce = self._iv + record[HEADER_BYTES:begin]
        try:
            content = self._decrypt(nonce, record[begin:], additional)
        except self._invalid:
            return None
        return content if kind == APPLICATION_DATA else (kind, content)


class Blocks:
    """AES-CBC of TLS 1.0 to 1.2 (RFC 5246, section 6.2.3.2), also with encrypt-then-MAC (RFC 7366)."""

    __slots__ = (
        "_algorithm",
        "_chained",
        "_encrypt_then_mac",
        "_last",
        "_mac_bytes",
        "_mac_key",
        "_mac_name",
    )

    def __init__(
        self,
        key: bytes,
        mac_key: bytes,
        mac_name: str,
        encrypt_then_mac: bool,
        chained: tuple[bytes, bytearray] | None,
    ) -> None:
        from cryptography.hazmat.primitives.ciphers.algorithms import AES

        self._algorithm = AES(key)
        self._mac_key = mac_key
        self._mac_name = mac_name
        self._mac_bytes = len(mac_key)
        self._encrypt_then_mac = encrypt_then_mac
        self._chained = chained
        """TLS 1.0: the IV of the first record, and the last block of the record before, for all others."""
        self._last: tuple[bytes, bytes] = (b"", b"")
        """A body and its plaintext, for the next sequence number that is tried on it."""

    def open(self, record: Record, sequence: int) -> Opened:
        header, body, mac = bytes(record[:3]), bytes(record[5:]), b""
        if self._encrypt_then_mac:
            body, mac = body[: -self._mac_bytes], body[-self._mac_bytes :]
            if not self._fits(mac, sequence, header, body):
                return None
        iv = self._iv(sequence)
        plain = self._plain(iv + body)
        if not plain:
            return None
        size = len(plain) - plain[-1] - 1
        if not plain.endswith(bytes((plain[-1],)) * (plain[-1] + 1)):
            return None
        if not self._encrypt_then_mac:
            size -= self._mac_bytes
            if size < 0 or not self._fits(
                plain[size : size + self._mac_bytes], sequence, header, plain[:size]
            ):
                return None
        if self._chained:
            self._chained[1][:] = body[-BLOCK_BYTES:]
        return plain[:size] if header[0] == APPLICATION_DATA else (header[0], plain[:size])

    def _iv(self, sequence: int) -> bytes:
        if not self._chained:
            return b""
        return bytes(self._chained[1]) if sequence else self._chained[0]

    def _fits(self, mac: bytes, sequence: int, header: bytes, content: bytes) -> bool:
        additional = sequence.to_bytes(8, "big") + header + len(content).to_bytes(2, "big")
        expected = hmac.digest(self._mac_key, additional + content, self._mac_name)
        return hmac.compare_digest(mac, expected)

    def _plain(self, body: bytes) -> bytes:
        """What is encrypted in a body that begins with its IV; nothing if it is not made of whole blocks."""
        from cryptography.hazmat.primitives.ciphers import Cipher, modes

        if len(body) < 2 * BLOCK_BYTES or len(body) % BLOCK_BYTES:
            return b""
        if body != self._last[0]:
            decryptor = Cipher(self._algorithm, modes.CBC(body[:BLOCK_BYTES])).decryptor()
            self._last = body, decryptor.update(body[BLOCK_BYTES:]) + decryptor.finalize()
        return self._last[1]


def _invalid() -> type[Exception]:
    from cryptography.exceptions import InvalidTag

    return InvalidTag
