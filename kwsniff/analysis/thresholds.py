"""When a rule speaks: every threshold with its default, its unit in its name, in one table.

They are meant for captures of seconds to hours of production traffic. A rule that compares rates also asks
for a least number, so that the first second of a short capture proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Self

from kwsniff.output import suggestion


@dataclass(frozen=True, slots=True)
class Thresholds:
    """docs/findings.md lists them from here."""

    @classmethod
    def of(cls, chosen: Iterable[tuple[str, float]]) -> Self:
        """The defaults but for those chosen.

        Raises:
            ValueError: there is no threshold of that name, or it cannot have that value.
        """
        known = {each.name: int if isinstance(each.default, int) else float for each in fields(cls)}
        values: dict[str, float] = {}
        for name, value in chosen:
            if name not in known:
                raise ValueError(f"there is no threshold {name!r}{suggestion(name, known)}")
            if not 0 <= value < float("inf") or known[name](value) != value:
                kind = "whole number" if known[name] is int else "number"
                raise ValueError(f"threshold {name} is a {kind} from 0 on, not {value:g}")
            values[name] = known[name](value)
        return cls(**values)  # type: ignore[arg-type]

    throttled_ms: int = 1_000
    """Throttle time of a client, in all, from which on it is a warning; less is a notice."""

    slow_ms: float = 100.0
    """A broker is slow with an API if so much of its own time goes into one call of twenty ..."""
    slow_calls: int = 20
    """... of at least so many calls."""
    queued_calls: int = 10
    """Fewer calls that stood in a queue say nothing."""
    queued_ms: float = 100.0
    """A queue is slow if one call of twenty waits so long behind earlier ones of its connection."""

    unanswered_wait_ms: float = 30_000.0
    """A request that is still open at the end of the capture counts as unanswered after so long."""
    long_poll_margin_ms: float = 1_000.0
    """A Fetch that its connection's end cut off counts only if it waited so much longer than it had asked."""

    stale_leader_errors: int = 10
    """Answers of a broker that it does not lead a partition, to one client, beyond what a change of leader
    brings about."""

    rebalances: int = 5
    """A group that rebalances so often ..."""
    rebalance_every_s: float = 600.0
    """... and on average more often than once in this time is not stable."""
    rebalance_pause_ms: float = 500.0
    """JoinGroup and SyncGroup calls closer together than this belong to one rebalance."""
    still_s: float = 10.0
    """A member stands still whose heartbeats go on for so long after its last Fetch."""
    lag_records: int = 250
    """A consumer that is so many records behind at its last Fetch ..."""
    lag_growth: float = 1.2
    """... and so many times as many as at its first falls behind."""

    tiny_batches: int = 200
    """A producer sends tiny batches if so many of them ..."""
    tiny_batch_bytes: float = 1_000.0
    """... are smaller than this on average ..."""
    tiny_batches_per_s: float = 10.0
    """... and come faster than this."""
    uncompressed_bytes: int = 1_000_000
    """Record data sent without compression to a topic, in all; ..."""
    uncompressed_batch_bytes: float = 1_000.0
    """... smaller batches would hardly shrink."""

    storm_calls: int = 50
    """Metadata, ApiVersions and FindCoordinator calls of one client are a storm if there are so many ..."""
    storm_per_s: float = 2.0
    """... at more than this rate."""
    churn_connections: int = 30
    """A client connects anew again and again if so many of its connections (for each of the client ids at its
    address, where connections do not tell whose they are) ..."""
    churn_life_s: float = 10.0
    """... lived shorter than this ..."""
    churn_per_s: float = 1.0
    """... and more than this began each second."""
    refused: int = 3
    """Attempts to connect to an address that refuses or does not answer."""
    given_up_s: float = 10.0
    """Such an address is one that nobody needs now if nobody tried it for so long, and others connected."""

    hot_share: float = 0.5
    """A partition is hot if it takes so much of what is produced to its topic ..."""
    hot_times_fair: float = 3.0
    """... and so many times what would be its fair share ..."""
    hot_bytes: int = 100_000
    """... of so much record data."""

    unanswered: int = 5
    """Requests that a broker left unanswered are a warning from so many on, else a notice; ..."""
    unanswered_many: int = 20
    """... all are critical if there are so many ..."""
    unanswered_share: float = 0.01
    """... and they are so much of the requests that expect an answer."""
    outage_refused: int = 20
    """Connections refused by a broker that answers at other times: from so many on it is a warning."""

    retransmitted_ratio: float = 0.01
    """Packets retransmitted, as a part of those sent in a direction ..."""
    retransmissions: int = 10
    """... and at least so many."""
    zero_windows: int = 3
    """Times that a receiver closed its window."""

    errors: int = 10
    """Answers with an error that needs somebody's attention are a warning from so many on, else a notice."""
    retried_errors: int = 5
    """The same, of an error that clients may try again after: fewer are left out."""
    transient_errors: int = 20
    """Answers with an error that clients get over by trying again."""
