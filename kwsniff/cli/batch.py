"""Record batches as lines: a line for each batch, and with their records one for each of these."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from kwsniff.report.text import bytes_text, printable

Row = dict[str, Any]
USUAL = {"producer_id": -1, "producer_epoch": -1, "base_sequence": -1, "leader_epoch": -1}
"""Values that say nothing."""
TOLD = frozenset(
    ("base_offset", "last_offset", "size", "codec", "count", "magic", "base_timestamp", "records")
)


def is_batches(value: Any) -> bool:
    """Whether a value is record data as `decode --full` renders it."""
    return isinstance(value, list) and all(isinstance(each, dict) and "magic" in each for each in value)


def batch_lines(batches: list[Row]) -> Iterator[str]:
    """Each batch, and its records below."""
    for batch in batches:
        yield "batch  " + "  ".join(_batch(batch))
        for record in batch.get("records") or ():
            yield "  record  " + "  ".join(_record(record))


def _batch(batch: Row) -> Iterator[str]:
    first, last = batch.get("base_offset"), batch.get("last_offset")
    yield f"offsets {first}-{last}" if last is not None else f"offset {first}"
    if batch.get("count") is not None:
        yield "1 record" if batch["count"] == 1 else f"{batch['count']} records"
    yield f"{bytes_text(batch.get('size') or 0)}  {batch.get('codec')}  magic {batch['magic']}"
    if batch.get("base_timestamp") is not None:
        yield _time(batch["base_timestamp"])
    for name, value in batch.items():
        if name not in TOLD and value not in (None, False) and USUAL.get(name) != value:
            yield f"{name} {printable(str(value))}"


def _record(record: Row) -> Iterator[str]:
    yield f"offset {record.get('offset')}"
    if record.get("timestamp") is not None:
        yield _time(record["timestamp"])
    yield f"{_payload(record.get('key'))}: {_payload(record.get('value'))}"
    if record.get("headers"):
        yield f"headers {_payload(record['headers'])}"


def _payload(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))


def _time(milliseconds: int) -> str:
    if milliseconds < 0:
        return "no time"
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"time {milliseconds}"
    return f"{moment:%Y-%m-%dT%H:%M:%S.}{moment.microsecond // 1000:03}Z"
