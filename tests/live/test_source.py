"""From packets taken to segments: times, limits, ends. The listener here hands out what the test gives it."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.live.collector import Keeping
from kwsniff.live.listener import GoneError, ReadPackets
from kwsniff.live.session import Session
from kwsniff.net.segments import NOW
from tests.playbook import START, Segment, handshake, play, response
from tests.playbook import request as asks


class Script:
    """Stands for a listener: gives batches of packets, then does what is said at the end."""

    def __init__(
        self, batches: list[ReadPackets], name: str = "fake0", end: BaseException | None = None
    ) -> None:
        self.interface, self.linktype = name, 101
        self._batches, self._end = deque(batches), end
        self._read, self._write = os.pipe()
        if batches or end:
            os.write(self._write, b"x")  # ready to be read, always
        self.closed = False

    def fileno(self) -> int:
        return self._read

    def take(self) -> ReadPackets | None:
        if self._batches:
            return self._batches.popleft()
        if self._end is not None:
            raise self._end
        return None

    def add(self, batch: ReadPackets) -> None:
        """Hand this out, too."""
        self._batches.append(batch)

    def dropped(self) -> int:
        return 4

    def came(self) -> int:
        return 9

    def close(self) -> None:
        self.closed = True
        os.close(self._read)
        os.close(self._write)


def packets(*data: bytes, at: int = START) -> ReadPackets:
    lengths = np.array([len(each) for each in data], np.int64)
    return ReadPackets(b"".join(data), lengths, lengths, at + np.arange(len(data)))


def ip(segment: Segment) -> bytes:
    """A segment as an IPv4 packet (RFC 791, RFC 9293), checksums left out."""
    source, target = segment.side, 1 - segment.side
    tcp = (
        segment.ports[source].to_bytes(2) + segment.ports[target].to_bytes(2) + segment.seq.to_bytes(4)
        + segment.ack.to_bytes(4) + bytes([0x50, segment.flags]) + bytes(6) + segment.data
    )  # fmt: skip
    head = bytes([0x45, 0]) + (20 + len(tcp)).to_bytes(2) + bytes(5) + b"\x06" + bytes(2)
    head = head[:8] + b"\x40\x06" + bytes(2)
    return head + segment.hosts[source].to_bytes(4) + segment.hosts[target].to_bytes(4) + tcp


def source(*scripts: Script, queue_bytes: int = 1 << 20, keep: Keeping | None = None) -> Session:
    return Session(scripts, Config(), queue_bytes=queue_bytes, keeping=keep)  # type: ignore[arg-type]


def nobody(batch: pa.RecordBatch) -> None:
    """Learns nothing."""


def until_quiet(live: Session, seconds: float = 0.5) -> Iterator[pa.RecordBatch]:
    """Run and stop after a while."""
    live.start()
    timer = threading.Timer(seconds, live.stop)
    timer.start()
    yield from live.segments(nobody)
    timer.join()


def conversation() -> list[bytes]:
    script = play() >> handshake() >> asks(corr=1) >> response(corr=1)
    return [ip(segment) for segment in script.segments]


def test_packets_become_segments_with_numbers_and_times() -> None:
    said = conversation()
    script = Script([packets(*said[:2]), packets(*said[2:], at=START + 100)])
    batches = [batch for batch in until_quiet(source(script)) if len(batch)]
    rows = pa.Table.from_batches(batches).to_pylist()
    assert [row["packet"] for row in rows] == [1, 2, 3, 4, 5]
    assert [row["time"] - START for row in rows] == [0, 1, 100, 101, 102]
    assert {row["capture"] for row in rows} == {"fake0"}
    assert [row["dst_port"] for row in rows] == [9092, 50_000, 9092, 9092, 50_000]
    assert script.closed


def test_a_quiet_interface_still_tells_the_time() -> None:
    before = time.time_ns()
    batches = list(until_quiet(source(Script([])), 1.6))
    times = [int(batch.schema.metadata[NOW]) for batch in batches]
    assert len(times) >= 1
    assert all(before <= each <= time.time_ns() for each in times)
    assert times == sorted(times)


def test_the_time_waits_for_the_slowest_interface() -> None:
    said = conversation()
    live = source(Script([packets(*said)], "fake0"), Script([], "fake1"))
    assert [len(batch) for batch in until_quiet(live, 1.6) if len(batch)] == [5]
    assert live.health().now_ns <= time.time_ns()


def test_what_finds_the_queue_full_is_dropped_and_counted() -> None:
    said = packets(*conversation())
    # Blocks are flushed when the time has come; nothing takes from the queue until all have been.
    live = source(Script([said]), Script([said], "fake1"), queue_bytes=len(said.data) + 10)
    live.start()
    time.sleep(0.5)
    live.stop()
    rows = sum(len(batch) for batch in live.segments(nobody))
    assert rows == 5
    health = live.health()
    assert (health.own_dropped, health.kernel_dropped, health.waiting_bytes) == (5, 8, 0)


def test_an_interface_that_vanishes_ends_with_a_line_and_the_others_go_on() -> None:
    said = packets(*conversation())
    live = source(Script([said], "gone0", end=GoneError("gone0")), Script([said], "fake1"))
    assert sum(len(batch) for batch in until_quiet(live)) == 10
    assert live.health().troubles == ("gone0: the interface is gone",)


def test_when_the_last_one_vanishes_it_ends_by_itself() -> None:
    live = source(Script([packets(*conversation())], end=GoneError("x")))
    live.start()
    assert sum(len(batch) for batch in live.segments(nobody)) == 5


@pytest.mark.parametrize("error", [OSError(5, "Input/output error")])
def test_a_broken_socket_is_told(error: OSError) -> None:
    live = source(Script([], end=error))
    live.start()
    list(live.segments(nobody))
    assert live.health().troubles == ("fake0: Input/output error",)
