"""What `kwsniff extract` writes of encrypted connections: Wireshark reads the calls where that was asked for,
and nobody where it was not."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from kwsniff.analysis.extract import NEEDS, choose, copy
from kwsniff.capture.source import blocks
from kwsniff.config import Config
from tests.analysis.conftest import Ended
from tests.capture.files import START, ng_secrets, pcapng
from tests.samples import CAPTURES

CLIENT, BROKER, PORT = "10.0.0.1", "10.0.0.2", 443
"""HTTP, which tshark looks for on this port, stands for Kafka: it is the packets that count."""
REQUESTS = 3


class Recording:
    """Packets of connections, a millisecond apart."""

    def __init__(self) -> None:
        self.packets: list[tuple[int, bytes]] = []
        self.seq = dict[tuple[int, int], int]()

    def send(self, source: int, target: int, flags: str, payload: bytes = b"") -> int:
        """A segment between two ports; its number."""
        ends = {PORT: BROKER}
        ip = IP(src=ends.get(source, CLIENT), dst=ends.get(target, CLIENT))
        seq, ack = self.seq.setdefault((source, target), 1000), self.seq.get((target, source), 0)
        tcp = TCP(sport=source, dport=target, flags=flags, seq=seq, ack=ack)
        time = START + len(self.packets) * 1_000_000
        self.packets.append((time, bytes(Ether(src="02:00:00:00:00:01") / ip / tcp / payload)))
        self.seq[source, target] = seq + len(payload) + ("S" in flags)
        return len(self.packets)

    def connection(self, port: int, folder: Path, keys: Path) -> list[dict[str, Any]]:
        """A connection from this port with some requests, and where these are."""
        self.send(port, PORT, "S")
        self.send(PORT, port, "SA")
        self.send(port, PORT, "A")
        client_context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client_context.check_hostname, client_context.verify_mode = False, ssl.CERT_NONE
        client_context.keylog_filename = str(keys)
        server_context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server_context.load_cert_chain(folder / "cert.pem", folder / "key.pem")
        up, down, up_in, down_in = (ssl.MemoryBIO() for _ in range(4))
        client = client_context.wrap_bio(down_in, up)
        server = server_context.wrap_bio(up_in, down, server_side=True)

        def carry() -> tuple[int, int]:
            """What either side has written; the last packet of each direction."""
            last = [0, 0]
            for at, (out, into, ends) in enumerate(
                ((up, up_in, (port, PORT)), (down, down_in, (PORT, port)))
            ):
                if data := out.read():
                    into.write(data)
                    last[at] = self.send(*ends, "PA", data)
            return last[0], last[1]

        for _ in range(4):
            for side in (client, server):
                with suppress(ssl.SSLWantReadError):
                    side.do_handshake()
            carry()
        calls = []
        for number in range(REQUESTS):
            client.write(f"GET /{port}/{number} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            request, _ = carry()
            server.read()
            server.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            _, response = carry()
            client.read()
            calls.append(self.call(port, number, request, response))
        return calls

    def call(self, port: int, number: int, request: int, response: int) -> dict[str, Any]:
        row = dict.fromkeys(NEEDS) | {
            "api": "Fetch",
            "api_version": 12,
            "correlation_id": number,
            "status": "ok",
        }
        row |= {"client_ip": CLIENT, "client_port": port, "broker_ip": BROKER, "broker_port": PORT}
        for name, packet in (("request", request), ("response", response)):
            moment = datetime.fromtimestamp(self.packets[packet - 1][0] / 1e9, UTC)
            row |= {f"{name}_time": moment, f"{name}_end_time": moment, f"{name}_packet": packet}
        return row


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("certificate")
    names = ["-keyout", str(made / "key.pem"), "-out", str(made / "cert.pem"), "-subj", "/CN=x"]
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return made


def asked(path: Path) -> list[str]:
    """The requests that tshark reads."""
    command = ["tshark", "-r", str(path), "-Y", "http.request", "-T", "fields", "-e", "http.request.uri"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.tshark
@pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed")
@pytest.mark.parametrize("beside", [False, True], ids=["secrets in the capture", "key log beside it"])
def test_tshark_reads_the_calls_that_were_asked_for_and_those_before_them(
    beside: bool, folder: Path, tmp_path: Path
) -> None:
    recording, keys = Recording(), tmp_path / "keys"
    calls = recording.connection(50_001, folder, keys)
    recording.connection(50_002, folder, keys)
    path, out = tmp_path / "tls.pcapng", tmp_path / "out.pcapng"
    for row in calls:
        row["capture"] = str(path)
    path.write_bytes(pcapng(recording.packets) + (b"" if beside else ng_secrets(keys.read_bytes())))
    config = Config(keylog=str(keys) if beside else None)

    chosen = choose([str(path)], calls[1:2], config, readable=True)
    with out.open("wb") as stream:
        copy([str(path)], chosen, stream)
    assert asked(out) == ["/50001/0", "/50001/1"]
    assert chosen.readable == 1
    # Of the other connection there is nothing, not even what would read it.
    lines = b"".join(each.secrets for each in blocks(out)).splitlines()
    assert set(lines) < set(keys.read_bytes().splitlines())
    assert len({line.split()[1] for line in lines}) == 1

    plain = choose([str(path)], calls[1:2], config)
    stream = BytesIO()
    copy([str(path)], plain, stream)
    out.write_bytes(stream.getvalue())
    assert b"".join(each.secrets for each in blocks(out)) == b""
    assert len(plain) == 5  # the handshake of TCP and the call
    assert asked(out) == []


@pytest.mark.parametrize("more", [(), ("--write-secrets",)])
def test_secrets_of_no_connection_are_never_written(
    more: tuple[str, ...], kwsniff: Callable[..., Ended], tmp_path: Path
) -> None:
    path, out = tmp_path / "in.pcapng", tmp_path / "out.pcapng"
    secret = b"CLIENT_RANDOM " + b"ab" * 32 + b" " + b"cd" * 48
    path.write_bytes((CAPTURES / "librdkafka-produce.pcapng").read_bytes() + ng_secrets(secret))
    ended = kwsniff("extract", str(path), "--top", "1", "-o", str(out), *more)
    assert ended.code == 0, ended.err
    assert secret[14:] not in out.read_bytes()
    assert ("with secrets of 0 connections" in ended.err) is bool(more)
