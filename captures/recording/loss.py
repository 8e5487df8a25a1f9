"""Packets that a receiver loses although they were captured: what the sender's side of a bad network shows.

The loopback interface hands a packet to the capture first and to the rules of the input hook after it, so a
packet dropped there is in the recording and never reaches its socket.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

TABLE = "recorded_loss"
ANALYSED = (
    "tcp.analysis.retransmission or tcp.analysis.fast_retransmission or tcp.analysis.spurious_retransmission"
)


@contextlib.contextmanager
def losing(every: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """Drop one of so many packets that match (`{"tcp dport 9092": 20}`) while the body runs.

    What it gives is filled at the end: `lost`, packets dropped by match, and `sent_again`, TCP segments that
    the kernel says it sent again in this network namespace.
    """
    network: dict[str, Any] = {}
    if not every:
        yield network
        return
    before = _sent_again()
    _nft(f"add table inet {TABLE}")
    try:
        _nft(f"add chain inet {TABLE} input {{ type filter hook input priority 0; }}")
        for match, number in every.items():
            _nft(f"add rule inet {TABLE} input {match} numgen inc mod {number} 7 counter drop")
        yield network
        network["lost"] = dict(zip(every, _dropped(), strict=True))
        network["sent_again"] = _sent_again() - before
    finally:
        _nft(f"delete table inet {TABLE}")


def analysed(path: Path, ports: Sequence[int]) -> dict[str, list[int]]:
    """Numbers of the packets that tshark takes for sent again: those with data by the side that sent them, and
    those without (SYN, FIN)."""
    fields = ["-T", "fields", "-e", "frame.number", "-e", "tcp.dstport", "-e", "tcp.len"]
    done = subprocess.run(
        ["tshark", "-n", "-r", str(path), "-Y", ANALYSED, *fields], check=True, capture_output=True, text=True
    )
    sides: dict[str, list[int]] = {"client": [], "broker": [], "empty": []}
    for line in done.stdout.splitlines():
        number, port, size = map(int, line.split())
        sides["empty" if not size else "client" if port in ports else "broker"].append(number)
    return sides


def _dropped() -> list[int]:
    command = ["nft", "-j", "list", "chain", "inet", TABLE, "input"]
    listed = subprocess.run(command, check=True, capture_output=True)
    rules = [each["rule"]["expr"] for each in json.loads(listed.stdout)["nftables"] if "rule" in each]
    return [part["counter"]["packets"] for rule in rules for part in rule if "counter" in part]


def _sent_again() -> int:
    names, values = [
        line.split()[1:]
        for line in Path("/proc/net/snmp").read_text().splitlines()
        if line.startswith("Tcp:")
    ]
    return int(dict(zip(names, values, strict=True))["RetransSegs"])


def _nft(command: str) -> None:
    subprocess.run(["nft", command], check=True, capture_output=True)
