"""Following what tcpdump and dumpcap really do when they rotate."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.root

SAME = (
    *("api", "api_version", "correlation_id", "client_id", "client_port", "broker_port", "status", "error"),
    *("request_bytes", "response_bytes", "topics", "record_count", "in_flight", "software_name"),
)
WRITERS = {
    "tcpdump by time": "tcpdump -i lo -Z root -U -B 16384 -G 1 -w t-%s.pcap tcp",
    "tcpdump by time, compressing": "tcpdump -i lo -Z root -U -B 16384 -G 1 -z gzip -w t-%s.pcap tcp",
    "tcpdump by time with a buffer": "tcpdump -i lo -Z root -B 16384 -G 1 -w t-%s.pcap tcp",
    "tcpdump in a ring": "tcpdump -i lo -Z root -U -B 16384 -C 1 -W 2 -w ring.pcap tcp",
    "dumpcap by packets": "dumpcap -q -i lo -B 16 -f tcp -b packets:400 -w d.pcapng",
}


def calls(rows: list[dict[str, Any]]) -> Counter[tuple[str, ...]]:
    picked = [row for row in rows if row["event"] == "call"]
    return Counter(tuple(str(row.get(name)) for name in SAME) for row in picked)


def decoded(ports: str, *paths: Path) -> list[dict[str, Any]]:
    command = [
        sys.executable,
        "-m",
        "kwsniff",
        "decode",
        "-q",
        "-f",
        "jsonl",
        "--port",
        ports,
        *map(str, paths),
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("writer", WRITERS)
def test_followed_calls_are_those_of_a_capture_in_one_file(writer: str, tmp_path: Path) -> None:
    seconds = "12" if "ring" in writer else "5"
    script = [sys.executable, "-m", "tests.capture.rotating", str(tmp_path), seconds]
    done = subprocess.run(
        [*script, *WRITERS[writer].split()], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    ports = done.stdout.strip()
    whole = calls(decoded(ports, tmp_path / "whole.pcap"))
    followed = [json.loads(line) for line in (tmp_path / "followed.jsonl").read_text().splitlines()]
    assert whole.total() > 100
    assert calls(followed) == whole
    if "ring" in writer:
        left = calls(decoded(ports, tmp_path / "rotating"))
        assert left.total() < whole.total(), "its files were used again"
    else:
        assert len({row["capture"] for row in followed}) > 2, "it rotated"
