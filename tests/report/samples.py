"""A mixture of calls as a capture may hold them, made from a seed."""

from __future__ import annotations

import random
from typing import Any

from .events import call

APIS = {0: "Produce", 1: "Fetch", 3: "Metadata", 11: "JoinGroup", 12: "Heartbeat", 14: "SyncGroup"}
ERRORS = {3: "UNKNOWN_TOPIC_OR_PARTITION", 6: "NOT_LEADER_OR_FOLLOWER", 27: "REBALANCE_IN_PROGRESS"}
TOPICS = {"orders": "id-orders", "payments": "id-payments", "audit": "id-audit", "-odd": "id-odd"}

TIMES = (
    *("request_transfer_us", "queued_us", "throttled_us", "waited_us", "broker_us", "broker_least_us"),
    "response_transfer_us",
)


def mixture(count: int, seed: int = 7) -> list[dict[str, Any]]:
    """`count` calls; topics are named by name, by uuid or by both."""
    chance = random.Random(seed)
    return [_call(chance, number) for number in range(count)]


def _call(chance: random.Random, number: int) -> dict[str, Any]:
    key = chance.choice(list(APIS))
    client = chance.randrange(4)
    columns: dict[str, Any] = {
        "api_key": key,
        "api": APIS[key],
        "client_id": chance.choice([None, f"app-{client}"]),
        "client_ip": f"10.0.0.{client}",
        "broker_ip": chance.choice(["10.0.0.9", "fd00::9"]),
        "request_bytes": chance.randrange(50, 900),
        "in_flight": chance.randrange(5),
        "throttle_ms": chance.choice([None, 0, 0, 250, 1000]),
        "correlation_id": number,
    }
    latency: float | None = chance.lognormvariate(7, 1)
    if key == 1:
        columns["max_wait_ms"] = chance.choice([5, 500])
        latency = chance.choice([latency, 500_250.0, 5_010.0])
        columns["record_bytes"] = columns["record_count"] = chance.choice([0, 0, 40])
        columns |= chance.choice(
            [{}, dict.fromkeys(TIMES, 5.0), {**dict.fromkeys(TIMES, 7.0), "waited_us": 0.0}]
        )
    if key in (0, 1, 3):
        columns |= _topics(chance)
    status = chance.choices(["ok", "error", "unanswered", "undecoded", "truncated"], [80, 12, 3, 3, 2])[0]
    columns["status"] = status
    if status == "error":
        code = chance.choice(list(ERRORS))
        columns |= {"error_code": code, "error": ERRORS[code], "error_count": 1}
    if status == "undecoded":
        columns |= {"error_code": None, "error_count": None}
    if status == "unanswered":
        latency = None
        columns |= {"error_code": None, "unanswered_because": "capture_ended"}
    return call(at=number * 500, latency=latency, **columns)


def _topics(chance: random.Random) -> dict[str, Any]:
    names = chance.sample(list(TOPICS), chance.randrange(1, 4))
    how = chance.choice(["name", "id", "both"])
    return {
        "topics": [None if how == "id" else name for name in names],
        "topic_ids": None if how == "name" else [TOPICS[name] for name in names],
    }


def topics_of(row: dict[str, Any]) -> list[str]:
    """Names of the topics of a call, also where it gives only the uuid."""
    names = {uuid: name for name, uuid in TOPICS.items()}
    ids = row["topic_ids"] or [None] * len(row["topics"] or [])
    return [name or names[uuid] for name, uuid in zip(row["topics"] or [], ids, strict=True)]
