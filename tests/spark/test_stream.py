"""A stream yields each event of its files once, whatever happens between and during its batches."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from kwsniff.config import Config
from kwsniff.findings import Findings
from kwsniff.lake.manifest import OutputError
from kwsniff.lake.place import Place
from kwsniff.lake.results import Results
from kwsniff.offline import events
from kwsniff.report.sessions import followed as sessions_followed
from kwsniff.report.topics import FIXED, fill, topic_names
from kwsniff.report.waiting import waited
from kwsniff.spark import ledger, stream
from kwsniff.spark.finish import error_names
from kwsniff.spark.followed import Following
from kwsniff.table import EVENTS
from tests.samples import sample
from tests.spark.rotated import rotated
from tests.strength import ALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WINDOW, LATE = 5.0, 1.0


def expected(files: list[Path]) -> pa.Table:
    """What one process makes of the files, with the topic names of all of them."""
    batches = list(events([str(file) for file in files], Config()))
    names = topic_names(batches)
    return pa.Table.from_batches([fill(batch, names) for batch in batches], EVENTS)


def stored(out: Path) -> pa.Table:
    rows = Results(out).events().select(EVENTS.names).combine_chunks()
    names = topic_names([rows])
    return pa.Table.from_batches([fill(batch, names) for batch in rows.to_batches()], EVENTS)


class Followed:
    """A stream of one directory, run in steps."""

    def __init__(self, spark: SparkSession, place: Path, shares: int = 2, form: str = "parquet") -> None:
        self.source, self.out = place / "in", place / "out"
        self.source.mkdir(parents=True, exist_ok=True)
        self._spark, self._shares, self._form = spark, shares, form
        self.closed: list[dict[str, Any]] = []

    def run(self, *, end: bool = False, batch_bytes: int = 1 << 30) -> ledger.StreamRecord:
        wanted = ledger.Settings(ledger.plain(Config()), self._shares, WINDOW, LATE, self._form)
        where = ledger.Where.of(self.out)
        settings = ledger.settled(where, wanted)
        following = Following([str(self.source)], "", Config(), 0, 0.0, batch_bytes, end)
        made = stream.Stream(self._spark, following, where, settings, self._told)
        made.start(once=True)
        while not made.wait(60):
            pass
        return made.record()

    def _told(self, before: ledger.StreamRecord, record: ledger.StreamRecord, closed: pa.Table) -> None:
        self.closed += closed.to_pylist()


@pytest.fixture(scope="module")
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


def come(files: list[Path], into: Path) -> list[Path]:
    """Files appear in a directory; their new paths."""
    return [Path(shutil.copy2(file, into)) for file in files]


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


STEPS = ["_written", "_closed", "_compacted", "_manifest", "_forget", "_told"]


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


def windows(out: Path) -> pd.DataFrame:
    columns = ["window_start", "api", "calls", "errors", "latency_p99_us"]
    frame = Results(out).table("windows", columns).to_pandas()
    return frame.sort_values(["window_start", "api"], na_position="first", ignore_index=True)


def by_window(table: pa.Table) -> pd.DataFrame:
    """The same figures made by pandas from all events."""
    batch = table.filter(pc.equal(table["event"], "call")).combine_chunks().to_batches()[0]
    frame = batch.select(["time", "api", "error_code", "latency_us"]).to_pandas()
    frame["latency_us"] = frame["latency_us"].mask(waited(batch))
    frame["window_start"] = frame["time"].dt.floor("5s")
    parts = []
    for keys in (["window_start", "api"], ["window_start"]):
        groups = frame.groupby(keys)
        parts.append(
            pd.DataFrame(
                {
                    "calls": groups.size(),
                    "errors": groups["error_code"].apply(lambda codes: (codes.fillna(0) != 0).sum()),
                    "latency_p99_us": groups["latency_us"].quantile(0.99),
                }
            ).reset_index()
        )
    both = pd.concat(parts).sort_values(["window_start", "api"], na_position="first", ignore_index=True)
    return both[["window_start", "api", "calls", "errors", "latency_p99_us"]]


def test_windows_hold_the_figures_of_their_time(ended: tuple[Followed, list[Path]]) -> None:
    followed, _ = ended
    everything = windows(followed.out)
    late = followed_record(followed).late
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


def followed_record(followed: Followed) -> ledger.StreamRecord:
    return ledger.last_record(Place.of(followed.out))


def test_other_settings_and_other_files_are_refused(
    ended: tuple[Followed, list[Path]], tmp_path: Path
) -> None:
    out = ledger.Where.of(tmp_path / "out")
    first = ledger.Settings(ledger.plain(Config()), 2, WINDOW, LATE)
    assert ledger.settled(out, first) == first
    assert ledger.settled(out, ledger.Settings(first.config, 7, WINDOW, LATE)).shares == 2
    with pytest.raises(OutputError, match="--window"):
        ledger.settled(out, ledger.Settings(first.config, 2, 60.0, LATE))
    with pytest.raises(OutputError, match="of decoding"):
        ledger.settled(out, ledger.Settings(ledger.plain(Config(ports=(1,))), 2, WINDOW, LATE))
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").touch()
    with pytest.raises(OutputError, match="holds other files"):
        ledger.settled(ledger.Where.of(tmp_path / "mine"), first)


def test_two_processes_do_not_write_to_one_stream(tmp_path: Path) -> None:
    out = Place.of(tmp_path)
    with ledger.alone(out), pytest.raises(OutputError, match=f"another run .*{os.getpid()}"):
        ledger.alone(out).__enter__()


# As a process of its own


def begun(source: Path, out: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "kwsniff", "pipeline", "--follow", str(source), "--out", str(out)]
    settings = ["--window", "5s", "--late", "1s", "--settle", "0", "--master", "local[2]"]
    return subprocess.Popen(
        [*command, *settings, *options], cwd=ROOT, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def killed_when(process: subprocess.Popen[str], seen: Callable[[], Iterator[Path]]) -> None:
    """Kill the process and Spark's with it as soon as there is what `seen` looks for."""
    try:
        awaited(process, seen)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def awaited(process: subprocess.Popen[str], seen: Callable[[], Iterator[Path]]) -> None:
    until = time.monotonic() + 240
    while next(seen(), None) is None:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.mark.costly
def test_a_stream_killed_at_several_places_yields_each_call_once(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all")
    places = [".stream/state/*/share-0001", "data/stream/calls/*/*/batch-000001-*"]
    for number, place in enumerate(places):
        come(files[5 * number : 5 * number + 5], source)
        known = set(out.glob(place))
        looked = lambda place=place, known=known: (p for p in out.glob(place) if p not in known)  # noqa: E731
        killed_when(begun(source, out), looked)
    come(files, source)
    last = begun(source, out, "--end")
    said, errors = last.communicate(timeout=180)
    assert last.returncode == 0, errors
    assert stored(out).equals(expected([source / file.name for file in files]))
    assert said.splitlines()[-1].startswith("2026-11-21 01:31:45  ")


@pytest.mark.costly
def test_sigterm_ends_a_stream_in_order(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    files = rotated(sample("librdkafka-groups").paths, source)
    process = begun(source, out)
    try:
        awaited(process, lambda: out.glob("manifest.json"))
        process.terminate()
        said, errors = process.communicate(timeout=120)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert [line[:19] for line in said.splitlines()][:2] == ["2026-11-21 01:31:25", "2026-11-21 01:31:30"]
    assert f"{len(files)} files read" in errors


@pytest.mark.costly
def test_captures_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    files = rotated(sample("midstream").paths, source, 300)
    (source / "broken.pcap.zst").write_bytes(b"\x28\xb5\x2f\xfd\xff\xff\xff\xff\xff\xff")
    os.utime(source / "broken.pcap.zst", (1_700_000_000, 1_700_000_000))
    process = begun(source, out, "--end")
    _, errors = process.communicate(timeout=180)
    assert process.returncode == 3, errors
    assert [line for line in errors.splitlines() if "broken.pcap.zst" in line] == [
        line for line in errors.splitlines() if line.endswith("; it is passed over")
    ]
    assert f"{source}/broken.pcap.zst: " in errors
    assert stored(out).equals(expected(files))


def test_nothing_grows_with_the_number_of_batches(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "JOINED", 4)
    followed = Followed(spark, tmp_path)
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all", 40 if ALL else 80)
    assert len(files) > (25 if ALL else 12)
    held = []
    for file in files:
        come([file], followed.source)
        followed.run()
        found = Results(followed.out)
        assert len(found.manifest.inputs) == 0
        held.append(sum(1 for _ in followed.out.rglob("*.parquet")))
        listed = {path for name in found.manifest.tables for path in found.files(name)}
        assert all(Path(path).exists() for path in listed)
    # Of each table so many small ones at most; those that are joined or replaced are removed a batch later.
    assert max(held) <= stream.JOINED * len(found.manifest.tables)
    assert len(found.files("calls")) <= 8
    followed.run(end=True)
    assert stored(followed.out).equals(expected([followed.source / file.name for file in files]))


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


@pytest.mark.costly
def test_rows_are_there_five_seconds_after_their_file(tmp_path: Path) -> None:
    source, out = tmp_path / "in", tmp_path / "out"
    files = rotated(sample("librdkafka-groups").paths, tmp_path / "all", 60)
    source.mkdir()
    come(files[:2], source)
    process = begun(source, out, "--settle", "0")
    waits = []
    try:
        awaited(process, lambda: out.glob("manifest.json"))
        for number in range(2, 9):
            come(files[number : number + 1], source)
            began = time.monotonic()
            while ledger.last_record(Place.of(out)).files <= number:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < began + 60
                time.sleep(0.02)
            waits.append(time.monotonic() - began)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert min(waits) < 5, waits  # of several: other processes may hold up any one
