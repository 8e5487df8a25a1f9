"""What tasks keep for each other comes out of its file as it went in."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path

import numpy as np

from kwsniff.capture.place import Place
from kwsniff.config import Config
from kwsniff.run.part import ORDER_BITS, STORED, PartEngine, PartSummary
from kwsniff.run.plan import cut
from kwsniff.run.reading import SplitReader
from kwsniff.spark.tasks import fetched, kept
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


def test_a_summary_in_a_fraction_of_the_bytes(tmp_path: Path) -> None:
    made = summary()
    url, size = kept(Place.of(tmp_path), made)
    assert len(made.edges)
    assert same(fetched(url), made)
    assert Path(url).stat().st_size == size < len(pickle.dumps(made)) / 5


def test_payload_that_is_left_in_the_file(tmp_path: Path) -> None:
    path = sample("kafka-0.8").paths[0]
    splits = cut(path, [Path(path).stat().st_size // 3], Config())
    engine = PartEngine(Config(), SEED, 1 << ORDER_BITS, first=False)
    list(engine.part(SplitReader(splits, 1, Config()).columns()))
    made = engine.summary()
    assert (made.edges["buffer"] == STORED).any()
    assert same(fetched(kept(Place.of(tmp_path), made)[0]), made)
