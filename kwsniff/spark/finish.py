"""The last jobs of a run: events as tasks left them to events, anomalies and statistics as users read them.

Theory of operation. A *group* is some files that follow each other, one task's work; the `corrections` that
are for a group are brought to its task. Twice its rows go by: once, if topics are given by uuid anywhere, to
learn their names, and once to be written, with all names, into folders by date and hour. On that way they are
counted: a task hands over statistics of its group as bytes, which are merged a few at a time until one is
left. So nobody holds more than some groups' worth of them, and percentiles are exact up to `EXACT` calls.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyarrow import csv as arrow_csv

from kwsniff.config import MIB
from kwsniff.report.bounded import BoundedStore
from kwsniff.report.calls import CALLS, flattened
from kwsniff.report.csv import shown, shown_schema
from kwsniff.report.topics import MAX_LEARNT, fill, first_named
from kwsniff.report.trust import TrustTotals
from kwsniff.spark.control import EVENTS, NAMING, TOLD, WRONG, Kept, Row, Work, batched, unbatched, unpacked
from kwsniff.spark.control import spark_schema as control_schema
from kwsniff.spark.decode import ROWS
from kwsniff.spark.staged import Folders, ParquetFile, Staged, WholeFile, stored
from kwsniff.split.settle import Settler
from kwsniff.split.stitch import Naming
from kwsniff.table import EVENTS as EVENTS_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILES_BYTES = 96 * MIB
"""Staged events that one task finishes, about: a file a day and hour comes of them."""
LEAST_BYTES = 8 * MIB
EXACT = 1_000_000
"""Values of a metric up to which percentiles are exact: calls, and topics that calls name."""
MERGED = 16
"""Statistics that one task merges."""
MOST_ROWS = 1_000_000
"""Rows up to which there is a calls.csv, since beyond that nobody opens it, and the events hold the same; and
up to which tasks hand over every value for the percentiles."""
SEED = "seed"
"""Kind of a row that only says: there is such a group."""

LEARNT_FROM = (
    *("event", "connection", "software_name", "software_version"), "topics", "topic_ids", "position",
)  # fmt: skip
ANOMALIES = pa.schema(
    [
        ROWS.field(name)
        for name in (
            *("time", "capture", "packet", "code", "detail", "connection", "position"),
            *("client_ip", "client_port", "broker_ip", "broker_port"),
        )
    ]
)
"""Columns of `anomalies/`."""


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


@dataclass(slots=True)
class Counted:
    """What was counted of events."""

    store: BoundedStore = field(default_factory=lambda: BoundedStore(limit=EXACT))
    trust: TrustTotals = field(default_factory=TrustTotals)

    def add(self, batch: pa.RecordBatch) -> None:
        """Count rows (ROWS)."""
        events = batch.select(EVENTS_SCHEMA.names)
        self.trust.add(events)
        self.store.add(events)

    def merge(self, other: Counted) -> None:
        """Take what another one counted."""
        self.store.merge(other.store)
        self.trust.merge(other.trust)


class Finish:
    """Finishes `groups`; results go into directories in `place`."""

    def __init__(
        self,
        spark: SparkSession,
        groups: Sequence[Sequence[Staged]],
        corrections: Sequence[DataFrame],
        place: Path,
    ) -> None:
        """The `split` of corrections is the number of the group that they are for."""
        self._spark, self._groups, self._place = spark, [list(group) for group in groups], place
        self._corrections = corrections

    def run(self) -> Counted:
        """Run the jobs. Raises what Spark raises, and OSError."""
        names = self._names() if any(file.named for group in self._groups for file in group) else {}
        few = sum(file.rows for group in self._groups for file in group) <= MOST_ROWS
        work = _writing(self._groups, names, self._place, few)
        kept = Kept(self._spark, self._place / "counted-0")
        kept.write(self._by_group().mapInArrow(work, control_schema()))
        counted = self._merged(kept, len(self._groups))
        if few:
            self._join_calls()
        return counted

    def _by_group(self) -> DataFrame:
        """A task for each group, with its corrections: events first, then what has to be known."""
        from pyspark.sql import functions as f

        count = len(self._groups)
        seeds = self._spark.range(0, count, 1, 1).select(
            f.col("id").alias("split"), f.lit(SEED).alias("kind")
        )
        whole = seeds
        for part in self._corrections:
            whole = whole.unionByName(part, allowMissingColumns=True)
        if not self._corrections:
            empty = {"key": "string", "detail": "string", "data": "binary"}
            whole = whole.withColumns({name: f.lit(None).cast(kind) for name, kind in empty.items()})
        by_group = whole.repartitionById(count, f.col("split").cast("int"))
        return by_group.sortWithinPartitions("split", "kind")

    def _names(self) -> dict[str, str]:
        """Names of topics by uuid over the whole input, first seen first."""
        told = self._by_group().mapInArrow(_learning(self._groups), control_schema())
        first: dict[str, tuple[int, str]] = {}
        for detail in told.toArrow()["detail"].to_pylist():
            for uuid, (position, name) in json.loads(detail).items():
                first[uuid] = min(first.get(uuid, (position, name)), (position, name))
        return {uuid: name for uuid, (_, name) in first.items()}

    def _merged(self, kept: Kept, count: int) -> Counted:
        """One of all, by levels."""
        from pyspark.sql import functions as f

        level = 0
        while count > MERGED:
            count, level = -(-count // MERGED), level + 1
            further = Kept(self._spark, self._place / f"counted-{level}")
            share = f.expr(f"cast(split div {MERGED} as int)")
            parts = kept.rows().repartitionById(count, share).sortWithinPartitions("split")
            further.write(parts.mapInArrow(_merging(MERGED), control_schema()))
            kept = further
        counted = Counted()
        for data in kept.column("data", TOLD):
            counted.merge(pickle.loads(data))
        return counted

    def _join_calls(self) -> None:
        """calls.csv of what the tasks left of it."""
        found = sorted((self._place / "calls").glob("[0-9]*.csv"))
        with WholeFile(self._place / "statistics" / "calls.csv") as file:
            arrow_csv.write_csv(shown_schema(CALLS).empty_table(), file.stream)
            for part in found:
                file.append(part)


# Tasks

Finishing = Callable[[int, list[Staged], Iterator[Row]], Iterator[Row]]
"""Takes a group's number and files, and its corrections."""


def _each_group(groups: list[list[Staged]], finish: Finishing) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, rows in groupby(unbatched(batches), key=lambda row: row["split"]):
            yield from batched(finish(number, groups[number], rows))

    return work


def _believed(
    files: Iterable[Staged], rows: Iterator[Row], columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """The rows of a group as they are true, with at least these columns."""
    names: list[Naming] = []
    wrong: list[str] = []
    for row in rows:
        if row["kind"] == EVENTS:
            yield from unpacked(row["data"])
        elif row["kind"] == NAMING:
            group = row["split"]
            names.append(Naming(group, row["key"], *json.loads(row["detail"])))
        elif row["kind"] == WRONG:
            wrong.append(row["key"])
    settler = Settler(names, wrong)
    for file in files:
        for batch in stored(file.path, columns):
            yield batch if file.split is None else settler.settle(batch)


def _learning(groups: list[list[Staged]]) -> Work:
    def learn(number: int, files: list[Staged], rows: Iterator[Row]) -> Iterator[Row]:
        first: dict[str, tuple[int, str]] = {}
        for batch in _believed([file for file in files if file.named], rows, LEARNT_FROM):
            if len(first) < MAX_LEARNT:
                first |= first_named(batch, batch["position"], first)
        yield {"kind": TOLD, "split": number, "detail": json.dumps(first)}

    return _each_group(groups, learn)


def _writing(groups: list[list[Staged]], names: Mapping[str, str], place: Path, few: bool) -> Work:
    def write(number: int, files: list[Staged], rows: Iterator[Row]) -> Iterator[Row]:
        counted = Counted()
        with ExitStack() as stack:
            sinks = [
                stack.enter_context(Folders(place / "events", f"part-{number:06}")).add,
                stack.enter_context(
                    _Anomalies(place / "anomalies" / f"part-{number:06}.parquet", number == 0)
                ).add,
                counted.add,
            ]
            if few:
                sinks.append(stack.enter_context(_Calls(place / "calls" / f"{number:06}.csv")).add)
            for batch in _believed(files, rows, ROWS.names):
                whole = fill(batch.select(ROWS.names).cast(ROWS), names)
                for take in sinks:
                    take(whole)
        if not few:
            counted.store.condense()
        yield {"kind": TOLD, "split": number, "data": pickle.dumps(counted, pickle.HIGHEST_PROTOCOL)}

    return _each_group(groups, write)


def _merging(share: int) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        counted, first = Counted(), None
        for row in unbatched(batches):
            first = row["split"] if first is None else first
            counted.merge(pickle.loads(row["data"]))
        if first is not None:
            data = pickle.dumps(counted, pickle.HIGHEST_PROTOCOL)
            yield from batched([{"kind": TOLD, "split": first // share, "data": data}])

    return work


class _Anomalies(ParquetFile):
    """The anomalies among rows: a file only if there are any, or if `always`."""

    def __init__(self, path: Path, always: bool) -> None:
        super().__init__(path, ANOMALIES)
        self._found = always

    def add(self, batch: pa.RecordBatch) -> None:
        anomalies = batch.filter(batch["code"].is_valid()).select(ANOMALIES.names)
        if anomalies.num_rows:
            self._found = True
            super().add(anomalies)

    @property
    def wanted(self) -> bool:
        return self._found


class _Calls(WholeFile):
    """The calls among rows as lines of CSV."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._schema = shown_schema(CALLS)

    def add(self, batch: pa.RecordBatch) -> None:
        for calls in flattened([batch], {}):
            lines = pa.Table.from_batches([shown(calls, self._schema)])
            arrow_csv.write_csv(lines, self.stream, arrow_csv.WriteOptions(include_header=False))
