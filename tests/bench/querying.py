"""Whether a stream's tables can be queried while it runs, and what it keeps on disk meanwhile.

    tests/bench/querying.py [--seconds 180] [--rotate 1] [--readers results,duckdb,spark,slow]

Files come as in `following.py`. Each reader asks again and again, in the manner of one who knows nothing of
batches: the tables as they are must be readable, hold as many calls as their manifest says, and never fewer
than before.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent.parent))

from kwsniff.spark.results import Results
from kwsniff.spark.version import STREAM
from tests.bench.following import MIB, Writer

Query = Callable[[Path], tuple[int, int]]
"""How many calls there are, and how many the manifest says."""


@dataclass
class Reader:
    """What one kind of query came to."""

    name: str
    query: Query
    queries: int = 0
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    _most: int = 0

    def ask(self, out: Path) -> None:
        began = time.monotonic()
        try:
            found, said = self.query(out)
            if found != said:
                self.failures.append(f"{found} calls where the manifest says {said}")
            if found < self._most:
                self.failures.append(f"{found} calls after {self._most}")
            self._most = max(found, self._most)
        except Exception as error:  # each is a result
            self.failures.append(" ".join(str(error).split())[:200])
        self.queries += 1
        self.slowest = max(self.slowest, time.monotonic() - began)

    def ask_until(self, out: Path, over: threading.Event) -> None:
        while not over.is_set():
            self.ask(out)
            over.wait(0.2)

    def row(self) -> str:
        cells = (self.name, self.queries, len(self.failures), f"{self.slowest:.1f}", f"{self._most:,}")
        return f"| {' | '.join(map(str, cells))} |"


def results(out: Path) -> tuple[int, int]:
    found = Results(out)
    for name in ("anomalies", "connections", "findings", "windows"):
        found.table(name).to_pandas()
    return len(found.table("calls", ["time", "api"]).to_pandas()), found.manifest.events["call"]


def duckdb(out: Path) -> tuple[int, int]:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute(f"""
            set variable manifest = (select content::json from read_text('{out}/manifest.json'));
            set variable files = list_transform(
                getvariable('manifest')->>'$.tables.calls[*].path', lambda path: '{out}/' || path)
        """)
        found = connection.execute("""
            select count(*), any_value((getvariable('manifest')->>'$.events.call')::bigint)
            from read_parquet(getvariable('files'))
        """).fetchone()
    assert found is not None
    return found


def spark(out: Path) -> tuple[int, int]:
    from kwsniff.spark.sparksession import session

    found = Results(out)
    made = session("local[1]", spark_sql_shuffle_partitions="1")
    return made.read.parquet(*found.files("calls")).count(), found.manifest.events["call"]


def slow(out: Path) -> tuple[int, int]:
    command = [sys.executable, "-m", "kwsniff", "slow", str(out), "-f", "csv"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1, 3) or not run.stdout:
        raise RuntimeError(f"exit code {run.returncode}: {run.stderr}")
    return 0, 0  # it counts nothing


QUERIES: dict[str, Query] = {"results": results, "duckdb": duckdb, "spark": spark, "slow": slow}


@dataclass
class Disk:
    """What lies in a place."""

    parquet: int = 0
    parquet_bytes: int = 0
    own: int = 0
    own_bytes: int = 0

    @classmethod
    def of(cls, out: Path) -> Disk:
        made = cls()
        for path in _files(out):
            with suppress(FileNotFoundError):  # removed meanwhile
                size = path.stat().st_size
                if path.suffix == ".parquet":
                    made.parquet += 1
                    made.parquet_bytes += size
                elif STREAM in path.parts:
                    made.own += 1
                    made.own_bytes += size
        return made


def _files(place: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(place):
        yield from (Path(folder, name) for name in names)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--rotate", type=float, default=1)
    parser.add_argument("--sample", default="librdkafka-groups")
    parser.add_argument("--master", default="local[2]")
    parser.add_argument("--readers", default=",".join(QUERIES))
    choice = parser.parse_args()
    readers = [Reader(name, QUERIES[name]) for name in choice.readers.split(",")]
    with tempfile.TemporaryDirectory(prefix="kwsniff-querying-") as scratch:
        place = Path(scratch)
        writer = Writer(place / "in", choice.sample, choice.rotate)
        command = [sys.executable, "-m", "kwsniff", "pipeline", "--follow", str(place / "in")]
        command += ["--out", str(place / "out"), "--master", choice.master, "--window", "5s", "--late", "1s"]
        stream = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        try:
            writer.start()
            print("\n".join(watched(place / "out", stream, readers, choice.seconds)))
        finally:
            writer.stop()
            stream.send_signal(signal.SIGTERM)
            stream.wait(120)


def watched(
    out: Path, stream: subprocess.Popen[bytes], readers: list[Reader], seconds: float
) -> Iterator[str]:
    """Let readers ask from the first manifest on; rows of Markdown."""
    while not (out / "manifest.json").exists():
        if stream.poll() is not None:
            raise SystemExit("the stream ended")
        time.sleep(0.1)
    over = threading.Event()
    began = time.monotonic()
    yield "| seconds | batches | files that count | files there | MiB | the stream's own files | MiB |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    with ThreadPoolExecutor(len(readers)) as threads:
        asking = [threads.submit(reader.ask_until, out, over) for reader in readers]
        while time.monotonic() < began + seconds and stream.poll() is None:
            time.sleep(seconds / 12)
            disk, known = Disk.of(out), Results(out).manifest
            cells = (
                round(time.monotonic() - began), known.version, len(known.files), disk.parquet,
                f"{disk.parquet_bytes / MIB:.1f}", disk.own, f"{disk.own_bytes / MIB:.1f}",
            )  # fmt: skip
            yield f"| {' | '.join(map(str, cells))} |"
        over.set()
        for each in asking:
            each.result()
    yield from ("", "| reader | queries | failures | slowest, seconds | calls in the end |")
    yield "| --- | --- | --- | --- | --- |"
    yield from (reader.row() for reader in readers)
    yield from (f"{reader.name}: {each}" for reader in readers for each in reader.failures[:5])


if __name__ == "__main__":
    main()
