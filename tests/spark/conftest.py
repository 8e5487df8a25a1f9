"""One Spark session for all tests of this directory: it takes longer to start than most of them run.

Every Java machine here is left before optimized code would pay: they are told not to make any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kwsniff.spark.sparksession import session
from tests.samples import sample
from tests.spark.rotated import rotated
from tests.spark.streams import Followed, come

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BRIEF = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


@pytest.fixture(scope="session", autouse=True)
def brief() -> None:
    """For what tests start themselves: drivers, the master and the worker of a cluster."""
    os.environ["SPARK_SUBMIT_OPTS"] = os.environ["SPARK_DAEMON_JAVA_OPTS"] = BRIEF
    os.environ["SPARK_LAUNCHER_OPTS"] = BRIEF


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session(
        "local[2]",
        spark_sql_shuffle_partitions="2",
        spark_driver_defaultJavaOptions=BRIEF,
    )
    yield made
    made.stop()


@pytest.fixture(scope="session")
def ended(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Followed, list[Path]]:
    """A stream that got its files in three steps, and was ended."""
    place = tmp_path_factory.mktemp("stream")
    files = rotated(sample("librdkafka-groups").paths, place / "all")
    followed = Followed(spark, place)
    for first, last in ((0, 3), (3, 8), (8, len(files))):
        come(files[first:last], followed.source)
        followed.run(batch_bytes=40_000)
    followed.run(end=True)
    return followed, [followed.source / file.name for file in files]
