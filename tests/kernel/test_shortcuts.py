"""Looking for frames where framing was lost: what is passed over holds none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.engine import search, waiting
from kwsniff.engine.analyze import Engine
from kwsniff.spec.load import catalog
from tests.parts.cutting import input_of, whole, without


@pytest.mark.parametrize("name", ["hot-partition", "java-groups", "kafka-0.8", "throttled"])
def test_a_search_that_looks_at_every_byte_finds_the_same(name: str, monkeypatch: Any) -> None:
    """Of every five packets one is lost."""
    batches = without(input_of(name), 0.2, seed=1)
    passed: Counter[bool] = Counter()
    quick = search.has_no_zero

    def counted(data: Any, at: int) -> bool:
        answer = quick(data, at)
        passed[answer] += 1
        return answer

    monkeypatch.setattr(search, "has_no_zero", counted)
    found = whole(batches, Config(), compiled=False)
    assert passed[True] > 100
    assert "resynchronised" in found["code"].to_pylist()
    monkeypatch.setattr(search, "has_no_zero", lambda data, at: False)
    monkeypatch.setattr(search, "is_framed", lambda data, at, end: True)
    monkeypatch.setattr(waiting, "may_wait", lambda t, conn, correlation_id: True)
    assert found.equals(whole(batches, Config(), compiled=False))


@pytest.mark.parametrize("zero", [None, 0, 1, 2, 3])
@pytest.mark.parametrize("rest", [1, 0x7F, 0x80, 0xFF])
def test_four_bytes_have_a_zero_wherever_it_is(zero: int | None, rest: int) -> None:
    data = bytearray([rest] * 6)
    data[0] = data[5] = 0  # which are not looked at
    if zero is not None:
        data[1 + zero] = 0
    assert search.has_no_zero(data, 1) == (zero is None)


@pytest.mark.parametrize(("name", "share"), [("kafka-0.8", 0.05), ("kafka-0.8", 0.2), ("java-groups", 0.05)])
def test_what_is_found_does_not_depend_on_what_was_read_before(name: str, share: float) -> None:
    """A program is loaded when a body of its version is first read: that may be the first that a search comes
    by, or one of another connection long ago."""
    batches = without(input_of(name), share, seed=3)
    found = whole(batches, Config())
    assert "resynchronised" in found["code"].to_pylist()
    engine = Engine(Config())
    for api in catalog().apis.values():
        for version in range(api.min_version, api.max_version + 1):
            engine.machine.learn(api.key, version)
    made = [batch for each in batches for batch in engine.feed(each)]
    assert found.equals(pa.Table.from_batches([*made, *engine.finish()]))
