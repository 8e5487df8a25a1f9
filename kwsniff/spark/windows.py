"""Statistics of calls by window of time, from the events of a stream as they lie in Parquet.

Theory of operation. A window is closed when the watermark, the latest packet time less the delay that is
allowed, has passed its end. Its rows are then made once, from the stored calls whose `time` lies in it. So no
state is kept for open windows, percentiles are exact, and making a window again after a crash gives the same.
What is completed later (a request that nobody ever answered is known at the end of its connection) is in the
events, counts as late, and changes no window.

The figures mean what those of the report mean: latencies leave out calls that waited on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kwsniff.capture.place import Place
from kwsniff.count.coded import WAITED, waited
from kwsniff.count.percentiles import QUANTILES, Sorted
from kwsniff.rows.schema import TIMESTAMP
from kwsniff.spark.files import Stored
from kwsniff.spark.resulttables import WINDOWS
from kwsniff.spark.tasks import context_of, run

if TYPE_CHECKING:
    from kwsniff.spark.tasks import Spark

SECOND = 1_000_000_000
COLUMNS = (
    *("time", "api_key", "api", "connection", "status", "error_code", "latency_us", "throttle_ms"),
    *("request_bytes", "response_bytes", "record_count", *WAITED),
)
"""Columns of calls that the figures are made of."""
FIGURES = WINDOWS.schema


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


def statistics(
    spark: Spark, out: Place, files: Sequence[Stored], span: tuple[int, int], length_ns: int
) -> pa.Table:
    """Rows of `FIGURES` for the windows of a span (from, to before) in which there were calls: one for each
    API, and one for all together, whose `api` is null. Responses whose request was not captured belong to no
    API and are in the latter only. `files` are those of the calls, in `out`. Tasks share the span."""
    first, last = span
    count = max(min(context_of(spark).defaultParallelism, (last - first) // length_ns), 1)
    step = -(-(last - first) // (count * length_ns)) * length_ns
    known = [file for file in files if _overlaps(file, span)]

    begins = [first + task * step for task in range(count)]

    def work(begin: int) -> pa.Table:
        return figures(out, known, (begin, min(begin + step, last)), length_ns)

    found = pa.concat_tables(run(spark, "count windows", begins, work)).combine_chunks()
    keys = pa.table({"window": found["window_start"], "api": pc.fill_null(found["api"], "")})
    return found.take(pc.sort_indices(keys, sort_keys=[("window", "ascending"), ("api", "ascending")]))


def figures(out: Place, files: Sequence[Stored], span: tuple[int, int], length_ns: int) -> pa.Table:
    """What `statistics` yields, for a span that one task takes."""
    parts = []
    paths = [(out / file.path).opened[1] for file in files if _overlaps(file, span)]
    if paths and span[1] > span[0]:
        time = pc.field("time")
        inside = (time >= pa.scalar(_time(span[0]), TIMESTAMP)) & (
            time < pa.scalar(_time(span[1]), TIMESTAMP)
        )
        stored = ds.dataset(paths, filesystem=out.opened[0], format="parquet", partitioning=None)
        calls = stored.to_table(list(COLUMNS), filter=inside)
        if calls.num_rows:
            parts = list(_figures(calls.combine_chunks().to_batches()[0], length_ns))
    return pa.concat_tables(parts) if parts else FIGURES.empty_table()


def _overlaps(file: Stored, span: tuple[int, int]) -> bool:
    """Whether a file has rows of a span of time."""
    if file.first is None or file.last is None:
        return False
    return file.first * 1000 < span[1] and file.last * 1000 >= span[0]


def _figures(calls: pa.RecordBatch, length_ns: int) -> Iterator[pa.Table]:
    frame = pd.DataFrame(
        {name: calls[name].to_numpy(zero_copy_only=False) for name in ("connection", "latency_us")}
    )
    frame["window_start"] = calls["time"].cast(pa.int64()).to_numpy() * 1000 // length_ns * length_ns
    key = calls["api_key"].cast(pa.string())
    named = pc.coalesce(calls["api"], pc.binary_join_element_wise("key", key, " "))
    frame["api"] = pd.array(named.to_pylist(), dtype="str")
    for name in ("request_bytes", "response_bytes", "record_count"):
        frame[name] = pc.fill_null(calls[name], 0).to_numpy()
    frame["error"] = pc.fill_null(pc.not_equal(calls["error_code"], 0), False).to_numpy(zero_copy_only=False)
    frame["unanswered"] = pc.equal(calls["status"], "unanswered").to_numpy(zero_copy_only=False)
    frame["throttled"] = pc.fill_null(pc.greater(calls["throttle_ms"], 0), False).to_numpy(
        zero_copy_only=False
    )
    frame["waited"] = waited(calls)
    frame.loc[frame["waited"], "latency_us"] = np.nan
    for keys in (["window_start"], ["window_start", "api"]):
        groups = frame.groupby(keys)
        made = groups.agg(
            calls=("error", "size"), errors=("error", "sum"), unanswered=("unanswered", "sum"),
            throttled_calls=("throttled", "sum"), waited_calls=("waited", "sum"),
            connections=("connection", "nunique"), request_bytes=("request_bytes", "sum"),
            response_bytes=("response_bytes", "sum"), records=("record_count", "sum"),
        )  # fmt: skip
        ordered = Sorted(frame["latency_us"].to_numpy(np.float64))
        codes = groups.ngroup().fillna(-1).to_numpy(np.int64)  # -1: no API
        latencies = ordered.quantiles(codes, len(made))
        made[[f"latency_{name}_us" for name in QUANTILES]] = latencies
        made = made.reset_index()
        starts = made["window_start"].to_numpy() // 1000
        columns = {
            "window_start": pa.array(starts).cast(TIMESTAMP),
            "window_end": pa.array(starts + length_ns // 1000).cast(TIMESTAMP),
            "api": pa.array(made["api"] if "api" in made else [None] * len(made), pa.string()),
        }
        for field in list(FIGURES)[3:]:
            columns[field.name] = pa.array(made[field.name].to_numpy(), field.type, from_pandas=True)
        yield pa.table(columns, FIGURES)


def _time(time_ns: int) -> datetime:
    seconds, rest = divmod(time_ns, SECOND)
    return datetime.fromtimestamp(seconds, UTC) + timedelta(microseconds=rest // 1000)
