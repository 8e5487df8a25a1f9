"""Read in splits on Spark, captures give the events of one process."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from kwsniff.analysis.report import Report
from kwsniff.analysis.statistics import TABLES
from kwsniff.capture.place import Place
from kwsniff.config import MIB, Config
from kwsniff.count.naming import named
from kwsniff.count.topics import FIXED, TopicNames
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.run.plan import Split
from kwsniff.spark import finish, job, splits
from kwsniff.spark.files import Stored
from kwsniff.spark.finish import Finish, Group
from kwsniff.spark.results import Manifest, Results
from kwsniff.spark.resulttables import OF_EVENTS
from kwsniff.spark.splits import SplitRun, make_plan, split_bytes
from kwsniff.spark.version import Version
from tests.capture.files import frames, ng_enhanced, ng_interface, ng_secrets, ng_section, pcap, pcapng
from tests.damage.mutants import MUTATIONS, packets, write
from tests.parts.compare import SMALL, counted, cut_at, one_process
from tests.parts.cutting import plan
from tests.parts.test_talks import plain
from tests.samples import CAPTURES, names, sample
from tests.spark.rotated import rotated
from tests.spark.test_job import stored
from tests.spark.test_learnt import unpacked
from tests.strength import ALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = ["librdkafka-groups", "rotation", "tls"]
PATHS = [path for name in NAMES for path in sample(name).paths]


def test_with_a_key_log_or_secrets_at_the_beginning_of_a_file_all_input_is_one_split(tmp_path: Path) -> None:
    begins = ng_section() + ng_interface() + ng_secrets(b"abc")
    for number in range(3):
        packets = frames(9)
        data = begins + b"".join(map(ng_enhanced, packets)) if number == 1 else pcapng(packets)
        (tmp_path / f"{number}.pcapng").write_bytes(data)
    first, *rest = (str(tmp_path / f"{number}.pcapng") for number in range(3))
    whole = [Split(first, more=tuple(rest))]
    # It needs no Spark for that.
    assert make_plan(None, [str(tmp_path)], Config(), 100) == whole  # type: ignore[arg-type]
    Path(rest[0]).unlink()
    whole = [Split(first, more=(rest[1],))]
    assert make_plan(None, [str(tmp_path)], Config(keylog="keys"), 100) == whole  # type: ignore[arg-type]


def rows(table: pa.Table) -> Counter[str]:
    return counted(table.select(EVENTS.names).cast(EVENTS).to_pylist())


def with_names(paths: list[str], config: Config) -> Counter[str]:
    """The rows of one process."""
    return rows(pa.Table.from_batches(list(named(events(paths, config))), EVENTS))


def finished(spark: SparkSession, run: SplitRun, place: Path) -> Counter[str]:
    """The rows that a run comes to, in two groups of splits. What they name is what tasks tell of it."""
    run.join()
    half = len(run.files) // 2
    groups = [Group(files, corrections=run.corrections) for files in (run.files[:half], run.files[half:])]
    groups[1].before.extend(file for file in groups[0].files if file.split == groups[1].files[0].split)
    parts = groups, Version(Place.of(place), None)
    finish = Finish(spark, *parts, names=run.names)
    assert finish.topic_names() == Finish(spark, *parts).topic_names()
    finish.run()
    tables: dict[str, list[Stored]] = {table.name: [] for table in OF_EVENTS}
    for file in finish.files:
        tables[file.table].append(file)
    Manifest("", "", {}, 1, [], tables=tables).write(Place.of(place))
    return rows(stored(place))


def test_events_and_totals_of_many_splits(spark: SparkSession, tmp_path: Path) -> None:
    expected = one_process(PATHS)
    run = SplitRun(spark, make_plan(spark, PATHS, SMALL, 25_000), SMALL, Place.of(tmp_path / "staging"), 0)
    assert run.decode()
    assert finished(spark, run, tmp_path / "done") == with_names(PATHS, SMALL)
    assert run.totals == expected.totals
    account = run.account
    assert account.splits > 10
    assert account.shuffled_bytes > account.summary_bytes > 0


@pytest.mark.parametrize("count", [0, 3])
def test_several_tasks_finish_the_rows_of_one_split(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Rows that joining tells lie between them, and some packets settle several rows."""
    monkeypatch.setattr(splits, "ROLLED", 0)
    monkeypatch.setattr(finish, "LEAST_BYTES", 1)
    monkeypatch.setattr(finish, "FILES_BYTES", 1)
    monkeypatch.setattr(finish, "TINY", 0)  # all files stay as they are
    link, everything = packets(unpacked("java-groups", tmp_path)[0])
    lost = MUTATIONS["1 % of packets dropped"](everything, random.Random(3))
    path = str(write(tmp_path / "lost.pcap", link, lost))
    cut = cut_at([path], [number / (count + 1) for number in range(1, count + 1)])
    monkeypatch.setattr(job, "make_plan", lambda *_: cut)
    done = job.run(spark, [path], tmp_path / "out", SMALL)
    files = {Path(file.path).name.split("-")[1] for file in done.manifest.tables["calls"]}
    assert len(files) > 2 * (count + 1)
    found = Results(tmp_path / "out").events().select(EVENTS.names)
    assert found.equals(pa.Table.from_batches(list(named(events([path], SMALL))), EVENTS))


def test_tasks_find_the_cuts_that_following_each_file_whole_gives(
    spark: SparkSession, tmp_path: Path
) -> None:
    plain = pcap(frames(300))
    contents = {
        "a.pcap": plain, "b.pcap.gz": gzip.compress(pcap(frames(3000))), "c.pcapng": pcapng(frames(200)),
        "d.pcap": plain[:9000] + bytes(range(200)) + plain[9000:], "e.pcap": pcap(frames(20)),
        "f.pcap": pcap(frames(25)),
    }  # fmt: skip
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    found = make_plan(spark, [str(tmp_path)], SMALL, 4_000)
    assert found == plan([str(tmp_path)], SMALL, 4_000)
    counts = Counter(Path(split.path).name for split in found)
    assert counts.pop("a.pcap") > 5
    assert counts.pop("c.pcapng") > 3
    assert set(counts.values()) == {1}


def test_all_samples_in_one_run(spark: SparkSession, tmp_path: Path) -> None:
    paths = [path for name in (names() if ALL else names()[::4]) for path in sample(name).paths]
    done = job.run(spark, paths, tmp_path / "out", SMALL, split=100_000 if ALL else 20_000)
    assert done.manifest.splits["splits"] > 20
    assert done.manifest.capture["files"] == len(paths)
    assert rows(stored(tmp_path / "out")) == with_names(paths, SMALL)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("count", [7, 1, 50, 2])
def test_a_capture_cut_at_any_bytes(spark: SparkSession, tmp_path: Path, count: int) -> None:
    chance = random.Random(count)
    paths = sample("kafka-0.10-clients").paths
    run = SplitRun(
        spark,
        cut_at(paths, [chance.random() for _ in range(count)]),
        SMALL,
        Place.of(tmp_path / "staging"),
        0,
    )
    assert run.decode()
    assert count / 2 < len(run.files) <= count + 1
    assert finished(spark, run, tmp_path / "done") == with_names(paths, SMALL)


def test_files_of_a_hundred_packets_given_out_of_order(spark: SparkSession, tmp_path: Path) -> None:
    files = [str(path) for path in rotated(sample("librdkafka-groups").paths, tmp_path / "files")]
    assert len(files) > 5
    largest = max(Path(file).stat().st_size for file in files)
    done = job.run(spark, files[::-1], tmp_path / "out", SMALL, split=largest)
    assert done.manifest.splits["splits"] > len(files) / 2
    assert rows(stored(tmp_path / "out")) == with_names(files, SMALL)


def test_limits_over_all_connections_are_those_of_one_process(spark: SparkSession, tmp_path: Path) -> None:
    """What one task joins alone then: shares of the connections cannot know of it."""
    config = replace(SMALL, max_outstanding_total=3, max_connections=4)
    run = SplitRun(spark, make_plan(spark, PATHS, config, 25_000), config, Place.of(tmp_path / "staging"), 0)
    assert run.decode()
    assert finished(spark, run, tmp_path / "done") == with_names(PATHS, config)
    assert run.account.whole > 0


def test_statistics_of_many_groups_are_those_of_one_pass(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "MERGED", 2)
    run = SplitRun(spark, make_plan(spark, PATHS, SMALL, 50_000), SMALL, Place.of(tmp_path / "staging"), 0)
    assert run.decode()
    run.join()
    groups = [Group([file], corrections=run.corrections) for file in run.files]
    assert len(groups) > 4
    version = Version(Place.of(tmp_path / "done"), None)
    found = Report.from_store(Finish(spark, groups, version).run().store)
    expected = Report.from_events(named(events(PATHS, SMALL)))
    for table in TABLES:
        pd.testing.assert_frame_equal(found.tables[table], expected.tables[table])


def test_statistics_of_very_many_calls_are_condensed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finish, "MOST_ROWS", 100)
    done = job.run(spark, PATHS, tmp_path, SMALL, split=100_000)
    assert done.report is not None
    found, expected = done.report.tables["api"], Report.from_events(named(events(PATHS, SMALL))).tables["api"]
    pd.testing.assert_frame_equal(
        found[["api", "calls", "latency_max_us"]], expected[["api", "calls", "latency_max_us"]]
    )
    assert 0 < done.manifest.percentile_error < 0.006
    columns = [f"latency_p{percent}_us" for percent in (50, 90, 95, 99, 999)]
    off = (found[columns] / expected[columns] - 1).abs().to_numpy(float)
    assert np.nanmax(off) <= done.manifest.percentile_error + 1e-9


def test_what_is_not_known_of_a_connection_is_decoded_again(spark: SparkSession, tmp_path: Path) -> None:
    link, everything = packets(sample("rebalance-leave").paths[0])
    lost = MUTATIONS["1 % of packets dropped"](everything, random.Random(1))
    path = str(write(tmp_path / "lost.pcap", link, lost))
    run = SplitRun(spark, cut_at([path], [0.2, 0.4, 0.6, 0.8]), SMALL, Place.of(tmp_path / "staging"), 0)
    assert run.decode()
    assert finished(spark, run, tmp_path / "done") == with_names([path], SMALL)
    assert run.account.again


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["rebalance-leave", "java-streams", "librdkafka-transactions"])
def test_topics_are_named_as_in_one_process_with_packets_lost(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    link, everything = packets(sample(name).paths[0])
    lost = MUTATIONS["1 % of packets dropped"](everything, random.Random(3))
    path = str(write(tmp_path / "lost.pcap", link, lost))
    run = SplitRun(spark, cut_at([path], [0.2, 0.4, 0.6, 0.8]), SMALL, Place.of(tmp_path / "staging"), 0)
    assert run.decode()
    run.join()
    expected = TopicNames()
    for batch in events([path], SMALL):
        expected.add(batch)
    version = Version(Place.of(tmp_path / "done"), None)
    group = Group(run.files, corrections=run.corrections)
    assert Finish(spark, [group], version, names=run.names).topic_names() | FIXED == expected.names
    assert expected.names.keys() > FIXED.keys()


def test_rows_are_read_for_names_that_nobody_told(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SplitRun, "_named", lambda *_: None)
    (path,) = sample("librdkafka-transactions").paths
    job.run(spark, [path], tmp_path, SMALL, split=25_000)
    assert rows(stored(tmp_path)) == with_names([path], SMALL)


def test_fragments_across_splits_are_read_by_tasks_that_read_all(spark: SparkSession, tmp_path: Path) -> None:
    # A packet of the first split says that more fragments follow (RFC 791: flag "more fragments"); none does.
    talk, flags_at = plain(), 16 + 14 + 6
    whole = talk.records[4]
    talk.records[4] = whole[:flags_at] + b"\x20" + whole[flags_at + 1 :]
    path = talk.write(tmp_path)
    out = tmp_path / "out"
    done = job.run(spark, [path], out, Config(), split=2_000)
    assert len(make_plan(spark, [path], Config(block_bytes=1000), 2_000)) > 1
    assert done.manifest.splits == {}
    assert done.manifest.capture["fragments_lost"] == 1
    assert rows(stored(out)) == with_names([path], Config())


@pytest.mark.parametrize("place", ["before", "behind"])
def test_secrets_among_several_files_change_no_row_and_an_append_may_have_another_key_log(
    place: str, spark: SparkSession, tmp_path: Path
) -> None:
    one, other, keys = tmp_path / "1.pcapng", tmp_path / "2.pcapng", tmp_path / "keys"
    secrets = ng_section() + ng_interface() + ng_secrets(b"CLIENT_RANDOM 00 00")
    data = (CAPTURES / "librdkafka-groups.pcapng").read_bytes()
    one.write_bytes(secrets + data if place == "before" else data + secrets)
    other.write_bytes((CAPTURES / "librdkafka-produce.pcapng").read_bytes())
    keys.write_bytes(b"")
    done = job.run(spark, [str(one), str(other)], tmp_path / "out", Config(), split=50_000)
    # Where a look at the beginning shows them, there is one split; else each task reads everything.
    assert done.manifest.splits.get("splits") == (1 if place == "before" else None)
    assert rows(stored(tmp_path / "out")) == with_names([str(one), str(other)], Config())
    again = job.run(spark, [str(tmp_path)], tmp_path / "out", Config(keylog=str(keys)), append=True)
    assert again.read == []
    assert "keys" not in str(again.manifest)


@pytest.mark.parametrize(
    ("total", "cores", "size"),
    [
        (300 * MIB, 2, 512 * MIB),
        (1500 * MIB, 2, 750 * MIB),
        (10 << 40, 100, 1024 * MIB),
        (100 << 40, 100, (100 << 40) // (1 << 14)),
    ],
)
def test_splits_are_neither_small_nor_too_many(total: int, cores: int, size: int) -> None:
    assert split_bytes(total, cores) == size
