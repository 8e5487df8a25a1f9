"""What is recorded: for each workload its clients, its bounds, and the topics made beforehand."""

from __future__ import annotations

from dataclasses import dataclass, field

MB = 1_000_000


@dataclass(frozen=True)
class Workload:
    """One recording. It ends with the first of its bounds that is reached."""

    name: str
    about: str
    roles: tuple[str, ...]
    """A client process each; see clients.py."""
    seconds: float
    brokers: int = 4
    packets: int | None = None
    size: int | None = None
    topics: list[str] = field(default_factory=list)


WORKLOADS = [
    Workload(
        "chatty",
        "small produce and fetch calls over about a hundred connections",
        ("chatty-produce", "chatty-consume", "chatty-produce", "chatty-consume"),
        seconds=400,
        packets=1_000_000,
        topics=[f"orders-{number}" for number in range(8)],
    ),
    Workload(
        "bulk",
        "full-size segments with compressed batches of four codecs, produced and consumed",
        ("bulk-produce", "bulk-consume"),
        seconds=300,
        size=800 * MB,
        brokers=3,
        topics=["audit-log", "clickstream", "metrics", "trades"],
    ),
    Workload(
        "wide",
        "Metadata responses of 400 topics, asked for by a dozen clients",
        ("wide", "wide"),
        seconds=120,
        size=150 * MB,
        brokers=3,
        topics=[f"tenant-{number // 20:02}.stream-{number % 20:02}" for number in range(400)],
    ),
    Workload(
        "mixed",
        "bulk and chatty at once, for what takes captures too large for one core",
        (
            "bulk-produce",
            "bulk-consume",
            "chatty-produce",
            "chatty-consume",
            "chatty-produce",
            "chatty-consume",
        ),
        seconds=600,
        size=2000 * MB,
        topics=[
            "audit-log",
            "clickstream",
            "metrics",
            "trades",
            *(f"orders-{number}" for number in range(8)),
        ],
    ),
]
