"""Events on their way to their place, in files that tasks write and read themselves."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kwsniff.report.topics import fill
from kwsniff.spark.decode import ROWS

NOWHERE = "__HIVE_DEFAULT_PARTITION__"
"""Where rows without a time lie, as Spark names it."""
NO_HOUR = -1
HOUR = 3_600_000_000
"""Microseconds."""
ROWS_AT_ONCE = 1 << 15
GROUP_BYTES = 32 << 20
"""Rows wait until there are `ROWS_AT_ONCE` of them, or so many bytes: few at a time are slow to read."""
COPIED_BYTES = 1 << 20
MAX_OPEN = 48
"""Files of one task; each holds up to `ROWS_AT_ONCE` rows back."""


@dataclass(frozen=True, slots=True)
class Staged:
    """A file of rows."""

    path: str
    rows: int
    bytes: int
    named: bool
    """Rows in it give names to topics' uuids, or may do so."""
    split: int | None = None
    """The split whose events they are: they may have to be put right."""


class _File:
    """A file that is there whole or not at all, also if two attempts at a task write it at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._beside = path.with_name(f".{path.name}.{uuid4().hex}.part")

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._close(kind is None)
            if kind is None and self.wanted:
                self._beside.replace(self._path)
        finally:
            self._beside.unlink(missing_ok=True)

    @property
    def wanted(self) -> bool:
        """Whether there is to be a file."""
        return True

    def _close(self, whole: bool) -> None:
        raise NotImplementedError


class WholeFile(_File):
    """Bytes. Raises OSError."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.stream = self._beside.open("wb")

    def append(self, path: Path) -> None:
        """Take the bytes of a file."""
        with path.open("rb") as part:
            shutil.copyfileobj(part, self.stream, COPIED_BYTES)

    def _close(self, whole: bool) -> None:
        self.stream.close()


class _Rows(_File):
    """Rows, written some thousands at a time. Raises OSError."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        super().__init__(path)
        self._schema = schema
        self._waiting: list[pa.RecordBatch] = []
        self._count = self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self._waiting.append(batch)
        self._count += batch.num_rows
        self._bytes += batch.nbytes
        if self._count >= ROWS_AT_ONCE or self._bytes >= GROUP_BYTES:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting, self._count, self._bytes = self._waiting, [], 0, 0
        if waiting:
            self._writer.write_table(pa.Table.from_batches(waiting, self._schema).combine_chunks())

    def _close(self, whole: bool) -> None:
        if whole:
            self._flush()
        self._writer.close()

    _writer: Any
    """Of the format."""


class StagedFile(_Rows):
    """Rows as Arrow's own format, which is written three times as fast as Parquet. Raises OSError."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, ROWS)
        self._rows, self._named = 0, False
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        self._writer = pa.ipc.new_file(str(self._beside), ROWS, options=options)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        self._rows += batch.num_rows
        self._named = self._named or batch["topic_ids"].null_count < batch.num_rows
        super().add(batch)

    def told(self, split: int | None = None) -> Staged:
        """What was written, once it is. Raises OSError."""
        return Staged(str(self._path), self._rows, self._path.stat().st_size, self._named, split)


def stored(path: str, columns: Iterable[str] = ROWS.names) -> Iterator[pa.RecordBatch]:
    """The rows of a `StagedFile` or of a Parquet file, or some columns of them. Raises OSError."""
    if path.endswith(".parquet"):
        with pq.ParquetFile(path) as parquet:
            yield from parquet.iter_batches(ROWS_AT_ONCE, columns=list(columns))
        return
    included = [ROWS.get_field_index(name) for name in columns]
    with pa.OSFile(path) as source:
        file = pa.ipc.open_file(source, options=pa.ipc.IpcReadOptions(included_fields=included))
        for index in range(file.num_record_batches):
            yield file.get_batch(index)


class ParquetFile(_Rows):
    """Rows as Parquet. Raises OSError."""

    def __init__(self, path: Path, schema: pa.Schema = ROWS) -> None:
        super().__init__(path, schema)
        texts = [field.name for field in schema if pa.types.is_string(field.type)]  # whose values repeat
        self._writer = pq.ParquetWriter(self._beside, schema, compression="zstd", use_dictionary=texts)


class Folders:
    """Rows in folders by date and hour of their time, `date=2026-11-21/hour=7/NAME.parquet`. Raises OSError.

    At most `MAX_OPEN` files are open: rows come more or less in time, so that the one that was not written to
    for longest is rarely wanted again. If it is, it gets a second file.
    """

    def __init__(self, into: Path, name: str) -> None:
        self._into, self._name = into, name
        self._files: dict[int, ParquetFile] = {}
        """Those that are open, by hour, latest last."""
        self._closed: Counter[int] = Counter()
        """Files of each hour that are finished."""

    def __enter__(self) -> Folders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        every = ExitStack()
        for file in self._files.values():
            every.push(file)
        every.__exit__(kind, error, trace)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows."""
        micros = batch["time"].cast(pa.int64())
        hours = pc.fill_null(pc.divide(micros, HOUR), NO_HOUR)
        found = pc.unique(hours).to_pylist()
        for hour in found:
            own = batch if len(found) == 1 else batch.filter(pc.equal(hours, hour))
            self._file(hour).add(own)

    def _file(self, hour: int) -> ParquetFile:
        file = self._files.pop(hour, None)
        if file is None:
            if len(self._files) >= MAX_OPEN:
                self._close(next(iter(self._files)))
            again = f"-{self._closed[hour]}" if self._closed[hour] else ""
            file = ParquetFile(self._into / folder(hour) / f"{self._name}{again}.parquet")
        self._files[hour] = file
        return file

    def _close(self, hour: int) -> None:
        with self._files.pop(hour):
            self._closed[hour] += 1


def folder(hour: int) -> str:
    """Where rows of an hour since 1970 UTC lie."""
    if hour == NO_HOUR:
        return f"date={NOWHERE}/hour={NOWHERE}"
    time = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(hours=hour)
    return f"date={time:%Y-%m-%d}/hour={time.hour}"


def spread(source: Path, into: Path, name: str, names: Mapping[str, str]) -> None:
    """Write the rows of a Parquet file of ROWS into `Folders` under a name, with the topic names that are
    known. Raises OSError."""
    with pq.ParquetFile(source) as file, Folders(into, name) as folders:
        for batch in file.iter_batches(ROWS_AT_ONCE):
            folders.add(fill(batch.cast(ROWS), names))
