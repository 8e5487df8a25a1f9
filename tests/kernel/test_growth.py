"""Work grows with the input: twice the attack is at most 2.2 times the steps."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine import responses, streams
from kwsniff.engine.analyze import Engine
from kwsniff.net.segments import segment_columns
from tests.hostile.attacks import ATTACKS, Records, framed, metadata
from tests.hostile.wire import Flow, write

GROWTH = 2.2


def refused_lengths(size: int) -> Records:
    """Requests, each followed by bytes that are no length."""
    flow = Flow()
    yield from flow.open()
    yield from flow.stream(0, (metadata(corr, [b"orders"]) + b"\xff" * 8 for corr in range(size)))


def orphans(size: int) -> Records:
    """Responses that nobody asked for, and requests that ask for none of them."""
    flow = Flow()
    yield from flow.open()
    yield from flow.stream(0, [metadata(1)])
    yield from flow.stream(1, [framed(struct.pack(">iii", 1, 0, 0))])
    for corr in range(size):
        yield from flow.stream(1, [framed(struct.pack(">iii", 1_000_000 + corr, 0, 0))])
        yield from flow.stream(0, [metadata(2 + corr)])


def far_ids(size: int) -> Records:
    """Requests whose correlation ids differ in their upper bits alone."""
    flow = Flow()
    yield from flow.open()
    yield from flow.stream(0, (metadata((corr << 18) % (1 << 31)) for corr in range(size)))


def backwards(size: int) -> Records:
    """Segments behind a hole, the last one first."""
    flow = Flow()
    yield from flow.open()
    for number in range(size, 0, -1):
        yield flow.send(0, bytes(10), seq=100 + 10 * number)


OWN: dict[str, Callable[[int], Records]] = {
    function.__name__: function for function in (refused_lengths, orphans, far_ids, backwards)
}
SIZES = {
    "one_byte_connections": 300, "talking_connections": 40, "outstanding": 300, "tiny_answers": 4000,
    "distinct_names": 400, "drip_unknown": 300, "unasked": 1000, "many_elements": 200, "endless_varints": 20,
    "time_travel": 100, "many_holes": 300, "long_names": 320_000,
    "refused_lengths": 200, "orphans": 200, "far_ids": 1000, "backwards": 300,
}  # fmt: skip


def steps(path: Path) -> int:
    """Work that the engine counts for a capture."""
    config = Config(max_connections=200)
    engine = Engine(config, compiled=False)
    for batch in segments([str(path)], config):
        for _ in engine.feed(segment_columns(batch)):
            pass
    for _ in engine.finish():
        pass
    return engine.steps


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", SIZES)
def test_twice_the_attack_is_about_twice_the_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Lists that are gone through are bounded; with the bounds of every day it takes longer to reach them.
    monkeypatch.setattr(streams, "MAX_WAITING", 8)
    monkeypatch.setattr(responses, "MAX_EARLY", 50)
    monkeypatch.setattr("secrets.randbits", lambda bits: 1)  # requests that meet in one place are chance
    make = OWN.get(name) or ATTACKS[name]
    once, twice, four_times = (
        steps(write(tmp_path / f"{times}.pcap", make(times * SIZES[name]))) for times in (1, 2, 4)
    )
    assert once > 0
    assert twice <= GROWTH * once, (once, twice, four_times)
    assert four_times <= GROWTH * twice, (once, twice, four_times)


def test_overlaps_cost_less_than_their_bytes(tmp_path: Path) -> None:
    # Whether one of them moves its stream, after which framing is searched for, is a matter of chance.
    for size in (240, 960, 1920):
        path = write(tmp_path / f"{size}.pcap", ATTACKS["overlaps"](size))
        assert steps(path) < path.stat().st_size
