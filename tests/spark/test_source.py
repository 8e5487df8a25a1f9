"""The data sources give what the package itself gives."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from kwsniff.capture.source import segments
from kwsniff.spark.source import register
from tests.samples import CAPTURES, sample
from tests.spark.rotated import rotated

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


def test_a_span_of_time_and_a_list_of_apis_choose_the_same_rows(frame: DataFrame) -> None:
    calls = sample("librdkafka-groups").calls
    first, last = (sorted(row["time"] for row in calls)[at] for at in (40, 200))
    inside = f.col("time").between(first, last) & f.col("api").isin("Fetch", "OffsetCommit")
    wanted = [
        row["correlation_id"]
        for row in calls
        if first <= row["time"] <= last and row["api"] in ("Fetch", "OffsetCommit")
    ]
    found = frame.where(inside)
    assert 0 < len(wanted) < 161
    assert sorted(row.correlation_id for row in found.collect()) == sorted(wanted)
    assert "Filter" not in found._jdf.queryExecution().optimizedPlan().toString()


def test_a_brokers_port_chooses_its_connections(frame: DataFrame) -> None:
    rows = [row for row in sample("librdkafka-groups").events() if row["broker_port"] is not None]
    ports = {row["broker_port"] for row in rows}
    for port in ports:
        found = frame.where(f"broker_port = {port}").groupBy("event").count().collect()
        kinds = [row["event"] for row in rows if row["broker_port"] == port]
        assert {row["event"]: row["count"] for row in found} == {kind: kinds.count(kind) for kind in kinds}
    assert frame.where("broker_port = 1").count() == 0


def test_options_are_those_of_the_command_line(spark: SparkSession, frame: DataFrame) -> None:
    read = spark.read.format("kwsniff").option("port", "9092,19000-19100").option("max_memory", "1G")
    calls = read.option("full", "true").load(PATH).where("event = 'call'")
    rows = sample("librdkafka-groups").events(ports=(9092, *range(19000, 19101)), full=True)
    assert {row.request for row in calls.select("request").collect()} == {
        row["request"] for row in rows if row["event"] == "call"
    }
    for option, text in (("port", "none"), ("max_memory", "much"), ("columns", "nothing")):
        with pytest.raises(Exception, match=text):
            spark.read.format("kwsniff").option(option, text).load(PATH).count()


@pytest.mark.parametrize("name", ["librdkafka-groups", "ipv6", "snaplen-128"])
def test_packets_are_those_that_tshark_saw(spark: SparkSession, frame: DataFrame, name: str) -> None:
    found = spark.read.format("kwsniff_packets").load(",".join(sample(name).paths)).collect()
    by_number = {row.packet: row for row in found}
    assert sorted(by_number) == list(range(1, len(found) + 1))
    compared = 0
    for wanted in sample(name).tshark():
        row = by_number[int(wanted["frame.number"])]
        assert row.src_ip == (wanted["ip.src"] or wanted["ipv6.src"])
        assert (row.src_port, row.dst_port) == (int(wanted["tcp.srcport"]), int(wanted["tcp.dstport"]))
        assert row.captured <= row.length
        assert row.payload_bytes > 0
        compared += 1
    assert compared


def test_a_span_of_time_opens_only_files_that_can_hold_it(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    files = rotated(sample("librdkafka-groups").paths, tmp_path)
    packets = spark.read.format("kwsniff_packets").load(str(tmp_path))
    third = packets.where(f.col("capture") == str(files[2])).agg(f.max("time")).first()[0]
    shutil.copyfile(files[0], tmp_path / "early.pcap")
    early = packets.where(f.col("time") <= third)
    assert early.count() == sum(row.time <= third for row in packets.select("time").collect())


def test_a_file_url_and_a_pattern_are_read_in_the_workers(spark: SparkSession, frame: DataFrame) -> None:
    for path in (f"file://{PATH}", PATH.replace("groups", "g[r]oups"), PATH.replace("captures", "capture?")):
        assert spark.read.format("kwsniff").load(path).count() == frame.count()


def test_a_stream_of_files_can_be_grouped_by_spark_itself(
    spark: SparkSession, frame: DataFrame, tmp_path: Path
) -> None:
    rotated(sample("librdkafka-groups").paths, tmp_path / "in", 300)
    read = spark.readStream.format("kwsniff").option("state", str(tmp_path / "state")).option("quiet", "0")
    calls = read.option("batch_bytes", "60000").load(str(tmp_path / "in"))
    calls = calls.where("event = 'call' and status != 'unanswered'")
    counted = calls.withWatermark("time", "2 seconds").groupBy(f.window("time", "5 seconds"), "api").count()
    writer = counted.writeStream.format("memory").queryName("counted").outputMode("append")
    query = writer.option("checkpointLocation", str(tmp_path / "kept")).trigger(availableNow=True).start()
    query.awaitTermination()
    found = {(row.window.start, row.api): row["count"] for row in spark.table("counted").collect()}
    whole = calls_by_window(max(start for start, _ in found))
    assert found == whole
    assert len(found) > 5


def calls_by_window(last: datetime) -> dict[tuple[datetime, str], int]:
    """Answered calls by API in each 5 seconds up to those that begin at `last`."""
    counts: dict[tuple[datetime, str], int] = {}
    for row in sample("librdkafka-groups").calls:
        start = datetime.fromtimestamp(int(row["time"].timestamp()) // 5 * 5)
        if start <= last and row["status"] != "unanswered":
            counts[start, row["api"]] = counts.get((start, row["api"]), 0) + 1
    return counts
