"""Pipes between processes hand on what was sent, in bounded memory."""

from __future__ import annotations

import multiprocessing
import threading
from multiprocessing.connection import Connection

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.cli.running import run
from kwsniff.config import Config
from kwsniff.findings import NEEDED, Findings
from kwsniff.findings.finding import WARNING
from kwsniff.offline import events
from kwsniff.processes import AHEAD, EndedError, Pipe, Processes
from kwsniff.stages import Taker
from tests.samples import sample


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
    taker = Taker(Findings(), NEEDED)
    assert pa.Table.from_batches(taker.watch(here.watch(batches))).equals(pa.Table.from_batches(batches))
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
