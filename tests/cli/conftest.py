"""What the tests of the command line share: a run in this process, and a run as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli import stand_in
from tests.invoked import Ended, invoker

ROOT = Path(__file__).parents[2]
ENDS = {"client_ip": "10.0.0.5", "client_port": 50123, "broker_ip": "10.0.0.9", "broker_port": 9092}


def call(**columns: Any) -> dict[str, Any]:
    """A call row as a capture would give it, with `columns` in place of its own."""
    row: dict[str, Any] = {
        "event": "call",
        "capture": "a.pcap",
        "connection": "c1",
        **ENDS,
        "api_key": 3,
        "api": "Metadata",
        "api_version": 12,
        "correlation_id": 7,
        "client_id": "app-1",
        "request_time": "2026-01-31T12:00:00.000001+00:00",
        "request_end_time": "2026-01-31T12:00:00.000001+00:00",
        "response_time": "2026-01-31T12:00:00.001501+00:00",
        "response_end_time": "2026-01-31T12:00:00.001501+00:00",
        "latency_us": 1500.25,
        "duration_us": 1500.25,
        "request_bytes": 40,
        "response_bytes": 400,
        "request_packet": 4,
        "response_packet": 6,
        "status": "ok",
        "error_code": 0,
        "error_count": 0,
    }
    return row | columns


def anomaly(code: str, **columns: Any) -> dict[str, Any]:
    return {
        "event": "anomaly",
        "capture": "a.pcap",
        "code": code,
        "detail": "in words",
        "packet": 9,
        **columns,
    }


def connection(**columns: Any) -> dict[str, Any]:
    row = {"event": "connection", "capture": "a.pcap", "connection": "c1", **ENDS, "security": "plaintext"}
    times = {"first_time": "2026-01-31T12:00:00+00:00", "last_time": "2026-01-31T12:00:01+00:00"}
    counts = {"client_packets": 5, "broker_packets": 4, "client_bytes": 200, "broker_bytes": 5000}
    return {**row, **times, **counts, "syn": True, "fin": True, "rst": False, **columns}


@pytest.fixture
def capture(tmp_path: Path) -> Callable[..., str]:
    """Writes rows as a stand-in capture and returns its path."""

    def write(*rows: dict[str, Any], name: str = "events.jsonl") -> str:
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return write


@pytest.fixture
def kwsniff(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Ended]:
    """Runs the command line in this process over stand-in captures."""
    monkeypatch.setattr("kwsniff.cli.telling.events", stand_in.events)
    return invoker(capfdbinary)


Said = Callable[..., subprocess.CompletedProcess[bytes]]


@pytest.fixture
def said(capfdbinary: pytest.CaptureFixture[bytes]) -> Said:
    """Runs the command line in this process, over real captures."""
    from kwsniff.cli.running import run

    def invoke(*arguments: str) -> subprocess.CompletedProcess[bytes]:
        code = run(arguments)
        sys.stdout.flush()
        return subprocess.CompletedProcess(arguments, code, *capfdbinary.readouterr())

    return invoke


def process(*arguments: str, module: str | None = None, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Runs kwsniff as a process, over stand-in captures unless `module` names what to run."""
    program = ["-m", module] if module else [str(ROOT / "tests/cli/stand_in.py")]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), **options.pop("env", {})}
    options.setdefault("stdout", subprocess.PIPE)
    command = [sys.executable, "-W", "error", *program, *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, timeout=60, check=False, **options
    )
