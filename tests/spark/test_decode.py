"""Spark yields the events of one process, row for row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kwsniff.config import Config
from kwsniff.offline import events
from kwsniff.spark.decode import ROWS, TOTALS, decoded
from kwsniff.table import EVENTS
from tests.samples import names, sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def one_process(paths: list[str], config: Config) -> pa.Table:
    return pa.Table.from_batches(list(events(paths, config)), EVENTS)


def in_spark(spark: SparkSession, paths: list[str], config: Config, **choices: Any) -> pa.Table:
    table = decoded(spark, paths, config, **choices).toArrow().cast(ROWS)
    kept = table.filter(pc.not_equal(table["event"], TOTALS))
    return kept.sort_by("position").drop(["position"])


@pytest.mark.parametrize("name", names())
def test_events_of_every_sample_are_those_of_one_process(spark: SparkSession, name: str) -> None:
    config = Config(block_packets=100)
    expected = one_process(sample(name).paths, config)
    assert expected.num_rows
    assert in_spark(spark, sample(name).paths, config, shards=3).equals(expected)


def test_bodies_are_the_same(spark: SparkSession) -> None:
    config = Config(full=True)
    paths = sample("librdkafka-groups").paths
    expected = one_process(paths, config)
    assert expected["request"].null_count < expected.num_rows
    assert in_spark(spark, paths, config).equals(expected)


@pytest.mark.parametrize("shards", [1, 2, 7, 50])
def test_any_number_of_tasks_gives_the_same(spark: SparkSession, shards: int) -> None:
    config = Config(block_packets=200)
    paths = [path for name in ("quorum", "midstream") for path in sample(name).paths]
    assert in_spark(spark, paths, config, shards=shards).equals(one_process(paths, config))


def test_files_of_a_rotation_given_out_of_order_are_read_in_order(spark: SparkSession) -> None:
    rotated = next(name for name in names() if len(sample(name).paths) > 1)
    paths = sample(rotated).paths
    assert in_spark(spark, paths[::-1], Config()).equals(one_process(paths, Config()))
