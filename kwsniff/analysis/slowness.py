"""Brokers that are slow to answer, and queues that make answers late although the broker is quick.

A broker handles one request of a connection at a time. `broker_least_us` is what it took for a call
itself, as far as that is certain, `queued_us` how long the call waited behind earlier ones. Where a source
does not tell them apart, calls that were sent with nothing outstanding, and that do not wait on purpose, are
measured by their latency; then nothing is known of queues.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kwsniff.analysis.finding import NOTICE, WARNING, Finding, both, command, evidence, is_client, literal
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.cube import LEAST
from kwsniff.count.eventrows import EventBatch, EventRows, Floats, Keys
from kwsniff.count.histogram import Histogram, quantile
from kwsniff.count.tally import Entry, Key, Tally, nowhere
from kwsniff.output.units import client, duration, listed, many

WAITING = (1, 11, 14, 78)
"""Fetch, JoinGroup, SyncGroup, ShareFetch: their latency is not the broker's."""
DELAYED = (58,)
"""SASL_AUTHENTICATION_FAILED: brokers hold that answer back on purpose."""
SLOW_PART = 0.95
SEVERE = 50
"""Times the threshold from which on it is a warning."""


def _own_time(calls: EventRows) -> Floats:
    refused = calls.is_in("error_code", DELAYED)
    if calls.has(LEAST):
        return np.where(refused, np.nan, calls.floats(LEAST))
    alone = (calls.ints("in_flight", -1) == 0) & ~calls.is_in("api_key", WAITING)
    found: Floats = np.where(alone & ~refused, calls.floats("latency_us"), np.nan)
    return found


class _Slow(NamedTuple):
    """What takes a broker long; compared by how much it matters."""

    weight: float
    api: str
    calls: int
    half: float
    most: float


class SlowBroker(Rule):
    """The broker time of one call of twenty (p95) is above `slow_ms`: not waiting for data or
    members, not behind other requests, not throttled; of a Fetch, which may have waited for data however it
    was answered, only what it took beyond its `max_wait_ms`. Look at its disks, its garbage collections, its
    request handler threads and, for Produce with acks=all, at the followers that have to take the records
    first. A broker that clients had to send packets to again is not judged: what the network took before it
    had a request is not told from its own time."""

    code = "slow_broker"
    several = "{count} brokers are slow: broker time of their slowest API p95 up to {max_p95_us}."
    about = "broker speed"
    needs = frozenset((LEAST, "latency_us", "in_flight", "client_retransmissions", "client_packets"))
    missing = "no calls to measure"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.times = Histogram()
        self.slow = Tally()
        self.sent = Tally()
        """Packets from clients, and those that were sent again, by broker."""

    def take(self, batch: EventBatch) -> None:
        calls, ends = batch.calls, batch.connections
        again = [ends.ints("client_packets"), ends.ints("client_retransmissions")]
        self.sent.add(ends, None, [ends.broker], again)
        own = _own_time(calls)
        self.looked += int((~np.isnan(own)).sum())
        keys = [calls.broker, calls.coded("api")]
        self.times.add(keys, own)
        with np.errstate(invalid="ignore"):
            self.slow.add(calls, own > self.thresholds.slow_ms * 1000, keys, [own], [own])

    def findings(self, context: Context) -> list[Finding]:
        return [
            self._finding(broker, sorted(slow, reverse=True), context)
            for broker, slow in self._slow_brokers().items()
            if not self._is_lossy(broker)
        ]

    def unjudged(self) -> str:
        lossy = sorted(str(each) for each in self._slow_brokers() if self._is_lossy(each))
        return f"clients sent packets to {listed(lossy)} again" if lossy else ""

    def _slow_brokers(self) -> dict[Any, list[_Slow]]:
        brokers: dict[Any, list[_Slow]] = {}
        for (broker, api), counts in self.times.counts.items():
            calls, most = int(counts.sum()), quantile(counts, SLOW_PART)
            if calls >= self.thresholds.slow_calls and most >= self.thresholds.slow_ms * 1000:
                slow = _Slow(most * calls, str(api), calls, quantile(counts, 0.5), most)
                brokers.setdefault(broker, []).append(slow)
        return brokers

    def _is_lossy(self, broker: Any) -> bool:
        """Whether clients had to send it so much again that `retransmissions` may speak."""
        entry = self.sent.entries.get((broker,))
        if entry is None:
            return False
        packets, again = entry.sums
        return (
            again >= self.thresholds.retransmissions
            and again >= self.thresholds.retransmitted_ratio * packets
        )

    def _finding(self, broker: Any, slow: list[_Slow], context: Context) -> Finding:
        weight, api, calls, half, most = slow[0]
        entries = [self.slow.entries.get((broker, each.api)) for each in slow]
        shown = [entry for entry in entries if entry is not None]
        longest = entries[0].maxes[0] if entries[0] else most
        others = [each.api for each in slow[1:]]
        p50, p95, top = (duration(each / 1e6) for each in (half, most, longest))
        brief = f"p50 {p50}, p95 {p95}, max {top} ({many(calls, f'{api} call')})"
        sentence = f"{broker} is slow with {api}: broker time {brief}" + (
            f"; it is slow with {listed(others)}, too." if others else "."
        )
        numbers = {"calls": calls, "p50_us": half, "p95_us": most, "max_us": longest, "apis": len(slow)}
        limit = self.thresholds.slow_ms * 1000
        severe = any(each.half >= limit or each.most >= SEVERE * limit for each in slow)
        where = f"broker == {literal(str(broker))}"
        return Finding(
            self.code, WARNING if severe else NOTICE, str(broker), sentence, numbers,
            evidence(*shown) if shown else (nowhere(),),
            command("slow", where if others else both(where, f"api == {literal(api)}")), weight,
            share=context.of_calls(sum(entry.count for entry in shown)), brief=brief,
        )  # fmt: skip


class SlowQueue(Rule):
    """Calls of a connection waited behind earlier ones of it, longer than the broker took for them: the
    broker is not the bottleneck. Give what must be quick a connection (a client) of its own, allow fewer
    requests in flight, or send larger ones."""

    code = "slow_queue"
    about = "queues"
    several = (
        "{count} clients queue on their connections: up to {max_in_flight} requests in flight, p95 up to "
        "{max_p95_us} in line."
    )
    needs = frozenset(("queued_us", "broker_us", "in_flight"))
    missing = "no times in queues"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.times = Histogram()
        self.clients = Tally()

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        if not calls.has("queued_us"):
            return
        queued, own = calls.floats("queued_us"), calls.floats("broker_us")
        self.looked += int((~np.isnan(queued)).sum())
        keys: Keys = [calls.client, calls.broker]
        self.times.add(keys, queued)
        with np.errstate(invalid="ignore"):
            self.clients.add(calls, queued > 0, keys, [queued, own], [calls.ints("in_flight")])

    def findings(self, context: Context) -> list[Finding]:
        clients: dict[Key, list[tuple[int, Key, Entry]]] = {}
        for key, entry in self.clients.entries.items():
            if self._is_slow(key, entry):
                clients.setdefault(key[:2], []).append((round(entry.sums[0]), key, entry))
        return [self._finding(rows, context) for rows in clients.values()]

    def _is_slow(self, key: Key, entry: Entry) -> bool:
        counts = self.times.counts.get(key)
        queued, own = map(round, entry.sums)  # whole µs: the same in whatever order they were added
        if counts is None or counts.sum() < self.thresholds.slow_calls or queued <= own:
            return False
        if entry.count < self.thresholds.queued_calls:
            return False
        return quantile(counts, SLOW_PART) >= self.thresholds.queued_ms * 1000

    def _finding(self, rows: list[tuple[int, Key, Entry]], context: Context) -> Finding:
        _, key, entry = max(rows, key=lambda row: (row[0], str(row[1][2])))
        name, ip, broker = key
        counts = self.times.counts[key]
        queued, own = map(round, entry.sums)
        late = quantile(counts, SLOW_PART)
        more = f" and {many(len(rows) - 1, 'broker')} more" if len(rows) > 1 else ""
        flight = int(max(max(each.maxes[0] for _, _, each in rows), 0))
        brief = (
            f"up to {many(flight, 'request')} in flight, p95 {duration(late / 1e6)} in line "
            f"({entry.count:,} of {many(counts.sum(), 'call')} to {broker}{more} had to wait)"
        )
        sentence = f"{client(name, ip)} queues on one connection: {brief}."
        numbers = {"queued_calls": entry.count, "queued_us": queued, "broker_us": own, "p95_us": late}
        numbers["in_flight"] = flight
        waited = sum(each.count for _, _, each in rows)
        severe = late >= SEVERE * self.thresholds.queued_ms * 1000
        shown = evidence(*(each for _, _, each in rows))
        return Finding(
            self.code, WARNING if severe else NOTICE, client(name, ip), sentence, {**numbers,
            "brokers": len(rows)}, shown,
            command("slow", is_client(name, ip)), sum(each for each, _, _ in rows),
            share=context.of_calls(waited), brief=brief,
        )  # fmt: skip
