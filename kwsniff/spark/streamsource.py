"""The streaming data source: `spark.readStream.format("kwsniff")` over directories that are rotated.

Theory of operation. An offset is a number of files of a list that never changes (see
`kwsniff.capture.rotation`). A batch goes from one offset to another; each of its tasks takes up what its
share of the connections was at the first offset, reads the files between, follows its share, and keeps what
that has become under the second. So the events of a batch follow from its two offsets alone: it may be run
again, in another process or after a crash, and gives the same rows in the same tasks.

Invariants: what was kept is written whole or not at all, before the task ends; it is removed only once nobody
will ask for that batch again. `kwsniff pipeline --follow` runs the same batches without a query
(`kwsniff.spark.streaming`).
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import zstandard
from pyspark.sql import datasource
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from kwsniff import __version__
from kwsniff.capture.error import CaptureError
from kwsniff.capture.place import Unread
from kwsniff.capture.rotation import ListedFile, Rotation, present
from kwsniff.capture.source import CaptureRun, CaptureTotals, unread_batch
from kwsniff.config import MIB, Config
from kwsniff.count.sessions import Sessions
from kwsniff.engine.analyze import Engine, Ints, Part
from kwsniff.spark.resulttables import ROWS
from kwsniff.spark.staged import ascending

# What a stream keeps between batches: the run of one share of the connections, as a file.
#
# The file begins with a line of JSON that says what wrote it; the rest is a compressed pickle. Only files of
# the stream's own directory are read, and only those of the same version of kwsniff: what the classes hold is
# no format that lasts.

FORMAT = 4


@dataclass(slots=True)
class Kept:
    """The state of one share after some files."""

    capture_run: CaptureRun
    engine: Engine
    position: int = -1
    """That of the last event."""
    sessions: Sessions = field(default_factory=Sessions)
    """Fetch sessions of its connections."""
    lost: list[Unread] = field(default_factory=list)
    """Files of this batch that were listed and could not be read any more."""

    @classmethod
    def fresh(cls, config: Config, shard: tuple[int, int]) -> Kept:
        """The state before the first file."""
        return cls(CaptureRun(CaptureTotals()), Engine(config, shard))

    @classmethod
    def before(cls, following: Following, share: Share) -> Kept:
        """The state before a batch. Raises CaptureError."""
        if share.start == 0:
            return cls.fresh(following.config, (share.index, following.shares))
        return cls.load(following.kept(share.start, share.index))

    def rows(self, config: Config, share: Share) -> Iterator[pa.RecordBatch]:
        """The events (ROWS) of a batch, after which the state is that behind it."""
        for batch, keys in self._parts(config, share):
            if batch is not None:
                positions = pa.array(self._positions(keys))
                yield pa.RecordBatch.from_arrays([*batch.columns, positions], schema=ROWS)

    def _parts(self, config: Config, share: Share) -> Iterator[Part]:
        for batch in self._segments(config, share):
            yield from self.engine.keyed(self.engine.take(batch))
        if share.ended:
            yield from self.engine.keyed(self.engine.end())

    def _segments(self, config: Config, share: Share) -> Iterator[pa.RecordBatch]:
        """Of the files, and their end. What happened to a file since it was listed must not stop all others:
        the batch would fail again and again."""
        for each in share.files:
            try:
                yield from self.capture_run.file(present(each), config)
            except (CaptureError, OSError) as error:
                self.lost.append(Unread.of(each.path, error))
                yield unread_batch(self.lost[-1])
        if share.ended:
            yield from self.capture_run.end()

    def _positions(self, keys: Ints) -> Ints:
        """What sorts events by their keys, and those of the same key as they are."""
        made = ascending(keys << TIES, self.position)
        if len(made):
            self.position = int(made[-1])
        return made

    def keep(self, following: Following, share: Share) -> None:
        """Write it for the batch that follows, if one may. Raises OSError."""
        if not share.ended:
            self.save(following.kept(share.end, share.index))

    def save(self, path: Path) -> None:
        """Write to `path`, whole or not at all. Raises OSError."""
        self.lost = []
        path.parent.mkdir(parents=True, exist_ok=True)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        head = json.dumps({"format": FORMAT, "kwsniff": __version__})
        with beside.open("wb") as file:
            file.write(head.encode() + b"\n")
            with zstandard.ZstdCompressor(1).stream_writer(file, closefd=False) as packed:
                pickle.dump(self, packed, pickle.HIGHEST_PROTOCOL)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)

    @classmethod
    def load(cls, path: Path) -> Kept:
        """Read what `save` wrote.

        Raises:
            CaptureError: there is none, or another version wrote it; the text is one line.
        """
        try:
            with path.open("rb") as file:
                head = json.loads(file.readline())
                if head != {"format": FORMAT, "kwsniff": __version__}:
                    raise CaptureError(
                        f"{path}: was kept by kwsniff {head.get('kwsniff')}; end that stream with it (--end)"
                    )
                with zstandard.ZstdDecompressor().stream_reader(file) as packed:
                    kept: Kept = pickle.load(packed)
                    return kept
        except (OSError, ValueError) as error:
            raise CaptureError(f"{path}: what the stream kept cannot be read: {error}") from error


Offset = dict[str, Any]
"""`files`: how many files of the list were read; `ended`: nothing follows."""

QUIET = 60.0
"""Seconds after which the newest file of a directory counts as finished."""
BATCH_BYTES = 1024 * MIB
"""Stored bytes of files that make a batch full."""
LIST = "files.jsonl"
TIES = 16
"""Bits of a position below the key of an event: one packet may settle several."""
STATE = "state"


@dataclass(frozen=True)
class Following:
    """What to follow, and how; directories must be the same for every worker."""

    directories: list[str]
    state: str
    """Directory for the list of files and what is kept between batches: one for each query."""
    config: Config
    shares: int
    """Tasks that share the connections."""
    quiet: float = QUIET
    batch_bytes: int = BATCH_BYTES
    end: bool = False
    """Nothing comes after the files that are there: end all connections."""

    def kept(self, files: int, share: int) -> Path:
        """Where the state of a share of the connections lies after so many files."""
        return Path(self.state) / STATE / f"{files:08}" / f"share-{share:04}"

    def forget(self, files: int) -> None:
        """Remove what was kept before so many files."""
        for place in (Path(self.state) / STATE).glob("[0-9]*"):
            if int(place.name) < files:
                shutil.rmtree(place, ignore_errors=True)


@dataclass
class Share(datasource.InputPartition):
    """One task of a batch."""

    index: int
    files: list[ListedFile]
    start: int
    end: int
    ended: bool


class FollowReader(datasource.DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Batches of files; see the module's head."""

    def __init__(self, following: Following, schema: pa.Schema) -> None:
        """`schema`: the columns wanted of `ROWS`."""
        self._following, self._schema = following, schema
        self._rotation: Rotation | None = None
        self._target: int | None = None

    def initialOffset(self) -> Offset:  # noqa: N802
        return {"files": 0, "ended": False}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxBytes(self._following.batch_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = len(self._files())

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
        """As many files as fit, at least one."""
        if start["ended"]:
            return start
        files = self.listed if self._target is not None and self._rotation else self._files()
        last = len(files) if self._target is None else max(self._target, start["files"])
        stop, size = start["files"], 0
        room = self._following.batch_bytes if not isinstance(limit, ReadAllAvailable) else None
        while stop < last and (room is None or size == 0 or size + files[stop].bytes <= room):
            size += max(files[stop].bytes, 1)
            stop += 1
        return {"files": stop, "ended": self._following.end and stop == last}

    @property
    def listed(self) -> list[ListedFile]:
        """The files that were finished at the last look."""
        return self._rotation.files if self._rotation else []

    def _files(self) -> list[ListedFile]:
        if self._rotation is None:
            given = self._following
            self._rotation = Rotation(given.directories, Path(given.state) / LIST, given.quiet)
        self._rotation.look()
        return self._rotation.files

    def partitions(self, start: Offset, end: Offset) -> Sequence[Share]:
        if start == end:
            return []
        files = (self.listed or self._files())[start["files"] : end["files"]]
        shares = range(self._following.shares)
        return [Share(index, files, start["files"], end["files"], end["ended"]) for index in shares]

    def read(self, partition: datasource.InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        kept = Kept.before(self._following, partition)
        for batch in kept.rows(self._following.config, partition):
            yield batch.select(self._schema.names).cast(self._schema)
        kept.keep(self._following, partition)

    def commit(self, end: Offset) -> None:
        self._following.forget(end["files"])
