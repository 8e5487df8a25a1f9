"""The batch job of `kwsniff pipeline`: captures to a directory of events, statistics and anomalies.

Theory of operation. Tasks decode (`kwsniff.spark.splits`, or `kwsniff.spark.shards` for input that is not
worth splitting) into files of a staging directory beside the results; these are finished, together with the
events of earlier runs if there are any, by `kwsniff.spark.finish`. Finished parts take the places of earlier
ones by renaming, and `_SUCCESS` is removed before that and written after it: a directory with `_SUCCESS` is
complete.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from kwsniff import __version__
from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.offline import with_kernels
from kwsniff.report import Report
from kwsniff.report.text import bytes_text
from kwsniff.report.trust import paragraph
from kwsniff.spark import manifest
from kwsniff.spark.finish import Counted, Finish, grouped
from kwsniff.spark.manifest import Input, Manifest, OutputError
from kwsniff.spark.shards import ShardRun
from kwsniff.spark.splits import SplitRun, make_plan
from kwsniff.spark.staged import Staged
from kwsniff.spec.load import catalog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STAGING = ".kwsniff-staging"
PARTS = ("events", "statistics", "anomalies")

Corrections = Callable[[list[list[Staged]]], "list[DataFrame]"]
"""Takes the groups of files that are finished together; gives what is to be put right in them."""


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
    tell: Callable[[str], None] = lambda step: None,
) -> Result:
    """Decode the captures at `paths` on `spark` and write the results into the directory `out`.

    A run replaces the results of an earlier one. With `append` it reads only files the earlier ones did not,
    adds their events, and makes statistics of all. Large input is read in splits, of `split` bytes if given;
    with `shards`, so many tasks read everything and share the connections. `tell` is told each step.

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
    return _Run(spark, place, config, before, new, shards, split, tell).run()


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
        tell: Callable[[str], None],
    ) -> None:
        self._tell = tell
        self._spark, self._place, self._config = spark, place, config
        self._before, self._new, self._shards, self._split = before, new, shards, split
        self._account: dict[str, Any] = {}
        self._staging = place / STAGING
        self._totals = CaptureTotals(**before.capture) if before else CaptureTotals()  # type: ignore[arg-type]

    def run(self) -> Result:
        shutil.rmtree(self._staging, ignore_errors=True)
        self._staging.mkdir(parents=True)
        try:
            files, corrections = self._decoded()
            groups = grouped(files, self._cores)
            fixes = corrections(groups)
            self._stage("writing events and statistics")
            counted = Finish(self._spark, groups, fixes, self._staging).run()
            report = self._report(counted)
            done = self._manifest(counted)
            self._publish(done)
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)
        return Result(self._new, done, report, counted.trust.damaged)

    def _decoded(self) -> tuple[list[Staged], Corrections]:
        """Decode the new files: files of events, earlier ones first, and what is to be put right in them."""
        paths = [each.path for each in self._new]
        files = f"{len(paths):,} file{'s' * (len(paths) > 1)}"
        self._stage(f"decoding {bytes_text(sum(each.bytes for each in self._new))} in {files}")
        run = self._in_splits(paths) if self._shards is None else None
        if run is None:
            shards = ShardRun(
                self._spark, paths, self._config, self._staging / "events-of-tasks", self._number,
                self._shards or self._cores,
            )  # fmt: skip
            shards.decode()
            self._totals.merge(shards.totals)
            return [*self._earlier(), *shards.files], lambda groups: []

        def corrections(groups: list[list[Staged]]) -> list[DataFrame]:
            self._stage("stitching")
            of_split = {file.split: number for number, group in enumerate(groups) for file in group}
            run.stitch([of_split[file.split] for file in run.files])
            self._totals.merge(run.totals)
            self._account = asdict(run.account)
            return run.corrections()

        return [*self._earlier(), *run.files], corrections

    def _in_splits(self, paths: list[str]) -> SplitRun | None:
        """Every task reads its part; None if that is not worth it, or not possible."""
        # Settled here: a split alone may seem too small for kernels to be worth loading.
        config = with_kernels(self._config, sum(each.bytes for each in self._new))
        splits = make_plan(self._spark, paths, config, self._split)
        if len(splits) == 1:
            return None
        run = SplitRun(self._spark, splits, config, self._staging / "splits", self._number)
        if run.decode():
            return run
        shutil.rmtree(self._staging / "splits")
        return None

    def _earlier(self) -> list[Staged]:
        """Files of events of earlier runs."""
        found = sorted((self._place / "events").rglob("*.parquet")) if self._before else []
        return [
            Staged(str(path), pq.read_metadata(path).num_rows, path.stat().st_size, named=True)
            for path in found
        ]

    @property
    def _number(self) -> int:
        return self._before.runs if self._before else 0

    @property
    def _cores(self) -> int:
        return int(self._spark.sparkContext.defaultParallelism)

    def _report(self, counted: Counted) -> Report:
        errors = {code: (error.name, error.retriable) for code, error in catalog().errors.items()}
        report = Report.from_store(counted.store, errors=errors)
        report.write_csv(self._staging / "statistics")
        return report

    def _manifest(self, counted: Counted) -> Manifest:
        trust = counted.trust
        inputs = [*(self._before.inputs if self._before else []), *self._new]
        return Manifest(
            kwsniff=__version__,
            spark=self._spark.version,
            config=_plain(self._config),
            runs=self._number + 1,
            inputs=inputs,
            events={
                "call": trust.calls,
                "anomaly": sum(trust.anomalies.values()),
                "connection": trust.connections,
            },
            capture=asdict(self._totals),
            trust=paragraph(trust, self._totals),
            splits=self._account,
            percentile_error=counted.store.error,
        )

    def _publish(self, done: Manifest) -> None:
        (self._place / manifest.SUCCESS).unlink(missing_ok=True)
        for left in self._staging.rglob(".*.part"):  # by a worker that was killed
            left.unlink()
        for part in PARTS:
            shutil.rmtree(self._place / part, ignore_errors=True)
            (self._staging / part).mkdir(exist_ok=True)  # there need be no anomaly
            (self._staging / part).rename(self._place / part)
        done.write(self._place)

    def _stage(self, name: str) -> None:
        self._tell(name)
        self._spark.sparkContext.setJobDescription(f"kwsniff: {name}")
