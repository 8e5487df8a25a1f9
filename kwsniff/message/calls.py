"""Calls of a capture by what a person can name: a packet, or a connection and a correlation id."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.config import Config
from kwsniff.events import CALL
from kwsniff.offline import events

Row = dict[str, Any]

COLUMNS = frozenset(
    (
        *("event", "time", "capture", "connection", "client_ip", "client_port", "broker_ip", "broker_port"),
        *("api_key", "api", "api_version", "correlation_id", "client_id", "request_time", "response_time"),
        *("request_end_time", "response_end_time", "latency_us", "duration_us", "request_bytes", "status"),
        *(
            "response_bytes",
            "request_packet",
            "response_packet",
            "error",
            "error_code",
            "topics",
            "topic_ids",
        ),
        *("unanswered_because", "partitions", "group_id", "queued_us", "throttled_us", "waited_us"),
        *("broker_us", "closed_by", "waited_open_us"),
    )
)
"""Columns of the calls that are found."""


class Target(NamedTuple):
    """What to find: a packet, or a call of a connection."""

    packet: int | None = None
    connection: str | None = None
    """The beginning of its id."""
    correlation_id: int | None = None

    @classmethod
    def of(cls, text: str) -> Target:
        """From `17` or `4905ac74e8683338#12`. Raises ValueError."""
        if text.isdecimal():
            return cls(packet=int(text))
        found = re.fullmatch(r"([0-9a-fA-F]+)#(-?\d+)", text.strip())
        if found is None:
            raise ValueError(f"{text!r} is neither the number of a packet nor CONNECTION#CORRELATION_ID")
        return cls(connection=found[1].lower(), correlation_id=int(found[2]))


def found_calls(path: str, target: Target, config: Config) -> list[Row]:
    """The calls that `target` names, in the order of the events: of a packet those whose request or response
    it completes. Raises CaptureError."""
    found: list[Row] = []
    for batch in events([path], replace(config, columns=COLUMNS)):
        mask = pc.and_(pc.equal(batch["event"], CALL), pc.fill_null(_test(batch, target), False))
        found += batch.filter(mask).to_pylist()
    return found


def _test(batch: pa.RecordBatch, target: Target) -> pa.Array:
    if target.packet is not None:
        request = pc.fill_null(pc.equal(batch["request_packet"], target.packet), False)
        return pc.or_(request, pc.fill_null(pc.equal(batch["response_packet"], target.packet), False))
    own = pc.starts_with(batch["connection"], target.connection)
    return pc.and_(own, pc.equal(batch["correlation_id"], target.correlation_id))


def next_call(path: str, ends: frozenset[tuple[str, int]], packet: int, config: Config) -> Row | None:
    """The call between these two ends whose message is the next to be complete from `packet` on."""
    best: tuple[int, Row] | None = None
    for batch in events([path], replace(config, columns=COLUMNS)):
        for row in batch.filter(pc.equal(batch["event"], CALL)).to_pylist():
            own = {(row["client_ip"], row["client_port"]), (row["broker_ip"], row["broker_port"])}
            packets = (row["request_packet"] or -1, row["response_packet"] or -1)
            later = [each for each in packets if each >= packet]
            if own == ends and later and (best is None or min(later) < best[0]):
                best = (min(later), row)
    return best[1] if best else None
