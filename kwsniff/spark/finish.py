"""The last jobs of a run: events as tasks left them to tables and statistics as users read them.

Theory of operation. A *group* is some files that follow each other, one task's work; the `corrections` that
are for a group are brought to its task. Its rows go by once to be written, with the names of all topics that
are given by uuid, into the files of their tables; rows whose names were not told (`kwsniff.spark.naming`),
as those of earlier runs, go by before to be learnt from. On their way rows are counted: a task hands over
statistics and findings of its group as bytes, which are merged a few at a time until one is left. So nobody
holds more than some groups' worth of them, and percentiles are exact up to `EXACT` calls. Small files of a
table are joined at the end, while the driver merges and reports.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.config import MIB
from kwsniff.findings import NEEDED, Findings
from kwsniff.lake.compact import SEVERAL, TINY, bundles, joined
from kwsniff.lake.files import Stored
from kwsniff.lake.place import Place
from kwsniff.lake.stored import ROWS, TABLES
from kwsniff.lake.version import Version
from kwsniff.report.even import even
from kwsniff.report.sessions import NEEDED as SESSIONS
from kwsniff.report.sessions import followed
from kwsniff.report.topics import FIXED, MAX_LEARNT, fill, first_named
from kwsniff.spark.carrying import TAKEN, in_sessions, known_sessions, noticed, opened_before
from kwsniff.spark.control import (
    EMITTED,
    STORED,
    Piece,
    Row,
    Work,
    batched,
    described,
    numbers,
    rows_of,
    tasks,
)
from kwsniff.spark.counted import Counted, in_turn, merged
from kwsniff.spark.naming import First, names_of
from kwsniff.spark.settling import Settling
from kwsniff.spark.staged import GROUP_BYTES, Staged, Tables, stored
from kwsniff.spark.staged import merged as in_one_order
from kwsniff.spec.load import catalog
from kwsniff.table import EVENTS as EVENTS_SCHEMA

if TYPE_CHECKING:
    from kwsniff.spark.control import Spark

FILES_BYTES = 160 * MIB
"""Staged events that one task finishes, about: a file a day and hour comes of them."""
LEAST_BYTES = 14 * MIB
MOST_ROWS = 1_000_000
"""Rows up to which tasks hand over every value for the percentiles."""

LEARNT_FROM = (
    *("event", "connection", "software_name", "software_version"), "topics", "topic_ids", "position",
)  # fmt: skip


def grouped(files: Sequence[Staged], cores: int) -> list[list[Staged]]:
    """Files that follow each other, as one task each is to take them."""
    size = min(max(sum(file.bytes for file in files) // (2 * cores), LEAST_BYTES), FILES_BYTES)
    groups: list[list[Staged]] = []
    room = 0
    for file in files:
        if not groups or file.bytes > room:
            groups.append([])
            room = size
        groups[-1].append(file)
        room -= file.bytes
    return groups


class Finish:
    """Finishes `groups` into the files of `version`."""

    def __init__(
        self,
        spark: Spark,
        groups: Sequence[Sequence[Staged]],
        corrections: Sequence[Sequence[Piece]],
        version: Version,
        *,
        in_order: bool = True,
        names: First | None = None,
        sessions: bool = True,
    ) -> None:
        """`corrections` are for each group. `in_order`: each group's rows come before those of the next one;
        otherwise each file's rows are in order by themselves. `names`: what the rows that are no table's yet
        name; None if they have to be read for it. `sessions`: some of them may be of fetch sessions."""
        self._spark, self._groups = spark, [list(group) for group in groups]
        self._corrections, self._version = [list(each) for each in corrections], version
        self._in_order, self._first, self._sessions = in_order, names, sessions
        self.files: list[Stored] = []
        """The files of all tables, once they are written."""

    def run(self) -> Counted:
        """Run the jobs. Raises what Spark raises, and OSError."""
        with self.running() as counted:
            return counted

    @contextmanager
    def running(self) -> Iterator[Counted]:
        """Run the jobs. What the block does with what was counted is done while small files are joined, which
        goes on to its end if the block fails. Raises what Spark raises, and OSError."""
        names = self.topic_names() | FIXED
        emitted = tasks(self._spark, "write tables", len(self._groups), self._writing(names))
        written = [Stored(**each) for detail in emitted["detail"].to_pylist() for each in json.loads(detail)]
        with ThreadPoolExecutor(1) as beside:
            compacting = beside.submit(self._compacted, written, described(self._spark))
            counted = merged(self._spark, self._version.staging, in_turn(emitted))
            if not self._in_order:
                counted.findings = self._findings(names)
            yield counted
            self.files = compacting.result()

    def _writing(self, names: Mapping[str, str]) -> Work:
        version = self._version
        below = {name: version.below(name) for name in TABLES}
        tables = partial(Tables, version.out, below, metadata=spark_metadata())
        few = sum(file.rows for group in self._groups for file in group) <= MOST_ROWS
        place = version.staging / "counted-0"
        opened = self._opened()
        return _writing(self._groups, self._corrections, names, opened, tables, place, few, self._in_order)

    def _opened(self) -> list[Place | None]:
        """For each group where the fetch sessions lie that are open before it."""
        nothing: list[Place | None] = [None] * len(self._groups)
        calls = [in_sessions(group) for group in self._groups]
        if not self._sessions or sum(map(bool, calls)) < 2:
            return nothing
        noticing = _noticing(calls, self._corrections)
        emitted = tasks(self._spark, "follow fetch sessions", len(calls) - 1, noticing).sort_by("split")
        return opened_before(emitted["data"].to_pylist(), self._version.staging / "opened")

    def _findings(self, names: Mapping[str, str]) -> Findings:
        """By one task that takes the rows of all files in their order."""
        files = [file for group in self._groups for file in group]
        emitted = tasks(self._spark, "make findings", 1, _finding(files, names))["data"].to_pylist()
        found: Findings = pickle.loads(emitted[0])
        return found

    def _compacted(self, files: list[Stored], described: Callable[[], None]) -> list[Stored]:
        """With small files joined, a task for each bundle."""
        described()
        found = bundles(files, SEVERAL, small=TINY)
        return (
            compacted(self._spark, files, found, self._version.out, self._version.below) if found else files
        )

    def topic_names(self) -> dict[str, str]:
        """Names of topics by uuid over the whole input, first seen first."""
        first = dict(self._first or {})
        for detail in self._learnt():
            for uuid, (position, name) in json.loads(detail).items():
                first[uuid] = min(first.get(uuid, (position, name)), (position, name))
        return names_of(first)

    def _learnt(self) -> list[str]:
        """What tasks learn from the rows whose names nobody told."""
        told = self._first is not None
        groups, corrections = [], []
        for group, own in zip(self._groups, self._corrections, strict=True):
            # Joining may have names for a split that has none of its own.
            named = [file for file in group if file.named or file.split is not None]
            files = [file for file in named if file.table is not None or not told]
            if files:
                groups.append(files)
                corrections.append([] if told else own)
        if not groups:
            return []
        emitted = tasks(self._spark, "learn topic names", len(groups), _learning(groups, corrections))
        learnt: list[str] = emitted["detail"].to_pylist()
        return learnt


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


def compacted(
    spark: Spark,
    files: Sequence[Stored],
    found: Sequence[Sequence[Stored]],
    out: Place,
    below: Callable[[str], str],
) -> list[Stored]:
    """`files` with each of the bundles joined to one, by a task each. Raises what Spark raises."""
    places = [below(bundle[0].table) for bundle in found]
    metadata = spark_metadata()

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            bundle = found[number]
            one = joined(bundle, out, places[number], metadata[bundle[0].table])
            yield from batched([{"kind": STORED, "detail": json.dumps(asdict(one))}])

    emitted = tasks(spark, "join small files", len(found), work)["detail"].to_pylist()
    gone = {file.path for bundle in found for file in bundle}
    rest = [file for file in files if file.path not in gone]
    return [*rest, *(Stored(**json.loads(detail)) for detail in emitted)]


# Tasks

Finishing = Callable[[int, list[Staged], Iterator[Row]], Iterator[Row]]
"""Takes a group's number and files, and its corrections."""


def _each_group(groups: list[list[Staged]], corrections: list[list[Piece]], finish: Finishing) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            yield from batched(finish(number, groups[number], rows_of(corrections[number])))

    return work


def _believed(
    files: Iterable[Staged], rows: Iterator[Row], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a group as they are true, in the order of the files, with at least these columns."""
    settling = Settling(rows)
    for file in files:
        if file.split is None:
            yield from stored(file.path, columns)
        else:
            yield from settling.rows(file, columns)


def _learning(groups: list[list[Staged]], corrections: list[list[Piece]]) -> Work:
    def learn(number: int, files: list[Staged], rows: Iterator[Row]) -> Iterator[Row]:
        first: dict[str, tuple[int, str]] = {}
        new = [file for file in files if file.table is None]
        for batch in chain(_believed(new, rows, LEARNT_FROM), _earlier(files, LEARNT_FROM)):
            if len(first) < MAX_LEARNT:
                first |= first_named(batch, batch["position"], first)
        yield {"kind": EMITTED, "split": number, "detail": json.dumps(first)}

    return _each_group(groups, corrections, learn)


def _noticing(groups: list[list[Staged]], corrections: list[list[Piece]]) -> Work:
    def notice(number: int, files: list[Staged], rows: Iterator[Row]) -> Iterator[Row]:
        found = noticed(_believed(files, rows, TAKEN))
        yield {"kind": EMITTED, "split": number, "data": found}

    return _each_group(groups, corrections, notice)


def _earlier(files: Iterable[Staged], columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of files of an earlier version."""
    for file in files:
        if file.table is not None:
            yield from stored(file.path, columns, file.table)


def _writing(
    groups: list[list[Staged]],
    corrections: list[list[Piece]],
    names: Mapping[str, str],
    opened: list[Place | None],
    tables: Callable[..., Tables],
    place: Place,
    few: bool,
    in_order: bool,
) -> Work:
    """Writes the rows of each group into files of their tables, and what it counted of them into `place`."""

    def write(number: int, files: list[Staged], rows: Iterator[Row]) -> Iterator[Row]:
        counted = Counted()
        for batch in _earlier(files, ROWS.names):
            counted.take(batch)
        new = [file for file in files if file.table is None]
        with tables(name=f"part-{number:06}") as sink:
            batches = even(_whole(_believed(new, rows, ROWS.names)), GROUP_BYTES // 2)
            for batch in followed(batches, known=known_sessions(opened[number])):
                whole = fill(batch, names)
                sink.add(whole)
                counted.take(whole, findings=in_order)
        if not few:
            counted.store.condense()
        written = json.dumps([asdict(each) for each in sink.stored])
        yield {"kind": STORED, "split": number, "key": counted.save(place), "detail": written}

    return _each_group(groups, corrections, write)


def _whole(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """With the columns of ROWS exactly."""
    for batch in batches:
        yield batch.select(ROWS.names).cast(ROWS)


def _finding(files: list[Staged], names: Mapping[str, str]) -> Work:
    """All findings of files whose rows are in order by themselves."""
    more = {"position", "topic_ids", "topics", *SESSIONS}
    needed = [name for name in ROWS.names if name in NEEDED or name in more]

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in numbers(batches):
            findings = Findings()
            for batch in _earlier(files, ROWS.names):
                findings.take(batch.select(EVENTS_SCHEMA.names))
            new = in_one_order([stored(file.path, needed) for file in files if file.table is None])
            for batch in followed(map(_widened, new)):
                findings.take(fill(batch, names).select(EVENTS_SCHEMA.names))
            yield from batched([{"kind": EMITTED, "data": pickle.dumps(findings, pickle.HIGHEST_PROTOCOL)}])

    return work


def _widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    """With all columns of ROWS; those that are not there are null."""
    known = set(batch.schema.names)
    arrays = [
        batch[field.name] if field.name in known else pa.nulls(batch.num_rows, field.type) for field in ROWS
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=ROWS)
