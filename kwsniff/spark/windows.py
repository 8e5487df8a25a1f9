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
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from kwsniff.capture.place import Place
from kwsniff.count.codes import Joint, combined
from kwsniff.count.eventrows import WAITED, EventRows, texts, waited
from kwsniff.count.keyed import SUM, folded
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
        first, last = (pa.scalar(each // 1000, pa.int64()).cast(TIMESTAMP) for each in span)
        inside = (pc.field("time") >= first) & (pc.field("time") < last)
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
    rows = EventRows(calls)
    starts, window = np.unique(rows.ints("time") * 1000 // length_ns, return_inverse=True)
    apis = Joint.of(rows.coded("api"), rows.coded("api_key"))
    pairs = zip(*apis.named(list(range(apis.size))), strict=True)
    names = texts([f"key {key}" if name is None and key is not None else name for name, key in pairs])
    api, connection = names.codes[apis.codes], rows.coded("connection")
    on_purpose = waited(rows)
    counted = {
        "calls": np.ones(len(rows), np.int64),
        "errors": rows.ints("error_code") != 0,
        "unanswered": rows.coded("status").equals("unanswered"),
        "throttled_calls": rows.ints("throttle_ms") > 0,
        "waited_calls": on_purpose,
        "request_bytes": rows.ints("request_bytes"),
        "response_bytes": rows.ints("response_bytes"),
        "records": rows.ints("record_count"),
    }
    latencies = Sorted(np.where(on_purpose, np.nan, rows.floats("latency_us")))
    for by, width in ((np.zeros(len(rows), np.int64), 1), (api, names.size)):
        some = np.flatnonzero(~names.equals(None)[api]) if by is api else np.arange(len(rows))
        codes, firsts = combined([window[some], by[some]], [len(starts), width])
        found = (window * width + by)[some][firsts]
        group = np.full(len(rows), -1, np.int64)
        group[some] = codes
        table = folded(
            dict.fromkeys(counted, SUM),
            {name: each[some] for name, each in counted.items()},
            codes,
            len(found),
        )
        each = combined([codes, connection.codes[some]], [len(found), connection.size])[1]
        table["connections"] = np.bincount(codes[each], minlength=len(found))
        quantiles = latencies.quantiles(group, len(found))
        table |= {f"latency_{name}_us": quantiles[:, at] for at, name in enumerate(QUANTILES)}
        begin = starts[found // width] * (length_ns // 1000)
        columns = {
            "window_start": pa.array(begin).cast(TIMESTAMP),
            "window_end": pa.array(begin + length_ns // 1000).cast(TIMESTAMP),
            "api": pa.array([names.values[at] if by is api else None for at in found % width], pa.string()),
        }
        for field in list(FIGURES)[3:]:
            columns[field.name] = pa.array(table[field.name], field.type, from_pandas=True)
        yield pa.table(columns, FIGURES)
