"""Bodies that are shown by interpreted kernels, of every sample."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine import emitter
from kwsniff.engine.analyze import Engine
from kwsniff.net.segments import segment_columns
from kwsniff.rows.events import CALL
from tests.playbook import anomaly, handshake, play, request, response
from tests.samples import Row, names, sample

DESCRIBE_GROUPS = 15
SHOWN = ("event", "connection", "api", "api_version", "correlation_id", "request_packet", "response_packet",
         "status", "code", "detail", "packet", "request", "response")  # fmt: skip


@cache
def by_tables(name: str, records: bool) -> list[Row]:
    config = Config(kernels="never", full=True, records=records)
    engine = Engine(config, compiled=False)
    batches = [
        made for batch in segments(sample(name).paths, config) for made in engine.feed(segment_columns(batch))
    ]
    return [row for batch in [*batches, *engine.finish()] for row in batch.to_pylist()]


def emitted(rows: list[Row]) -> Counter[Any]:
    return Counter(tuple(plain(row, name) for name in SHOWN) for row in rows)


def plain(row: Row, name: str) -> Any:
    """A value; in words the other engine takes a TLS alert for a length."""
    return None if name == "detail" and row["code"] == "frame_size_invalid" else row[name]


@pytest.mark.one_of(12)
@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("name", names())
def test_interpreted_kernels_show_the_bodies_that_compiled_ones_do(name: str, records: bool) -> None:
    """What they have to be, tests/test_request_log.py says."""
    shown = by_tables(name, records)
    assert emitted(shown) == emitted(sample(name).events(full=True, records=records))
    assert any(row["request"] and row["response"] for row in shown) or name == "tls"


def rows_of(config: Config, batches: list[Any], **tables: int) -> list[Row]:
    """The events of batches of segments, with tables of so many rows at first."""
    engine = Engine(config, compiled=False)
    for table, count in tables.items():
        engine.machine.replace(table, engine.machine._empty(table, count))
    made = [each for batch in batches for each in engine.feed(segment_columns(batch))]
    return [row for batch in [*made, *engine.finish()] for row in batch.to_pylist()]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", ["librdkafka-groups", "kafka-0.10", "librdkafka-transactions"])
def test_bodies_are_the_same_for_every_size_of_batches_and_tables(name: str) -> None:
    config = Config(kernels="never", full=True, records=True)
    whole = list(segments(sample(name).paths, config))
    single = [batch.slice(at, 7) for batch in whole for at in range(0, len(batch), 7)]
    expected = rows_of(config, whole)
    assert any(row["response"] for row in expected)
    assert rows_of(config, single) == expected
    assert rows_of(config, whole, bodies=1, body_data=1, calls=3, notes=9) == expected


def test_one_body_too_many_that_waits_is_not_shown() -> None:
    body = b"\0\0\0\1" + (1000).to_bytes(2) + b"g" * 1000
    script = play(full=True, max_buffered_bytes=10_000) >> handshake()
    for number in (1, 2, 3):
        script = script >> request(DESCRIBE_GROUPS, number, 0, body)
    script = script << anomaly("buffer_limit", detail=f"{len(body)} bytes let go", packet=6)
    script = script >> response(1, body=b"\0\0\0\0") >> request(DESCRIBE_GROUPS, 4, 0, body)
    calls = {row["correlation_id"]: row for row in script.events() if row["event"] == CALL}
    assert {number: call["request"] is not None for number, call in calls.items()} == {
        1: True, 2: True, 3: False, 4: True
    }  # fmt: skip
    assert calls[3]["topics"] == calls[2]["topics"]


def test_texts_that_nobody_asks_for_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emitter, "MANY", 8)
    monkeypatch.setattr(emitter, "MUCH", 0)
    monkeypatch.setattr(emitter, "LONG", 10)
    config = Config(kernels="never", full=True)
    whole = list(segments(sample("librdkafka-groups").paths, config))
    small = [batch.slice(at, 7) for batch in whole for at in range(0, len(batch), 7)]
    engine = Engine(config, compiled=False)
    texts = engine.emitter.bodies
    assert texts is not None
    texts._texts = {-number: b"forgotten" for number in range(2, 100)}
    rows = [
        row for batch in small for made in engine.feed(segment_columns(batch)) for row in made.to_pylist()
    ]
    rows += [row for made in engine.finish() for row in made.to_pylist()]
    assert rows == rows_of(config, whole)
    assert not texts._texts
    assert not texts._packed
