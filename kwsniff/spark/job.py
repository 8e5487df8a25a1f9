"""The batch job of `kwsniff pipeline`: captures to tables of calls, anomalies, connections and findings.

Theory of operation. Tasks decode (`kwsniff.spark.splits`) into files of a staging directory beside the
results; these are finished by `kwsniff.spark.finish` into files of a new version, which its manifest makes
the result (`kwsniff.spark.version`). One run at a time writes to a place (`kwsniff.spark.version`).
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kwsniff.analysis.report import Report
from kwsniff.analysis.trust import paragraph
from kwsniff.capture.place import Place
from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.output.units import bytes_text
from kwsniff.page.html import Page, Pass
from kwsniff.spark import formats
from kwsniff.spark.files import Stored
from kwsniff.spark.finish import Finish, Group, error_names, findings_files, grouped
from kwsniff.spark.learnt import First
from kwsniff.spark.results import Input, Manifest, OutputError, inputs, manifest
from kwsniff.spark.resulttables import BEHIND, FOUND, OF_EVENTS
from kwsniff.spark.splits import SplitRun, decode_shares, make_plan
from kwsniff.spark.staged import Staged
from kwsniff.spark.tasks import context_of
from kwsniff.spark.version import PARQUET, Lock, Version, locked, plain, show, usable

if TYPE_CHECKING:
    from kwsniff.spark.tasks import Spark

Tell = Callable[[str, int], None]
"""Is told each step as it begins, and the bytes that its tasks share (0: they don't share any)."""


@dataclass(frozen=True, slots=True)
class JobResult:
    """What a run left."""

    read: list[Input]
    """Files read by this run: with `append`, those that were new."""
    manifest: Manifest
    report: Report | None
    """None if an append found nothing new."""
    damaged: bool = False
    """Part of the input could not be read."""


def run(
    spark: Spark,
    paths: Sequence[str],
    out: str | os.PathLike[str],
    config: Config,
    *,
    append: bool = False,
    shards: int | None = None,
    split: int | None = None,
    form: str = PARQUET,
    tell: Tell = lambda step, size: None,
) -> JobResult:
    """Decode the captures at `paths` on `spark`, a session or its context, and write the results to `out`, a
    directory or a URL.

    A run replaces the results of an earlier one. With `append` it reads only files the earlier ones did not,
    adds their rows, and makes statistics and findings of all. Large input is read in splits, of `split` bytes
    if given; with `shards`, so many tasks read everything and share the connections. `form` is the format of
    the tables: parquet, delta or iceberg.

    Raises:
        kwsniff.capture.error.CaptureError: an input cannot be read.
        OutputError: `out` holds something else, results of other settings, or another run writes to it.
        OSError: a result cannot be written.
    """
    place = check(out, form)
    with locked(place) as lock:
        last = usable(place)
        before = _before(place, last, config, form) if append else None
        found = inputs(paths, before.runs if before else 0)
        known = {(each.path, each.bytes, each.modified_ns) for each in before.inputs} if before else set()
        new = [each for each in found if (each.path, each.bytes, each.modified_ns) not in known]
        version = Version(place, last, form)
        version.clear()
        if before and not new:
            show(place, before)  # a run may have been killed before it did
            return JobResult([], before, None)
        return _JobRun(spark, version, config, before, new, tell, lock).run(shards, split)


def check(out: str | os.PathLike[str], form: str) -> Place:
    """Where `run` would write. Raises OutputError, OSError if it can't."""
    place = Place.of(out)
    formats.check(form, place)
    usable(place)
    return place


def _before(place: Place, last: Manifest | None, config: Config, form: str) -> Manifest | None:
    """The manifest to add to."""
    if last is not None and last.config != plain(config):
        raise OutputError(f"{place}: was made with other settings, so nothing can be appended")
    if last is not None and last.format != form:
        raise OutputError(f"{place}: holds {last.format} tables; append with --format {last.format}")
    return last


class _JobRun:
    """One run over the files `new`, after the runs that `before` tells of."""

    def __init__(
        self,
        spark: Spark,
        version: Version,
        config: Config,
        before: Manifest | None,
        new: list[Input],
        tell: Tell,
        lock: Lock,
    ) -> None:
        self._tell, self._lock = tell, lock
        self._spark, self._version, self._config = spark, version, config
        self._before, self._new = before, new
        self._inputs = [*(before.inputs if before else ()), *new]
        self._account: dict[str, Any] = {}
        self._staging = version.staging
        self._totals = CaptureTotals(**before.capture) if before else CaptureTotals()  # type: ignore[arg-type]
        self._in_order = True
        self._names: First | None = None
        self._sessions = True

    def run(self, shards: int | None, split: int | None) -> JobResult:
        """Raises what Spark raises, CaptureError, OutputError and OSError."""
        try:
            groups = self._decoded(shards, split)
            self._stage("writing tables and statistics")
            finish = Finish(
                self._spark, groups, self._version, in_order=self._in_order, names=self._names,
                sessions=self._sessions,
            )  # fmt: skip
            with finish.running() as counted:
                report = self._report(counted)
            done = self._manifest(counted, [*finish.files, *self._findings(counted)])
            self._stage("publishing")
            self._lock.held()
            self._version.clear(done)  # what was joined, and what attempts left that did not count
            formats.commit(self._version, done)
            self._version.publish(done)
        finally:
            self._version.discard()
        return JobResult(self._new, done, report, counted.trust.damaged)

    def _decoded(self, shards: int | None, split: int | None) -> list[Group]:
        """Decode the new files: files of events, earlier ones first, and what is to be put right in them."""
        paths = [each.path for each in self._new]
        count = len(paths)
        self._size = sum(each.bytes for each in self._new)
        self._what = f"decoding {bytes_text(self._size)} in {count:,} file{'s' * (count > 1)}"
        run = self._in_splits(paths, split) if shards is None else None
        if run is None:
            self._stage(f"{self._what}, in shares of the connections", self._size)
            files, totals = decode_shares(
                self._spark, paths, self._config, self._staging / "events-of-tasks", self._number,
                shards or self._cores,
            )  # fmt: skip
            self._in_order = False
            self._totals.merge(totals)
            return grouped([*self._earlier(), *files], self._cores)
        self._stage("joining")
        run.join()
        self._totals.merge(run.totals)
        self._account, self._names, self._sessions = asdict(run.account), run.names, run.sessions
        return grouped([*self._earlier(), *run.files], self._cores, run.corrections)

    def _in_splits(self, paths: list[str], split: int | None) -> SplitRun | None:
        """Every task reads its part; None if that is not possible."""
        self._stage("finding where to cut")
        splits = make_plan(self._spark, paths, self._config, split)
        self._stage(f"{self._what}, in {len(splits):,} part{'s' * (len(splits) > 1)}", self._size)
        run = SplitRun(self._spark, splits, self._config, self._staging / "splits", self._number)
        if run.decode():
            return run
        (self._staging / "splits").remove_tree()
        return None

    def _earlier(self) -> list[Staged]:
        """Files of the tables of earlier runs."""
        tables = self._before.tables if self._before else {}
        return [
            Staged((self._version.out / file.path).url, file.rows, file.bytes, named=True, table=table.name)
            for table in OF_EVENTS
            for file in tables.get(table.name, ())
        ]

    @property
    def _number(self) -> int:
        return self._before.runs if self._before else 0

    @property
    def _cores(self) -> int:
        return int(context_of(self._spark).defaultParallelism)

    def _report(self, counted: Pass) -> Report:
        report = Report.from_store(counted.store, errors=error_names(), uses=True)
        with tempfile.TemporaryDirectory(prefix="kwsniff-") as scratch:
            report.write_csv(scratch)
            self._write_page(report, counted, Path(scratch) / "report.html")
            for file in sorted(Path(scratch).iterdir()):
                (self._version.out / self._version.statistics / file.name).replace(file.read_bytes())
        return report

    def _write_page(self, report: Report, counted: Pass, path: Path) -> None:
        """The page of `kwsniff report --html`, without a second reading of the captures."""
        page = Page(
            [each.path for each in self._inputs], report, counted.findings.found(error_names()),
            counted.findings.errors(error_names()), counted.trust.anomalies,
            paragraph(counted.trust, self._totals), counted.gathered,
        )  # fmt: skip
        path.write_text(page.html(), encoding="utf-8")

    def _findings(self, counted: Pass) -> list[Stored]:
        """The files of the tables of findings and of lag."""
        made = findings_files(counted.findings, self._version.out, self._version.below)
        return [file for files in made.values() for file in files]

    def _manifest(self, counted: Pass, files: list[Stored]) -> Manifest:
        tables: dict[str, list[Stored]] = {table.name: [] for table in (*OF_EVENTS, FOUND, BEHIND)}
        if self._before:
            tables |= {table.name: list(self._before.tables.get(table.name, ())) for table in OF_EVENTS}
        for file in files:
            tables[file.table].append(file)
        made = manifest(plain(self._config), self._number + 1, tables, counted.trust, asdict(self._totals))
        return replace(
            made, spark=self._spark.version, inputs=self._inputs, statistics=self._version.statistics,
            splits=self._account, percentile_error=counted.store.error,
        )  # fmt: skip

    def _stage(self, name: str, size: int = 0) -> None:
        self._tell(name, size)
        context_of(self._spark).setJobDescription(f"kwsniff: {name}")
