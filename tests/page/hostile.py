"""EVENTS for pages: as many calls as are asked for, and names that are meant to do harm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kwsniff.rows.schema import EVENTS
from kwsniff.spec.load import catalog
from tests.report.events import START

HOSTILE = (
    "<script>window.hurt=1</script>",
    "</script><script>window.hurt=2</script>",
    "<!--<script>window.hurt=3</script>",
    '"><img src=x onerror="window.hurt=4">',
    "<img src=http://192.0.2.1/x.png onerror=window.hurt=5>",
    "'; window.hurt=6; //",
    "{a|b}{color|red}",
    "${window.hurt=7}`",
    "\u202e\u2028\u2029\x1b[31m\x00end",
    "javascript:window.hurt=8",
    "<svg/onload=window.hurt=9>",
    "__proto__",
    "constructor",
    "&lt;b&gt;&amp;",
    "<style>*{display:none}</style>",
    "x" * 5_000,
)


def many(count: int, size: int = 50_000) -> Iterator[pa.RecordBatch]:
    """Calls of many clients, topics and APIs over an hour, in batches."""
    apis = sorted(catalog().apis)
    for first in range(0, count, size):
        number = np.arange(first, min(first + size, count))
        random = np.random.default_rng(first)
        latency = random.lognormal(8, 2, len(number))
        begin = START + number * 3_600_000_000 // count
        keys = np.array(apis)[(number % 1_201 + random.integers(3, size=len(number))) % len(apis)]
        failed = random.random(len(number)) < 0.02
        columns = {
            "event": ["call"] * len(number), "time": begin, "capture": ["big.pcap"] * len(number),
            "connection": [f"{n % 4000:016x}" for n in number],
            "client_ip": [f"10.0.{n % 1_201 // 256}.{n % 1_201 % 256}" for n in number],
            "client_port": 1024 + number % 60000,
            "broker_ip": [f"10.9.0.{n % 5}" for n in number], "broker_port": np.full(len(number), 9092),
            "client_id": [f"client-{n % 1_201}" for n in number], "api_key": keys,
            "api": [catalog().apis[int(key)].name for key in keys], "api_version": np.zeros(len(number), int),
            "correlation_id": number % 100_000, "request_time": begin, "request_end_time": begin,
            "response_time": begin + latency.astype(np.int64),
            "response_end_time": begin + latency.astype(np.int64), "latency_us": latency,
            "duration_us": latency, "request_bytes": np.full(len(number), 100),
            "response_bytes": np.full(len(number), 100), "status": np.where(failed, "error", "ok"),
            "error_code": np.where(failed, 3, 0),
            "error": np.where(failed, "UNKNOWN_TOPIC_OR_PARTITION", "NONE"),
            "error_count": failed.astype(int), "throttle_ms": np.where(number % 997 == 0, 40, 0),
            "topics": [[f"topic-{n % 301}"] for n in number],
            "group_id": [f"group-{n % 51}" for n in number],
            "member_id": [f"member-{n % 5003}" for n in number], "generation": number % 50,
        }  # fmt: skip
        arrays = [
            pa.array(columns[field.name]).cast(field.type)
            if field.name in columns
            else pa.nulls(len(number), field.type)
            for field in EVENTS
        ]
        yield pa.RecordBatch.from_arrays(arrays, schema=EVENTS)


def hostile() -> pa.RecordBatch:
    """Calls whose every name is one of `HOSTILE`."""
    rows = []
    for number in range(4 * len(HOSTILE)):
        bad, other = HOSTILE[number % len(HOSTILE)], HOSTILE[(number * 7 + 3) % len(HOSTILE)]
        at = START + number * 10_000
        rows.append({
            "event": "call", "time": at, "capture": bad, "connection": f"{number:016x}",
            "client_ip": "10.0.0.1", "client_port": 4000 + number, "broker_ip": "10.0.0.2",
            "broker_port": 9092, "client_id": bad, "api_key": 11 if number % 3 else 3,
            "api": "JoinGroup" if number % 3 else other,
            "api_version": 5, "correlation_id": number, "request_time": at, "request_end_time": at,
            "response_time": at + 900, "response_end_time": at + 1000, "latency_us": 900.0,
            "duration_us": 1000.0, "request_bytes": 100, "response_bytes": 100, "status": "error",
            "error_code": 25, "error": other, "error_count": 1, "topics": [bad, other], "group_id": other,
            "member_id": bad, "reason": bad, "software_name": bad, "software_version": other, "user": bad,
            "request_packet": number * 2 + 1, "response_packet": number * 2 + 2,
            "request": '{"group_id": "</script><script>window.hurt=10</script>", "member_id": "<b>"}',
            "response": '{"throttle_time_ms": 0, "members": [], "generation_id": 1, "member_id": "<i>"}',
        })  # fmt: skip
        rows.append(
            {"event": "anomaly", "time": at, "code": bad, "detail": other, "packet": number, "capture": bad}
        )
    return pa.RecordBatch.from_pylist(rows, schema=EVENTS)
