"""The calls and the clients that took longest, and where the time went.

The time of a call is divided as EVENTS divides it: the request on its way, behind other requests of the
connection, held back by a quota, waiting on purpose, in the broker, the response on its way. Where a column
is empty, its part is not known; then the time between request and response (`latency`) is all there is.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.rule import Context, Finding, Rule, both, command, evidence, is_client, literal
from kwsniff.analysis.tabular import (
    AnswerField,
    AnswerTable,
    Row,
    Sample,
    calls_of,
    columns,
    grouped,
    merged,
    topics_of,
)
from kwsniff.count.codes import Keys
from kwsniff.count.eventrows import BROKER_LEAST, PARTS, WAITED, EventBatch, EventRows, address, waited
from kwsniff.count.keyed import Key
from kwsniff.count.percentiles import Histogram, quantile
from kwsniff.count.tally import Entry, Tally, nowhere
from kwsniff.output.units import client, duration, listed, many
from kwsniff.rows.columns import Floats, Mask

GROUP = ("client_id", "client_ip", "api", "broker_ip", "broker_port")
TIMES = (*PARTS, BROKER_LEAST)
DURATIONS = ("duration_us", *TIMES)
MAYBE = "broker or waiting"
"""What `broker_us` of a Fetch is, but for `broker_least_us`."""
WHERE = {
    "request_transfer_us": "request on its way",
    "queued_us": "behind other requests",
    "throttled_us": "held back by a quota",
    "waited_us": "waited on purpose",
    BROKER_LEAST: "broker",
    "response_transfer_us": "response on its way",
}
SHOWN = (
    *("time", "capture", "connection", "client_ip", "client_id", "broker_ip", "broker_port", "api", "topics"),
    *("topic_ids", "api_version", "correlation_id", "latency_us", "duration_us", "status", "error"),
    *("request_packet", "response_packet", "group_id", "request_bytes", "response_bytes"),
)
NEEDS = frozenset((*SHOWN, *TIMES, *WAITED, "event", "throttle_ms"))
KEPT = 1000
"""Calls kept, at the most, when all are asked for."""
MAX_GROUPS = 100_000
MAX_SAMPLES = 2_000
"""Times kept of each client and API: with more, percentiles are of a sample."""


class Slowest:
    """The calls that took longest, at most `kept` of them, with the columns SHOWN, TIMES and `more`."""

    def __init__(self, kept: int = KEPT, more: Sequence[str] = ()) -> None:
        self._kept = kept
        self._names = list(dict.fromkeys((*SHOWN, *TIMES, *more)))
        self.heap: list[tuple[float, int, Row]] = []
        self._order = 0

    def take(self, calls: EventRows, left_out: Mask | None = None) -> None:
        """Take calls of EVENTS but for those without `duration_us` and those of `left_out`."""
        durations = np.nan_to_num(calls.floats("duration_us"), nan=-1.0)
        if left_out is not None:
            durations = np.where(left_out, -1.0, durations)
        least = self.heap[0][0] if len(self.heap) == self._kept else -1.0
        candidates = np.flatnonzero(durations > least)
        if len(candidates) > self._kept:
            candidates = np.sort(candidates[np.argsort(-durations[candidates], kind="stable")[: self._kept]])
        for row in calls.some(candidates, self._names).to_pylist():
            self._put(row)

    def merge(self, other: Slowest) -> None:
        """Take what another one kept, of calls that come after those of this one."""
        for _, _, row in sorted(other.heap, key=lambda item: -item[1]):
            self._put(row)

    def _put(self, row: Row) -> None:
        self._order -= 1
        item = (row["duration_us"], self._order, row)
        if len(self.heap) < self._kept:
            heapq.heappush(self.heap, item)
        else:
            heapq.heappushpop(self.heap, item)

    def rows(self) -> list[Row]:
        """As EVENTS has them, the slowest first."""
        return [row for _, _, row in sorted(self.heap, key=lambda item: (-item[0], -item[1]))]

    def table(self) -> AnswerTable:
        """The same as people see them."""
        return AnswerTable("calls", "Slowest calls", CALLS, [_call_row(row) for row in self.rows()], top=15)


class Slow:
    """Takes EVENTS and gives the slowest calls and clients. `waiting`: also calls that waited on purpose."""

    def __init__(self, *, waiting: bool = False) -> None:
        self.needs = NEEDS
        self._waiting = waiting
        self._slowest = Slowest()
        self._sums: dict[tuple[Any, ...], dict[str, float]] = {}
        """The sums of DURATIONS, as far as they are known, by GROUP; and the greatest duration."""
        self._durations: dict[tuple[Any, ...], Sample] = {}
        self._calls = self._waited = self._parted = 0
        self._random = np.random.default_rng(7)

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        calls = calls.filter(pc.is_valid(calls["duration_us"]))
        self._calls += len(calls)
        if not self._waiting:
            on_purpose = waited(calls)
            self._waited += int(on_purpose.sum())
            calls = calls.filter(pa.array(~on_purpose))
        if len(calls):
            self._parted += len(calls) - calls["broker_us"].null_count
            self._slowest.take(EventRows(calls))
            self._take_groups(calls)

    def _take_groups(self, calls: pa.RecordBatch) -> None:
        sums = [("duration_us", "list"), ("duration_us", "max"), *((name, "sum") for name in DURATIONS)]
        for row in grouped(calls, GROUP, sums):
            key = tuple(row[name] for name in GROUP)
            if key not in self._sums and len(self._sums) >= MAX_GROUPS:
                continue
            group = self._sums.setdefault(key, {"max_us": 0.0})
            group["max_us"] = max(group["max_us"], row["duration_us_max"])
            for name in DURATIONS:
                if row[f"{name}_sum"] is not None:
                    group[name] = group.get(name, 0.0) + row[f"{name}_sum"]
            if key not in self._durations:
                self._durations[key] = Sample(MAX_SAMPLES, self._random)
            self._durations[key].add(row["duration_us_list"])

    def tables(self) -> list[AnswerTable]:
        """The slowest calls, and clients by the time their calls took in all."""
        clients = [_client_row(key, sums, self._durations[key]) for key, sums in self._sums.items()]
        clients.sort(key=lambda row: -row["total_us"])
        return [
            self._slowest.table(),
            AnswerTable("clients", "Clients by time", CLIENTS, clients, top=10),
        ]

    def notes(self) -> list[str]:
        """What was left out, and what could not be told."""
        found = []
        if self._waited:
            found.append(
                f"{self._waited:,} of {self._calls:,} calls waited on purpose and are left out: --waiting"
            )
        if self._calls - self._waited and not self._parted:
            found.append("these events say how long a call took, not where its time went")
        return found


def _call_row(row: Row) -> Row:
    return {
        **row, "client": row["client_id"], "address": row["client_ip"], "topics": merged(topics_of(row)),
        "broker": address(row["broker_ip"], row["broker_port"]), "mostly": _mostly(row),
        "call": f"{row['connection']}#{row['correlation_id']}", "group": row["group_id"],
        "packet": row["request_packet"],
    }  # fmt: skip


def _mostly(sums: Row) -> str | None:
    """Where most of the time went, with its share."""
    known = {where: sums[part] for part, where in WHERE.items() if sums.get(part) is not None}
    if not known or not sums["duration_us"]:
        return None
    known[MAYBE] = (sums["broker_us"] or 0.0) - (sums[BROKER_LEAST] or 0.0)
    where = max(known, key=known.__getitem__)
    return f"{where} {100 * known[where] / sums['duration_us']:.0f}%"


def _client_row(key: tuple[Any, ...], sums: Row, durations: Sample) -> Row:
    client, ip, api, host, port = key
    return {
        "client": client, "address": ip, "api": api, "broker": address(host, port), "calls": durations.count,
        "total_us": sums["duration_us"], "p50_us": float(np.percentile(durations.kept, 50)),
        # Below a hundred calls the greatest says as much.
        "p99_us": float(np.percentile(durations.kept, 99)) if durations.count >= 100 else None,
        "max_us": sums["max_us"], "mostly": _mostly(sums),
        **{part: sums[part] / durations.count for part in TIMES if part in sums},
    }  # fmt: skip


CLIENT = AnswerField("client", "text", "client", "client id")
ADDRESS = AnswerField("address", "text", "address", "its address", 6)
MOSTLY = AnswerField("mostly", "text", "mostly", "where most of the time went", 1)
DIVIDED = (
    AnswerField("request_transfer_us", "duration", "request", "the request on its way", 8),
    AnswerField("queued_us", "duration", "queued", "behind earlier requests of the connection", 4),
    AnswerField("throttled_us", "duration", "throttled", "held back by a quota", 4),
    AnswerField("waited_us", "duration", "waited", "on purpose", 7),
    AnswerField("broker_us", "duration", "broker", "the broker's own time, at the most", 3),
    AnswerField(BROKER_LEAST, "duration", "at least", "of that what cannot have been waiting for data", 9),
    AnswerField("response_transfer_us", "duration", "response", "the response on its way", 8),
)
CALLS = (
    AnswerField("time", "time", "time", "packet time of its first byte"),
    AnswerField("api", "text", "API", "name of the API"),
    CLIENT,
    ADDRESS,
    AnswerField("broker", "text", "broker", "address and port of the broker", 2),
    AnswerField("topics", "list", "topics", "topics it names", 3),
    AnswerField(
        "duration_us", "duration", "took", "from the first byte of the request to the last of the response"
    ),
    AnswerField(
        "latency_us", "duration", "latency", "from the end of the request to the beginning of the response", 5
    ),
    MOSTLY,
    *DIVIDED,
    AnswerField("error", "text", "error", "name of its error code", 9),
    AnswerField("call", "text", "call", "connection and correlation id, for `kwsniff show`", 10),
    AnswerField("packet", "count", "packet", "packet that completed the request", 5),
)
CLIENTS = (
    CLIENT,
    ADDRESS,
    AnswerField("api", "text", "API", "name of the API"),
    AnswerField("broker", "text", "broker", "address and port of the broker", 2),
    AnswerField("calls", "count", "calls", "answered calls"),
    AnswerField("total_us", "duration", "in all", "time its calls took together"),
    AnswerField("p50_us", "duration", "p50", "half of the calls took no longer"),
    AnswerField("p99_us", "duration", "p99", "99 of a hundred took no longer; from a hundred calls on", 1),
    AnswerField("max_us", "duration", "max", "the longest"),
    MOSTLY,
    *DIVIDED,
)


# Brokers that are slow to answer, and queues that make answers late although the broker is quick.
#
# A broker handles one request of a connection at a time. `broker_least_us` is what it took for a call
# itself, as far as that is certain, `queued_us` how long the call waited behind earlier ones. Where a source
# does not tell them apart, calls that were sent with nothing outstanding and do not wait on purpose are
# measured by their latency; then nothing is known of queues.

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
    needs = columns("broker_least_us latency_us in_flight client_retransmissions client_packets")
    missing = "no calls to measure"

    times: Histogram
    slow: Tally
    sent: Tally
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

    def findings(self, context: Context) -> Iterable[Finding]:
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
        return self.found(
            "warning" if severe else "notice", str(broker), sentence, numbers,
            evidence(*shown) if shown else (nowhere(),),
            command("slow", where if others else both(where, f"api == {literal(api)}")), weight=weight,
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
    needs = columns("queued_us broker_us in_flight")
    missing = "no times in queues"

    times: Histogram
    clients: Tally

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

    def findings(self, context: Context) -> Iterable[Finding]:
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
        return self.found(
            "warning" if severe else "notice", client(name, ip), sentence, {**numbers, "brokers": len(rows)},
            shown, command("slow", is_client(name, ip)), weight=sum(each for each, _, _ in rows),
            share=context.of_calls(waited), brief=brief,
        )  # fmt: skip
