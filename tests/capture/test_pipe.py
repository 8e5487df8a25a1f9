"""Captures that come through pipes: what is there is told, and the packets are those of the file."""

from __future__ import annotations

import gzip
import os
import random
import threading
import time
from collections.abc import Iterator

import pytest
from files import brief, expected, frame, frames, notes, pcap, pcapng, read

from kwsniff.capture.error import Stop
from kwsniff.capture.source import CaptureTotals, blocks, segments
from kwsniff.config import Config
from kwsniff.net.segments import NOW

PACKETS = frames(300, size=lambda index: index * 7 % 100)


class Pipe:
    """A named pipe with somebody who writes into it."""

    def __init__(self, path) -> None:
        self.path = str(path)
        os.mkfifo(path)
        self._descriptor = -1

    def write(self, *pieces: bytes, pause: float = 0.0) -> None:
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, os.O_WRONLY)
        for piece in pieces:
            os.write(self._descriptor, piece)
            time.sleep(pause)

    def close(self) -> None:
        os.close(self._descriptor)

    def later(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Write all and close, in a thread."""

        def work() -> None:
            self.write(*pieces, pause=pause)
            self.close()

        threading.Thread(target=work).start()


@pytest.fixture
def pipe(tmp_path):
    return Pipe(tmp_path / "pipe")


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    sizes = random.Random(seed)
    while data:
        size = sizes.choice((1, 7, 60, 999, 5000))
        yield data[:size]
        data = data[size:]


@pytest.mark.parametrize("make", [pcap, pcapng])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("seed", [1, 2])
def test_packets_are_those_of_the_file_whatever_pieces_come(pipe, make, pack, seed):
    pipe.later(*pieces(pack(make(PACKETS)), seed), pause=0.001)
    rows = read(pipe.path)
    assert (brief(rows), notes(rows)) == (expected(PACKETS), [])


@pytest.mark.parametrize("make", [pcap, pcapng])
def test_damage_is_passed_over_as_in_the_file(pipe, tmp_path, make):
    data = bytearray(make(PACKETS))
    data[len(data) // 2 : len(data) // 2 + 400] = b"\xff" * 400
    file = tmp_path / "file"
    file.write_bytes(data)
    pipe.later(bytes(data[:9000]), bytes(data[9000:]))
    found, wanted = read(pipe.path), read(str(file))
    assert brief(found) == brief(wanted)
    assert notes(found) == notes(wanted) == ["capture_damaged"]


def test_a_pipe_that_ends_inside_a_packet_is_cut_short(pipe):
    pipe.later(pcap(PACKETS)[:-3])
    rows = read(pipe.path)
    assert (brief(rows), notes(rows)) == (expected(PACKETS[:-1]), ["capture_cut_short"])


def test_packets_are_handed_out_while_the_writer_goes_on(pipe):
    data = pcap(PACKETS)
    threading.Thread(target=lambda: pipe.write(data[:4000])).start()
    found = (block for block in blocks(pipe.path) if len(block))
    first = len(next(found))
    assert first > 0
    pipe.write(data[4000:])
    while first < len(PACKETS):
        first += len(next(found))
    pipe.close()
    assert list(found) == []


def test_much_that_is_there_comes_in_large_blocks(pipe):
    many = pcap([(time_ns, frame(1, b"x" * 1400)) for time_ns, _ in frames(8000)])
    pipe.later(many)
    sizes = [len(block) for block in blocks(pipe.path) if len(block)]
    assert sum(sizes) == 8000
    assert len(sizes) <= 20


def _at(now: int, count: int) -> bytes:
    return pcap([(now + index, packet) for index, (_, packet) in enumerate(frames(count))])


@pytest.mark.parametrize(("age_s", "told"), [(0, True), (3600, False)])
def test_a_quiet_pipe_tells_the_time_if_its_packets_are_new(pipe, age_s, told):
    now = time.time_ns() - age_s * 10**9
    pipe.later(_at(now, 10), pause=2.0)
    times = [int(batch.schema.metadata[NOW]) for batch in segments([pipe.path]) if not len(batch)]
    assert bool(times) == told
    assert all(now < time_ns < now + 3 * 10**9 for time_ns in times)


def test_who_is_told_to_stop_keeps_what_came_and_finds_no_damage(pipe):
    data = pcap(PACKETS)
    threading.Thread(target=lambda: pipe.write(data[:-5])).start()
    stop, totals = Stop(), CaptureTotals()
    rows = []
    for batch in segments([pipe.path], Config(), totals, stop=stop):
        rows += batch.to_pylist()
        stop.set()
    assert (brief(rows), notes(rows)) == (expected(PACKETS[:-1]), [])
    assert totals.cut_short == 0


def test_stopping_does_not_wait_for_a_writer_who_never_came(pipe):
    stop = Stop()
    stop.set()
    began = time.monotonic()
    with pytest.raises(Exception, match="is empty"):
        list(segments([pipe.path], stop=stop))
    assert time.monotonic() - began < 5
