"""What tasks keep for each other comes out of its file as it went in."""

from __future__ import annotations

import importlib
import pickle
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyspark

from kwsniff.capture.place import Place
from kwsniff.config import Config
from kwsniff.run.part import ORDER_BITS, STORED, PartEngine, PartSummary, SplitReader
from kwsniff.run.plan import cut
from kwsniff.spark.sparksession import unpacked
from kwsniff.spark.tasks import fetched, kept, run
from tests.parts.cutting import SEED, input_of
from tests.samples import sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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


# Where the daemon of workers takes PySpark from.


def test_workers_run_the_installed_pyspark(spark: SparkSession) -> None:
    def work(name: str) -> str | None:
        return importlib.import_module(name).__file__

    import py4j

    assert run(spark, "look", ["pyspark", "py4j"], work) == [pyspark.__file__, py4j.__file__]


def test_only_archives_of_an_installed_pyspark_are_put_last(tmp_path: Path) -> None:
    installed = tmp_path / "site-packages"
    for name in ("pyspark", "py4j"):
        (installed / name).mkdir(parents=True)
        (installed / name / "__init__.py").touch()
    own = [str(installed / "pyspark/python/lib" / name) for name in ("pyspark.zip", "py4j-0.10.9.9-src.zip")]
    shipped, elsewhere = str(tmp_path / "job.zip"), str(tmp_path / "spark/python/lib/pyspark.zip")
    others = ["", shipped, elsewhere, str(installed)]
    assert unpacked([*own, *others]) == [*others, *own]
    assert unpacked([*own, "", shipped]) == [*own, "", shipped]
    (installed / "py4j/__init__.py").unlink()
    assert unpacked([*own, *others]) == [own[1], *others, own[0]]
