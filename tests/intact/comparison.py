"""kwsniff's events of a capture beside the independent reading of its whole connections."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, NamedTuple

import kwsniff
from tests.intact.reading import Reading, read

Row = dict[str, Any]
COLUMNS = (
    *("event", "client_ip", "client_port", "broker_ip", "broker_port", "api_key", "api_version"),
    *("correlation_id", "status", "request_bytes", "response_bytes", "request_packet", "response_packet"),
    *("code", "detail", "packet", "unanswered_because", "first_packet", "last_packet", "security"),
)
OF_TCP = frozenset(
    (
        *("gap", "overlap_differs", "segment_misplaced", "reorder_limit", "resynchronised", "not_kafka"),
        *("frame_size_invalid", "frame_too_large", "frame_incomplete", "header_malformed"),
        *(
            "response_out_of_order",
            "reply_to_acks_0",
            "buffer_limit",
            "connection_limit",
            "outstanding_limit",
        ),
    )
)
"""Anomalies of streams, frames and pairing. Others are about what is in a message, or about times."""


class Told(NamedTuple):
    """A call as both sides tell it."""

    api_key: int
    version: int
    correlation_id: int
    request_packet: int
    request_bytes: int
    answered: bool
    response_packet: int | None
    response_bytes: int | None


@dataclass
class Difference:
    """What a capture's whole connections show, and where kwsniff tells it otherwise."""

    path: str
    connections: int = 0
    whole: int = 0
    calls: int = 0
    judged_not: Counter[str] = field(default_factory=Counter)
    """Why connections are not judged."""
    untold: list[tuple[str, Told]] = field(default_factory=list)
    invented: list[tuple[str, Told]] = field(default_factory=list)
    anomalies: list[tuple[str, str, str]] = field(default_factory=list)
    """Connection, code, detail."""
    of_content: Counter[str] = field(default_factory=Counter)

    @property
    def right(self) -> bool:
        return not (self.untold or self.invented or self.anomalies)


def compare(path: str, ports: Sequence[int] = (9092, 9093, 9094), **choices: Any) -> Difference:
    """What kwsniff tells wrong of the whole connections in a capture file."""
    rows = [
        row
        for batch in kwsniff.events(path, columns=COLUMNS, ports=tuple(ports), **choices)
        for row in batch.to_pylist()
    ]
    return differences(path, read(path), rows)


def differences(path: str, readings: Iterable[Reading], rows: Iterable[Row]) -> Difference:
    """The same of events that are at hand."""
    found = Difference(path)
    by_ends: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_ends.setdefault(_ends_of(row), []).append(row)
    for one in readings:
        found.connections += 1
        if one.why_not:
            found.judged_not[one.why_not] += 1
        else:
            _judge(found, one, by_ends.get(_ends(one), []))
    return found


def _ends(one: Reading) -> tuple[Any, ...]:
    client, broker = one.connection.ends if one.client == 0 else one.connection.ends[::-1]
    return str(ip_address(client[0])), client[1], str(ip_address(broker[0])), broker[1]


def _ends_of(row: Row) -> tuple[Any, ...]:
    ends = (row["client_ip"], row["client_port"], row["broker_ip"], row["broker_port"])
    return tuple(str(ip_address(each)) if isinstance(each, str) else each for each in ends)


def _judge(found: Difference, one: Reading, rows: Sequence[Row]) -> None:
    name = "{}:{} {}:{}".format(*_ends(one))
    first, last = one.connection.first_packet, one.connection.last_packet
    there = Counter(
        Told(
            call.api_key, call.version, call.correlation_id, call.last_packet, call.size,
            call.answered, call.response_packet, call.response_size,
        )
        for call in one.calls
    )  # fmt: skip
    told: Counter[Told] = Counter()
    for row in rows:
        if row["event"] == "call" and first <= (row["request_packet"] or row["response_packet"]) <= last:
            if not _of_tail(one, row):
                told[_told(one, row)] += 1
        elif row["event"] == "anomaly" and first <= row["packet"] <= last and not _is_true(one, row["code"]):
            if row["code"] in OF_TCP:
                found.anomalies.append((name, row["code"], row["detail"]))
            else:
                found.of_content[row["code"]] += 1
    found.whole += 1
    found.calls += len(one.calls)
    found.untold += [(name, call) for call in (there - told).elements()]
    found.invented += [(name, call) for call in (told - there).elements()]


def _told(one: Reading, row: Row) -> Told:
    """An event as a call; what was answered has a response packet, whatever its status. A response that the
    end of the recording cut is none yet."""
    cut = row["status"] == "truncated" and one.tails[1] > 0
    response = (False, None, None) if cut else (True, row["response_packet"], row["response_bytes"])
    return Told(
        row["api_key"], row["api_version"], row["correlation_id"],
        row["request_packet"], row["request_bytes"],
        *(response if row["response_packet"] is not None else (False, None, None)),
    )  # fmt: skip


def _of_tail(one: Reading, row: Row) -> bool:
    """Whether a call is what there is of a request that the end of the recording cut."""
    if not one.tails[0] or row["status"] not in ("truncated", "unanswered") or row["response_packet"]:
        return False
    return row["correlation_id"] not in {call.correlation_id for call in one.calls}


def _is_true(one: Reading, code: str) -> bool:
    """Whether an anomaly says what the reading shows too."""
    if code == "frame_incomplete":
        return any(one.tails)
    if code == "response_out_of_order":
        return one.overtaken
    if code == "reply_to_acks_0":
        return one.replies_to_acks_0 > 0
    return False
