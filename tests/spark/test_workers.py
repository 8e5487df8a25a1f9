"""Where the daemon of workers takes PySpark from."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from kwsniff.spark.sparksession import unpacked
from kwsniff.spark.tasks import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
