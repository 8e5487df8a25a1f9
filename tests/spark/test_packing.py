"""Summaries come out of their packing as they went in, in a fraction of the bytes."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import numpy as np

from kwsniff.config import Config
from kwsniff.parts.part import ORDER_BITS, STORED, PartEngine, PartSummary
from kwsniff.parts.payload import with_payload
from kwsniff.parts.plan import cut
from kwsniff.parts.reading import SplitReader
from kwsniff.spark.packing import (
    packed_object,
    packed_summary,
    unpacked_object,
    unpacked_summary,
)
from tests.parts.cutting import SEED, input_of
from tests.samples import sample


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


def test_a_summary_and_the_payload_of_its_heads() -> None:
    made = summary()
    found = unpacked_summary(packed_summary(made))
    assert len(made.edges)
    for edges, payload, own, data in (
        (made.edges, made.payload, found.edges, found.payload),
        (made.spare, made.spare_payload, found.spare, found.spare_payload),
    ):
        assert [data[at : at + size] for at, size in own[["start", "captured"]].tolist()] == [
            payload[at : at + size] for at, size in edges[["start", "captured"]].tolist()
        ]
        rest = [name for name in edges.dtype.names if name != "start"]
        assert np.array_equal(own[rest], edges[rest])
    for name in ("lefts", "ends", "births", "tail", "captures", "clock", "order", "most"):
        assert same(getattr(made, name), getattr(found, name)), name


def test_payload_that_is_left_in_the_file() -> None:
    path = sample("kafka-0.8").paths[0]
    splits = cut(path, [Path(path).stat().st_size // 3], Config())
    engine = PartEngine(Config(), SEED, 1 << ORDER_BITS, first=False)
    list(engine.part(SplitReader(splits, 1, Config()).columns()))
    made = engine.summary()
    assert (made.edges["buffer"] == STORED).any()
    found = unpacked_summary(packed_summary(made))
    stored = made.edges["buffer"] == STORED
    assert np.array_equal(found.edges[stored], made.edges[stored])
    made, found = with_payload(made), with_payload(found)
    assert [found.payload[at : at + size] for at, size in found.edges[["start", "captured"]].tolist()] == [
        made.payload[at : at + size] for at, size in made.edges[["start", "captured"]].tolist()
    ]


def test_it_is_smaller_than_plain_numbers() -> None:
    made = summary()
    assert len(packed_summary(made)) < len(pickle.dumps(made)) / 5


def test_numbers_of_any_size() -> None:
    lowest, highest = np.iinfo(np.int64).min, np.iinfo(np.int64).max
    numbers = np.array([lowest, highest, 0, -1, highest] * 20)
    assert np.array_equal(unpacked_object(packed_object(numbers)), numbers)
