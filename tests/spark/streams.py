"""Streams of rotated samples, in the session of the tests or as processes, and what one process makes of the
same files."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.config import Config
from kwsniff.count.eventrows import waited
from kwsniff.count.naming import named
from kwsniff.count.sessions import followed
from kwsniff.count.topics import fill, topic_names
from kwsniff.rows.schema import EVENTS
from kwsniff.run.offline import events
from kwsniff.spark import results, version
from kwsniff.spark import streaming as stream
from kwsniff.spark.results import Results
from kwsniff.spark.streamsource import Following

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
WINDOW, LATE = 5.0, 1.0


def expected(files: list[Path]) -> pa.Table:
    """What one process makes of the files, with the topic names of all of them."""
    batches = list(followed(events([str(file) for file in files], Config())))
    names = topic_names(batches)
    return pa.Table.from_batches([fill(batch, names) for batch in batches], EVENTS)


def one_process(paths: list[str]) -> pa.Table:
    """What `kwsniff decode` makes of the files."""
    return pa.Table.from_batches(list(named(events(paths, Config()))), EVENTS)


def written(out: Path) -> pa.Table:
    """The events that a result holds."""
    return Results(out).events().select(EVENTS.names)


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

    def run(self, *, end: bool = False, batch_bytes: int = 1 << 30) -> results.StreamRecord:
        wanted = version.Settings(version.plain(Config()), self._shares, WINDOW, LATE, self._form)
        where = version.Where.of(self.out)
        settings = version.settled(where, wanted)
        following = Following([str(self.source)], "", Config(), 0, 0.0, batch_bytes, end)
        made = stream.Stream(self._spark, following, where, settings, self._told)
        made.start(once=True)
        while made.batch():
            pass
        return made.record()

    def _told(self, before: results.StreamRecord, record: results.StreamRecord, closed: pa.Table) -> None:
        self.closed += closed.to_pylist()


def come(files: list[Path], into: Path) -> list[Path]:
    """Files appear in a directory; their new paths."""
    return [Path(shutil.copy2(file, into)) for file in files]


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
