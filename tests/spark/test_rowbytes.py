"""Rows of events come out of few bytes as they went in."""

from __future__ import annotations

import zlib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwsniff.config import Config
from kwsniff.parts.part import PartEngine
from kwsniff.spark.joining import placed
from kwsniff.spark.rowbytes import FOLLOWS, packed_rows, unpacked_rows
from kwsniff.spark.staged import STAGED
from tests.parts.cutting import SEED, input_of, without
from tests.samples import names


def rows_of(name: str, *, lost: float = 0.0) -> list[pa.RecordBatch]:
    engine = PartEngine(Config(full=True), SEED, 0, first=True)
    segments = without(input_of(name), lost, 7) if lost else input_of(name)
    made = [placed(emitted, 1) for emitted in engine.part(segments)]
    emitted = [engine.emitted(batch) for batch in engine.finish()]
    return [*made, *(placed(each, 1) for each in emitted)]


def same(batch: pa.RecordBatch) -> int:
    """Bytes that it takes."""
    data = packed_rows(batch)
    found = unpacked_rows(data)
    found.validate(full=True)
    assert found.equals(batch)
    return len(data)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("lost", [0.0, 0.1])
@pytest.mark.parametrize("name", names())
def test_rows_of_every_sample_and_slices_of_them(name: str, lost: float) -> None:
    for batch in rows_of(name, lost=lost):
        same(batch)
        if len(batch) > 3:
            same(batch.slice(3, len(batch) // 2))
        chance = np.random.default_rng(zlib.crc32(name.encode()))
        same(batch.take(pa.array(chance.permutation(len(batch)))))


def test_they_take_a_fifth_of_what_arrow_makes() -> None:
    largest = max(rows_of("librdkafka-groups"), key=lambda batch: batch.num_rows)
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, largest.schema, options=options) as stream:
        stream.write_batch(largest)
    assert 5 * same(largest) < len(sink.getvalue())


TIMES = st.integers(0, 9_200_000_000_000_000)
REALS = st.one_of(st.none(), st.floats(), st.integers(-(10**9), 10**9).map(lambda number: number / 1000))


@given(
    times=st.lists(st.one_of(st.none(), TIMES), min_size=70, max_size=70),
    reals=st.lists(REALS, min_size=70, max_size=70),
    broker=st.lists(REALS, min_size=70, max_size=70),
)
def test_columns_that_follow_from_others_may_be_anything(
    times: list[int | None], reals: list[float | None], broker: list[float | None]
) -> None:
    """Also null where the others are not, and numbers that are no duration."""
    given = {
        "request_time": times, "response_time": times[::-1], "time": times[7:] + times[:7],
        "latency_us": reals, "queued_us": reals[::-1], "broker_us": broker,
        "position": list(range(70)), "rank": [0] * 70, "number": [-3, 5] * 35,
    }  # fmt: skip
    columns = [pa.array(given.get(field.name, [None] * 70), field.type) for field in STAGED]
    found = unpacked_rows(packed_rows(pa.RecordBatch.from_arrays(columns, schema=STAGED)))
    for name, values in given.items():
        if name not in ("latency_us", "queued_us", "broker_us"):
            assert found[name].equals(pa.array(values, STAGED.field(name).type))
        else:  # NaN is not equal to itself, and -0.0 to 0.0
            assert list(map(repr, found[name].to_pylist())) == list(map(repr, values))


def test_what_follows_stands_behind_what_it_follows() -> None:
    for name, others in FOLLOWS.items():
        assert all(other not in FOLLOWS or list(FOLLOWS).index(other) < list(FOLLOWS).index(name)
                   for other, _ in others)  # fmt: skip
