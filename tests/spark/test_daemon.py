"""Where the daemon of workers takes PySpark from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark

from kwsniff.spark.control import EMITTED, batched, tasks
from kwsniff.spark.daemon import unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_the_installed_pyspark(spark: SparkSession) -> None:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import py4j
        import pyspark

        yield from batched({"kind": EMITTED, "detail": each.__file__} for each in (pyspark, py4j))

    import py4j

    assert tasks(spark, "look", 1, work)["detail"].to_pylist() == [pyspark.__file__, py4j.__file__]


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
