"""Spark data sources: `spark.read.format("kwsniff").load("captures/*.pcapng")` after `register(spark)`.

`kwsniff` gives the EVENTS of `kwsniff.table`, `kwsniff_segments` its SEGMENTS, `kwsniff_packets` the PACKETS
of `kwsniff.capture.packets`. Topic names are those the messages themselves give; the names known from
elsewhere in the input are joined by `kwsniff pipeline`.
"""

from __future__ import annotations

import glob
import pickle
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kwsniff.capture.batch import between
from kwsniff.capture.packets import PACKETS, packets
from kwsniff.capture.place import is_remote, local
from kwsniff.capture.source import resolve, segments
from kwsniff.config import Config
from kwsniff.lake.tables import ROWS
from kwsniff.pipeline import keyed
from kwsniff.spark.filters import Tests
from kwsniff.spark.followed import BATCH_BYTES, QUIET, Following, FollowReader
from kwsniff.table import EVENTS, SEGMENTS

DEFAULT_TASKS = 2
DISORDER_NS = 10 * 1_000_000_000
"""How much earlier than a file's first packet another of its packets may have been captured."""


def register(spark: SparkSession) -> None:
    """Make the formats `kwsniff`, `kwsniff_segments` and `kwsniff_packets` known to `spark`."""
    for source in (EventsSource, SegmentsSource, PacketsSource):
        spark.dataSource.register(source)


class EventsSource(datasource.DataSource):
    """Events of captures.

    Options: `path` (a file, a directory, a pattern or a URL; several separated by commas), `port`
    (`9092,19092-19094`), `full` (true adds the bodies), `records` (true shows records in them), `columns`
    (these columns only), `max_memory` (`512M`), `partitions` (number of tasks, 2).

    As a stream it follows directories that are rotated (`path`) and needs a directory of its own for what it
    keeps (`state`); further options: `quiet` (seconds after which the newest file is finished, 60),
    `batch_bytes` (stored bytes of files in a batch, 1 GiB).
    """

    @classmethod
    def name(cls) -> str:
        return "kwsniff"

    def schema(self) -> StructType:
        return _spark_schema(_chosen(EVENTS, self.options))

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        return EventsReader(_paths(self.options), _config(self.options), dict(self.options))

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
        return FollowReader(_following(self.options), _chosen(EVENTS, self.options))


class FollowedSource(datasource.DataSource):
    """Word of the batches whose events tasks have written, for `kwsniff.spark.stream`. Option: `following`,
    see `told`."""

    @classmethod
    def name(cls) -> str:
        return "kwsniff_followed"

    @staticmethod
    def told(following: Following) -> str:
        """What to follow as an option."""
        return b64encode(pickle.dumps(following)).decode()

    def schema(self) -> StructType:
        return _spark_schema(ROWS)

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
        following: Following = pickle.loads(b64decode(self.options["following"]))
        return FollowReader(following, ROWS)


class SegmentsSource(datasource.DataSource):
    """TCP segments of captures, one task in all: fragments may be spread over files. Options: `path`,
    `columns`."""

    @classmethod
    def name(cls) -> str:
        return "kwsniff_segments"

    def schema(self) -> StructType:
        return _spark_schema(_chosen(_binary(SEGMENTS), self.options))

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        return SegmentsReader(_paths(self.options), dict(self.options))


class PacketsSource(datasource.DataSource):
    """Packets of captures, one task a file. Options: `path`, `columns`."""

    @classmethod
    def name(cls) -> str:
        return "kwsniff_packets"

    def schema(self) -> StructType:
        return _spark_schema(_chosen(PACKETS, self.options))

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        return PacketsReader(_paths(self.options), dict(self.options))


class EventsReader(datasource.DataSourceReader):
    """Every partition reads all and follows its share of the connections, see `kwsniff.spark.decode`."""

    def __init__(self, paths: Sequence[str], config: Config, options: dict[str, str]) -> None:
        self._paths, self._config = paths, config
        self._schema = _chosen(EVENTS, options)
        self._tasks = max(int(options.get("partitions", DEFAULT_TASKS)), 1)
        self._tests = Tests(EVENTS)

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802
        """Take comparisons of texts, whole numbers and times (`kwsniff.spark.filters`)."""
        return self._tests.take(filters)

    def partitions(self) -> Sequence[datasource.InputPartition]:
        return [datasource.InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        share = partition.value, self._tasks
        # Other columns need not be made.
        config = replace(self._config, columns=frozenset(self._schema.names) | self._tests.columns)
        parts = chain.from_iterable(keyed(self._segments(), config, share))
        for batch, _ in parts:
            if batch is not None:
                yield self._tests.passing(batch).select(self._schema.names).cast(self._schema)

    def _segments(self) -> Iterator[pa.RecordBatch]:
        """All segments; if only some brokers' ports are asked for, those of connections with such an end."""
        ports = self._tests.values("broker_port")
        wanted = None if ports is None else pa.array(sorted(ports), pa.int32())
        for batch in segments(self._paths, self._config):
            yield batch if wanted is None else between(batch, wanted)


class SegmentsReader(datasource.DataSourceReader):
    """The segments in capture order."""

    def __init__(self, paths: Sequence[str], options: dict[str, str]) -> None:
        self._paths = paths
        self._schema = _chosen(_binary(SEGMENTS), options)

    def partitions(self) -> Sequence[datasource.InputPartition]:
        return [datasource.InputPartition(0)]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        for batch in segments(self._paths):
            yield batch.select(self._schema.names).cast(self._schema)


class PacketsReader(datasource.DataSourceReader):
    """A task for each file. A file whose first packet is later than the time asked for is not opened."""

    def __init__(self, paths: Sequence[str], options: dict[str, str]) -> None:
        self._paths = paths
        self._schema = _chosen(PACKETS, options)
        self._tests = Tests(PACKETS)

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802
        """Take comparisons of texts, whole numbers and times (`kwsniff.spark.filters`)."""
        return self._tests.take(filters)

    def partitions(self) -> Sequence[datasource.InputPartition]:
        upper = self._tests.upper("time")
        files = resolve(self._paths)
        if upper is not None:
            last = int(upper.timestamp() + 1) * 1_000_000_000 + DISORDER_NS
            files = [file for file in files if file.first_time_ns <= last]
        return [datasource.InputPartition(file.path) for file in files]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        for batch in packets(partition.value):
            yield self._tests.passing(batch).select(self._schema.names).cast(self._schema)


def _paths(options: Any) -> list[str]:
    given = [part.strip() for part in options.get("path", "").split(",") if part.strip()]
    paths = [path for part in given for path in (_matching(part) or [part])]
    resolve(paths)
    return paths


def _matching(part: str) -> list[str]:
    return [] if is_remote(part) else sorted(glob.glob(local(part), recursive=True))


def _following(options: Any) -> Following:
    if not options.get("state"):
        raise ValueError("kwsniff as a stream needs the option 'state': a directory for what it keeps")
    return Following(
        [part.strip() for part in options.get("path", "").split(",") if part.strip()],
        options["state"],
        _config(options),
        max(int(options.get("partitions", DEFAULT_TASKS)), 1),
        float(options.get("quiet", QUIET)),
        int(options.get("batch_bytes", BATCH_BYTES)),
    )


def _config(options: Any) -> Config:
    given = Config()
    memory = _size(options.get("max_memory", str(given.max_memory)))
    return Config.within(
        memory,
        ports=_ports(options.get("port", "")) or given.ports,
        full=_flag(options, "full") or _flag(options, "records"),
        records=_flag(options, "records"),
    )


def _flag(options: Any, name: str) -> bool:
    return bool(options.get(name, "false").lower() == "true")


def _ports(text: str) -> tuple[int, ...]:
    """Ports from a list such as ``9092,19092-19094``. Raises ValueError."""
    found: list[int] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        first, _, last = part.partition("-")
        if not (first.isdecimal() and (last or first).isdecimal()):
            raise ValueError(f"kwsniff: option port: {part!r} is no port")
        found += range(int(first), int(last or first) + 1)
    return tuple(found)


def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+)([KMG]?)", text.strip().upper())
    if match is None:
        raise ValueError(f"kwsniff: option max_memory: {text!r} is no size such as 512M or 2G")
    return int(match[1]) * {"": 1, "K": 10**3, "M": 10**6, "G": 10**9}[match[2]]


def _chosen(schema: pa.Schema, options: Any) -> pa.Schema:
    names = [name.strip() for name in options.get("columns", "").split(",") if name.strip()]
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise ValueError(f"kwsniff has no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    return pa.schema([schema.field(name) for name in names or schema.names])


def _binary(schema: pa.Schema) -> pa.Schema:
    place = schema.get_field_index("payload")
    return schema.set(place, pa.field("payload", pa.binary()))


def _spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)
