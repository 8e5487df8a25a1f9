"""What tshark decrypts of a capture, as a witness that shares nothing with ours.

Tests that use it carry `NEEDED`: pytest selects them with `-m tshark`, and skips them where there is no tshark.
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
"""For `pytestmark`, or `@pytest.mark.usefixtures`-like use on one test with `*`."""

FOLLOWED = re.compile(
    r"^Filter: tcp\.stream eq (\d+)\nNode 0: (\S+)\nNode 1: (\S+)\n((?:\t?[0-9a-f]+\n)*)", re.MULTILINE
)
FIELDS = ("tcp.stream", "frame.number", "tcp.srcport", "tcp.dstport")
MESSAGE = ("kafka.correlation_id", "kafka.request_key", "kafka.request.version")


class Conversation(NamedTuple):
    """The plaintext of one TLS connection, and its ends as `address:port`."""

    client: str
    broker: str
    sent: bytes
    """From the client."""
    received: bytes
    """By the client."""


class Request(NamedTuple):
    """A request inside TLS, by the packet that its last byte came in."""

    client_port: int
    packet: int
    correlation_id: int
    api_key: int
    api_version: int


def conversations(path: str | Path, keys: str | Path | None = None) -> dict[int, Conversation]:
    """What tshark decrypts of each TLS connection, by its number of the TCP stream; `keys` is a key log, which
    secrets in the capture itself do without. Connections of which nothing is decrypted are left out."""
    encrypted = sorted({int(row[0]) for row in _rows(path, keys, (), "tls", ("tcp.stream",))})
    follow = [part for stream in encrypted for part in ("-z", f"follow,tls,raw,{stream}")]
    found = {}
    for stream, client, broker, text in FOLLOWED.findall(_run(path, keys, (), ["-q", *follow])):
        lines = text.splitlines()
        sent = bytes.fromhex("".join(line for line in lines if not line.startswith("\t")))
        received = bytes.fromhex("".join(line[1:] for line in lines if line.startswith("\t")))
        if sent or received:
            found[int(stream)] = Conversation(client, broker, sent, received)
    return found


def requests(path: str | Path, ports: Iterable[int], keys: str | Path | None = None) -> Iterator[Request]:
    """The Kafka requests that tshark finds inside of TLS to these ports."""
    for row in _rows(path, keys, [*ports], "tls && kafka.request_key", (*FIELDS, *MESSAGE)):
        _, packet, client, _, *columns = row
        for values in zip(*(column.split(",") for column in columns), strict=True):
            yield Request(int(client), int(packet), *(int(value, 0) for value in values))


def responses(
    path: str | Path, ports: Iterable[int], keys: str | Path | None = None
) -> Iterator[tuple[int, int, int]]:
    """Port of the client, packet, correlation id of the Kafka responses that tshark finds inside of TLS."""
    chosen = "tls && kafka.correlation_id && !kafka.request_key"
    for _, packet, _, client, ids in _rows(path, keys, [*ports], chosen, (*FIELDS, MESSAGE[0])):
        for each in ids.split(","):
            yield int(client), int(packet), int(each)


def _rows(
    path: str | Path, keys: str | Path | None, ports: Sequence[int], chosen: str, fields: Iterable[str]
) -> Iterator[list[str]]:
    asked = [part for name in fields for part in ("-e", name)]
    for line in _run(path, keys, ports, ["-Y", chosen, "-T", "fields", *asked]).splitlines():
        yield line.split("\t")


def _run(path: str | Path, keys: str | Path | None, ports: Sequence[int], more: Sequence[str]) -> str:
    """Two passes, so that what is reassembled is known at its first packet."""
    told = ["-o", f"tls.keylog_file:{keys}"] if keys else []
    for port in ports:
        told += ["-d", f"tcp.port=={port},tls", "-d", f"tls.port=={port},kafka"]
    command = ["tshark", "-n", "-2", "-r", str(path), *told, *more]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
