"""`--csv DIR`: the call statistics of a live session, written every interval and at the end.

Theory of operation. The calls of the interval in progress are counted; when it is over they become a few rows
of `history.csv`, and part of everything since the start, whose tables, those of `kwsniff report --csv`, are
written anew each time.

Invariants: memory does not grow with the length of the session (`kwsniff.count.store`); intervals are of
packet time, so that a session that falls behind shows the same
figures; every call is counted in exactly one interval.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
from pyarrow import csv

from kwsniff.analysis.findings import NEEDED as OF_FINDINGS
from kwsniff.analysis.findings import Finding, Findings, Thresholds
from kwsniff.analysis.report import Report
from kwsniff.analysis.rule import NOT_SHOWN, OK, table
from kwsniff.analysis.statistics import TABLES
from kwsniff.capture.error import LiveError
from kwsniff.count.store import NEEDED, CallStore
from kwsniff.live.session import Health, Waiting
from kwsniff.output.writers import shown, shown_schema, write_table
from kwsniff.rows.schema import TIMESTAMP

# What happened in each interval, by API: a CSV file that grows by a few rows each time.
#
# The figures of an interval are of the calls that were completed in it. Its percentiles are exact up to
# `kwsniff.count.percentiles.LIMIT` calls an interval.

COLUMNS = (
    *("api", "calls", "errors", "unanswered", "latency_p50_us", "latency_p95_us", "latency_p99_us"),
    *("request_bytes", "response_bytes"),
)
TYPES = {column.name: column.type for column in TABLES["api"]}
SCHEMA = pa.schema([("time", TIMESTAMP), ("interval_s", pa.float64()), *((n, TYPES[n]) for n in COLUMNS)])
"""`time` is the end of the interval, `interval_s` its length; the others are as in the report's api.csv."""


def history(store: CallStore, begin_ns: int, end_ns: int) -> pa.Table:
    """A row for each API that had calls in an interval, most first."""
    report = Report.from_store(store, only={"api"})
    found = report.arrow["api"].append_column("time", pa.repeat(end_ns // 1000, len(report.arrow["api"])))
    found = found.append_column("interval_s", pa.repeat((end_ns - begin_ns) / 1e9, len(found)))
    return found.select(SCHEMA.names).cast(SCHEMA)


class HistoryFile:
    """Appends to a history, or begins one. Rows are added by one write, so that `tail -f` can follow; who
    reads just then may find the last line unfinished, as the file system adds page by page."""

    def __init__(self, path: Path) -> None:
        """Raises OSError if it cannot be written, ValueError if the file that is there is no such history."""
        self._path = path
        self._start = _csv(SCHEMA.empty_table(), header=True)
        if not path.exists() or not path.stat().st_size:
            path.write_bytes(self._start)
            return
        with path.open("rb+") as file:
            if file.read(len(self._start)) != self._start:
                raise ValueError("has other columns")
            file.seek(-1, io.SEEK_END)
            if file.read() != b"\n":  # the session before was killed while it wrote
                file.write(b"\n")

    def append(self, rows: pa.Table) -> None:
        """Add rows. Raises OSError."""
        with self._path.open("ab", buffering=0) as file:
            if not file.tell():  # removed meanwhile, as by a rotation
                file.write(self._start)
            file.write(_csv(rows, header=False))


def _csv(table: pa.Table, *, header: bool) -> bytes:
    schema = shown_schema(table.schema)
    text = io.BytesIO()
    batches = [shown(batch, schema) for batch in table.to_batches()]
    csv.write_csv(pa.Table.from_batches(batches, schema), text, csv.WriteOptions(include_header=header))
    return text.getvalue()


# What a live session shows that somebody should know: the rules of `kwsniff.analysis.findings` over its
# events.


class LiveFindings:
    """Takes the events of a session; `found` may be asked at any time."""

    def __init__(
        self, errors: Mapping[int, tuple[str, bool]] | None = None, thresholds: Thresholds | None = None
    ) -> None:
        """`errors` as in `Findings.found`."""
        self._rules = Findings(thresholds)
        self._errors = errors
        self._waiting = Waiting(OF_FINDINGS, ENOUGH)
        self._lock = threading.Lock()

    def add(self, events: pa.RecordBatch) -> None:
        with self._lock:
            if self._waiting.add(events):
                self._look()

    def tick(self, health: Health) -> None:
        """Time alone says nothing."""

    def close(self) -> None:
        with self._lock:
            self._look()

    def found(self) -> list[Finding]:
        """What was found so far, the worst first, without rules that found nothing."""
        with self._lock:
            self._look()
        return [each for each in self._rules.found(self._errors) if each.severity not in (OK, NOT_SHOWN)]

    def lag(self) -> pa.Table:
        """How far consumers and groups are behind, as rows of `kwsniff.analysis.lag.LAG`. May be asked
        from any thread."""
        with self._lock:
            self._look()
            return self._rules.lag()

    def write(self, directory: Path) -> None:
        """Write findings.csv and lag.csv, as `kwsniff report --csv` does. Raises OSError."""
        write_table(directory / "lag.csv", self.lag())
        write_table(directory / "findings.csv", table(self._rules.found(self._errors)))

    def _look(self) -> None:
        for events in self._waiting.taken():
            self._rules.take(events)


HISTORY = "history.csv"
ENOUGH = 8192
"""Events added at a time."""


class CsvError(LiveError):
    """The tables cannot be written: one line that says where and why."""


class IntervalCsv:
    """Writes `<table>.csv` for each table of the report, findings.csv and history.csv into a directory."""

    def __init__(
        self,
        directory: str | Path,
        interval_s: float = 60.0,
        *,
        errors: Mapping[int, tuple[str, bool]] | None = None,
        findings: LiveFindings | None = None,
    ) -> None:
        """`interval_s` is in seconds of packet time; `errors` as in `Report.from_events`. `findings`, which
        takes the same events, is written beside the tables.

        A history that is there already goes on; the tables are replaced at the first interval's end.

        Raises:
            CsvError: the directory cannot be made or written to, or its history.csv is something else.
        """
        self._directory = Path(directory)
        self._interval_ns = round(interval_s * 1e9)
        self._errors = errors
        self._findings = findings
        self._store = CallStore(0)
        self._interval = CallStore(0)
        self._waiting = Waiting(NEEDED, ENOUGH)
        self._begin_ns: int | None = None
        self._now_ns = 0
        self.problem: str | None = None
        """Why the last writing failed, in one line, if it did. It is tried again with the next tick."""
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._history = HistoryFile(self._directory / HISTORY)
        except OSError as error:
            raise CsvError(f"cannot write into {directory}: {error.strerror or error}") from None
        except ValueError as error:
            raise CsvError(f"{self._directory / HISTORY}: {error}, is no history of kwsniff") from None

    def add(self, events: pa.RecordBatch) -> None:
        if self._waiting.add(events):
            self._count()

    def tick(self, health: Health) -> None:
        if self._begin_ns is None:
            self._begin_ns = health.started_ns
        self._now_ns = max(health.now_ns, self._now_ns)
        if self._now_ns - self._begin_ns >= self._interval_ns:
            self._write()

    def close(self) -> None:
        """Write what came since the last interval.

        Raises:
            CsvError: it cannot be written.
        """
        self._write()
        if self.problem is not None:
            raise CsvError(self.problem)

    def _count(self) -> None:
        for events in self._waiting.taken():
            self._interval.add(events)

    def _write(self) -> None:
        self._count()
        begin_ns = self._now_ns if self._begin_ns is None else self._begin_ns
        rows = history(self._interval, begin_ns, self._now_ns)
        try:
            if len(rows):
                self._history.append(rows)
            # Only now: what could not be written is part of the next interval.
            self._store.merge(self._interval)
            self._interval, self._begin_ns = CallStore(0), self._now_ns
            Report.from_store(self._store, errors=self._errors).write_csv(self._directory)
            if self._findings is not None:
                self._findings.write(self._directory)
        except OSError as error:
            self.problem = f"cannot write into {self._directory}: {error.strerror or error}"
        else:
            self.problem = None
