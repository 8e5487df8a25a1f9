"""Spark data sources: `spark.read.format("kwsniff").load("captures/*.pcapng")` after `register(spark)`.

`kwsniff` gives the EVENTS of `kwsniff.table`, `kwsniff_segments` its SEGMENTS. Topic names are those the
messages themselves give; the names known from elsewhere in the input are joined by `kwsniff pipeline`.
"""

from __future__ import annotations

import glob
import pickle
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession, datasource
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from kwsniff.capture.source import resolve, segments
from kwsniff.config import Config
from kwsniff.pipeline import keyed
from kwsniff.spark.decode import ROWS
from kwsniff.spark.followed import BATCH_BYTES, QUIET, Following, FollowReader
from kwsniff.table import EVENTS, SEGMENTS

Test = tuple[str, str, Any]
"""Operator, column and value of a pushed filter."""

_TESTS: dict[str, Callable[..., Any]] = {
    "EqualTo": pc.equal,
    "GreaterThan": pc.greater,
    "GreaterThanOrEqual": pc.greater_equal,
    "LessThan": pc.less,
    "LessThanOrEqual": pc.less_equal,
}

DEFAULT_TASKS = 2


def register(spark: SparkSession) -> None:
    """Make the formats `kwsniff` and `kwsniff_segments` known to `spark`."""
    for source in (EventsSource, SegmentsSource):
        spark.dataSource.register(source)


class EventsSource(datasource.DataSource):
    """Events of captures.

    Options: `path` (a file, a directory or a pattern; several separated by commas), `port` (`9092,19092`),
    `full` (true adds the bodies), `columns` (these columns only), `partitions` (number of tasks, 2).

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
    """The events of a stream with their positions, and a row of totals in each batch: what
    `kwsniff.spark.stream` writes. Option: `following`, see `told`."""

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
        return FollowReader(following, ROWS, totals=True)


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


class EventsReader(datasource.DataSourceReader):
    """Every partition reads all and follows its share of the connections, see `kwsniff.spark.decode`."""

    def __init__(self, paths: Sequence[str], config: Config, options: dict[str, str]) -> None:
        self._paths, self._config = paths, config
        self._schema = _chosen(EVENTS, options)
        self._tasks = max(int(options.get("partitions", DEFAULT_TASKS)), 1)
        self._tests: list[Test] = []

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:  # noqa: N802
        """Take comparisons of texts and whole numbers: rows that fail never leave the worker."""
        for each in filters:
            test = _test(each)
            if test is None:
                yield each
            else:
                self._tests.append(test)

    def partitions(self) -> Sequence[datasource.InputPartition]:
        return [datasource.InputPartition(number) for number in range(self._tasks)]

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        share = partition.value, self._tasks
        parts = chain.from_iterable(keyed(segments(self._paths, self._config), self._config, share))
        for batch, _ in parts:
            if batch is not None:
                yield _passing(batch, self._tests).select(self._schema.names).cast(self._schema)


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


def _passing(batch: pa.RecordBatch, tests: Sequence[Test]) -> pa.RecordBatch:
    for operator, column, value in tests:
        batch = batch.filter(_TESTS[operator](batch[column], pa.scalar(value, batch[column].type)))
    return batch


def _test(given: datasource.Filter) -> Test | None:
    operator = type(given).__name__
    column: Sequence[str] = getattr(given, "attribute", ())
    value = getattr(given, "value", None)
    plain = isinstance(value, str | int) and not isinstance(value, bool)
    if operator not in _TESTS or len(column) != 1 or column[0] not in EVENTS.names or not plain:
        return None
    kind = EVENTS.field(column[0]).type
    fits = pa.types.is_string(kind) if isinstance(value, str) else pa.types.is_integer(kind)
    return (operator, column[0], value) if fits else None


def _paths(options: Any) -> list[str]:
    given = [part.strip() for part in options.get("path", "").split(",") if part.strip()]
    paths = [path for part in given for path in (sorted(glob.glob(part)) or [part])]
    resolve(paths)
    return paths


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
    ports = tuple(int(port) for port in options.get("port", "").split(",") if port.strip())
    return Config(ports=ports or Config().ports, full=options.get("full", "false").lower() == "true")


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
