"""Statistics of calls by window of time, from the events of a stream as they lie in Parquet.

Theory of operation. A window is closed when the watermark, the latest packet time less the delay that is
allowed, has passed its end. Its rows are then made once, from the stored calls whose `time` lies in it. So no
state is kept for open windows, percentiles are exact, and making a window again after a crash gives the same.
What is completed later (a request that nobody ever answered is known at the end of its connection) is in the
events, counts as late, and changes no window.

The figures mean what those of the report mean: latencies leave out calls that waited on purpose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kwsniff.report.percentiles import QUANTILES
from kwsniff.report.waiting import NEEDED, waited
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SECOND = 1_000_000_000
COLUMNS = tuple(
    dict.fromkeys(("time", "api", "connection", "throttle_ms", "request_bytes", "response_bytes", *NEEDED))
)
"""Columns of calls that the figures are made of."""
_MARKED = pa.schema([*(EVENTS.field(name) for name in COLUMNS), pa.field("waited", pa.bool_())])


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one length, which begin at multiples of it since 1970 UTC. Times are nanoseconds."""

    length_ns: int
    delay_ns: int
    """How long after the end of a window calls that belong in it may be completed."""

    def closed_until(self, latest_ns: int | None, ended: bool) -> int:
        """End of the last closed window, when packets were seen up to `latest_ns`; 0 if there is none."""
        if latest_ns is None:
            return 0
        if ended:
            return (latest_ns // self.length_ns + 1) * self.length_ns
        return max(latest_ns - self.delay_ns, 0) // self.length_ns * self.length_ns


def statistics(spark: SparkSession, events: Path, first_ns: int, last_ns: int, length_ns: int) -> DataFrame:
    """Rows for the windows from `first_ns` to before `last_ns` in which there were calls: one for each API,
    and one for all together, whose `api` is null. Responses whose request was not captured belong to no API
    and are in the latter only."""
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.types import from_arrow_schema

    paths = [str(place) for place in _hours(events, first_ns, last_ns)]
    schema = from_arrow_schema(EVENTS)
    read = spark.read.schema(schema).option("basePath", str(events))
    stored = read.parquet(*paths) if paths else spark.createDataFrame([], schema)
    inside = (f.col("time") >= _time(first_ns)) & (f.col("time") < _time(last_ns))
    calls = stored.where((f.col("event") == "call") & inside).select(*COLUMNS)
    marked = calls.mapInArrow(_marked, from_arrow_schema(_MARKED))
    window = f.window("time", f"{length_ns // 1000} microseconds").alias("window")
    known = marked.where(f.col("api_key").isNotNull())
    name = f.coalesce("api", f.concat(f.lit("key "), f.col("api_key"))).alias("api")
    by_api = known.groupBy(window, name).agg(*_aggregates())
    whole = marked.groupBy(window).agg(*_aggregates()).withColumn("api", f.lit(None).cast("string"))
    both = by_api.unionByName(whole)
    figures = [name for name in both.columns if name not in ("window", "api")]
    ends = [f.col("window.start").alias("window_start"), f.col("window.end").alias("window_end")]
    return both.select(*ends, "api", *figures).orderBy("window_start", f.col("api").asc_nulls_first())


def _marked(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_arrays([*batch.columns, pa.array(waited(batch))], schema=_MARKED)


def _aggregates() -> list[Any]:
    from pyspark.sql import functions as f

    def many(condition: Any) -> Any:
        return f.count_if(f.coalesce(condition, f.lit(False)))

    def total(column: str) -> Any:
        return f.coalesce(f.sum(column), f.lit(0))

    served = f.when(~f.col("waited"), f.col("latency_us"))
    return [
        f.count("*").alias("calls"),
        many(f.col("error_code") != 0).alias("errors"),
        many(f.col("status") == "unanswered").alias("unanswered"),
        many(f.col("throttle_ms") > 0).alias("throttled_calls"),
        many(f.col("waited")).alias("waited_calls"),
        f.count_distinct("connection").alias("connections"),
        total("request_bytes").alias("request_bytes"),
        total("response_bytes").alias("response_bytes"),
        total("record_count").alias("records"),
        *(f.percentile(served, share).alias(f"latency_{name}_us") for name, share in QUANTILES.items()),
    ]


def _hours(events: Path, first_ns: int, last_ns: int) -> Iterator[Path]:
    """Folders of the hours that a span of time touches."""
    first, last = _time(first_ns), _time(last_ns)
    for date in sorted(events.glob("date=*")):
        if f"{first:date=%Y-%m-%d}" <= date.name <= f"{last:date=%Y-%m-%d}":
            for place in date.glob("hour=*"):
                begin = datetime.fromisoformat(f"{date.name[5:]}T{int(place.name[5:]):02}:00:00+00:00")
                if begin <= last and begin + timedelta(hours=1) > first:
                    yield place


def _time(time_ns: int) -> datetime:
    seconds, rest = divmod(time_ns, SECOND)
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=rest // 1000)
