"""Captures that come or grow while they are read: pipes and `--follow`, as a process."""

from __future__ import annotations

import json
import os
import pty
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.conftest import ROOT, process

# `kwsniff decode -` and its like behind a program that captures: rows come as the packets do

SAMPLE = ROOT / "captures/librdkafka-groups.pcapng"
ENVIRONMENT = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}


class Fed:
    """A run of kwsniff and the pipe it reads."""

    def __init__(self, running: subprocess.Popen[bytes], descriptor: int) -> None:
        self.running = running
        self._descriptor = descriptor

    def write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._descriptor, data) :]

    def close(self) -> None:
        os.close(self._descriptor)
        self._descriptor = -1

    def ended(self) -> tuple[int, bytes, bytes]:
        if self._descriptor >= 0:
            self.close()
        out, err = self.running.communicate(timeout=60)
        return self.running.returncode, out, err


@contextmanager
def fed(tmp_path: Path, *arguments: str) -> Iterator[Fed]:
    """A run whose `-` is standard input and whose `FIFO` is a named pipe."""
    fifo = tmp_path / "fifo"
    given = [str(fifo) if each == "FIFO" else each for each in arguments]
    theirs = subprocess.PIPE if "-" in given else subprocess.DEVNULL
    if theirs == subprocess.DEVNULL:
        os.mkfifo(fifo)
    running = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "kwsniff", *given],
        cwd=ROOT, env=ENVIRONMENT, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
    )  # fmt: skip
    watchdog = threading.Timer(90, running.kill)
    watchdog.start()
    try:
        mine = os.dup(running.stdin.fileno()) if running.stdin else os.open(fifo, os.O_WRONLY)
        if running.stdin:
            running.stdin.close()
            running.stdin = None
        yield Fed(running, mine)
    finally:
        watchdog.cancel()
        running.kill()
        running.communicate()


@pytest.mark.one_of(3)
@pytest.mark.parametrize("form", ["csv", "jsonl", "text"])
@pytest.mark.parametrize("given", [["-"], ["FIFO"], ["--follow", "-"], ["--follow", "FIFO"]], ids=" ".join)
def test_rows_come_as_packets_come(form: str, given: list[str], tmp_path: Path) -> None:
    data = SAMPLE.read_bytes()
    columns = () if form == "text" else ("--columns", "connection,api,correlation_id,latency_us,status")
    with fed(tmp_path, "decode", "-q", "-f", form, *columns, *given) as run:
        run.write(data[:60_000])
        found = lines(run.running, 40)
        run.write(data[60_000:150_000])
        found += lines(run.running, 100)
        run.write(data[150_000:])
        code, out, err = run.ended()
        assert (code, err) == (0, b"")
    whole = process("decode", "-q", "-f", form, *columns, str(SAMPLE), module="kwsniff").stdout
    if form == "text":  # the connections' column is as wide as those seen so far
        assert len([*found, *out.splitlines()]) == whole.count(b"\n")
    else:
        assert sorted([*found, *out.splitlines(keepends=True)]) == sorted(whole.splitlines(keepends=True))


def test_a_row_comes_within_half_a_second_of_its_packet(tmp_path: Path) -> None:
    data = SAMPLE.read_bytes()
    with fed(tmp_path, "decode", "-q", "-f", "jsonl", "-") as run:
        run.write(data[:60_000])
        lines(run.running, 40)
        time.sleep(1.0)
        took = []
        for first in range(60_000, 150_000, 18_000):
            os.set_blocking(run.running.stdout.fileno(), False)  # type: ignore[union-attr]
            while run.running.stdout.read(1 << 20):  # type: ignore[union-attr]
                time.sleep(0.3)
            os.set_blocking(run.running.stdout.fileno(), True)  # type: ignore[union-attr]
            began = time.monotonic()
            run.write(data[first : first + 18_000])
            lines(run.running, 1)
            took.append(time.monotonic() - began)
    assert min(took) < 0.5  # the others may have had to share the processor


@pytest.mark.parametrize(
    ("given", "expected"), [(["-"], 130), (["--follow", "-"], 0)], ids=["-", "--follow -"]
)
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_all_that_came(
    how: signal.Signals, given: list[str], expected: int, tmp_path: Path
) -> None:
    with fed(tmp_path, "decode", "-f", "csv", *given) as run:
        run.write(SAMPLE.read_bytes()[:150_001])  # the last packet only in part
        lines(run.running, 100)
        run.running.send_signal(how)
        out, err = run.running.communicate(timeout=30)
    assert run.running.returncode == expected
    assert out.count(b'"connection"') > 1  # what was open ended
    assert b"frames decoded" in err
    assert b"damaged" not in err


def test_a_report_on_a_pipe_is_printed_when_ctrl_c_ends_it(tmp_path: Path) -> None:
    with fed(tmp_path, "report", "-") as run:
        run.write(SAMPLE.read_bytes())
        time.sleep(3.0)
        run.running.send_signal(signal.SIGINT)
        out, err = run.running.communicate(timeout=30)
    assert run.running.returncode == 130
    whole = process("report", str(SAMPLE), module="kwsniff")
    assert words_of(out) == words_of(whole.stdout)
    assert err == whole.stderr


def words_of(page: bytes) -> list[bytes]:
    """The words of a report, wherever its lines end, with a word that stands for the name of its input."""
    named = page.replace(b"standard input,", b"INPUT,", 1).replace(SAMPLE.name.encode() + b",", b"INPUT,", 1)
    return named.replace(b" - ", b" INPUT ").replace(str(SAMPLE).encode(), b"INPUT").split()


def test_a_terminal_is_no_capture() -> None:
    main, side = pty.openpty()
    with os.fdopen(main), os.fdopen(side) as terminal:
        for command in ("decode", "report"):
            done = process(command, "-", module="kwsniff", stdin=terminal)
            assert done.returncode == 2
            said = b"kwsniff: -: standard input is a terminal; pipe a capture into kwsniff\n"
            assert done.stderr == said


def test_a_pipe_beside_files_cannot_be_followed(tmp_path: Path) -> None:
    done = process("decode", "--follow", "-", str(SAMPLE), module="kwsniff", stdin=subprocess.PIPE)
    assert done.returncode == 2
    assert done.stderr == b"kwsniff: --follow takes one pipe, or files and directories, not both\n"


@pytest.mark.parametrize("command", ["decode", "report"])
def test_a_file_as_standard_input_is_read_as_the_file(command: str) -> None:
    with SAMPLE.open("rb") as file:
        done = process(command, "-", "-q", module="kwsniff", stdin=file)
    assert (done.returncode, done.stderr) == (0, b"")
    whole = process(command, str(SAMPLE), "-q", module="kwsniff").stdout
    assert words_of(done.stdout) == words_of(whole)


# `kwsniff decode --follow` as a process, over real captures that grow

COLUMNS = ("--columns", "connection,api,correlation_id,latency_us,status")


@contextmanager
def following(*arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-W", "error", "-m", "kwsniff", "decode", "--follow", *arguments]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    running = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0
    )
    watchdog = threading.Timer(60, running.kill)
    watchdog.start()
    try:
        yield running
    finally:
        watchdog.cancel()
        running.kill()
        running.communicate()


def lines(running: subprocess.Popen[bytes], count: int) -> list[bytes]:
    """The next lines of output; waits for them."""
    assert running.stdout is not None
    return [running.stdout.readline() for _ in range(count)]


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as file:
        file.write(data)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("form", ["csv", "jsonl", "text"])
def test_rows_come_as_the_file_grows_and_a_signal_ends_it_well(
    form: str, ending: signal.Signals, tmp_path: Path
) -> None:
    path, data = tmp_path / "trace.pcapng", SAMPLE.read_bytes()
    append(path, data[:60_000])
    columns = () if form == "text" else COLUMNS
    with following("-q", "-f", form, *columns, str(path)) as running:
        first = lines(running, 40)
        assert all(line.endswith(b"\n") for line in first)
        append(path, data[60_000:150_000])
        second = lines(running, 100)
        append(path, data[150_000:])
        running.send_signal(ending)
        out, err = running.communicate(timeout=30)
        assert (running.returncode, err) == (0, b"")
    whole = process("decode", "-q", "-f", form, *columns, str(path), module="kwsniff")
    if form == "text":  # the connections' column is as wide as those seen so far
        assert len([*first, *second, *out.splitlines()]) == whole.stdout.count(b"\n")
        return
    found = sorted([*first, *second, *out.splitlines(keepends=True)])
    assert found == sorted(whole.stdout.splitlines(keepends=True))


def test_it_ends_after_so_many_rows(tmp_path: Path) -> None:
    with following("-q", "-c", "7", "-f", "jsonl", str(SAMPLE)) as running:
        out, err = running.communicate(timeout=30)
        assert (running.returncode, err) == (0, b"")
    assert [json.loads(line)["event"] for line in out.splitlines()] == ["call"] * 7


def test_it_ends_after_a_time_with_what_is_open(tmp_path: Path) -> None:
    began = time.monotonic()
    with following("--duration", "1s", "-f", "csv", str(SAMPLE)) as running:
        out, err = running.communicate(timeout=30)
        assert running.returncode == 0
    assert time.monotonic() - began > 1
    assert out.count(b"\n") == process("decode", "-f", "csv", str(SAMPLE), module="kwsniff").stdout.count(
        b"\n"
    )
    assert b"338 calls: 336 paired, 2 unanswered." in err


def test_an_output_file_grows_with_the_input(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    with following("-q", "-o", str(out), str(SAMPLE)) as running:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (not out.exists() or out.read_bytes().count(b"\n") < 300):
            time.sleep(0.1)
        assert out.read_bytes().count(b"\n") > 300
        assert running.poll() is None
        running.send_signal(signal.SIGINT)
        assert running.wait(timeout=30) == 0
    assert os.listdir(tmp_path) == ["out.csv"]


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    path = tmp_path / "trace.pcapng"
    data = SAMPLE.read_bytes()
    append(path, data[:60_000])
    with following("-q", "-f", "jsonl", str(path)) as running:
        lines(running, 1)
        assert running.stdout is not None
        running.stdout.close()
        append(path, data[60_000:])
        assert running.wait(timeout=30) == 0


def test_a_directory_that_vanishes_ends_it_with_one_line_and_all_rows(tmp_path: Path) -> None:
    place = tmp_path / "captures"
    place.mkdir()
    shutil.copy(SAMPLE, place)
    with following("-q", "-f", "csv", str(place)) as running:
        first = lines(running, 100)
        shutil.rmtree(place)
        out, err = running.communicate(timeout=30)
        assert running.returncode == 0
    assert err.decode() == f"kwsniff: {place} is gone and no longer followed\n"
    expected = process("decode", "-q", "-f", "csv", str(SAMPLE), module="kwsniff").stdout
    assert len(first) + out.count(b"\n") == expected.count(b"\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("-f", "parquet"), "--follow writes lines: -f text, jsonl or csv, not parquet"),
        (("-j", "2"), "-j does not go with --follow"),
        (("--duration", "soon"), "--duration: 'soon' is no time"),
        (("missing.pcap",), "missing.pcap: No such file or directory"),
        (("-",), "--follow takes one pipe, or files and directories, not both"),
        (("pyproject.toml",), "pyproject.toml: is no capture file (neither pcap nor pcapng)"),
    ],
)
def test_what_cannot_be_followed_is_one_line_and_exit_code_2(arguments: tuple[str, ...], says: str) -> None:
    ended = process("decode", "--follow", str(SAMPLE), "-q", *arguments, module="kwsniff")
    assert ended.returncode == 2
    assert says in ended.stderr.decode()
    assert ended.stderr.count(b"\n") == 1


def test_a_duration_without_follow_is_refused() -> None:
    ended = process("decode", str(SAMPLE), "--duration", "5s", module="kwsniff")
    assert (ended.returncode, ended.stdout) == (2, b"")
    assert ended.stderr == b"kwsniff: --duration goes with --follow\n"


def test_every_command_line_in_the_guide_that_follows_runs(tmp_path: Path) -> None:
    shutil.copy(SAMPLE, tmp_path / "trace.pcapng")
    guide = (ROOT / "docs/decode.md").read_text()
    commands = re.findall(r"^kwsniff (decode --follow.*)$", guide, re.M)
    assert len(commands) >= 2
    for command in commands:
        words = shlex.split(command.replace("/var/captures", "."))
        places = {"trace.pcapng", "calls.csv", "."}
        there = [str(tmp_path / word) if word in places else word for word in words]
        ended = process(*there, "--duration", "0.5s", module="kwsniff")
        assert ended.returncode == 0, (command, ended.stderr)
    assert (tmp_path / "calls.csv").stat().st_size > 1000
