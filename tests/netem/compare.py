"""What kwsniff tells of a capture, against what the applications sent and read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import kwsniff
from tests.netem.kafka import OFFSET_COMMIT, PRODUCE, Message
from tests.netem.talks import Talk

COLUMNS = (
    *("event", "client_port", "api_key", "api_version", "correlation_id", "client_id", "status", "code"),
    *("request_bytes", "response_bytes", "partitions", "resynchronisations", "skipped_bytes", "detail"),
    *("client_missing_bytes", "broker_missing_bytes"),
)
WHERE_CUT = frozenset(("frame_incomplete", "truncated_body"))
"""Anomalies of connections that end inside a message."""
EVERYWHERE = frozenset(("correlation_id_reused",))
Row = dict[str, Any]
Signed = tuple[object, ...]


@dataclass
class Outcome:
    """Of one capture."""

    calls: int = 0
    """That must be told."""
    missing: Counter[Signed] = field(default_factory=Counter)
    invented: Counter[Signed] = field(default_factory=Counter)
    anomalies: Counter[Signed] = field(default_factory=Counter)

    @property
    def is_right(self) -> bool:
        return not (self.missing or self.invented or self.anomalies)

    def __str__(self) -> str:
        if self.is_right:
            return f"{self.calls} ok"
        return "/".join(str(each.total()) for each in (self.missing, self.invented, self.anomalies))


def outcome(path: Path, chains: list[list[Talk]], allowed: frozenset[str] = frozenset()) -> Outcome:
    """Read a capture that has every byte; `allowed` are anomalies that it is right to tell."""
    found = Outcome()
    talks = [talk for chain in chains for talk in chain]
    ports = {talk.port for talk in talks}
    told = [row for batch in kwsniff.events(path, columns=COLUMNS) for row in batch.to_pylist()]
    rows = [row for row in told if row["client_port"] in (*ports, None)]
    calls = [row for row in rows if row["event"] == "call"]
    _requests(calls, talks, found)
    _responses(calls, talks, found)
    _commits(calls, talks, found)
    for row in rows:
        found.anomalies += _anomaly(row, talks, allowed)
    return found


def _requests(calls: Iterable[Row], talks: Iterable[Talk], found: Outcome) -> None:
    """Each request that the broker read is told once; others may be if the client sent a byte of them, and
    without a client id if they were cut before it."""
    must: Counter[Signed] = Counter()
    may: Counter[Signed] = Counter()
    for talk in talks:
        signed = [_request(talk.port, message) for message in talk.messages]
        must.update(signed[: talk.understood])
        may.update(signed[: talk.asked])
        cut = talk.messages[talk.understood : talk.asked]
        may.update(_request(talk.port, replace(message, client_id=None)) for message in cut)
    told = Counter(_told_request(row) for row in calls)
    found.calls += must.total()
    found.missing += must - told
    found.invented += told - (may | must)


def _request(port: int, message: Message) -> Signed:
    header = (message.correlation_id, message.key, message.version, message.client_id)
    return ("request", port, *header, len(message.request))


def _told_request(row: Row) -> Signed:
    names = ("client_port", "correlation_id", "api_key", "api_version", "client_id", "request_bytes")
    return ("request", *(row[name] for name in names))


def _commits(calls: Iterable[Row], talks: Iterable[Talk], found: Outcome) -> None:
    """The offsets of each answered OffsetCommit; bytes of records are held against their CRC."""
    may: Counter[Signed] = Counter(
        ("offsets", talk.port, message.correlation_id, message.committed)
        for talk in talks
        for message in talk.messages[: talk.understood]
    )
    told: Counter[Signed] = Counter()
    for row in calls:
        if row["api_key"] == OFFSET_COMMIT and row["status"] == "ok":
            offsets = tuple(part["committed_offset"] for part in row["partitions"] or ())
            told["offsets", row["client_port"], row["correlation_id"], offsets] += 1
    found.invented += told - may


def _responses(calls: Iterable[Row], talks: Iterable[Talk], found: Outcome) -> None:
    """Each response that the client read is told with its request; others may if a byte was sent."""
    must: Counter[Signed] = Counter()
    may: Counter[Signed] = Counter()
    for talk in talks:
        replied = [message for message in talk.messages if message.response is not None]
        must.update(_response(talk.port, message) for message in replied[: talk.read])
        sent = [message for message in talk.messages[: talk.answered] if message.response is not None]
        may.update(_response(talk.port, message) for message in sent)
        silent = [message for message in talk.messages[: talk.understood] if message.response is None]
        must.update(_response(talk.port, message) for message in silent)
        may.update(_response(talk.port, m) for m in talk.messages[: talk.asked] if m.response is None)
    told: Counter[Signed] = Counter(
        (
            "response",
            row["client_port"],
            row["correlation_id"],
            row["api_key"],
            row["status"],
            row["response_bytes"],
        )
        for row in calls
        if row["status"] not in ("unanswered", "truncated")
    )
    found.missing += must - told
    found.invented += told - (may | must)


def _response(port: int, message: Message) -> Signed:
    if message.response is None:
        assert message.key == PRODUCE
        return "response", port, message.correlation_id, message.key, "no_reply_expected", None
    return "response", port, message.correlation_id, message.key, "ok", len(message.response)


def _anomaly(row: Row, talks: Iterable[Talk], allowed: frozenset[str]) -> Counter[Signed]:
    port = row["client_port"]
    if row["event"] == "connection":
        names = ("resynchronisations", "skipped_bytes", "client_missing_bytes", "broker_missing_bytes")
        cut = any(talk.is_cut for talk in talks if talk.port == port)
        return Counter(
            (port, name) for name in names if row[name] and not (cut and name != "resynchronisations")
        )
    if row["event"] != "anomaly" or row["code"] in allowed | EVERYWHERE:
        return Counter()
    if row["code"] in WHERE_CUT and any(talk.is_cut for talk in talks if talk.port == port):
        return Counter()
    return Counter([(port, row["code"], row["detail"])])
