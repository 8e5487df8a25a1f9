"""A stream yields each event of its files once, whatever happens between and during its batches."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kwsniff.analysis.findings import Findings
from kwsniff.capture.place import Place, Unread
from kwsniff.capture.rotation import Rotation, unread
from kwsniff.cli import pipeline
from kwsniff.cli.problem import CommandError
from kwsniff.config import Config
from kwsniff.count.sessions import followed as sessions_followed
from kwsniff.count.topics import FIXED, fill
from kwsniff.run.offline import events
from kwsniff.spark import results, version
from kwsniff.spark import streaming as stream
from kwsniff.spark.finish import error_names
from kwsniff.spark.results import OutputError, Results
from kwsniff.spark.streamsource import LIST
from kwsniff.spark.version import STREAM
from tests.samples import sample
from tests.spark import documented
from tests.spark.rotated import later, rotated
from tests.spark.streams import LATE, WINDOW, Followed, by_window, come, expected, stored, windows
from tests.strength import ALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_steps_yield_what_one_process_yields(ended: tuple[Followed, list[Path]]) -> None:
    followed, files = ended
    found = stored(followed.out)
    assert followed.out.joinpath("manifest.json").exists()
    assert found.equals(expected(files))


def test_findings_are_those_of_one_process(ended: tuple[Followed, list[Path]]) -> None:
    followed, files = ended
    one = Findings()
    for batch in sessions_followed(events([str(file) for file in files], Config())):
        one.take(fill(batch, FIXED))
    wanted = one.table(error_names())
    assert wanted.num_rows
    found = Results(followed.out).table("findings", wanted.column_names)
    order = [("code", "ascending"), ("subject", "ascending")]
    assert found.sort_by(order).to_pylist() == wanted.sort_by(order).to_pylist()


def test_nothing_is_flushed_before_the_stream_is_ended(spark: SparkSession, tmp_path: Path) -> None:
    followed = Followed(spark, tmp_path)
    files = rotated(sample("midstream").paths, followed.source, 150)
    followed.run()
    wanted = expected(files)
    before = stored(followed.out)
    assert "unanswered" not in before["status"].to_pylist()
    assert before.num_rows < wanted.num_rows
    assert not (followed.out / "_SUCCESS").exists()
    assert followed.run(end=True).ended
    assert stored(followed.out).equals(wanted)
    assert (followed.out / "_SUCCESS").exists()
    with pytest.raises(OutputError, match="was ended"):
        followed.run()


@pytest.mark.one_of(2)
@pytest.mark.parametrize("name", ["snaplen-128", "java-groups"])
def test_connections_go_on_from_file_to_file(spark: SparkSession, tmp_path: Path, name: str) -> None:
    followed = Followed(spark, tmp_path, shares=3)
    files = rotated(sample(name).paths, followed.source)
    followed.run(batch_bytes=sum(file.stat().st_size for file in files) // 2, end=True)
    assert stored(followed.out).equals(expected(files))


STEPS = ["_written", "_closed", "_compacted", "_findings", "_forget", "_told"]


@pytest.mark.one_of(3)
@pytest.mark.parametrize("step", STEPS)
def test_a_batch_that_broke_off_is_done_again_as_a_whole(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    followed = Followed(spark, tmp_path)
    files = rotated(sample("librdkafka-groups").paths, followed.source)
    size = sum(file.stat().st_size for file in files)
    with monkeypatch.context() as patch:
        patch.setattr(*breaking(step, after=1))
        with pytest.raises(Exception, match="broken off"):
            followed.run(batch_bytes=size // 3)
    followed.run(end=True)
    assert stored(followed.out).equals(expected(files))
    assert windows(followed.out).equals(by_window(expected(files)))


def breaking(step: str, after: int) -> tuple[Any, str, Callable[..., Any]]:
    """A step that does its work and breaks off then, once it was done `after` times."""
    owner: Any = Followed if step == "_told" else stream.Stream
    real, calls = getattr(owner, step), [0]

    def work(*args: Any) -> Any:
        made = real(*args)
        calls[0] += 1
        if calls[0] > after:
            raise RuntimeError("broken off")
        return made

    return owner, step, work


def test_other_settings_and_other_files_are_refused(
    ended: tuple[Followed, list[Path]], tmp_path: Path
) -> None:
    out = version.Where.of(tmp_path / "out")
    first = version.Settings(version.plain(Config()), 2, WINDOW, LATE)
    assert version.settled(out, first) == first
    assert version.settled(out, version.Settings(first.config, 7, WINDOW, LATE)).shares == 2
    with pytest.raises(OutputError, match="--window"):
        version.settled(out, version.Settings(first.config, 2, 60.0, LATE))
    with pytest.raises(OutputError, match="of decoding"):
        version.settled(out, version.Settings(version.plain(Config(ports=(1,))), 2, WINDOW, LATE))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(OutputError, match="holds other files"):
        version.settled(version.Where.of(tmp_path / "mine"), first)


def test_two_processes_do_not_write_to_one_stream(tmp_path: Path) -> None:
    out = Place.of(tmp_path)
    with version.locked(out), pytest.raises(OutputError, match=f"another run .*{os.getpid()}"):
        version.locked(out).__enter__()


def test_a_stream_that_is_refused_leaves_the_settings_to_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both began while there were none."""
    (tmp_path / "in").mkdir()
    started = SimpleNamespace(defaultParallelism=3)
    monkeypatch.setattr("kwsniff.spark.sparksession.context", lambda *_, **__: started)
    request = pipeline.PipelineRequest(
        paths=[str(tmp_path / "in")], config=Config(), out=str(tmp_path / "out"), once=True, quiet=True
    )
    with version.locked(Place.of(tmp_path / "out")), pytest.raises(CommandError, match="another run"):
        pipeline.follow(request)
    assert not (tmp_path / "out" / version.STREAM).exists()


def test_a_stream_without_finished_files_begins_with_the_first_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    followed = Followed(spark, tmp_path)
    assert followed.run() == results.StreamRecord()
    files = rotated(sample("midstream").paths, followed.source, 200)
    followed.run(end=True)
    assert stored(followed.out).equals(expected(files))


def test_nothing_grows_with_the_number_of_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "JOINED", 4)
    monkeypatch.setattr(stream, "GRACE", 0.0)
    monkeypatch.setattr(version, "VIEWED", 0.0)
    followed = Followed(spark, tmp_path)
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all", 40 if ALL else 80)
    assert len(files) > (25 if ALL else 12)
    held, shown = [], []
    for file in files:
        come([file], followed.source)
        followed.run()
        found = Results(followed.out)
        assert len(found.manifest.inputs) == 0
        held.append(sum(1 for _ in (followed.out / "data").rglob("*.parquet")))
        shown.append(len(list((followed.out / "_views").iterdir())))
        listed = {path for name in found.manifest.tables for path in found.files(name)}
        assert all(Path(path).exists() for path in listed)
    # Of each table so many small ones at most; those that are joined or replaced are removed a batch later.
    assert max(held) <= stream.JOINED * len(found.manifest.tables)
    assert max(shown) <= 2
    assert len(found.files("calls")) <= 8
    followed.run(end=True)
    assert stored(followed.out).equals(expected([followed.source / file.name for file in files]))


def test_an_hour_that_is_over_has_one_file_of_each_table(spark: SparkSession, tmp_path: Path) -> None:
    followed = Followed(spark, tmp_path)
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all", 300)[:3]
    hour, counts = 0, []
    for hours in range(2):
        for file in files:
            later(file, followed.source / f"{hours}-{file.name}", hours)
            followed.run()
            tables = Results(followed.out).manifest.tables
            by_hour = [
                Counter(file.hour for file in own) for name, own in tables.items() if name != "findings"
            ]
            hour = hour or min(by_hour[0])
            counts.append({each[hour] for each in by_hour if each[hour]})
    # Of connections that end with the second hour late rows come: few files, and so left as they are.
    assert counts[2] != {1}
    assert {1} in counts[3:]
    followed.run(end=True)
    tables = Results(followed.out).manifest.tables
    assert max(len(own) for own in tables.values()) == len(tables["calls"]) == 3
    read = [followed.source / f"{hours}-{file.name}" for hours in range(2) for file in files]
    # Which of the connections that were silent for an hour ends first, each task says of its own.
    order = [(name, "ascending") for name in ("event", "connection", "time", "correlation_id")]
    assert stored(followed.out).sort_by(order).equals(expected(read).sort_by(order))


def test_who_began_to_read_before_files_were_joined_reads_on(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "JOINED", 2)
    followed = Followed(spark, tmp_path)
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all", 300)
    began, counted = [], []
    for file in files:
        come([file], followed.source)
        followed.run()
        began.append(Results(followed.out))
        counted.append(began[-1].table("calls", ["time"]).num_rows)
    assert len({path for each in began for path in each.files("calls")}) > len(began[-1].files("calls"))
    for reader, count in zip(began, counted, strict=True):
        assert reader.table("calls", ["time"]).num_rows == count == reader.manifest.events["call"]
    assert counted == sorted(counted)
    monkeypatch.setattr(stream, "GRACE", 0.0)
    followed.run(end=True)
    with pytest.raises(FileNotFoundError):
        began[0].table("calls", ["time"])


def test_a_stream_writes_a_delta_table_that_can_be_read_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    from deltalake import DeltaTable

    followed = Followed(spark, tmp_path, form="delta")
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all", 300)
    rows = []
    for file in files:
        come([file], followed.source)
        followed.run()
        rows.append(pa.table(DeltaTable(str(followed.out / "calls")).to_pyarrow_table()).num_rows)
        assert rows[-1] == Results(followed.out).table("calls", ["time"]).num_rows
    assert rows == sorted(rows)
    assert 0 < rows[0] < rows[-1]


# A file of a stream that is gone or another one when it is to be read is named and passed over: everything
# else is there, and the stream goes on.


LOST = 2
"""The number of the file that something happens to."""


def removed(file: Path) -> None:
    file.unlink()


def used_again(file: Path) -> None:
    """By a ring buffer, for later packets."""
    shutil.copy2(file.parent.with_name("later"), file)


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


HAPPENED: dict[Callable[[Path], None], str] = {
    removed: "was removed before it could be read",
    used_again: "holds other packets than when it was found",
    emptied: "the file is empty",
    a_directory: "Is a directory",
}


@pytest.mark.parametrize("happen", list(HAPPENED))
def test_a_file_that_is_lost_is_named_and_the_stream_goes_on(
    spark: SparkSession, tmp_path: Path, happen: Callable[[Path], None]
) -> None:
    followed = Followed(spark, tmp_path)
    files = rotated(sample("midstream").paths, followed.source, 60)
    shutil.move(files.pop(), tmp_path / "later")
    # What is listed stays so, whatever happens to the directory.
    Rotation([str(followed.source)], followed.out / STREAM / LIST, 0.0).look()
    happen(files[LOST])
    followed.run(end=True)
    wanted = expected([file for file in files if file != files[LOST] or happen is used_again])
    found = stored(followed.out)
    lost = Unread(str(files[LOST]), HAPPENED[happen])
    assert unread(followed.out / STREAM / LIST).count(lost) == 1
    odd = found.filter(pc.equal(found["code"], "capture_unreadable"))
    assert list(zip(odd["capture"].to_pylist(), odd["detail"].to_pylist(), strict=True)) == [lost]
    rest = found.filter(pc.not_equal(pc.fill_null(found["code"], ""), "capture_unreadable"))
    assert rest.equals(wanted)


# Statistics by window of time, made from the stored events of a stream.


def test_windows_hold_the_figures_of_their_time(ended: tuple[Followed, list[Path]]) -> None:
    followed, _ = ended
    everything = windows(followed.out)
    late = results.last_record(Place.of(followed.out)).late
    wanted = by_window(stored(followed.out))
    assert late == wanted["calls"].sum() // 2 - everything["calls"].sum() // 2
    assert len(everything) == len(wanted)
    same = (everything["calls"] == wanted["calls"]).to_numpy()
    assert same.mean() > 0.9  # but those that a late call was for
    pd.testing.assert_frame_equal(everything[same], wanted[same], check_dtype=False)
    told = [row["calls"] for row in followed.closed if row["api"] is None]
    assert told == everything[everything["api"].isna()]["calls"].tolist()


def test_responses_without_request_are_in_the_total_of_a_window_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    followed = Followed(spark, tmp_path)
    rotated(sample("midstream").paths, followed.source, 1000)
    followed.run(end=True)
    calls = sample("midstream").calls
    orphans = sum(row["status"] == "orphan" for row in calls)
    found = windows(followed.out)
    assert orphans
    assert found[found["api"].isna()]["calls"].sum() == len(calls)
    assert found[found["api"].notna()]["calls"].sum() == len(calls) - orphans


def test_the_page_s_query_for_duckdb_finds_the_windows(ended: tuple[Followed, list[Path]]) -> None:
    followed, _ = ended
    (query,) = documented.sql()
    rows = duckdb.connect().sql(query.replace("results/", f"{followed.out}/")).to_arrow_table()
    wanted = windows(followed.out)
    assert rows["calls"].to_pylist() == wanted[wanted["api"].isna()]["calls"].tolist()
