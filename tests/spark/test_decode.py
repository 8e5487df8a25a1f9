"""Spark yields the events of one process, row for row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from kwsniff.capture.place import Place
from kwsniff.config import Config
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.spark.resulttables import ROWS
from kwsniff.spark.splits import decode_shares
from kwsniff.spark.staged import stored
from tests.samples import names, sample

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def one_process(paths: list[str], config: Config) -> pa.Table:
    return pa.Table.from_batches(list(events(paths, config)), EVENTS)


def in_spark(spark: SparkSession, place: Path, paths: list[str], config: Config, shards: int = 2) -> pa.Table:
    files, _ = decode_shares(spark, paths, config, Place.of(place), 0, shards)
    batches = [batch for file in files for batch in stored(file.path)]
    assert sum(file.rows for file in files) == sum(batch.num_rows for batch in batches)
    return pa.Table.from_batches(batches, ROWS).sort_by("position").drop(["position"])


@pytest.mark.one_of(5)
@pytest.mark.parametrize("name", names())
def test_events_of_every_sample_are_those_of_one_process(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    config = Config(block_packets=100)
    expected = one_process(sample(name).paths, config)
    assert expected.num_rows
    assert in_spark(spark, tmp_path, sample(name).paths, config, shards=3).equals(expected)


def test_bodies_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    config = Config(full=True)
    paths = sample("librdkafka-groups").paths
    expected = one_process(paths, config)
    assert expected["request"].null_count < expected.num_rows
    assert in_spark(spark, tmp_path, paths, config).equals(expected)


@pytest.mark.one_of(2)
@pytest.mark.parametrize("shards", [7, 2, 1, 50])
def test_any_number_of_tasks_gives_the_same(spark: SparkSession, tmp_path: Path, shards: int) -> None:
    config = Config(block_packets=200)
    paths = [path for name in ("quorum", "midstream") for path in sample(name).paths]
    found = in_spark(spark, tmp_path, paths, config, shards=shards).to_pylist()
    expected = one_process(paths, config).to_pylist()
    # What one packet settles of several silent connections has one place, so in any order.
    assert sorted(map(repr, found)) == sorted(map(repr, expected))
    assert [row["event"] for row in found] == [row["event"] for row in expected]


def test_files_of_a_rotation_given_out_of_order_are_read_in_order(
    spark: SparkSession, tmp_path: Path
) -> None:
    rotated = next(name for name in names() if len(sample(name).paths) > 1)
    paths = sample(rotated).paths
    assert in_spark(spark, tmp_path, paths[::-1], Config()).equals(one_process(paths, Config()))
