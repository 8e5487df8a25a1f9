"""Brokers that are slow to answer, and queues that make answers late although the broker is quick.

A broker handles one request of a connection at a time. `broker_least_us` is what it took for a call
itself, as far as that is certain, `queued_us` how long the call waited behind earlier ones. Where a source
does not tell them apart, calls that were sent with nothing outstanding, and that do not wait on purpose, are
measured by their latency; then nothing is known of queues.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from kwsniff.analysis.rule import (
    CRITICAL,
    NOTICE,
    WARNING,
    Context,
    Finding,
    Rule,
    both,
    command,
    evidence,
    is_client,
    literal,
)
from kwsniff.count.codes import Keys
from kwsniff.count.eventrows import BROKER_LEAST, EventBatch, EventRows
from kwsniff.count.keyed import Key
from kwsniff.count.percentiles import Histogram, quantile
from kwsniff.count.tally import Entry, Tally, nowhere
from kwsniff.output.units import client, closer, counted, duration, listed, many, percent
from kwsniff.rows.columns import Floats, Mask

WAITING = (1, 11, 14, 78)
"""Fetch, JoinGroup, SyncGroup, ShareFetch: their latency is not the broker's."""
DELAYED = (58,)
"""SASL_AUTHENTICATION_FAILED: brokers hold that answer back on purpose."""
SLOW_PART = 0.95
SEVERE = 50
"""Times the threshold from which on it is a warning."""


def _own_time(calls: EventRows) -> Floats:
    refused = calls.is_in("error_code", DELAYED)
    if calls.has(BROKER_LEAST):
        return np.where(refused, np.nan, calls.floats(BROKER_LEAST))
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
    needs = frozenset((BROKER_LEAST, "latency_us", "in_flight", "client_retransmissions", "client_packets"))
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


# Requests that nobody answered, and who ended their connection.

PRODUCE = 0
LONG_POLLS = (1, 11, 14, 78)
"""Fetch, JoinGroup, SyncGroup, ShareFetch: a client that leaves drops those it has open."""
ENDED = ("connection_reset", "connection_closed", "timeout")
HOW = {
    "connection_reset": "the connection was reset",
    "connection_closed": "the connection was closed",
    "timeout": "they are still open",
    "capture_ended": "they were still open when the capture ended",
}
AT_STAKE = "Their records may be lost or written twice."


class Unanswered(Rule):
    """Requests got no answer although the capture shows the whole connection: the broker died, dropped the
    connection, or the client gave up first (`request.timeout.ms`). Not counted are requests that a client
    dropped by leaving right after them, long polls (Fetch, JoinGroup) that it dropped by leaving, requests
    that the end of the capture cut off early, and answers that the capture lost or, where it lost packets of
    as many connections of the broker, may have lost. Whoever sent a Produce does not know whether its
    records were written: if it tries again they may be there twice, if it does not they may be lost. It is
    critical from a share of all requests that expect an answer on."""

    code = "unanswered"
    about = "unanswered requests"
    several = "{calls:request} got no answer after up to {max_waited_us}, {{share}} of those that expect one."
    needs = frozenset(
        (
            *("status", "unanswered_because", "closed_by", "waited_open_us", "max_wait_ms", "acks"),
            *("client_missing_bytes", "broker_missing_bytes"),
        )
    )
    missing = "no calls"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls = Tally()
        self.answered = Tally()
        """Calls that were answered, by client id and address."""
        self.lossy = Tally()
        """Connections of which the capture lacks bytes, by broker."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        status = calls.coded("status")
        self.looked += int((~status.equals("no_reply_expected") & ~status.equals("orphan")).sum())
        self.answered.add(calls, calls.known("latency_us"), [calls.client])
        rows = batch.connections
        lost = (rows.ints("client_missing_bytes") > 0) | (rows.ints("broker_missing_bytes") > 0)
        self.lossy.add(rows, lost, [rows.broker])
        which = status.equals("unanswered")
        if which.any():
            names = ("unanswered_because", "closed_by", "api", "client_id", "client_ip")
            keys = [calls.broker, *(calls.coded(name) for name in names)]
            waited = calls.floats("waited_open_us")
            self.calls.add(calls, which & self._counts(calls), keys, [waited], [waited])

    def _counts(self, calls: EventRows) -> Mask:
        because = calls.coded("unanswered_because")
        waited = np.nan_to_num(calls.floats("waited_open_us"), nan=-1.0)
        asked = calls.ints("max_wait_ms") * 1000.0
        # A Produce of which the capture lacks the acks may be one that wants no reply.
        wanted = ~calls.is_in("api_key", (PRODUCE,)) | calls.known("acks")
        overdue = waited > asked + self.thresholds.long_poll_margin_ms * 1000
        by_client = calls.coded("closed_by").beginning(("client",))
        soon = (waited >= 0) & (waited < self.thresholds.long_poll_margin_ms * 1000)
        ended = ~(by_client & soon) & np.logical_or.reduce([because.equals(reason) for reason in ENDED])
        long_open = waited > asked + self.thresholds.unanswered_wait_ms * 1000
        mask: Mask = (ended & (overdue | ~calls.is_in("api_key", LONG_POLLS))) | (
            because.equals("capture_ended") & long_open
        )
        return mask & wanted

    def findings(self, context: Context) -> list[Finding]:
        sure = {key: entry for key, entry in self.calls.by(0, 1, 2).items() if self._is_sure(key, entry)}
        limits, total = self.thresholds, sum(entry.count for entry in sure.values())
        severe = total >= limits.unanswered_many and total >= limits.unanswered_share * self.looked
        return [self._finding(key, entry, severe) for key, entry in sure.items()]

    @classmethod
    def headline(cls, found: Sequence[Finding]) -> str:
        share = percent(sum(each.share for each in found))
        said = super().headline(found).replace("{share}", share)
        return f"{said} {AT_STAKE}" if any(each.numbers["produce_calls"] for each in found) else said

    def _is_sure(self, key: Key, entry: Entry) -> bool:
        """Whether there are more than the capture may have lost, and more than a few of clients that were
        never answered at all: what looks like a request after a gap may be none."""
        lost = self.lossy.entries.get((key[0],))
        if lost is not None and lost.count >= entry.count:
            return False
        clients = {whole[4:6] for whole in self.calls.entries if whole[:3] == key}
        return entry.count >= self.thresholds.unanswered or any(
            each in self.answered.entries for each in clients
        )

    def _finding(self, key: Key, entry: Entry, severe: bool) -> Finding:
        broker, because, closed_by = key
        mine = {whole: each for whole, each in self.calls.entries.items() if whole[:3] == key}
        apis = _summed([(str(whole[3]), each.count) for whole, each in mine.items()])
        clients = list(dict.fromkeys(client(whole[4], whole[5]) for whole in mine))
        who = clients[0] if len(clients) == 1 else f"{len(clients):,} clients ({listed(clients)})"
        only = f"{apis[0][0]} request" if len(apis) == 1 else "request"
        what = many(entry.count, only) + (f" ({counted(apis)})" if len(apis) > 1 else "")
        after = f" after up to {duration(entry.maxes[0] / 1e6)}" if entry.maxes[0] > 0 else ""
        share = entry.count / max(self.looked, 1)
        of_all = f", {percent(share)} of those that expect an answer"
        if str(closed_by or "").startswith("client"):
            sentence = f"{who} gave up on {what} to {broker}{after}{of_all}."
            brief = f"{who} gave up on {what}{after}"
        else:
            how = f"{closer(str(closed_by))} ended the connection" if closed_by else HOW.get(because, because)
            sentence = f"{broker} did not answer {what} of {who}: {how}{after}{of_all}."
            brief = f"{what} of {who}: {how}{after}"
        produce = dict(apis).get("Produce", 0)
        enough = entry.count >= self.thresholds.unanswered
        waited = max(entry.maxes[0], 0)
        return Finding(
            self.code, CRITICAL if severe else WARNING if enough else NOTICE, str(broker),
            f"{sentence} {AT_STAKE}" if produce else sentence,
            {"calls": entry.count, "waited_us": waited, "produce_calls": produce},
            evidence(entry), command("decode", f"unanswered_because == {literal(because)}"), entry.count,
            share=share, brief=brief,
        )  # fmt: skip


def _summed(pairs: list[tuple[str, int]]) -> list[tuple[str, float]]:
    found: dict[str, float] = {}
    for name, count in pairs:
        found[name] = found.get(name, 0) + count
    return list(found.items())
