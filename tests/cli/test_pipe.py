"""`kwsniff decode -` and its like behind a program that captures: rows come as the packets do."""

from __future__ import annotations

import os
import pty
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
from tests.cli.test_follow import lines

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
