"""The batch job of `kwsniff pipeline`: captures to a directory of events, statistics and anomalies.

Theory of operation. Events are decoded into a staging directory beside the results; what has to be known of
the whole input (names of topics that messages give by uuid, totals) is gathered from there; then the rows
are written again with the names filled in, partitioned by date and hour, and the tables are made from them.
Finished parts take the places of earlier ones by renaming, and `_SUCCESS` is removed before that and written
after it: a directory with `_SUCCESS` is complete.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kwsniff import __version__
from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.offline import with_kernels
from kwsniff.report import Report
from kwsniff.report.topics import TopicNames, fill
from kwsniff.report.trust import TrustTotals, paragraph
from kwsniff.spark import manifest
from kwsniff.spark.decode import ROWS, TOTALS, decoded
from kwsniff.spark.manifest import Input, Manifest, OutputError
from kwsniff.spark.splits import SplitRun, make_plan
from kwsniff.spec.load import catalog
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = ".kwsniff-staging"
PARTS = ("events", "statistics", "anomalies")


@dataclass(frozen=True, slots=True)
class Result:
    """What a run left."""

    read: list[Input]
    """Files read by this run: with `append`, those that were new."""
    manifest: Manifest
    report: Report | None
    """None if an append found nothing new."""
    damaged: bool = False
    """Part of the input could not be read."""


def run(
    spark: SparkSession,
    paths: Sequence[str],
    out: str | Path,
    config: Config,
    *,
    append: bool = False,
    shards: int | None = None,
    split: int | None = None,
) -> Result:
    """Decode the captures at `paths` on `spark` and write the results into the directory `out`.

    A run replaces the results of an earlier one. With `append` it reads only files the earlier ones did not,
    adds their events, and makes statistics of all. Large input is read in splits, of `split` bytes if given;
    with `shards`, so many tasks read everything and share the connections.

    Raises:
        kwsniff.capture.error.CaptureError: an input cannot be read.
        OutputError: `out` holds something else, or results of other settings.
        OSError: a result cannot be written.
    """
    place = Path(out).absolute()
    before = _before(place, config, append)
    found = manifest.inputs(paths, before.runs if before else 0)
    known = {(each.path, each.bytes, each.modified_ns) for each in before.inputs} if before else set()
    new = [each for each in found if (each.path, each.bytes, each.modified_ns) not in known]
    if before and not new:
        return Result([], before, None)
    return _Run(spark, place, config, before, new, shards, split).run()


def _before(place: Path, config: Config, append: bool) -> Manifest | None:
    """The manifest to go on from, after a look at what is in the way."""
    if not place.exists():
        return None
    if not place.is_dir():
        raise OutputError(f"{place}: is a file, not a directory")
    known = manifest.read(place)
    own = {*PARTS, STAGING, manifest.NAME, manifest.SUCCESS}
    if (place / ".stream").exists():
        raise OutputError(f"{place}: belongs to a stream (--follow); name another directory")
    other = sorted(entry.name for entry in place.iterdir() if entry.name not in own)
    if other and known is None:
        raise OutputError(f"{place}: holds other files ({other[0]}); name a directory of its own")
    if not append or known is None:
        return None
    if known.config != _plain(config):
        raise OutputError(f"{place}: was made with other settings, so nothing can be appended")
    return known


def _plain(config: Config) -> dict[str, Any]:
    plain: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    return plain


class _Run:
    """One run over the files `new`, after the runs that `before` tells of."""

    def __init__(
        self,
        spark: SparkSession,
        place: Path,
        config: Config,
        before: Manifest | None,
        new: list[Input],
        shards: int | None,
        split: int | None,
    ) -> None:
        self._spark, self._place, self._config = spark, place, config
        self._before, self._new, self._shards, self._split = before, new, shards, split
        self._account: dict[str, Any] = {}
        self._staging = place / STAGING
        self._totals = CaptureTotals(**before.capture) if before else CaptureTotals()  # type: ignore[arg-type]

    def run(self) -> Result:
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(parents=True)
        try:
            rows = self._decode()
            if self._before:
                rows = self._rows(_uri(self._place / "events")).unionByName(rows)
            self._finish(rows, self._gather(rows))
            report, trust = self._statistics()
            done = self._manifest(trust)
            self._publish(done)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        return Result(self._new, done, report, trust.damaged)

    def _decode(self) -> DataFrame:
        """Decode the new files; their events, with the columns of ROWS."""
        paths = [each.path for each in self._new]
        self._stage("decoding")
        rows = self._in_splits(paths) if self._shards is None else None
        return self._in_shards(paths) if rows is None else rows

    def _in_splits(self, paths: list[str]) -> DataFrame | None:
        """Every task reads its part; None if that is not worth it, or not possible."""
        # Settled here: a split alone may seem too small for kernels to be worth loading.
        config = with_kernels(self._config, sum(each.bytes for each in self._new))
        splits = make_plan(self._spark, paths, config, self._split)
        if len(splits) == 1:
            return None
        run = SplitRun(self._spark, splits, config, self._staging, self._number)
        if not run.decode():
            shutil.rmtree(self._staging / "splits")
            return None
        self._stage("stitching")
        run.stitch()
        self._totals.merge(run.totals)
        self._account = asdict(run.account)
        return run.settled()

    def _in_shards(self, paths: list[str]) -> DataFrame:
        """Every task reads everything and follows its share of the connections."""
        rows = decoded(self._spark, paths, self._config, shards=self._shards, run=self._number)
        rows.write.parquet(_uri(self._staging / "decoded"))
        staged = ds.dataset(self._staging / "decoded", format="parquet")
        for row in staged.to_table(["detail"], filter=pc.field("event") == TOTALS).to_pylist():
            self._totals.merge(CaptureTotals(**json.loads(row["detail"])))
        return self._rows(_uri(self._staging / "decoded"))

    @property
    def _number(self) -> int:
        return self._before.runs if self._before else 0

    def _gather(self, rows: DataFrame) -> dict[str, str]:
        """Names of topics by uuid over the whole input, first seen first."""
        from pyspark.sql import functions as f

        wanted = f.col("topic_ids").isNotNull() & f.col("topics").isNotNull()
        pairs = rows.where(wanted).select("topics", "topic_ids", "position").toArrow().sort_by("position")
        learner = TopicNames()
        for batch in pairs.select(["topics", "topic_ids"]).to_batches():
            learner.add(batch)
        return learner.names

    def _finish(self, rows: DataFrame, names: dict[str, str]) -> None:
        """Write events and anomalies with topic names, by date and hour, in files of a sensible size."""
        from pyspark.sql import functions as f

        self._stage("writing events")
        rows = rows.mapInArrow(_filler(names), rows.schema)
        dated = rows.withColumns({"date": f.to_date("time"), "hour": f.hour("time")})
        dated = dated.hint("rebalance", "date", "hour").sortWithinPartitions("date", "hour", "position")
        dated.write.partitionBy("date", "hour").parquet(_uri(self._staging / "events"))
        kept = self._rows(_uri(self._staging / "events")).where(f.col("event") == "anomaly")
        columns = ["time", "capture", "packet", "code", "detail", "connection", "position"]
        ends = ["client_ip", "client_port", "broker_ip", "broker_port"]
        anomalies = kept.select(*columns, *ends).repartition(1).sortWithinPartitions("position")
        anomalies.write.parquet(_uri(self._staging / "anomalies"))

    def _rows(self, path: str) -> DataFrame:
        from pyspark.sql import functions as f
        from pyspark.sql.pandas.types import from_arrow_schema

        read = self._spark.read.schema(from_arrow_schema(ROWS)).parquet(path)
        return read.select(*ROWS.names).where(f.col("event") != TOTALS)

    def _statistics(self) -> tuple[Report, TrustTotals]:
        self._stage("statistics")
        trust = TrustTotals()
        events = ds.dataset(self._staging / "events", format="parquet", partitioning=None)
        errors = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
        report = Report.from_events(_counted(events, trust), errors=errors, keep_calls=True)
        report.write_csv(self._staging / "statistics")
        return report, trust

    def _manifest(self, trust: TrustTotals) -> Manifest:
        inputs = [*(self._before.inputs if self._before else []), *self._new]
        return Manifest(
            kwsniff=__version__,
            spark=self._spark.version,
            config=_plain(self._config),
            runs=(self._before.runs if self._before else 0) + 1,
            inputs=inputs,
            events={
                "call": trust.calls,
                "anomaly": sum(trust.anomalies.values()),
                "connection": trust.connections,
            },
            capture=asdict(self._totals),
            trust=paragraph(trust, self._totals),
            splits=self._account,
        )

    def _publish(self, done: Manifest) -> None:
        (self._place / manifest.SUCCESS).unlink(missing_ok=True)
        for part in PARTS:
            shutil.rmtree(self._place / part, ignore_errors=True)
            (self._staging / part).rename(self._place / part)
        done.write(self._place)

    def _stage(self, name: str) -> None:
        self._spark.sparkContext.setJobDescription(f"kwsniff: {name}")


def _filler(names: dict[str, str]) -> Any:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield fill(batch, names)

    return work


def _counted(events: ds.Dataset, trust: TrustTotals) -> Iterator[pa.RecordBatch]:
    for batch in events.to_batches(EVENTS.names, batch_readahead=2, fragment_readahead=1):
        if batch.num_rows:
            same = batch.cast(EVENTS)
            trust.add(same)
            yield same


def _uri(path: Path) -> str:
    with suppress(ValueError):
        return path.as_uri()
    return str(path)
