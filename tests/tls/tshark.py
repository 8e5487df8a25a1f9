"""What tshark decrypts of a capture, as a witness that shares nothing with ours.

Where there is no tshark, a test that asks it is skipped; `pytestmark = tshark.NEEDED` says so beforehand.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

NEEDED = [
    pytest.mark.tshark,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]

FOLLOWED = re.compile(
    r"^Filter: tcp\.stream eq (\d+)\nNode 0: (\S+)\nNode 1: (\S+)\n((?:\t?[0-9a-f]+\n)*)", re.MULTILINE
)
ENDS = ("frame.number", "tcp.srcport", "tcp.dstport")
REQUEST = ("kafka.correlation_id", "kafka.request_key", "kafka.request.version")


class Conversation(NamedTuple):
    """Plaintext of one TLS connection, and its ends as `address:port`."""

    client: str
    broker: str
    sent: bytes
    """From the client."""
    received: bytes
    """By the client."""


class Request(NamedTuple):
    """A request inside TLS, and the packet of its last byte."""

    client_port: int
    packet: int
    correlation_id: int
    api_key: int
    api_version: int


class Response(NamedTuple):
    """A response inside TLS, and the packet of its last byte."""

    client_port: int
    packet: int
    correlation_id: int


def conversations(path: str | Path, keys: str | Path | None = None) -> dict[int, Conversation]:
    """What tshark decrypts of each TLS connection, by the number that it gives the TCP stream.

    `keys` is a key log; secrets in the capture itself need none. Connections of which nothing is decrypted
    are left out.
    """
    streams = sorted({int(row[0]) for row in _rows(path, keys, (), "tls", ("tcp.stream",))})
    follow = [part for stream in streams for part in ("-z", f"follow,tls,raw,{stream}")]
    found = {}
    for stream, client, broker, text in FOLLOWED.findall(_run(path, keys, (), ["-q", *follow])):
        lines = text.splitlines()
        sent = bytes.fromhex("".join(line for line in lines if not line.startswith("\t")))
        received = bytes.fromhex("".join(line for line in lines if line.startswith("\t")))
        if sent or received:
            found[int(stream)] = Conversation(client, broker, sent, received)
    return found


def requests(path: str | Path, ports: Iterable[int], keys: str | Path | None = None) -> Iterator[Request]:
    """Kafka requests that tshark finds inside of TLS on these ports of brokers."""
    for packet, client, _, *columns in _rows(path, keys, ports, "tls && kafka.request_key", ENDS + REQUEST):
        for values in zip(*(column.split(",") for column in columns), strict=True):
            yield Request(int(client), int(packet), *(int(value, 0) for value in values))


def responses(path: str | Path, ports: Iterable[int], keys: str | Path | None = None) -> Iterator[Response]:
    """Kafka responses that tshark finds inside of TLS on these ports of brokers."""
    chosen = "tls && kafka.correlation_id && !kafka.request_key"
    for packet, _, client, ids in _rows(path, keys, ports, chosen, (*ENDS, REQUEST[0])):
        for each in ids.split(","):
            yield Response(int(client), int(packet), int(each))


def _rows(
    path: str | Path, keys: str | Path | None, ports: Iterable[int], chosen: str, fields: Iterable[str]
) -> Iterator[list[str]]:
    asked = [part for name in fields for part in ("-e", name)]
    for line in _run(path, keys, ports, ["-Y", chosen, "-T", "fields", *asked]).splitlines():
        yield line.split("\t")


def _run(path: str | Path, keys: str | Path | None, ports: Iterable[int], more: Sequence[str]) -> str:
    if shutil.which("tshark") is None:
        pytest.skip("tshark is not installed")
    command = ["tshark", "-n", "-r", str(path), *more]
    command += ["-o", f"tls.keylog_file:{keys}"] if keys else []
    for port in ports:
        command += ["-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},kafka"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
