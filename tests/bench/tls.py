"""How fast records of TLS are opened: `python -m tests.bench.tls` prints records and bytes a second by suite.

The bytes are those of the plaintext; the time is that of `Session.take`, the call included, on one core.
"""

from __future__ import annotations

import hmac
import os
import time
from collections.abc import Callable

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from kwsniff.tls import schedule
from kwsniff.tls.decrypter import Session
from kwsniff.tls.hellos import SUPPORTED_VERSIONS
from kwsniff.tls.keylog import KeyLog
from kwsniff.tls.protection import aead
from kwsniff.tls.suites import CBC, CHACHA, SUITES, TLS_1_3, Suite

SIZES = (64, 200, 1024, 16_384)
BYTES = 24 << 20
MOST = 20_000
CODES = (0x1301, 0x1302, 0x1303, 0x1304, 0xC02F, 0xC030, 0xCCA8, 0xC013, 0xC028)
CLIENT_RANDOM, SERVER_RANDOM, SECRET = os.urandom(32), os.urandom(32), os.urandom(48)

Seal = Callable[[int, bytes], bytes]


def vector(size: int, data: bytes) -> bytes:
    return len(data).to_bytes(size, "big") + data


def hello(kind: int, random: bytes, middle: bytes, extensions: bytes) -> bytes:
    body = b"\x03\x03" + random + b"\0" + middle + vector(2, extensions)
    return b"\x16\x03\x03" + vector(2, bytes((kind,)) + vector(3, body))


def hellos(suite: Suite) -> tuple[bytes, bytes]:
    code = suite.code.to_bytes(2, "big")
    versions = SUPPORTED_VERSIONS.to_bytes(2, "big") + vector(2, TLS_1_3.to_bytes(2, "big"))
    client = hello(1, CLIENT_RANDOM, vector(2, code) + b"\1\0", b"")
    return client, hello(2, SERVER_RANDOM, code + b"\0", versions if suite.code >> 8 == 0x13 else b"")


def seal_1_3(suite: Suite) -> Seal:
    key, iv = schedule.traffic_keys(suite, SECRET[:32] if suite.hash == "sha256" else SECRET)
    cipher = aead(suite, key)

    def seal(sequence: int, data: bytes) -> bytes:
        header = b"\x17\x03\x03" + (len(data) + 1 + suite.tag_bytes).to_bytes(2, "big")
        nonce = (int.from_bytes(iv, "big") ^ sequence).to_bytes(12, "big")
        return header + bytes(cipher.encrypt(nonce, data + b"\x17", header))

    return seal


def seal_1_2(suite: Suite) -> Seal:
    keys = schedule.key_block(0x0303, suite, SECRET, SERVER_RANDOM + CLIENT_RANDOM, client=False)
    mac_key, key, iv = keys
    cipher = None if suite.mode == CBC else aead(suite, key)

    def seal(sequence: int, data: bytes) -> bytes:
        number = sequence.to_bytes(8, "big")
        additional = number + b"\x17\x03\x03" + len(data).to_bytes(2, "big")
        if cipher is None:
            first = os.urandom(16)
            padder = padding.PKCS7(128).padder()
            plain = padder.update(data + hmac.digest(mac_key, additional + data, suite.mac)) + b""
            plain += padder.finalize()
            filled = plain[-1] - 1
            plain = plain[: -plain[-1]] + bytes((filled,)) * (filled + 1)
            encryptor = Cipher(algorithms.AES(key), modes.CBC(first)).encryptor()
            body = first + encryptor.update(plain)
        elif suite.mode == CHACHA:
            nonce = (int.from_bytes(iv, "big") ^ sequence).to_bytes(12, "big")
            body = cipher.encrypt(nonce, data, additional)
        else:
            body = number + cipher.encrypt(iv + number, data, additional)
        return b"\x17\x03\x03" + vector(2, body)

    return seal


def session(suite: Suite) -> Session:
    """One that waits for the server's first record of application data."""
    keys = KeyLog()
    modern = suite.code >> 8 == 0x13
    secret = SECRET[:32] if modern and suite.hash == "sha256" else SECRET
    label = "SERVER_TRAFFIC_SECRET_0" if modern else "CLIENT_RANDOM"
    keys.add(f"{label} {CLIENT_RANDOM.hex()} {secret.hex()}\n".encode())
    found = Session(keys)
    client, server = hellos(suite)
    found.take(0, client)
    found.take(1, server)
    found.take(1, b"\x14\x03\x03\0\1\1")
    return found


def rates(suite: Suite, size: int) -> tuple[float, float]:
    """Records a second, the best of five times each: of `take`, and of the cipher alone (0 for CBC)."""
    modern = suite.code >> 8 == 0x13
    seal = seal_1_3(suite) if modern else seal_1_2(suite)
    count = min(MOST, BYTES // size)
    records = [seal(number, bytes(size)) for number in range(count)]
    best, alone = float("inf"), float("inf")
    for _ in range(5):
        take = session(suite).take
        start = time.process_time()
        for record in records:
            take(1, record)
        best = min(best, time.process_time() - start)
        assert take(1, seal(count, b"last")) == b"last"
        if suite.mode != CBC:
            alone = min(alone, cipher_alone(suite, size + modern, count))
    return count / best, count / alone


def cipher_alone(suite: Suite, size: int, count: int) -> float:
    """Seconds that the package takes to open a record of that many bytes again and again."""
    cipher, nonce, additional = aead(suite, bytes(suite.key_bytes)), bytes(12), bytes(5)
    sealed = cipher.encrypt(nonce, bytes(size), additional)
    decrypt = cipher.decrypt
    start = time.process_time()
    for _ in range(count):
        decrypt(nonce, sealed, additional)
    return time.process_time() - start


def main() -> None:
    print(f"{'':44}{'bytes':>8}{'records/s':>12}{'GB/s':>8}{'cipher alone':>14}{'ratio':>8}")
    for code in CODES:
        for size in SIZES:
            opened, alone = rates(SUITES[code], size)
            shown = f"{alone:14,.0f}{opened / alone:8.2f}" if alone else ""
            print(
                f"{SUITES[code].name:44}{size:8,}{opened:12,.0f}{opened * size / 1e9:8.2f}{shown}", flush=True
            )


if __name__ == "__main__":
    main()
