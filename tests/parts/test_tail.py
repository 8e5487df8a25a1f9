"""What connections hold counts the same in the machine that they are put into."""

from __future__ import annotations

import struct
from pathlib import Path

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine.analyze import Engine
from kwsniff.engine.checkpoint import put, taken
from kwsniff.engine.limits import in_use, outstanding
from kwsniff.engine.machine import Machine
from kwsniff.net.segments import segment_columns
from tests.hostile.wire import Flow
from tests.parts.traffic import Talk, request


def heartbeat(group: bytes) -> bytes:
    """The body of a Heartbeat v0 request."""
    return struct.pack(">h", len(group)) + group + struct.pack(">i", 1) + b"\0\6member"


def engine_after(talk: Talk, place: Path, config: Config) -> Engine:
    """An engine that took a capture, and what it told taken out of it."""
    engine = Engine(config)
    for batch in segments([talk.write(place)], config):
        list(engine.feed(segment_columns(batch)))
    return engine


def test_long_texts_of_requests_that_wait_count_once(tmp_path: Path) -> None:
    config, talk, flow = Config(), Talk(), Flow()
    talk.open(flow)
    for number in range(5):
        talk.add(flow.send(0, request(number, body=heartbeat(b"%d" % number * 3000))))
    engine = engine_after(talk, tmp_path, config)
    before, after = engine.machine, Machine()
    put(after, taken(before))
    assert (
        after.t.store[0].named
        == before.t.store[0].named
        == sum(int(each.named) for each in before.t.requests[: before.used("requests")] if each.conn >= 0)
    )
    assert before.t.store[0].named > 5
    assert outstanding(after.t) == outstanding(before.t)
    assert in_use(after.t) == in_use(before.t)
