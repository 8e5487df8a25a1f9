"""Bodies that are shown by interpreted kernels, of every sample."""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any

import pytest

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.kernel.engine import Engine
from kwsniff.segments import segment_columns
from tests.samples import Row, names, sample

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


def told(rows: list[Row]) -> Counter[Any]:
    return Counter(tuple(plain(row, name) for name in SHOWN) for row in rows)


def plain(row: Row, name: str) -> Any:
    """A value; in words the other engine takes a TLS alert for a length."""
    return None if name == "detail" and row["code"] == "frame_size_invalid" else row[name]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("records", [False, True])
@pytest.mark.parametrize("name", names())
def test_interpreted_kernels_show_the_bodies_that_compiled_ones_do(name: str, records: bool) -> None:
    """What they have to be, tests/test_request_log.py says."""
    shown = by_tables(name, records)
    assert told(shown) == told(sample(name).events(full=True, records=records))
    assert any(row["request"] and row["response"] for row in shown) or name == "tls"
