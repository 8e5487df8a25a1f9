"""What `kwsniff live` refuses before it listens, and how it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kwsniff.cli.live import filter_of
from kwsniff.cli.running import run

ALONE = """
import sys
from tests.bench import namespace
namespace.enter()
import os
os.execv(sys.executable, [sys.executable, "-m", "kwsniff", "live", *sys.argv[1:]])
"""


@pytest.mark.parametrize(
    ("ports", "bpf", "expected"),
    [
        (None, None, "tcp"),
        ("9092", None, "tcp port 9092"),
        ("9092,19092-19094", None, "tcp port 9092 or tcp portrange 19092-19094"),
        (None, "host 10.0.0.1", "host 10.0.0.1"),
        ("9092", "host 10.0.0.1", "(tcp port 9092) and (host 10.0.0.1)"),
    ],
)
def test_ports_and_filter_become_one_filter(ports: str | None, bpf: str | None, expected: str) -> None:
    assert filter_of(ports, bpf) == expected


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-i", "nosuch0"], "no interface 'nosuch0'; there are"),
        (["--port", "0"], "--port: '0' is outside"),
        (["-f", "parquet"], "-f: no format 'parquet'"),
        (["--columns", "api"], "--columns goes with -f csv or jsonl"),
        (["--rotate", "1h"], "go with -w"),
        (["-w", "x.pcapng", "--rotate", "often"], "--rotate: 'often' is neither a size"),
        (["--duration", "soon"], "--duration: 'soon' is no time"),
        (["--buffer", "much"], "--buffer: 'much' is no size"),
        (["--where", "api =="], "--where"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["live", *arguments]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert told.count("\n") == 1


def started(*arguments: str, wait: bool = True) -> subprocess.Popen[str]:
    """`kwsniff live` in a network namespace of its own."""
    process = subprocess.Popen(
        [sys.executable, "-c", ALONE, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    if wait:
        assert process.stderr is not None
        assert "listening on" in process.stderr.readline()
    return process


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_exit_code_0(number: signal.Signals, tmp_path: Path) -> None:
    kept = tmp_path / "kept.pcapng"
    process = started("-i", "lo", "-w", str(kept))
    process.send_signal(number)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "0 packets" in said
    assert kept.stat().st_size > 100


@pytest.mark.root
def test_a_duration_ends_it() -> None:
    process = started("--duration", "1")
    asked = time.monotonic()
    process.communicate(timeout=20)
    assert process.returncode == 0
    assert time.monotonic() - asked < 10


@pytest.mark.root
def test_an_interface_that_is_taken_away_ends_it_with_exit_code_0() -> None:
    process = started("-i", "lo")  # makes the namespace
    inside = ["nsenter", "--net", "--target", str(process.pid)]
    for command in (
        "ip link add veth7 type veth peer name veth8",
        "ip link set veth7 up",
        "ip link set veth8 up",
    ):
        subprocess.run([*inside, *command.split()], check=True)
    command = [*inside, sys.executable, "-m", "kwsniff", "live", "-i", "veth7"]
    other = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert other.stderr is not None
    assert "listening on veth7" in other.stderr.readline()
    subprocess.run([*inside, "ip", "link", "del", "veth7"], check=True)
    _, said = other.communicate(timeout=20)
    assert other.returncode == 0
    assert "veth7: the interface is gone" in said
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)


@pytest.mark.root
def test_without_the_right_one_line_names_the_capability() -> None:
    command = [
        "setpriv",
        "--bounding-set=-net_raw",
        "--inh-caps=-net_raw",
        sys.executable,
        "-m",
        "kwsniff",
        "live",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "CAP_NET_RAW" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.root
def test_a_filter_that_libpcap_refuses_is_one_line() -> None:
    process = started("-i", "lo", "--filter", "tcp prt 9092", wait=False)
    _, said = process.communicate(timeout=20)
    assert process.returncode == 2
    assert "--filter 'tcp prt 9092'" in said
    assert said.count("\n") == 1
