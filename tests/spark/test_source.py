"""The data sources give what the package itself gives."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as f

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.run.offline import events
from kwsniff.run.plan import pieces
from kwsniff.spark.datasource import register
from kwsniff.spark.sparksession import java_home
from tests.samples import CAPTURES, sample
from tests.spark.rotated import rotated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PATH = str(CAPTURES / "librdkafka-groups.pcapng")


@pytest.fixture
def frame(spark: SparkSession) -> DataFrame:
    register(spark)
    return spark.read.format("kwsniff").load(PATH)


def kinds(found: DataFrame) -> dict[str, int]:
    return {row["event"]: row["count"] for row in found.groupBy("event").count().collect()}


def expected(*names: str) -> dict[str, int]:
    """Events by kind, of each file by itself."""
    counts: Counter[str] = Counter()
    for name in names:
        for path in sample(name).paths:
            for batch in events([path], Config()):
                counts.update(batch["event"].to_pylist())
    return dict(counts)


def test_each_file_is_a_part_by_itself(frame: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    paths = [path for name in ("librdkafka-groups", "java-groups") for path in sample(name).paths]
    found = spark.read.format("kwsniff").load(paths)
    assert found.rdd.getNumPartitions() == 2
    assert kinds(found) == expected("librdkafka-groups", "java-groups")
    files = rotated(sample("librdkafka-groups").paths, tmp_path, 300)
    parts = spark.read.format("kwsniff").load(str(tmp_path))
    assert parts.rdd.getNumPartitions() == len(files) > 2
    counts: Counter[str] = Counter()
    for file in files:
        for batch in events([str(file)], Config()):
            counts.update(batch["event"].to_pylist())
    assert kinds(parts) == dict(counts)


def test_files_read_together_are_one_capture(frame: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    rotated(sample("librdkafka-groups").paths, tmp_path, 300)
    found = spark.read.format("kwsniff").option("together", "true").load(str(tmp_path))
    assert found.rdd.getNumPartitions() == 1
    assert kinds(found) == expected("librdkafka-groups")


def test_ranges_of_a_large_file_are_parts(frame: DataFrame, spark: SparkSession, tmp_path: Path) -> None:
    (file,) = rotated(sample("hot-partition").paths, tmp_path / "whole", 1 << 30)
    found = spark.read.format("kwsniff").option("split_size", "1").load(str(file))
    assert found.rdd.getNumPartitions() == 2
    (first, second) = pieces(str(file), Config(), 1 << 20)
    assert (first.end, second.end) == (second.start, file.stat().st_size)
    # The same bytes as two files.
    data = file.read_bytes()
    counts: Counter[str] = Counter()
    for number, split in enumerate((first, second)):
        own = tmp_path / f"{number}.pcap"
        own.write_bytes(split.prelude + data[split.start : split.end])
        for batch in events([str(own)], Config()):
            counts.update(batch["event"].to_pylist())
    assert kinds(found) == dict(counts)


def test_a_filter_leaves_other_results_as_they_are(frame: DataFrame) -> None:
    rows = sample("librdkafka-groups").events()
    fetches = sum(row["api"] == "Fetch" for row in rows)
    assert 0 < fetches < len(rows)
    assert frame.count() == len(rows)
    assert frame.where("api = 'Fetch'").count() == fetches
    assert frame.count() == len(rows)
    commits = sum(row["api"] == "OffsetCommit" for row in rows)
    both = frame.where("api = 'Fetch'").union(frame.where("api = 'OffsetCommit'"))
    assert both.count() == fetches + commits > fetches


@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_filters_are_never_pushed_whatever_the_session_allows(
    frame: DataFrame, spark: SparkSession, pushdown: str
) -> None:
    """In Spark 4.3 a pushed filter stays with the DataFrame: 363, 131, and 131 again."""
    setting = "spark.sql.python.filterPushdown.enabled"
    before = spark.conf.get(setting)
    spark.conf.set(setting, pushdown)
    try:
        rows = sample("librdkafka-groups").events()
        fetches = [row for row in rows if row["api"] == "Fetch"]
        errors = [row for row in rows if row["event"] == "call" and row["status"] == "error"]
        assert fetches
        assert errors
        some, others = frame.where("api = 'Fetch'"), frame.where("event = 'call' and status = 'error'")
        counts = [frame.count(), some.count(), frame.count(), others.count(), some.union(others).count()]
        assert counts == [len(rows), len(fetches), len(rows), len(errors), len(fetches) + len(errors)]
    finally:
        spark.conf.set(setting, before or "false")


def test_options_say_which_rows_are_wanted(frame: DataFrame, spark: SparkSession) -> None:
    calls = sample("librdkafka-groups").calls
    first, last = (sorted(row["time"] for row in calls)[at] for at in (40, 200))
    read = spark.read.format("kwsniff").option("where", "api in ('Fetch', 'OffsetCommit')")
    found = read.option("since", first.isoformat()).option("until", last.isoformat()).load(PATH)
    wanted = [
        row["correlation_id"]
        for row in calls
        if first <= row["time"] < last and row["api"] in ("Fetch", "OffsetCommit")
    ]
    assert 0 < len(wanted) < 161
    assert sorted(row.correlation_id for row in found.collect()) == sorted(wanted)
    read = spark.read.format("kwsniff").option("where", "api in ('Fetch', 'OffsetCommit')")
    chosen = read.option("columns", "latency_us").load(PATH)  # without the column that is asked about
    assert chosen.count() == sum(row["api"] in ("Fetch", "OffsetCommit") for row in calls)


def test_a_schema_can_be_given(frame: DataFrame, spark: SparkSession) -> None:
    found = spark.read.format("kwsniff").schema("latency_us double, api string").load(PATH)
    assert found.columns == ["latency_us", "api"]
    calls = sample("librdkafka-groups").calls
    assert found.where("api = 'Metadata'").count() == sum(row["api"] == "Metadata" for row in calls)
    with pytest.raises(Exception, match="kwsniff has no column 'nothing'"):
        spark.read.format("kwsniff").schema("nothing string").load(PATH).count()


DEFAULT = """
import sys
from pyspark.sql import SparkSession
from kwsniff.config import Config
from kwsniff.run.offline import events
from kwsniff.spark.sparksession import java_home
from kwsniff.spark.datasource import register
from kwsniff.run.plan import pieces
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
frame = spark.read.format("kwsniff").load(sys.argv[1])
print(frame.count(), frame.where("api = 'Fetch' and api_version > 3").count(), frame.count())
"""


@pytest.mark.costly
def test_a_session_with_spark_s_own_settings_will_do() -> None:
    environment = {**os.environ, "JAVA_HOME": java_home(), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run(
        [sys.executable, "-c", DEFAULT, PATH], env=environment, capture_output=True, text=True, timeout=200,
        check=False,
    )  # fmt: skip
    rows = sample("librdkafka-groups").events()
    fetches = sum(row["api"] == "Fetch" and row["api_version"] > 3 for row in rows)
    assert done.stdout.split() == [str(len(rows)), str(fetches), str(len(rows))], done.stderr[-2000:]


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


def test_options_are_those_of_the_command_line(spark: SparkSession, frame: DataFrame) -> None:
    read = spark.read.format("kwsniff").option("port", "9092,19000-19100").option("max_memory", "1G")
    calls = read.option("full", "true").load(PATH).where("event = 'call'")
    rows = sample("librdkafka-groups").events(ports=(9092, *range(19000, 19101)), full=True)
    assert {row.request for row in calls.select("request").collect()} == {
        row["request"] for row in rows if row["event"] == "call"
    }
    for option, text in (
        ("port", "none"),
        ("port", "9093-9092"),
        ("max_memory", "much"),
        ("columns", "nothing"),
        ("where", "Fecth"),
        ("split_size", "small"),
    ):
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
