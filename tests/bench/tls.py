"""How fast TLS is read: `python -m tests.bench.tls [--cache FOLDER] [--out FILE]`.

Records and bytes a second by suite: the bytes are those of the plaintext; the time is that of `Session.take`,
the call included, on one core. And CPU seconds for the recorded cluster of small calls in plaintext, and as
OpenSSL encrypts it segment by segment: with its keys, beside tshark with the same ones, and without.
"""

from __future__ import annotations

import argparse
import hmac
import itertools
import json
import os
import ssl
import struct
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import padding
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config
from kwsniff.tls import schedule
from kwsniff.tls.decrypter import Session
from kwsniff.tls.hellos import SUPPORTED_VERSIONS
from kwsniff.tls.keylog import KeyLog
from kwsniff.tls.protection import aead
from kwsniff.tls.suites import CBC, CHACHA, SUITES, TLS_1_3, Suite
from tests.bench.measure import CACHE, Run, machine, measured, record, say
from tests.tls.wrapped import wrapped

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
        for sealed_one in records:
            take(1, sealed_one)
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


def suites() -> Iterator[str]:
    """A table of rates."""
    yield "| suite | bytes | records/s | GB/s | of the cipher alone |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for code in CODES:
        for size in SIZES:
            opened, alone = rates(SUITES[code], size)
            ratio = f"{opened / alone:.2f}" if alone else ""
            yield f"| {SUITES[code].name} | {size:,} | {opened:,.0f} | {opened * size / 1e9:.2f} | {ratio} |"


# A capture

PACKETS = 400_000
"""Of the recorded cluster."""
ROUNDS = 3
MAGIC, RAW_IPV4 = 0xA1B23C4D, 228
Row = dict[str, Any]


def write(path: Path, rows: Iterable[Row]) -> None:
    """Segments of IPv4 as a pcap file."""
    with path.open("wb") as file:
        file.write(struct.pack("<IHHiIII", MAGIC, 2, 4, 0, 0, 1 << 18, RAW_IPV4))
        for row in rows:
            payload = row["payload"]
            seconds, fraction = divmod(row["time"], 1_000_000_000)
            size = 40 + len(payload)
            ends = [row[name] & 0xFFFFFFFF for name in ("src_lo", "dst_lo")]
            file.write(struct.pack("<IIII", seconds, fraction, size, size))
            file.write(struct.pack(">BBHHHBBHII", 0x45, 0, size, 0, 0x4000, 64, 6, 0, *ends))
            numbers = (row[name] for name in ("src_port", "dst_port", "seq", "ack"))
            file.write(struct.pack(">HHIIBBHHH", *numbers, 0x50, row["flags"] & 0xFF, 65535, 0, 0))
            file.write(payload)


def sealed(folder: Path) -> tuple[Path, Path, Path]:
    """The cluster in plaintext, over TLS 1.3, and the keys, made if they are not there."""
    plain, secret, keys = (folder / f"chatty-{name}" for name in ("plain.pcap", "tls.pcap", "tls.keys"))
    if not secret.exists():
        record(("chatty",), folder)
        batches = segments([str(folder / "chatty.pcap")], Config(), CaptureTotals())
        rows = [row for batch in batches for row in batch.to_pylist() if row["anomaly"] is None]
        rows = rows[:PACKETS]
        keys.unlink(missing_ok=True)
        write(secret, wrapped(rows, folder, keys, ssl.TLSVersion.TLSv1_3))
        write(plain, rows)
    return plain, secret, keys


def captures(folder: Path) -> Iterator[str]:
    """A table of CPU seconds: of kwsniff the least of some rounds."""
    plain, secret, keys = sealed(folder)
    ports = json.loads((folder / "chatty.json").read_text())["ports"]
    own = [sys.executable, "-m", "kwsniff", "decode", "-q", "-f", "parquet", "-o", os.devnull, "-j", "1"]
    own += ["--port", ",".join(map(str, ports))]
    runs = {"plaintext": [*own, str(plain)], "TLS with keys": [*own, str(secret), "--keylog", str(keys)],
            "TLS without keys": [*own, str(secret)]}  # fmt: skip
    best: dict[str, Run] = {}
    for name, command in itertools.chain.from_iterable(itertools.repeat(list(runs.items()), ROUNDS)):
        run = measured(command)
        best[name] = min(run, best.get(name, run), key=lambda each: each.cpu)
    decode = [
        part for port in ports for part in ("-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},kafka")
    ]
    fields = [part for name in ("request_key", "correlation_id") for part in ("-e", f"kafka.{name}")]
    tshark = ["tshark", "-n", "-r", str(secret), "-o", f"tls.keylog_file:{keys}", *decode]
    best["tshark with keys"] = measured([*tshark, "-Y", "kafka", "-T", "fields", *fields])
    yield f"| {PACKETS:,} packets of small calls | CPU s | times plaintext |"
    yield "| --- | ---: | ---: |"
    for name, run in best.items():
        yield f"| {name} | {run.cpu:.2f} | {run.cpu / best['plaintext'].cpu:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--cache", type=Path, default=CACHE)
    parser.add_argument("--out", type=Path)
    choice = parser.parse_args()
    lines = [f"On {time.strftime('%Y-%m-%d')}: {machine()}.", "", *captures(choice.cache), "", *suites()]
    say(lines, choice.out, "measured of TLS")


if __name__ == "__main__":
    main()
