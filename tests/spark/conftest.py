"""One Spark session for all tests of this directory: it takes longer to start than most of them run.

Every Java machine here is left before optimized code would pay: they are told not to make any.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from kwsniff.spark.session import session

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
