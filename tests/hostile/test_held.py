"""What is held for many connections: which of it is let go first, and how much of it there is."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kwsniff.config import Config
from kwsniff.run.offline import events
from tests.hostile.attacks import Records, framed, metadata
from tests.hostile.wire import Flow, write
from tests.samples import Row

SEGMENT = 2000


def calls_of_all(connections: int, last: int) -> Records:
    """Each connection has an answered call of about `SEGMENT` bytes in both directions; another one then has
    a request that takes `last` bytes, in many segments."""
    asked = [b"t" * 100] * (SEGMENT // 102)
    told = struct.pack(">ih", 1, SEGMENT) + b"h" * SEGMENT + struct.pack(">i", 9092)
    for number in range(connections):
        flow = Flow(number)
        yield from flow.open()
        yield from flow.stream(0, [metadata(1, asked)])
        yield from flow.stream(1, [framed(struct.pack(">ii", 1, 1) + told + struct.pack(">i", 0))])
    flow = Flow(connections)
    yield from flow.open()
    whole = metadata(1, [b"t" * 100] * (last // 102))
    for at in range(0, len(whole), SEGMENT):
        yield flow.send(0, whole[at : at + SEGMENT])
    yield flow.send(1, framed(struct.pack(">iii", 1, 0, 0)))


def rows(path: Path, **choices: int | str) -> list[Row]:
    return [row for batch in events([str(path)], Config(**choices)) for row in batch.to_pylist()]  # type: ignore[arg-type]


@pytest.mark.parametrize("kernels", ["never", "auto"])
def test_what_retransmissions_are_compared_with_costs_no_frame(kernels: str, tmp_path: Path) -> None:
    # Four kilobytes of each connection once counted as held and were never let go: large requests went.
    path = write(tmp_path / "many.pcap", calls_of_all(100, 100_000))
    found = rows(path, max_buffered_bytes=200_000, kernels=kernels)
    assert [row["code"] for row in found if row["event"] == "anomaly"] == []
    statuses = [row["status"] for row in found if row["event"] == "call"]
    assert statuses == ["ok"] * 101
