"""Brokers that are slow to answer, and queues that make answers late although the broker is quick.

A broker handles one request of a connection at a time. `broker_us` is its own time with a call, `queued_us`
how long the call waited behind earlier ones. Where a source does not tell them apart, calls that were sent
with nothing outstanding, and that do not wait on purpose, are measured by their latency; then nothing is
known of queues.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kwsniff.findings.finding import NOTICE, WARNING, Finding, command, literal
from kwsniff.findings.histogram import Histogram, quantile
from kwsniff.findings.rows import Batch, Floats, Rows
from kwsniff.findings.rule import Context, Rule
from kwsniff.findings.tally import Tally, nowhere
from kwsniff.findings.words import client, duration, many

WAITING = (1, 11, 14, 78)
"""Fetch, JoinGroup, SyncGroup, ShareFetch: their latency is not the broker's."""
DELAYED = (58,)
"""SASL_AUTHENTICATION_FAILED: brokers hold that answer back on purpose."""
SLOW_PART = 0.95


def _own_time(calls: Rows) -> Floats:
    refused = calls.is_in("error_code", DELAYED)
    if calls.has("broker_us"):
        return np.where(refused, np.nan, calls.floats("broker_us"))
    alone = (calls.ints("in_flight", -1) == 0) & ~calls.is_in("api_key", WAITING)
    found: Floats = np.where(alone & ~refused, calls.floats("latency_us"), np.nan)
    return found


class SlowBroker(Rule):
    """One call of twenty took a broker longer than `slow_ms` of its own time: not waiting for data or
    members, not behind other requests, not throttled. Look at its disks, its garbage collections, its
    request handler threads and, for Produce with acks=all, at the followers that have to take the records
    first."""

    code = "slow_broker"
    about = "broker speed"
    needs = frozenset(("broker_us", "latency_us", "in_flight"))
    missing = "no calls to measure"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.times = Histogram()
        self.slow = Tally()

    def take(self, batch: Batch) -> None:
        calls = batch.calls
        own = _own_time(calls)
        self.looked += int((~np.isnan(own)).sum())
        keys = [calls.broker, calls.coded("api")]
        self.times.add(keys, own)
        with np.errstate(invalid="ignore"):
            self.slow.add(calls, own > self.thresholds.slow_ms * 1000, keys, [own], [own])

    def findings(self, context: Context) -> list[Finding]:
        return [
            self._finding(key, counts)
            for key, counts in self.times.counts.items()
            if counts.sum() >= self.thresholds.slow_calls
            and quantile(counts, SLOW_PART) >= self.thresholds.slow_ms * 1000
        ]

    def _finding(self, key: tuple[Any, ...], counts: Any) -> Finding:
        broker, api = key
        calls = int(counts.sum())
        half, most = quantile(counts, 0.5), quantile(counts, SLOW_PART)
        slow = self.slow.entries.get(key)
        longest = slow.maxes[0] if slow else most
        sentence = (
            f"{broker} is slow with {api}: half of {many(calls, 'call')} took it more than "
            f"{duration(half / 1e6)} of its own time, one of twenty {duration(most / 1e6)}, "
            f"the longest {duration(longest / 1e6)}."
        )
        numbers = {"calls": calls, "p50_us": half, "p95_us": most, "max_us": longest}
        severe = half >= self.thresholds.slow_ms * 1000 or most >= 5000 * self.thresholds.slow_ms
        shown = (slow.first, slow.last) if slow else (nowhere(),)
        return Finding(
            self.code, WARNING if severe else NOTICE, str(broker), sentence, numbers, shown,
            command("slow", f"api == {literal(api)}"), most * calls,
        )  # fmt: skip


class SlowQueue(Rule):
    """Calls of a connection waited behind earlier ones of it, longer than the broker took for them: the
    broker is not the bottleneck. Give what must be quick a connection (a client) of its own, allow fewer
    requests in flight, or send larger ones."""

    code = "slow_queue"
    about = "queues"
    needs = frozenset(("queued_us", "broker_us"))
    missing = "no times in queues"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.times = Histogram()
        self.clients = Tally()

    def take(self, batch: Batch) -> None:
        calls = batch.calls
        if not calls.has("queued_us"):
            return
        queued, own = calls.floats("queued_us"), calls.floats("broker_us")
        self.looked += int((~np.isnan(queued)).sum())
        keys = [calls.coded("client_id"), calls.coded("client_ip"), calls.broker]
        self.times.add(keys, queued)
        with np.errstate(invalid="ignore"):
            self.clients.add(calls, queued > 0, keys, [queued, own], [queued])

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for key, entry in self.clients.entries.items():
            counts = self.times.counts.get(key)
            queued, own = map(round, entry.sums)  # whole µs: the same in whatever order they were added
            if counts is None or counts.sum() < self.thresholds.slow_calls or queued <= own:
                continue
            if entry.count < self.thresholds.queued_calls:
                continue
            late = quantile(counts, SLOW_PART)
            if late < self.thresholds.queued_ms * 1000:
                continue
            name, ip, broker = key
            sentence = (
                f"{client(name, ip)} waits for itself: {entry.count:,} of {many(counts.sum(), 'call')} to "
                f"{broker} stood behind earlier ones of their connection, one of twenty for more than "
                f"{duration(late / 1e6)}; the broker's own time was {duration(own / 1e6)} of "
                f"{duration((own + queued) / 1e6)}."
            )
            numbers = {"queued_calls": entry.count, "queued_us": queued, "broker_us": own, "p95_us": late}
            found.append(
                Finding(
                    self.code, NOTICE, client(name, ip), sentence, numbers, (entry.first, entry.last),
                    command("slow", f"client_id == {literal(name)}"), queued,
                )
            )  # fmt: skip
        return found
