"""The data sources give what the package itself gives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kwsniff.capture.source import segments
from kwsniff.spark.source import register
from tests.samples import CAPTURES, sample

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATH = str(CAPTURES / "librdkafka-groups.pcapng")


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    register(spark)
    return spark.read.format("kwsniff").load(PATH)


def test_a_pattern_gives_the_events_of_its_files(frame: DataFrame, spark: SparkSession) -> None:
    found = spark.read.format("kwsniff").option("partitions", 3).load(PATH.replace("groups", "g*"))
    kinds = {row["event"]: row["count"] for row in found.groupBy("event").count().collect()}
    rows = sample("librdkafka-groups").events()
    assert kinds == {kind: sum(row["event"] == kind for row in rows) for kind in kinds}
    assert sum(kinds.values()) == len(rows)


def test_filters_choose_the_same_rows(frame: DataFrame) -> None:
    wanted = [
        row for row in sample("librdkafka-groups").calls if row["api"] == "Fetch" and row["api_version"] > 3
    ]
    found = frame.where("api = 'Fetch' and api_version > 3 and latency_us >= 0").select("correlation_id")
    expected = sorted(row["correlation_id"] for row in wanted if (row["latency_us"] or -1) >= 0)
    assert expected
    assert sorted(row.correlation_id for row in found.collect()) == expected


def test_columns_can_be_chosen(frame: DataFrame, spark: SparkSession) -> None:
    found = spark.read.format("kwsniff").option("columns", "api, latency_us").load(PATH)
    assert found.columns == ["api", "latency_us"]
    assert found.where("api = 'Metadata'").count() == sum(
        row["api"] == "Metadata" for row in sample("librdkafka-groups").calls
    )


def test_segments_carry_their_payload(frame: DataFrame, spark: SparkSession) -> None:
    found = spark.read.format("kwsniff_segments").load(PATH).select("packet", "payload").collect()
    expected = [row for batch in segments([PATH]) for row in batch.select(["packet", "payload"]).to_pylist()]
    assert any(row["payload"] for row in expected)
    assert [(row.packet, None if row.payload is None else bytes(row.payload)) for row in found] == [
        (row["packet"], row["payload"]) for row in expected
    ]
