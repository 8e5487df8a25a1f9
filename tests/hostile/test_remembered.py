"""What is remembered of requests that want no reply, with many connections."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine import requests
from kwsniff.engine.analyze import Engine
from kwsniff.engine.tables import REQUESTS
from kwsniff.net.segments import segment_columns
from tests.hostile.attacks import Records, framed, header, metadata
from tests.hostile.wire import Flow, write


def sends(connections: int, each: int) -> Records:
    """Connections of an answered request and so many Produce requests that want no reply."""
    body = struct.pack(">hhi", 0, 1000, 0)
    for number in range(connections):
        flow = Flow(number)
        yield from flow.open()
        yield from flow.stream(0, [metadata(1)])
        yield from flow.stream(1, [framed(struct.pack(">iii", 1, 0, 0))])
        yield from flow.stream(0, (framed(header(0, 2, 2 + corr) + body) for corr in range(each)))


@pytest.mark.parametrize(("connections", "most"), [(2, 60), (40, 100 * 5), (300, 2 * 100 + 300)])
def test_connections_remember_fewer_ids_when_there_are_many(
    connections: int, most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The n-th connection keeps the n-th part of a hundred: less than 100 (1 + ln 40) in all. From 200 on each
    # keeps one.
    monkeypatch.setattr(requests, "ALL_UNASKED", 100)
    path, config = write(tmp_path / "sends.pcap", sends(connections, 30)), Config()
    engine, emitted = Engine(config, compiled=False), []
    for batch in segments([str(path)], config):
        for events in engine.feed(segment_columns(batch)):
            emitted += events["status"].drop_null().to_pylist()
    assert emitted.count("no_reply_expected") == 30 * connections
    assert 0 < int(engine.machine.t.pools[REQUESTS].used) <= most + 2
