"""`kwsniff live` beside tcpdump, with real clients, in a network namespace of its own."""

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
Row = dict[str, Any]


def scenario(folder: Path, *given: object, what: str = "talk") -> Row:
    """What `tests.live.scenario` says."""
    command = [sys.executable, "-m", "tests.live.scenario", what, str(folder), *map(str, given)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told: Row = json.loads(done.stdout)
    return told


def calls(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    picked = [row for row in rows if row.get("event") == "call"]
    return Counter(tuple(str(row.get(name)) for name in SAME) for row in picked)


def decoded(path: Path, ports: str) -> list[Row]:
    command = [sys.executable, "-m", "kwsniff", "decode", "-q", "-f", "jsonl", "--port", ports, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


def lines(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_live_calls_are_those_that_tcpdump_recorded_at_the_same_time(tmp_path: Path) -> None:
    kept = tmp_path / "kept.pcapng"
    told = scenario(tmp_path, 6, "-i", "lo", "-f", "jsonl", "--port", "PORTS", "-w", str(kept))
    assert told["exit"] == 0
    assert told["ended_in"] < 5
    assert told["received"] > 500
    live = lines(tmp_path / "live.out")
    assert len(calls(live)) > 100
    assert calls(live) == calls(decoded(tmp_path / "tcpdump.pcap", told["ports"]))
    assert calls(live) == calls(decoded(kept, told["ports"]))
    assert {row["capture"] for row in live} == {"lo"}
    assert "dropped" not in (tmp_path / "live.err").read_text()
    latencies = [row["latency_us"] for row in live if row.get("latency_us") is not None]
    assert 0 < sorted(latencies)[len(latencies) // 2] < 1e6


def test_any_finds_kafka_on_whatever_port_without_being_told(tmp_path: Path) -> None:
    told = scenario(tmp_path, 4, "-f", "jsonl", "-w", str(tmp_path / "all.pcapng"), "--all-packets")
    live = calls(lines(tmp_path / "live.out"))
    assert live == calls(decoded(tmp_path / "tcpdump.pcap", told["ports"]))
    assert len(live) > 50


def test_a_count_ends_it_and_leaves_whole_lines(tmp_path: Path) -> None:
    told = scenario(tmp_path, 4, "-i", "lo", "-f", "csv", "-c", "25", "--columns", "api,correlation_id")
    assert told["exit"] == 0
    written = (tmp_path / "live.out").read_text().splitlines()
    assert written[0] == '"api","correlation_id"'
    assert len(written) == 26


def test_as_another_user_it_goes_on_listening(tmp_path: Path) -> None:
    told = scenario(tmp_path, 4, "-i", "lo", "-f", "jsonl", "--user", "nobody", "--where", 'event == "call"')
    assert told["exit"] == 0
    assert len(lines(tmp_path / "live.out")) > 50
