"""Pipes between processes hand on what was sent, in bounded memory."""

from __future__ import annotations

import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kwsniff.analysis.findings import NEEDED, Findings
from kwsniff.analysis.rule import WARNING
from kwsniff.capture.source import CaptureError
from kwsniff.cli.running import run
from kwsniff.config import Config
from kwsniff.count.store import CallStore
from kwsniff.rows.events import CALL
from kwsniff.run import offline, processes
from kwsniff.run.offline import events
from kwsniff.run.processes import AHEAD, SMALL, EndedError, Pipe, Processes
from kwsniff.run.stages import Taker
from tests.samples import CAPTURES, sample

PATHS = sample("librdkafka-groups").paths


@pytest.fixture(autouse=True)
def copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes be copies of this one, whatever threads other tests have left: what is replaced here is
    replaced in them, too."""
    monkeypatch.setattr(processes, "may_fork", lambda: True)


def rows(jobs: int | None, **choices: Any) -> pa.Table:
    return pa.Table.from_batches(events(PATHS, Config(block_packets=50, **choices), jobs=jobs))


def ends() -> tuple[Pipe, Pipe]:
    one, other = multiprocessing.Pipe()
    return Pipe(one), Pipe(other)


def test_arrays_and_batches_arrive_as_they_were() -> None:
    batch = next(iter(events(sample("librdkafka-groups").paths, Config())))
    sending, receiving = ends()
    arrays = [np.arange(10), np.zeros(0), np.array([1.5, 2.5])]
    sending.send(("said", arrays), batch)
    (said, found), received = receiving.receive()
    assert said == "said"
    assert [each.tolist() for each in found] == [each.tolist() for each in arrays]
    found[0][0] = 5  # what was received is one's own
    assert received is not None
    assert received.equals(batch)
    assert received.schema.equals(batch.schema, check_metadata=True)
    sending.send(np.zeros(0))
    assert receiving.receive()[0].tolist() == []
    sending.send("no batch")
    assert receiving.receive() == ("no batch", None)


def test_a_slice_is_sent_without_the_rest() -> None:
    batch = next(iter(events(sample("librdkafka-groups").paths, Config())))
    sending, receiving = ends()
    sending.send(None, batch.slice(3, 4))
    _, received = receiving.receive()
    assert received is not None
    assert received.to_pylist() == batch.slice(3, 4).to_pylist()
    assert received["connection"].get_total_buffer_size() < 10_000


def test_small_batches_that_are_held_are_no_open_files() -> None:
    batch = next(iter(events(PATHS, Config())))
    sending, receiving = ends()
    held = []
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        sending.send(np.arange(9), batch)
        held.append(receiving.receive())
    assert len(os.listdir("/proc/self/fd")) == before
    sending.send(np.zeros(SMALL))
    large = receiving.receive()
    assert not large[0].any()
    assert large[1] is None
    for array, received in held:
        array[0] = 5
        assert received is not None
        assert received.equals(batch)


def test_what_counts_calls_holds_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "SMALL", 0)
    batch = next(iter(events(PATHS, Config())))
    sending, receiving = ends()
    before = len(os.listdir("/proc/self/fd"))
    store = CallStore()
    answered = batch.filter(pc.and_(pc.equal(batch["event"], CALL), batch["duration_us"].is_valid()))
    assert answered.num_rows
    for _ in range(5):
        sending.send(None, answered)
        received = receiving.receive()[1]
        assert received is not None
        assert len(os.listdir("/proc/self/fd")) == before + 1
        store.add(received)
        del received
    assert len(os.listdir("/proc/self/fd")) == before
    store.finish()


def test_batches_wait_to_be_counted_together_only_as_far_as_there_is_room(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each is one piece of memory, however few of its columns are counted."""
    monkeypatch.setattr(processes, "SMALL", 0)
    batch = next(iter(events(PATHS, Config())))
    monkeypatch.setattr("kwsniff.count.spool.KEPT", 3 * batch.nbytes)
    sending, receiving = ends()
    before, most = len(os.listdir("/proc/self/fd")), []

    def arriving() -> Iterator[pa.RecordBatch]:
        for _ in range(30):
            sending.send(None, batch)
            received = receiving.receive()[1]
            assert received is not None
            most.append(len(os.listdir("/proc/self/fd")) - before)
            yield received
            del received

    store = CallStore(topics=False)
    store.add_all(arriving())
    assert max(most) <= 8
    assert len(os.listdir("/proc/self/fd")) == before


def test_who_sends_waits_for_who_receives() -> None:
    sending, receiving = ends()
    sent: list[int] = []

    def send() -> None:
        for number in range(3 * AHEAD):
            sending.send(number)
            sent.append(number)

    thread = threading.Thread(target=send)
    thread.start()
    for number in range(3 * AHEAD):
        assert receiving.receive() == (number, None)
        assert len(sent) <= number + 1 + AHEAD
    thread.join()
    sending.drain()


def test_the_end_of_the_other_process_is_seen() -> None:
    processes = Processes()
    receiving, sending = processes.pipe(duplex=True)
    processes.start(_one, sending)
    pipe = Pipe(receiving)
    assert pipe.receive() == ("one", None)
    with pytest.raises(EndedError):
        pipe.receive()
    with pytest.raises(EndedError):
        pipe.send("nobody")
    processes.close()


def _one(end: Connection) -> None:
    Pipe(end).send("one")


def test_findings_taken_elsewhere_are_the_same() -> None:
    batches = [batch for name in ("librdkafka-groups", "librdkafka-errors") for batch in
               events(sample(name).paths, Config())]  # fmt: skip
    here = Findings()
    for batch in batches:
        here.take(batch)
    taker = Taker(Findings(), NEEDED)
    assert pa.Table.from_batches(taker.watch(batches)).equals(pa.Table.from_batches(batches))
    there = taker.taken()
    taker.close()
    assert there.found() == here.found()
    assert any(each.severity == WARNING for each in here.found())


@pytest.mark.parametrize("what", ["json", "page"])
def test_a_report_of_four_processes_is_that_of_one(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    said = []
    for jobs in ("1", "4"):
        options = ["--json"] if what == "json" else []
        assert run(["report", *sample("librdkafka-groups").paths, "-j", jobs, *options]) == 0
        said.append(capsys.readouterr())
    assert said[0] == said[1]
    assert said[0].out


# What goes wrong


def failing(error: Exception) -> Callable[..., Any]:
    def fail(*given: Any, **named: Any) -> Any:
        raise error

    return fail


def test_a_process_says_why_it_failed() -> None:
    for error, raised, told in (
        (ZeroDivisionError("a fault"), ZeroDivisionError, "^a fault\n"),
        (FileNotFoundError(errno.ENOENT, "is missing", "that"), FileNotFoundError, "is missing: 'that'"),
        (OSError(errno.ENOSPC, "no space"), EndedError, "^a worker process ended early: no space; try -j 1$"),
        (MemoryError(), EndedError, "^a worker process ended early: out of memory; try -j 1$"),
        (Unpicklable("odd"), RuntimeError, "^Unpicklable: odd\n"),
    ):  # fmt: skip
        started = Processes()
        receiving, sending = started.pipe(duplex=True)
        started.start(_fail, sending, error)
        with pytest.raises(raised, match=told) as caught:
            Pipe(receiving).receive()
        assert raised is EndedError or raised is RuntimeError or "in _fail" in caught.value.__notes__[0]
        started.close()


class Unpicklable(Exception):  # noqa: N818
    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.held = lambda: what


def _fail(end: Connection, error: Exception) -> None:
    raise error


def test_who_sends_hears_why_who_receives_failed() -> None:
    started = Processes()
    receiving, sending = started.pipe(duplex=True)
    started.start(_receive_and_fail, receiving)
    pipe = Pipe(sending)
    pipe.send(np.zeros(1000))
    pipe.send(np.zeros(1000))
    with pytest.raises(ZeroDivisionError, match="after one"):
        pipe.drain()
    started.close()


def _receive_and_fail(end: Connection) -> None:
    Pipe(end).receive()
    raise ZeroDivisionError("after one")


@pytest.mark.parametrize("jobs", ["1", "4"])
def test_a_fault_in_another_process_is_told_in_one_line(
    jobs: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Findings, "take", failing(ZeroDivisionError("of findings")))
    assert run(["report", *PATHS, "-j", jobs]) == 70
    assert capfd.readouterr().err == (
        "kwsniff: a fault of kwsniff, please report it: ZeroDivisionError: of findings "
        "(kwsniff --debug ... shows the traceback)\n"
    )
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("full", [False, True])
def test_no_room_to_hand_on_is_told(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(processes, "_write", failing(error))
    told = "^processes cannot hand on what they made: No space left on device; try -j 1$"
    with pytest.raises(CaptureError, match=told):
        rows(3, full=full)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("full", [False, True])
def test_files_serve_where_memory_has_none(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows(1, full=full)
    monkeypatch.delattr(os, "memfd_create")
    assert rows(3, full=full).equals(expected)


@pytest.mark.parametrize("full", [False, True])
def test_without_room_for_processes_one_does_it(full: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = rows(1, full=full)
    monkeypatch.setattr(offline, "WORTH_PROCESSES", 0)
    monkeypatch.setattr(processes, "cores", lambda: 4)
    begun: list[Any] = []

    def start(self: Processes, *given: Any) -> None:
        if begun:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        begun.append(started(self, *given))

    started = Processes.start
    monkeypatch.setattr(Processes, "start", start)
    assert rows(None, full=full).equals(expected)
    assert begun
    assert not multiprocessing.active_children()
    with pytest.raises(BlockingIOError):
        rows(4, full=full)


def test_a_report_without_room_for_a_process_does_without(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run(["report", *PATHS, "-j", "1"]) == 0
    expected = capfd.readouterr()
    monkeypatch.setattr(offline, "WORTH_PROCESSES", 0)
    monkeypatch.setattr(processes, "cores", lambda: 4)
    monkeypatch.setattr(Processes, "start", failing(BlockingIOError(errno.EAGAIN, "no more processes")))
    assert run(["report", *PATHS]) == 0
    assert capfd.readouterr() == expected


def test_a_process_that_was_stopped_ends_with_the_run() -> None:
    taken = events(PATHS, Config(block_packets=20), jobs=3)
    next(iter(taken))
    for child in multiprocessing.active_children():
        assert child.pid is not None
        os.kill(child.pid, signal.SIGSTOP)
    taken.close()  # type: ignore[attr-defined]
    assert not multiprocessing.active_children()


def test_ctrl_c_while_a_process_begins_is_not_for_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    expected = rows(1)
    begin = processes._begin

    def interrupted(*given: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        begin(*given)

    monkeypatch.setattr(processes, "_begin", interrupted)
    assert rows(3).equals(expected)
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("full", [False, True])
def test_events_that_nobody_takes_leave_nothing(full: bool) -> None:
    multiprocessing.active_children()
    before = set(os.listdir("/proc/self/fd"))
    started = events(PATHS, Config(full=full), jobs=3)
    children = multiprocessing.active_children()
    assert children
    del started
    for child in children:
        child.join(60)
        child.close()
    assert set(os.listdir("/proc/self/fd")) == before


# Who calls

SCRIPT = """
import threading
print("this script runs", flush=True)
from kwsniff.config import Config
from kwsniff.run.offline import events
threading.Thread(target=threading.Event().wait, daemon=True).start()  # so this process is not copied
print(sum(map(len, events(PATHS, Config(full=FULL), jobs=2))), flush=True)
"""


@pytest.mark.parametrize(("given", "full"), [("file", True), ("input", False)])
def test_a_script_is_not_run_again_by_processes_that_begin_anew(
    given: str, full: bool, tmp_path: Path
) -> None:
    script = SCRIPT.replace("PATHS", repr(list(PATHS))).replace("FULL", str(full))
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run(
        [sys.executable, str(path) if given == "file" else "-"], input=script, capture_output=True, text=True,
        env=os.environ | {"PYTHONPATH": str(CAPTURES.parent)}, timeout=120, check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["this script runs", str(len(rows(1)))]


def test_a_process_that_may_not_start_others_does_it_alone() -> None:
    with multiprocessing.get_context("fork").Pool(1) as pool:  # whose processes are daemonic
        for full in (False, True):
            assert pool.apply(_count, (full,)) == len(rows(1, full=full))


def _count(full: bool) -> int:
    return len(rows(3, full=full))
