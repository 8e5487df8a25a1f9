"""Events of a batch on their way to their place, as Parquet that tasks write and read themselves.

An event that went through the JVM would be taken apart into its sixty fields and put together again, each
time, for longer than it took to decode. So tasks hand Spark no events, only word that they are done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pyarrow.parquet as pq

from kwsniff.report.topics import fill
from kwsniff.spark.decode import ROWS

NOWHERE = "__HIVE_DEFAULT_PARTITION__"
"""Where rows without a time lie, as Spark names it."""
ROWS_AT_ONCE = 1 << 15


@contextmanager
def writer(path: Path) -> Iterator[Any]:
    """A Parquet file of `ROWS` that is there whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.part")
    with pq.ParquetWriter(beside, ROWS, compression="zstd") as file:
        yield file
    beside.replace(path)


def spread(source: Path, into: Path, name: str, names: Mapping[str, str]) -> int:
    """Write the rows of `source` into folders by date and hour of their time, as files called `name`, with
    the topic names that are known. Returns how many rows there were. Raises OSError."""
    rows = 0
    with pq.ParquetFile(source) as file, ExitStack() as files:
        open_writers: dict[str, Any] = {}
        for batch in file.iter_batches(ROWS_AT_ONCE):
            rows += batch.num_rows
            filled = fill(batch.cast(ROWS), names)
            folders = pc.fill_null(pc.strftime(filled["time"], "date=%Y-%m-%d/hour=%H"), NOWHERE)
            for folder in pc.unique(folders).to_pylist():
                if folder not in open_writers:
                    path = into / _named(folder) / name
                    open_writers[folder] = files.enter_context(writer(path))
                open_writers[folder].write_batch(filled.filter(pc.equal(folders, folder)))
    return rows


def _named(folder: str) -> str:
    if folder == NOWHERE:
        return f"date={NOWHERE}/hour={NOWHERE}"
    date, _, hour = folder.partition("/hour=")
    return f"{date}/hour={int(hour)}"
