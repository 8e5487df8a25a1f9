"""The streaming job of `kwsniff pipeline --follow`: rotated captures to events, statistics by window of time.

Theory of operation. The data source (`kwsniff.spark.followed`) gives each batch's events, always the same for
the same batch, and its tasks write them into a staging directory themselves. The rest is done in steps, each
of which replaces what an attempt before it left: events get their topic names and, by renaming, names that
hold the batch's number; anomalies and closed windows get such names too; last comes the batch's record, from
which the next batch goes on. So after a crash at any place the batch is done again as a whole, and every call
is there once.

Invariants: a batch with a record is finished and is not touched again, also if Spark, which did not get to
know of it, asks for it once more. All that a stream keeps lies under `.stream` in the output directory.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from kwsniff import __version__
from kwsniff.capture.rotation import grown, listed
from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.lake.manifest import Input, Manifest, OutputError
from kwsniff.report.topics import TopicNames
from kwsniff.report.trust import TrustTotals, paragraph
from kwsniff.spark import manifest, windows
from kwsniff.spark.followed import LIST, STATE, Following, staged_in
from kwsniff.spark.staged import spread
from kwsniff.spark.windows import SECOND, Windows
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT = ".stream"
PARTS = ("events", "windows", "anomalies")
RECORDS_KEPT = 8
POLL = "1 second"
"""How often the directories are looked at."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What is the same in all runs of one stream."""

    config: dict[str, Any]
    shares: int
    window_s: float
    delay_s: float


@dataclass(slots=True)
class Record:
    """What is known once a batch is finished."""

    batch: int = -1
    files: int = 0
    """Files of the list that were read."""
    ended: bool = False
    closed_until_ns: int = 0
    """Windows up to here are written."""
    late: int = 0
    """Calls so far that came after their window was closed."""
    capture: dict[str, int | None] = field(default_factory=lambda: asdict(CaptureTotals()))
    trust: dict[str, Any] = field(default_factory=lambda: asdict(TrustTotals()))
    rows: int = 0
    """Rows of this batch."""


Told = Callable[[Record, Record, pa.Table], None]
"""Is given the record before a batch, the batch's, and the rows of the windows it closed."""


class Stream:
    """A stream into one output directory."""

    def __init__(
        self, spark: SparkSession, following: Following, out: Path, settings: Settings, told: Told
    ) -> None:
        self._spark, self._out, self._settings, self._told = spark, out, settings, told
        self._own = out / KEPT
        self._staging = self._own / "staging"
        self._following = replace(
            following, shares=settings.shares, state=str(self._own), staging=str(self._staging)
        )
        self._windows = Windows(int(settings.window_s * SECOND), int(settings.delay_s * SECOND))
        self._busy = Lock()
        self._stopping = False
        self._query: Any = None

    def start(self, *, once: bool) -> None:
        """Begin, or go on from the last finished batch; `once` takes the files that are there and ends."""
        from kwsniff.spark.source import FollowedSource

        self._spark.dataSource.register(FollowedSource)
        reader = self._spark.readStream.format("kwsniff_followed")
        rows = reader.option("following", FollowedSource.told(self._following)).load()
        writer = rows.writeStream.foreachBatch(self.batch)
        writer = writer.option("checkpointLocation", str(self._own / "checkpoint"))
        trigger: dict[str, Any] = {"availableNow": True} if once else {"processingTime": POLL}
        self._query = writer.trigger(**trigger).start()

    def wait(self, seconds: float) -> bool:
        """Whether the stream ended within that time. Raises what Spark raises if it failed."""
        return bool(self._query.awaitTermination(seconds))

    def stop(self) -> None:
        """End after the batch that is being written, if there is one."""
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        with self._busy:
            self._stopping = True
        with suppress(Py4JError, PySparkException, OSError):  # a batch that was to begin, or Java is gone
            self._query.stop()

    def batch(self, rows: DataFrame, number: int) -> None:
        """Write one batch; see the module's head."""
        with self._busy:
            if self._stopping:
                raise InterruptedError("the stream is being stopped")
            self._batch(rows, number)

    def _batch(self, rows: DataFrame, number: int) -> None:
        before = self.record()
        if before.batch >= number:
            return
        shutil.rmtree(self._staging, ignore_errors=True)
        said = json.loads(rows.select("detail").collect()[0][0])
        place = staged_in(self._staging, said["files"], said["ended"])
        staged = ds.dataset(place, format="parquet", partitioning=None)
        record = self._counted(staged, said, before, number)
        self._write_events(place, self._names(staged), number)
        self._write_anomalies(staged, number)
        closed = self._write_windows(before, record)
        self._manifest(record)
        _replace(self._own / "batches" / f"{number:06}.json", json.dumps(asdict(record)))
        (self._own / "batches" / f"{number - RECORDS_KEPT:06}.json").unlink(missing_ok=True)
        shutil.rmtree(self._staging, ignore_errors=True)
        if record.ended:
            (self._out / manifest.SUCCESS).touch()
            shutil.rmtree(self._own / STATE, ignore_errors=True)
        self._told(before, record, closed)

    def record(self) -> Record:
        """That of the last finished batch."""
        return last_record(self._out)

    def grown(self) -> dict[str, int]:
        """Files among the latest that were written to after they were taken for finished, and bytes lost."""
        return grown(listed(self._own / LIST)[-16:])

    # The steps of a batch

    def _counted(self, staged: ds.Dataset, said: dict[str, Any], before: Record, number: int) -> Record:
        trust = TrustTotals(**before.trust)
        late = before.late
        rows = 0
        for batch in staged.to_batches(EVENTS.names):
            same = batch.cast(EVENTS)
            trust.add(same)
            rows += same.num_rows
            calls = same.filter(pc.equal(same["event"], "call"))["time"].cast(pa.int64())
            late += pc.sum(pc.less(calls, before.closed_until_ns // 1000)).as_py() or 0
        closed = self._windows.closed_until(said["capture"]["last_time_ns"], said["ended"])
        return Record(
            number, said["files"], said["ended"], max(closed, before.closed_until_ns), late,
            said["capture"], asdict(trust), rows,
        )  # fmt: skip

    def _names(self, staged: ds.Dataset) -> dict[str, str]:
        """Topic names by uuid that messages have told up to this batch."""
        place = self._own / "names.json"
        learner = TopicNames()
        if place.exists():
            learner.names = json.loads(place.read_text())
        known = len(learner.names)
        wanted = pc.field("topic_ids").is_valid() & pc.field("topics").is_valid()
        pairs = staged.to_table(["topics", "topic_ids", "position"], filter=wanted).sort_by("position")
        learner.add(pairs.combine_chunks())
        if len(learner.names) > known:
            _replace(place, json.dumps(learner.names))
        return learner.names

    def _write_events(self, staged: Path, names: dict[str, str], number: int) -> None:
        events, into = self._out / "events", self._staging / "events"
        shares = self._spark.range(0, self._settings.shares, 1, self._settings.shares)
        shares.mapInArrow(_spreader(staged, into, names), "id bigint").collect()
        for old in events.glob(f"date=*/hour=*/batch-{number:06}-*"):
            old.unlink()
        for new in sorted(into.glob("date=*/hour=*/*.parquet")):
            place = events / new.parent.relative_to(into)
            place.mkdir(parents=True, exist_ok=True)
            new.replace(place / f"batch-{number:06}-{new.name}")

    def _write_anomalies(self, staged: ds.Dataset, number: int) -> None:
        columns = ["time", "capture", "packet", "code", "detail", "connection", "position"]
        ends = ["client_ip", "client_port", "broker_ip", "broker_port"]
        table = staged.to_table([*columns, *ends], filter=pc.field("event") == "anomaly")
        _write_table(self._out / "anomalies" / f"batch-{number:06}.parquet", table.sort_by("position"))

    def _write_windows(self, before: Record, record: Record) -> pa.Table:
        first = before.closed_until_ns or record.capture["first_time_ns"] or 0
        first = first // self._windows.length_ns * self._windows.length_ns
        if record.closed_until_ns <= first:
            return pa.table({})
        span = first, record.closed_until_ns
        closed = windows.statistics(self._spark, self._out / "events", span, self._windows.length_ns)
        _write_table(self._out / "windows" / f"batch-{record.batch:06}.parquet", closed)
        return closed

    def _manifest(self, record: Record) -> None:
        files = listed(self._own / LIST)[: record.files]
        trust = TrustTotals(**record.trust)
        known = Manifest(
            kwsniff=__version__,
            spark=self._spark.version,
            config=self._settings.config,
            runs=record.batch + 1,
            inputs=[Input(each.path, each.bytes, each.modified_ns, 0) for each in files],
            events={
                "call": trust.calls,
                "anomaly": sum(trust.anomalies.values()),
                "connection": trust.connections,
            },
            capture=record.capture,
            trust=paragraph(trust, CaptureTotals(**record.capture)),  # type: ignore[arg-type]
        )
        _replace(self._out / manifest.NAME, json.dumps(asdict(known), indent=2) + "\n")


def _spreader(staged: Path, into: Path, names: dict[str, str]) -> Any:
    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for share in batch.column(0).to_pylist():
                name = f"share-{share:04}"
                spread(staged / f"{name}.parquet", into, name, names)
            yield batch

    return work


def last_record(out: Path) -> Record:
    """The record of the last finished batch of the stream in `out`; an empty one if there is none."""
    last = max((out / KEPT / "batches").glob("[0-9]*.json"), default=None)
    return Record(**json.loads(last.read_text())) if last else Record()


def settled(out: Path, wanted: Settings, *, keep: bool = True) -> Settings:
    """The settings of the stream in `out`: those it was begun with, else `wanted`, which with `keep` are
    written there.

    Raises:
        OutputError: the directory holds something else, the stream was ended, or was begun otherwise.
        OSError: the directory cannot be written.
    """
    place = out / KEPT / "settings.json"
    if (out / manifest.SUCCESS).exists():
        what = "was ended" if place.exists() else "holds results of a run that followed nothing"
        raise OutputError(f"{out}: {what}; name another directory")
    if place.exists():
        known = Settings(**json.loads(place.read_text()))
        for name in ("config", "window_s", "delay_s"):
            if getattr(known, name) != getattr(wanted, name):
                raise OutputError(f"{out}: is a stream with other settings ({_NAMED[name]})")
        return known
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise OutputError(f"{out}: holds other files; name a directory of its own")
    if keep:
        _replace(place, json.dumps(asdict(wanted)))
    return wanted


_NAMED = {"config": "of decoding", "window_s": "--window", "delay_s": "--late"}


@contextmanager
def alone(out: Path) -> Iterator[None]:
    """Be the only process that writes to the stream in `out`. Raises OutputError if another one does."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    with (out / KEPT / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise OutputError(f"{out}: another process follows into it") from None
        yield


def plain(config: Config) -> dict[str, Any]:
    """Settings as JSON holds them."""
    said: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return said


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    beside.write_text(text)
    beside.replace(path)


def _write_table(path: Path, table: pa.Table) -> None:
    """Write a table that has rows, whole or not at all."""
    path.unlink(missing_ok=True)
    if not table.num_rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    pq.write_table(table, beside, compression="zstd")
    beside.replace(path)
