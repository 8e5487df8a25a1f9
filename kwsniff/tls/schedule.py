"""From secrets to keys: HKDF of TLS 1.3 (RFC 8446, section 7.1), PRF up to TLS 1.2 (RFC 2246, RFC 5246)."""

from __future__ import annotations

import hashlib
import hmac

from kwsniff.tls.suites import TLS_1_2, Suite

PREMASTER_LABEL = b"master secret"
EXTENDED_LABEL = b"extended master secret"
MASTER_BYTES = 48
NONCE_BYTES = 12


def expand_label(name: str, secret: bytes, label: bytes, length: int) -> bytes:
    """HKDF-Expand-Label with an empty context; `name` is that of the hash."""
    label = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes((len(label),)) + label + b"\0"
    found, block, number = b"", b"", 1
    while len(found) < length:
        block = hmac.digest(secret, block + info + bytes((number,)), name)
        found += block
        number += 1
    return found[:length]


def traffic_keys(suite: Suite, secret: bytes) -> tuple[bytes, bytes]:
    """Key and IV of a traffic secret."""
    key = expand_label(suite.hash, secret, b"key", suite.key_bytes)
    return key, expand_label(suite.hash, secret, b"iv", NONCE_BYTES)


def next_secret(name: str, secret: bytes, times: int = 1) -> bytes:
    """The traffic secret after so many KeyUpdates."""
    for _ in range(times):
        secret = expand_label(name, secret, b"traffic upd", len(secret))
    return secret


def prf(version: int, name: str, secret: bytes, seed: bytes, length: int) -> bytes:
    """The pseudorandom function of a version; `seed` begins with the label, `name` is TLS 1.2's hash."""
    if version >= TLS_1_2:
        return _expand(name, secret, seed, length)
    half = (len(secret) + 1) // 2
    md5 = _expand("md5", secret[:half], seed, length)
    sha = _expand("sha1", secret[-half:], seed, length)
    return bytes(a ^ b for a, b in zip(md5, sha, strict=True))


def _expand(name: str, secret: bytes, seed: bytes, length: int) -> bytes:
    found, chain = b"", seed
    while len(found) < length:
        chain = hmac.digest(secret, chain, name)
        found += hmac.digest(secret, chain + seed, name)
    return found[:length]


def key_block(
    version: int, suite: Suite, master: bytes, randoms: bytes, client: bool
) -> tuple[bytes, bytes, bytes]:
    """MAC key, key and IV of one direction (RFC 5246, section 6.3).

    `randoms` are the server's and then the client's; an IV that TLS 1.1 and later do not take from here is
    computed nevertheless and stands last, so it changes nothing.
    """
    sizes = (suite.mac_bytes, suite.key_bytes, suite.iv_bytes)
    block = prf(version, suite.hash, master, b"key expansion" + randoms, 2 * sum(sizes))
    found, at = [], 0
    for size in sizes:
        start = at if client else at + size
        found.append(block[start : start + size])
        at += 2 * size
    mac_key, key, iv = found
    return mac_key, key, iv


def transcript_hash(version: int, name: str, messages: bytes) -> bytes:
    """The session hash of RFC 7627, section 3, over the handshake up to the ClientKeyExchange."""
    if version >= TLS_1_2:
        return hashlib.new(name, messages).digest()
    return hashlib.md5(messages).digest() + hashlib.sha1(messages).digest()


def master_secret(version: int, name: str, premaster: bytes, seed: bytes, extended: bool) -> bytes:
    """The master secret of a premaster secret; `seed` is both randoms (client's first) or session hash."""
    label = EXTENDED_LABEL if extended else PREMASTER_LABEL
    return prf(version, name, premaster, label + seed, MASTER_BYTES)
