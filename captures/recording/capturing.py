"""One recording: tcpdump or dumpcap around a running client, bounded in time, packets and bytes.

The capture is ended with SIGINT after the clients are done and the last packets had time to arrive; should
that fail, its own limits end it. A recording with packets dropped by the kernel is refused.
"""

from __future__ import annotations

import contextlib
import csv
import gzip
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

MAX_SECONDS = 180
MAX_PACKETS = 20000
SETTLE_SECONDS = 0.7
TSHARK_FIELDS = (
    "frame.number",
    "tcp.stream",
    "ip.src",
    "ipv6.src",
    "tcp.srcport",
    "tcp.dstport",
    "kafka.len",
    "kafka.correlation_id",
    "kafka.request_key",
    "kafka.request.version",
    "kafka.response_key",
    "kafka.response.version",
    "kafka.client_id",
    "kafka.request_frame",
    "kafka.response_frame",
    "_ws.malformed",
)


def port_filter(ports: Sequence[int]) -> str:
    """Return the capture filter for loopback traffic of these TCP ports."""
    wanted = " or ".join(f"tcp port {port}" for port in ports)
    return f"({wanted}) and (net 127.0.0.0/8 or host ::1)"


def tcpdump(path: Path, interface: str, ports: Sequence[int], snaplen: int | None) -> list[str]:
    """Return the tcpdump command line, which writes pcap."""
    command = ["tcpdump", "-Z", "root", "-n", "-U", "-B", "8192", "-i", interface, "-c", str(MAX_PACKETS)]
    if snaplen:
        command += ["-s", str(snaplen)]
    return [*command, "-w", str(path), port_filter(ports)]


def dumpcap(path: Path, interface: str, ports: Sequence[int], snaplen: int | None, rotate: str) -> list[str]:
    """Return the dumpcap command line, which writes pcapng; `rotate` is a ring buffer condition or empty."""
    limits = ["-a", f"duration:{MAX_SECONDS}", "-B", "8", "-q"]
    # -c counts a file's packets, not the recording's, and may not be mixed with a rotation.
    limits += ["-b", rotate, "-a", "files:20"] if rotate else ["-c", str(MAX_PACKETS)]
    if snaplen:
        limits += ["-s", str(snaplen)]
    return ["dumpcap", "-i", interface, *limits, "-w", str(path), "-f", port_filter(ports)]


@contextlib.contextmanager
def capturing(command: Sequence[str], log: Path) -> Iterator[None]:
    """Capture while the body runs. Raises RuntimeError when it did not start or lost packets."""
    with log.open("wb") as out:
        process = subprocess.Popen(["timeout", "-s", "INT", str(MAX_SECONDS), *command], stderr=out)
    try:
        _await_start(process, log)
        yield
        time.sleep(SETTLE_SECONDS)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        process.wait(20)
    text = log.read_text(errors="replace")
    dropped = re.search(
        r"([1-9]\d*) packets dropped by kernel|dropped on interface '[^']+': \d+/([1-9]\d*)", text
    )
    if dropped:
        raise RuntimeError(f"the kernel dropped packets: {dropped.group(0)}")


def _await_start(process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 10
    while not re.search(r"listening on|Capturing on", log.read_text(errors="replace")):
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"the capture did not start: {log.read_text(errors='replace').strip()}")
        time.sleep(0.05)
    time.sleep(0.3)


def compress(path: Path, how: str) -> Path:
    """Compress a capture with `gz` or `zst` and return the new path."""
    target = path.with_name(f"{path.name}.{how}")
    tool = {"gz": ["gzip", "-9", "-n", "-f", "-k"], "zst": ["zstd", "-q", "-19", "-f"]}[how]
    subprocess.run([*tool, str(path)], check=True)
    path.unlink()
    return target


def packets(path: Path) -> int:
    """Return the number of packets that tshark reads from a capture."""
    done = subprocess.run(
        ["tshark", "-n", "-r", str(path), "-T", "fields", "-e", "frame.number"],
        check=True,
        capture_output=True,
    )
    return len(done.stdout.splitlines())


def dissection(ports: Sequence[int], encrypted: Sequence[int] = (), keys: Path | None = None) -> list[str]:
    """Return what tshark has to be told to find Kafka on these ports, on some of them inside TLS."""
    told = ["-o", f"tls.keylog_file:{keys}"] if keys else []
    for port in ports:
        inside = port in encrypted
        rules = (
            (f"tcp.port=={port},tls", f"tls.port=={port},kafka") if inside else (f"tcp.port=={port},kafka",)
        )
        told += [part for rule in rules for part in ("-d", rule)]
    return told


def tshark_table(path: Path, told: Sequence[str], target: Path) -> None:
    """Write what tshark sees of the Kafka messages, one row per frame, comma-joined where several meet."""
    command = ["tshark", "-n", "-r", str(path), *told, "-Y", "kafka", "-T", "fields"]
    for name in TSHARK_FIELDS:
        command += ["-e", name]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    with target.open("wb") as raw, gzip.GzipFile(fileobj=raw, mode="wb", mtime=0, filename="") as packed:
        lines = [TSHARK_FIELDS, *(line.split("\t") for line in done.stdout.splitlines())]
        text = Lines()
        csv.writer(text, lineterminator="\n").writerows(lines)
        packed.write("".join(text.parts).encode())


class Lines:
    """The part of a text file that the csv module wants."""

    def __init__(self) -> None:
        self.parts: list[str] = []

    def write(self, text: str) -> None:
        """Take one row."""
        self.parts.append(text)
