"""What a result directory holds: the manifest, which changes when a run publishes its results, and tables.

Every file of a result has a name of its own and never changes; the manifest names those that count. So a
reader finds one whole result at any time, and a run that ends before its manifest is written leaves what was
there before. An input file is known by its path, size and time of modification, so one that was replaced
counts as new. How far a stream has come is part of the manifest, so that both change as one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from kwsniff import __version__
from kwsniff.analysis.trust import TrustTotals, paragraph
from kwsniff.capture.place import Place, Unread, is_remote
from kwsniff.capture.source import CaptureTotals, resolve
from kwsniff.rows.arrays import filled_columns, record_batch, repeated
from kwsniff.spark.files import Stored, rows_of
from kwsniff.spark.resulttables import OF_EVENTS, ROWS, TABLES

NAME = "manifest.json"
SUCCESS = "_SUCCESS"
"""A file for tools that wait for it: it is there once there is a first result, or when a stream has ended."""
LAYOUT = 2
"""Of directory and manifest; another number means another version of kwsniff."""
DATA = "data"


class OutputError(Exception):
    """The output directory cannot be used as asked; the text is one line."""


@dataclass(frozen=True, slots=True)
class Input:
    """One capture file that was read."""

    path: str
    bytes: int
    modified_ns: int
    run: int
    """Number of the run that read it: 0, and one more for each `--append`."""


@dataclass(slots=True)
class Manifest:
    """What a result directory holds."""

    kwsniff: str
    spark: str
    config: dict[str, Any]
    runs: int
    inputs: list[Input]
    version: int = 1
    """One more with each change of the results."""
    layout: int = LAYOUT
    format: str = "parquet"
    """parquet, delta or iceberg."""
    tables: dict[str, list[Stored]] = field(default_factory=dict)
    """The files of each table."""
    statistics: str | None = None
    """The directory of the CSV files, below that of the manifest."""
    commits: dict[str, int] = field(default_factory=dict)
    """Version or snapshot of each table in a format that has such."""
    events: dict[str, int] = field(default_factory=dict)
    """Rows by kind: call, anomaly, connection."""
    capture: dict[str, int | None] = field(default_factory=dict)
    """Packets and bytes read and what was wrong with them, see `kwsniff.net.packets.CaptureTotals`."""
    splits: dict[str, Any] = field(default_factory=dict)
    """What the latest run read in splits came to, see `kwsniff.spark.splits.Account`; empty if it was not."""
    percentile_error: float = 0.0
    """How far percentiles in the statistics may be from the true ones, as a part of them."""
    stream: dict[str, Any] | None = None
    """How far a stream has come, see `StreamRecord`; its input is listed where it keeps
    its state."""
    trust: str = ""
    """The paragraph on how far the figures can be trusted."""

    def write(self, out: Place) -> None:
        """Make this the result. Raises OSError."""
        (out / NAME).replace((json.dumps(asdict(self), indent=1) + "\n").encode())

    @property
    def files(self) -> list[Stored]:
        """Of all tables."""
        return [file for files in self.tables.values() for file in files]


def manifest(
    config: dict[str, Any],
    runs: int,
    tables: dict[str, list[Stored]],
    trust: TrustTotals,
    capture: dict[str, int | None],
) -> Manifest:
    """That of tables whose rows came to `trust`."""
    anomalies = sum(trust.anomalies.values())
    return Manifest(
        __version__, "", config, runs, [], tables=tables, capture=capture,
        events={
            "call": trust.calls, "exchange": trust.exchanges, "anomaly": anomalies,
            "connection": trust.connections,
        },
        trust=paragraph(trust, CaptureTotals(**capture)),  # type: ignore[arg-type]
    )  # fmt: skip


def read(out: Place) -> Manifest | None:
    """The manifest of a result, None where there is none.

    Raises:
        OutputError: there is a file of that name that is no manifest, or that of another version.
        OSError: it cannot be read.
    """
    try:
        known = json.loads((out / NAME).read())
        if known.get("layout") != LAYOUT:
            raise OutputError(f"{out}: was made by another version of kwsniff; name another directory")
        tables = {name: [Stored(**each) for each in files] for name, files in known["tables"].items()}
        inputs = [Input(**each) for each in known["inputs"]]
        return Manifest(**{**known, "inputs": inputs, "tables": tables})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise OutputError(f"{out / NAME}: is no manifest of kwsniff ({error})") from None


@dataclass(slots=True)
class StreamRecord:
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


def last_record(out: Place) -> StreamRecord:
    """The record of the last finished batch of the stream in `out`; an empty one if there is none."""
    return of_manifest(read(out))


def of_manifest(known: Manifest | None) -> StreamRecord:
    """The record that a manifest holds."""
    return StreamRecord(**known.stream) if known and known.stream else StreamRecord()


def inputs(paths: Iterable[str], run: int, unread: list[Unread] | None = None) -> list[Input]:
    """The files at `paths` in the order they are read. `unread` takes those in directories that cannot be.

    Raises:
        kwsniff.capture.error.CaptureError: one is missing or no capture.
        OutputError: one is a pipe, which cannot be read by several tasks.
    """
    found = []
    for file in resolve(paths, unread):
        if file.size is None:
            raise OutputError(f"{file.path}: a pipe can be read by one process only; use kwsniff decode")
        path = file.path if is_remote(file.path) else os.path.abspath(file.path)
        found.append(Input(path, file.size, file.modified_ns, run))
    return found


class Results:
    """The result in `out`, as it was when this was made: `Results("results").table("calls").to_pandas()`.

    Raises:
        OutputError: there is none.
        OSError: it cannot be read.
    """

    def __init__(self, out: Any) -> None:
        self.place = Place.of(out)
        found = read(self.place)
        if found is None:
            raise OutputError(f"{self.place}: holds no results")
        self.manifest: Manifest = found

    def files(self, table: str) -> list[str]:
        """The Parquet files of a table, as paths or URLs."""
        return [(self.place / file.path).url for file in self.manifest.tables.get(table, ())]

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows of a table (one of `kwsniff.spark.resulttables.TABLES`), by time within each file, or some
        columns of them."""
        schema = TABLES[name].schema
        wanted = schema if columns is None else pa.schema([schema.field(each) for each in columns])
        batches = [batch for url in self.files(name) for batch in rows_of(Place(url), wanted.names)]
        return pa.Table.from_batches([batch.cast(wanted) for batch in batches], wanted)

    def events(self) -> pa.Table:
        """Calls, anomalies and connections as rows of EVENTS with `position`, in the order of one process."""
        parts = []
        for table in OF_EVENTS:
            for batch in self.table(table.name).to_batches():
                parts.append(as_rows(batch, str(table.kind)))
        return pa.Table.from_batches(parts, ROWS).sort_by("position")


def as_rows(batch: pa.RecordBatch, kind: str) -> pa.RecordBatch:
    """Rows of a table as EVENTS with positions."""
    held = filled_columns(batch)
    columns = {field.name: held[field.name].cast(field.type) for field in ROWS if field.name in held}
    return record_batch({**columns, "event": repeated(kind, batch.num_rows)}, batch.num_rows, ROWS)
