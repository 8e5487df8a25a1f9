"""What tasks tell each other comes out of its bytes as it went in."""

from __future__ import annotations

import pickle
import zlib
from dataclasses import fields
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from kwsniff.config import Config
from kwsniff.parts.part import ORDER_BITS, STORED, PartEngine, PartSummary
from kwsniff.parts.plan import cut
from kwsniff.parts.reading import SplitReader
from kwsniff.spark.joining import placed
from kwsniff.spark.packing import packed_object, packed_rows, unpacked_object, unpacked_rows
from kwsniff.spark.staged import STAGED
from tests.parts.cutting import SEED, input_of, without
from tests.samples import names, sample


def summary() -> PartSummary:
    batches = input_of("librdkafka-groups")
    engine = PartEngine(Config(), SEED, 1 << ORDER_BITS, first=False)
    list(engine.part(batches[len(batches) // 2 :]))
    return engine.summary()


def same(one: object, other: object) -> bool:
    if isinstance(one, np.ndarray):
        return bool(np.array_equal(one, other))
    if hasattr(one, "__dataclass_fields__"):
        return all(same(getattr(one, each.name), getattr(other, each.name)) for each in fields(one))
    return one == other


def test_a_summary_in_a_fraction_of_the_bytes() -> None:
    made = summary()
    data = packed_object(made)
    assert len(made.edges)
    assert same(unpacked_object(data), made)
    assert len(data) < len(pickle.dumps(made)) / 5


def test_payload_that_is_left_in_the_file() -> None:
    path = sample("kafka-0.8").paths[0]
    splits = cut(path, [Path(path).stat().st_size // 3], Config())
    engine = PartEngine(Config(), SEED, 1 << ORDER_BITS, first=False)
    list(engine.part(SplitReader(splits, 1, Config()).columns()))
    made = engine.summary()
    assert (made.edges["buffer"] == STORED).any()
    assert same(unpacked_object(packed_object(made)), made)


def rows_of(name: str, *, lost: float = 0.0) -> list[pa.RecordBatch]:
    engine = PartEngine(Config(full=True), SEED, 0, first=True)
    segments = without(input_of(name), lost, 7) if lost else input_of(name)
    made = [placed(emitted, 1) for emitted in engine.part(segments)]
    emitted = [engine.emitted(batch) for batch in engine.finish()]
    return [*made, *(placed(each, 1) for each in emitted)]


def comes_out_as_it_went_in(batch: pa.RecordBatch) -> None:
    found = unpacked_rows(packed_rows(batch))
    found.validate(full=True)
    assert found.equals(batch)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("lost", [0.0, 0.1])
@pytest.mark.parametrize("name", names())
def test_rows_of_every_sample_and_slices_of_them(name: str, lost: float) -> None:
    for batch in rows_of(name, lost=lost):
        comes_out_as_it_went_in(batch)
        if len(batch) > 3:
            comes_out_as_it_went_in(batch.slice(3, len(batch) // 2))
        chance = np.random.default_rng(zlib.crc32(name.encode()))
        comes_out_as_it_went_in(batch.take(pa.array(chance.permutation(len(batch)))))


def test_rows_without_any_value() -> None:
    comes_out_as_it_went_in(
        pa.RecordBatch.from_arrays([pa.nulls(3, each.type) for each in STAGED], schema=STAGED)
    )
