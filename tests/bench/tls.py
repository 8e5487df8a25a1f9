"""How fast records of TLS are opened: `python -m tests.bench.tls` prints records and bytes a second by suite.

The bytes are those of the records; the time is that of `Session.take`, the call included, on one core.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from kwsniff.tls import schedule
from kwsniff.tls.hellos import SUPPORTED_VERSIONS
from kwsniff.tls.keylog import KeyLog
from kwsniff.tls.protection import aead
from kwsniff.tls.session import Session
from kwsniff.tls.suites import CBC, CHACHA, SUITES, TLS_1_3, Suite

SIZES = (64, 200, 1024, 16_384)
BYTES = 48 << 20
MOST = 100_000
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
            import hmac

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


def rate(suite: Suite, size: int, view: bool) -> float:
    """Records a second, the best of three times."""
    seal = seal_1_3(suite) if suite.code >> 8 == 0x13 else seal_1_2(suite)
    records: list[bytes | memoryview] = [
        memoryview(record) if view else record
        for record in (seal(number, bytes(size)) for number in range(min(MOST, BYTES // size)))
    ]
    best = float("inf")
    for _ in range(3):
        take = session(suite).take
        start = time.perf_counter()
        for record in records:
            take(1, record)
        best = min(best, time.perf_counter() - start)
        assert take(1, seal(len(records), b"last")) == b"last"
    return len(records) / best


def main() -> None:
    print(f"{'':42}{'bytes':>8}{'records/s':>12}{'GB/s':>8}{'of views':>12}{'GB/s':>8}")
    for code in CODES:
        for size in SIZES:
            rates = [rate(SUITES[code], size, view) for view in (False, True)]
            shown = (f"{each:12,.0f}{each * size / 1e9:8.2f}" for each in rates)
            print(f"{SUITES[code].name:42}{size:8,}{''.join(shown)}", flush=True)


if __name__ == "__main__":
    main()
