"""One Spark session for all tests of this directory: it takes longer to start than most of them run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kwsniff.spark.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    made = session(
        "local[2]",
        spark_sql_shuffle_partitions="2",
        spark_driver_defaultJavaOptions="-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    )
    yield made
    made.stop()
