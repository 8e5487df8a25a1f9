"""The last jobs of a run: events as tasks left them to tables and statistics as users read them.

Theory of operation. A *group* is some files that follow each other, one task's work, with what is to be put
right in them. Its rows go by once to be written, with the names of all topics that are given by uuid, into
the files of their tables; rows whose names were not told (`kwsniff.spark.learnt`), as those of earlier runs,
go by before to be learnt from. On their way rows are counted: a task writes statistics and findings of its
group to a file, and tasks merge some of these at a time until one is left. So nobody holds more than some
groups' worth of them, and percentiles are exact up to `EXACT` calls. Small files of a table are joined at the
end, while the driver merges and reports.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

from kwsniff.analysis.findings import NEEDED, Findings
from kwsniff.capture.place import Place
from kwsniff.config import MIB
from kwsniff.count.sessions import NEEDED as SESSIONS
from kwsniff.count.sessions import followed, noticed
from kwsniff.count.spool import even
from kwsniff.count.topics import FIXED, MAX_LEARNT, fill, first_named
from kwsniff.page.html import Pass
from kwsniff.rows.arrays import filled_columns, record_batch
from kwsniff.rows.schema import EVENTS as EVENTS_SCHEMA
from kwsniff.spark.files import SEVERAL, TINY, Folders, Stored, bundles, joined
from kwsniff.spark.joining import Correction, settled
from kwsniff.spark.learnt import TAKEN, First, known_sessions, names_of, opened_before
from kwsniff.spark.resulttables import BEHIND, FOUND, ROWS, TABLES, LakeTable
from kwsniff.spark.staged import GROUP_BYTES, Staged, Tables, stored
from kwsniff.spark.staged import merged as in_one_order
from kwsniff.spark.tasks import described, run
from kwsniff.spark.version import Version
from kwsniff.spec.load import catalog

if TYPE_CHECKING:
    from kwsniff.count.sessions import Changes
    from kwsniff.spark.tasks import Spark

FILES_BYTES = 160 * MIB
"""Staged events that one task finishes, about: a file a day and hour comes of them."""
LEAST_BYTES = 4 * MIB
MOST_ROWS = 1_000_000
"""Rows up to which tasks hand over every value for the percentiles."""
EXACT = 1_000_000
"""Values of a metric up to which percentiles are exact: calls, and topics that calls name."""
MERGED = 16
"""Statistics that one task merges."""

LEARNT_FROM = (
    *("event", "connection", "software_name", "software_version"), "topics", "topic_ids", "position",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Group:
    """Files that follow each other, for one task to finish."""

    files: list[Staged]
    before: list[Staged] = field(default_factory=list)
    """Files of the first one's split before it."""
    corrections: dict[int, list[Correction]] = field(default_factory=dict)
    """What is to be put right in the events of each split."""

    def rows(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows as they are true, in the order of the files, with at least these columns, but for those
        of tables of an earlier version. Raises OSError."""
        new = [file for file in self.files if file.table is None]
        for at, (split, own) in enumerate(groupby(new, key=lambda file: file.split)):
            files = list(own)
            if split is None:
                yield from chain.from_iterable(stored(file.path, columns) for file in files)
            else:
                before = self.before if at == 0 else []
                yield from settled(files, before, self.corrections.get(split, []), columns)

    def earlier(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """The rows of files of tables of an earlier version."""
        for file in self.files:
            if file.table is not None:
                yield from stored(file.path, columns, file.table)

    def in_sessions(self) -> Group:
        """With the calls of fetch sessions instead of all rows."""
        files = [replace(file, path=file.sessions) for file in self.files if file.sessions is not None]
        return Group(files, corrections=self.corrections)


def grouped(
    files: Sequence[Staged], cores: int, corrections: Mapping[int, list[Correction]] | None = None
) -> list[Group]:
    """Files that follow each other, as one task each is to take them: as many for each core, of about one
    size, within limits."""
    total = max(sum(file.bytes for file in files), 1)
    rounds = -(-total // (FILES_BYTES * cores))
    count = max(min(rounds * cores, total // LEAST_BYTES), 1)
    groups: list[Group] = []
    behind, last = 0, -1
    of_split: list[Staged] = []
    for file in files:
        of_split = of_split if of_split and of_split[-1].split == file.split else []
        number = (2 * behind + file.bytes) * count // (2 * total)  # by its middle
        if number != last:
            groups.append(Group([], list(of_split)))
        groups[-1].files.append(file)
        of_split.append(file)
        behind, last = behind + file.bytes, number
        if corrections and file.split is not None:
            groups[-1].corrections[file.split] = corrections[file.split]
    return groups


class Finish:
    """Finishes `groups` into the files of `version`."""

    def __init__(
        self,
        spark: Spark,
        groups: Sequence[Group],
        version: Version,
        *,
        in_order: bool = True,
        names: First | None = None,
        sessions: bool = True,
    ) -> None:
        """`in_order`: each group's rows come before those of the next one; otherwise each file's rows are in
        order by themselves. `names`: what the rows that are no table's yet name; None if they have to be read
        for it. `sessions`: some of them may be of fetch sessions."""
        self._spark, self._groups, self._version = spark, list(groups), version
        self._in_order, self._first, self._sessions = in_order, names, sessions
        self.files: list[Stored] = []
        """The files of all tables, once they are written."""

    def run(self) -> Pass:
        """Run the jobs; what was counted of all rows. Raises what Spark raises, and OSError."""
        with self.running() as counted:
            return counted

    @contextmanager
    def running(self) -> Iterator[Pass]:
        """Run the jobs. What the block does with what was counted is done while small files are joined, which
        goes on to its end if the block fails. Raises what Spark raises, and OSError."""
        names = self.topic_names() | FIXED
        files, urls = self._written(names)
        with ThreadPoolExecutor(1) as beside:
            compacting = beside.submit(self._compacted, files, described(self._spark))
            counted = self._merged(urls)
            if not self._in_order:
                counted.findings = self._findings(names)
            yield counted
            self.files = compacting.result()

    def _written(self, names: Mapping[str, str]) -> tuple[list[Stored], list[str]]:
        """Write the rows of each group into files of their tables: these, and where what was counted lies."""
        version, in_order = self._version, self._in_order
        below = {name: version.below(name) for name in TABLES}
        tables = partial(Tables, version.out, below, metadata=spark_metadata())
        few = sum(file.rows for group in self._groups for file in group.files) <= MOST_ROWS
        place = version.staging / "counted"

        def work(given: tuple[int, Group, str | None]) -> tuple[list[Stored], str]:
            number, group, opened = given
            counted = Pass(EXACT)
            for batch in group.earlier(ROWS.names):
                counted.take(batch)
            with tables(name=f"part-{number:06}") as sink:
                rows = (batch.select(ROWS.names).cast(ROWS) for batch in group.rows(ROWS.names))
                for batch in followed(even(rows, GROUP_BYTES // 2), known=known_sessions(opened)):
                    whole = fill(batch, names)
                    sink.add(whole)
                    counted.take(whole, findings=in_order)
            if not few:
                counted.store.condense()
            return sink.stored, _saved(counted, place)

        groups = zip(self._groups, self._opened(), strict=True)
        given = [(number, *each) for number, each in enumerate(groups)]
        done = run(self._spark, "write tables", given, work)
        return [file for files, _ in done for file in files], [url for _, url in done]

    def _opened(self) -> list[str | None]:
        """For each group where the fetch sessions lie that are open before it."""
        groups = [group.in_sessions() for group in self._groups]
        if not self._sessions or sum(bool(group.files) for group in groups) < 2:
            return [None] * len(groups)

        def work(group: Group) -> Changes:
            return noticed(group.rows(TAKEN))

        changes = run(self._spark, "follow fetch sessions", groups[:-1], work)
        return opened_before(changes, self._version.staging / "opened")

    def _merged(self, urls: Sequence[str]) -> Pass:
        """What all groups counted, by levels."""
        place = self._version.staging / "counted"

        def work(share: Sequence[str]) -> str:
            return _saved(_one(share), place)

        while len(urls) > MERGED:
            shares = [urls[first : first + MERGED] for first in range(0, len(urls), MERGED)]
            urls = run(self._spark, "merge statistics", shares, work)
        return _one(urls)

    def _findings(self, names: Mapping[str, str]) -> Findings:
        """By one task that takes the rows of all files, which are in order by themselves, in their order."""
        more = {"position", "topic_ids", "topics", *SESSIONS}
        needed = [name for name in ROWS.names if name in NEEDED or name in more]

        def work(groups: list[Group]) -> Findings:
            findings = Findings()
            for group in groups:
                for batch in group.earlier(ROWS.names):
                    findings.take(batch.select(EVENTS_SCHEMA.names))
            files = [file for group in groups for file in group.files if file.table is None]
            rows = in_one_order([stored(file.path, needed) for file in files])
            whole = (record_batch(filled_columns(each), each.num_rows, ROWS) for each in rows)
            for batch in followed(whole):
                findings.take(fill(batch, names).select(EVENTS_SCHEMA.names))
            return findings

        return run(self._spark, "make findings", [self._groups], work)[0]

    def _compacted(self, files: list[Stored], described: Callable[[], None]) -> list[Stored]:
        """With small files joined, a task for each bundle."""
        described()
        found = bundles(files, SEVERAL, small=TINY)
        return compacted(self._spark, files, found, self._version.out, self._version.below)

    def topic_names(self) -> dict[str, str]:
        """Names of topics by uuid over the whole input, first seen first."""
        first = dict(self._first or {})
        for learnt in self._learnt():
            for uuid, named in learnt.items():
                first[uuid] = min(first.get(uuid, named), named)
        return names_of(first)

    def _learnt(self) -> list[First]:
        """What tasks learn from the rows whose names nobody told."""
        groups = []
        for group in self._groups:
            # Joining may have names for a split that has none of its own.
            files = [file for file in group.files if file.named or file.split is not None]
            if self._first is not None:
                files = [file for file in files if file.table is not None]
            if files:
                groups.append(replace(group, files=files))
        return run(self._spark, "learn topic names", groups, _learning)


def _learning(group: Group) -> First:
    first: First = {}
    for batch in chain(group.rows(LEARNT_FROM), group.earlier(LEARNT_FROM)):
        if len(first) < MAX_LEARNT:
            first |= first_named(batch, batch["position"], first)
    return first


def _saved(counted: Pass, place: Place) -> str:
    """Write it into a new file in a directory, piece by piece: all at once, it would be in memory twice.
    Gives the URL. Raises OSError."""
    file = place / uuid4().hex
    with file.create() as stream:
        pickle.dump(counted, stream, pickle.HIGHEST_PROTOCOL)
    return file.url


def _one(urls: Iterable[str]) -> Pass:
    """What was counted of rows that follow each other, as one. Raises OSError."""
    whole = Pass(EXACT)
    for url in urls:
        with Place(url).open() as stream:
            whole.merge(pickle.load(stream))
    return whole


def error_names() -> dict[int, tuple[str, bool]]:
    """Names of error codes, and whether a client may try again."""
    return {code: (error.name, error.retriable) for code, error in catalog().errors.items()}


def spark_metadata() -> dict[str, dict[str, str]]:
    """For each table, what Spark itself would write beside its Parquet: so it shows the columns' comments."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructField, StructType

    return {
        name: {
            "org.apache.spark.sql.parquet.row.metadata": StructType(
                [
                    StructField(
                        field.name, from_arrow_type(field.type), True,
                        {"comment": field.metadata[b"comment"].decode()},
                    )
                    for field in table.schema
                ]
            ).json()
        }
        for name, table in TABLES.items()
    }  # fmt: skip


def table_files(table: LakeTable, rows: pa.Table, out: Place, below: str) -> list[Stored]:
    """Rows of a table in files of their own in the directory `below` of `out`. Raises OSError."""
    with Folders(table, out, below, "part", spark_metadata()[table.name]) as folders:
        for batch in rows.to_batches():
            folders.add(batch.cast(table.schema))
    return folders.stored


def findings_files(findings: Findings, out: Place, below: Callable[[str], str]) -> dict[str, list[Stored]]:
    """The files of the tables of findings and of lag. Raises OSError."""
    tables = ((FOUND, findings.table(error_names())), (BEHIND, findings.lag()))
    return {table.name: table_files(table, rows, out, below(table.name)) for table, rows in tables}


def compacted(
    spark: Spark,
    files: Sequence[Stored],
    found: Sequence[Sequence[Stored]],
    out: Place,
    below: Callable[[str], str],
) -> list[Stored]:
    """`files` with each of the bundles joined to one, by a task each. Raises what Spark raises."""
    metadata = spark_metadata() if found else {}

    def work(given: tuple[Sequence[Stored], str]) -> Stored:
        bundle, place = given
        return joined(bundle, out, place, metadata[bundle[0].table])

    gone = {file.path for bundle in found for file in bundle}
    rest = [file for file in files if file.path not in gone]
    given = [(bundle, below(bundle[0].table)) for bundle in found]
    return [*rest, *run(spark, "join small files", given, work)]
