"""How long the report takes. Run this file from the root of the project, with a number of calls.

Makes calls of an ordinary mixture (60 clients, 3 brokers, 40 topics, 2 topics a data call) and prints the
seconds from EVENTS to all tables and to all CSV files, and the greatest memory.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.report import Report
from kwsniff.table import EVENTS

APIS = {0: "Produce", 1: "Fetch", 3: "Metadata", 8: "OffsetCommit", 11: "JoinGroup", 12: "Heartbeat"}
SHARES = [0.4, 0.4, 0.03, 0.09, 0.01, 0.07]
CLIENTS, BROKERS, TOPICS = 60, 3, 40
BATCH = 65_536


def main(calls: int = 500_000) -> None:
    """Print the figures for that many calls."""
    whole = synthetic(calls)
    batches = [whole.slice(start, BATCH) for start in range(0, calls, BATCH)]
    Report.from_events(batches[:1])  # imports
    with timed(f"{calls:,} calls to all tables"):
        Report.from_events(batches)
    with tempfile.TemporaryDirectory() as directory, timed("the same with all CSV files"):
        Report.from_events(batches, keep_calls=True).write_csv(directory)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory: {peak:.0f} MB, of which events {whole.nbytes / 1e6:.0f} MB")


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print what the block took: by the clock, and on processors (all of them together)."""
    begin, busy = time.perf_counter(), time.process_time()
    yield
    print(f"{what}: {time.perf_counter() - begin:.2f} s, processor {time.process_time() - busy:.2f} s")


def synthetic(calls: int, seed: int = 1) -> pa.RecordBatch:
    """EVENTS with that many answered calls, one every 200 µs."""
    chance = np.random.default_rng(seed)
    api = chance.choice(list(APIS), calls, p=SHARES)
    client = chance.integers(0, CLIENTS, calls)
    error = np.where(chance.random(calls) < 0.01, chance.choice([3, 6, 27], calls), 0)
    latency = chance.lognormal(6, 1.2, calls)
    empty = (api == 1) & (chance.random(calls) < 0.3)
    latency[empty] = 500_300
    start = 1_700_000_000_000_000 + 200 * np.arange(calls)
    answer = start + 20 + latency.astype(np.int64)
    columns: dict[str, Any] = {
        "event": _texts(["call"], np.zeros(calls, int)),
        "capture": _texts(["a.pcap"], np.zeros(calls, int)),
        "client_ip": _texts([f"10.0.0.{i}" for i in range(CLIENTS)], client),
        "broker_ip": _texts([f"10.1.0.{i}" for i in range(BROKERS)], client % BROKERS),
        "broker_port": np.full(calls, 9092),
        "client_id": _texts([f"client-{i}" for i in range(CLIENTS)], client),
        "api_key": api,
        "api": _texts([APIS.get(key, "") for key in range(13)], api),
        "correlation_id": np.arange(calls),
        "request_time": start,
        "request_end_time": start + 20,
        "response_time": answer,
        "response_end_time": answer + 20,
        "latency_us": latency,
        "duration_us": latency + 40,
        "request_bytes": chance.integers(50, 5000, calls),
        "response_bytes": chance.integers(50, 5000, calls),
        "status": _texts(["ok", "error"], (error != 0).astype(int)),
        "error_code": error,
        "error": _texts(["NONE", "E3", "E6", "E27"], np.searchsorted([0, 3, 6, 27], error)),
        "error_count": (error != 0).astype(int),
        "throttle_ms": np.zeros(calls, int),
        "max_wait_ms": pa.array(np.full(calls, 500), mask=api != 1),
        "record_count": np.where(empty, 0, 50),
        "record_bytes": np.where(empty, 0, 5000),
        "in_flight": chance.integers(0, 5, calls),
        **_topics(chance, api <= 1),
    }
    arrays = [_column(columns.get(field.name), field.type, calls) for field in EVENTS]
    return pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def _topics(chance: np.random.Generator, data: npt.NDArray[np.bool_]) -> dict[str, pa.Array]:
    offsets = np.concatenate([[0], np.cumsum(np.where(data, chance.integers(1, 4, len(data)), 0))])
    size = int(offsets[-1])
    topic = chance.integers(0, TOPICS, size)
    fields = {
        "topic": _texts([f"topic-{i}" for i in range(TOPICS)], topic),
        "topic_id": _texts([f"00000000-{i}" for i in range(TOPICS)], topic),
        "partition": chance.integers(0, 12, size),
        "error_code": np.zeros(size, int),
        "records": chance.integers(1, 50, size),
        "bytes": chance.integers(100, 20_000, size),
    }
    kind = EVENTS.field("partitions").type.value_type
    parts = [_column(fields.get(field.name), field.type, size) for field in kind]
    lists = {
        "topics": fields["topic"],
        "topic_ids": fields["topic_id"],
        "partitions": pa.StructArray.from_arrays(parts, fields=list(kind)),
    }
    ends = pa.array(offsets, pa.int32())
    return {
        name: pa.ListArray.from_arrays(ends, values, mask=pa.array(~data)) for name, values in lists.items()
    }


def _texts(values: list[str], codes: npt.NDArray[Any]) -> pa.Array:
    return pa.array(values).take(pa.array(codes))


def _column(values: Any, kind: pa.DataType, size: int) -> pa.Array:
    if values is None:
        return pa.nulls(size, kind)
    return (values if isinstance(values, pa.Array) else pa.array(values)).cast(kind)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
