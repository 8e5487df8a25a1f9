"""Clients that ask the wrong broker, ask too often, or ask for more than their quota lets them have."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kwsniff.analysis.failures import LEADER, ErrorTally, place, ranked
from kwsniff.analysis.rule import (
    CRITICAL,
    NOTICE,
    WARNING,
    Context,
    Finding,
    Rule,
    command,
    evidence,
    literal,
)
from kwsniff.count.codes import OTHERS, Keys
from kwsniff.count.eventrows import EventBatch
from kwsniff.count.keyed import Key
from kwsniff.count.tally import Entry, Tally
from kwsniff.output.units import bytes_text, client, counted, duration, listed, many, rate

QUORUM = ("raft-client-",)
"""How client ids of KRaft nodes begin: they find their leader by asking."""
MANY = 10
"""Times `stale_leader_errors` from which on it is critical."""


class StaleLeader(Rule):
    """A client went on asking a broker that does not lead the partition (NOT_LEADER_OR_FOLLOWER and errors
    of leader epochs). After a change of leader each client gets a few of these and then asks for metadata;
    many mean that it does not, that the brokers' own metadata is old, or that leaders change all the time."""

    code = "stale_leader"
    about = "leaders"
    several = "{count} clients ask brokers that do not lead: {answers:answer} said so. Their metadata is old."
    needs = frozenset(("error_code", "topics", "topic_ids", "partitions"))
    missing = "no decoded responses"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls = Tally()
        self.errors = ErrorTally()

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += int(calls.is_in("api_key", (0, 1)).sum())
        which = calls.is_in("error_code", LEADER) & ~calls.coded("client_id").beginning(QUORUM)
        if which.any():
            keys: Keys = [calls.client, calls.broker]
            self.calls.add(calls, which, keys)
            self.errors.take(batch, which)

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for (name, ip), entry in self.calls.by(0, 1).items():
            if entry.count < self.thresholds.stale_leader_errors:
                continue
            places = self.errors.places.of((4, 5), (name, ip))
            where = listed(ranked((place(k, context), e) for k, e in places.items()))
            brokers = listed(str(key[2]) for key in self.calls.of((0, 1), (name, ip)))
            quick = f", {rate(entry.count / entry.span_s)}" if entry.span_s else ""
            said = f"{many(entry.count, 'answer')} said so in {duration(entry.span_s)}{quick}"
            about = f"{client(name, ip)} asks {brokers}, which does not lead {where}"
            sentence = f"{about}: {said}. Its metadata is old."
            severe = entry.count >= MANY * self.thresholds.stale_leader_errors
            found.append(
                Finding(
                    self.code, CRITICAL if severe else WARNING, client(name, ip), sentence,
                    {"answers": entry.count, "span_s": entry.span_s}, evidence(entry),
                    command("errors", "error_code in (6, 9, 74, 75)"), entry.count,
                    share=context.of_calls(entry.count), brief=f"{said}, about {where}",
                )
            )  # fmt: skip
        return found


class _Storm(Rule):
    """Counts the calls of some APIs by client."""

    missing = "no calls"
    apis: tuple[int, ...]
    why: str

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls = Tally()

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += len(calls)
        keys: Keys = [calls.client, calls.coded("api")]
        self.calls.add(calls, calls.is_in("api_key", self.apis), keys, [calls.ints("response_bytes")])

    def findings(self, context: Context) -> list[Finding]:
        limits = self.thresholds
        return [
            self._finding(key, entry, context)
            for key, entry in self.calls.entries.items()
            if key[1] != OTHERS  # many clients, each of which asks as often as it should
            and entry.count >= limits.storm_calls
            and entry.count > limits.storm_per_s * entry.span_s
        ]

    def _finding(self, key: Key, entry: Entry, context: Context) -> Finding:
        quick = f", {rate(entry.count / entry.span_s)}" if entry.span_s else " at once"
        size = bytes_text(int(entry.sums[0]))
        brief = f"{many(entry.count, f'{key[2]} request')}{quick}, {size} of answers"
        sentence = f"{client(key[0], key[1])} sent {brief}. {self.why}"
        numbers = {"calls": entry.count, "span_s": entry.span_s, "response_bytes": entry.sums[0]}
        where = f"api == {literal(key[2])} and client_id == {literal(key[0])}"
        return Finding(
            self.code, WARNING, client(key[0], key[1]), sentence, numbers, evidence(entry),
            command("clients", where), entry.count, share=context.of_calls(entry.count), brief=brief,
        )  # fmt: skip


class MetadataStorm(_Storm):
    """A client asks for metadata (or for coordinators) far more often than every five minutes, as clients do
    of themselves: it makes a new client for each piece of work, polls the cluster as a monitor, waits for a
    topic that does not exist, or cannot reach the leaders it is told of. Answers that name all topics are
    large."""

    code = "metadata_storm"
    about = "Metadata storms"
    needs = frozenset(("response_bytes",))
    apis = (3, 10, 60, 75)
    """Metadata, FindCoordinator, DescribeCluster, DescribeTopicPartitions."""
    why = "Clients need it every five minutes and when a leader changes."
    several = f"{{count}} clients ask for metadata all the time, in {{calls:request}}. {why}"


class ApiVersionsStorm(_Storm):
    """A client sends ApiVersions again and again. It does so once for each connection, so it connects anew
    all the time: see `connection_churn`."""

    code = "api_versions_storm"
    about = "ApiVersions storms"
    needs = frozenset(("response_bytes",))
    apis = (18,)
    why = "There is one for each connection: it connects anew all the time."
    several = "{count} clients sent {calls:ApiVersions request}: they connect anew all the time."


class Throttled(Rule):
    """A broker told a client that it exceeds a quota (`throttle_time_ms` in responses). From Kafka 2.0 on it
    answers at once and then reads nothing more from that connection for so long (KIP-219), so the time shows
    in the *next* call. Raise the quota, or make the client do less: larger batches, fewer requests."""

    code = "throttled"
    about = "throttling"
    several = (
        "{count} clients are throttled: {answers:answer} told them to wait, up to {max_throttle_max_ms}. "
        "They "
        "exceed a quota."
    )
    needs = frozenset(("throttle_ms", "throttled_us"))
    missing = "no response with a throttle time"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.clients = Tally()

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += int(calls.known("throttle_ms").sum())
        throttle = calls.ints("throttle_ms")
        keys: Keys = [calls.client, calls.coded("api")]
        held = calls.floats("throttled_us")
        self.clients.add(calls, (throttle > 0) | (held > 0), keys, [throttle, throttle > 0, held], [throttle])

    def findings(self, context: Context) -> list[Finding]:
        found = []
        told = self._answers_by_api()
        for (name, ip), entry in self.clients.by(0, 1).items():
            total, answers, held = entry.sums
            if not answers:
                continue
            apis = told[name, ip]
            kept = f", and was held up for {duration(held / 1e6)}" if held else ""
            brief = (
                f"{many(answers, 'answer')} told it to wait, {duration(total / 1000)} in all, up to "
                f"{duration(entry.maxes[0] / 1000)} ({counted(apis)}){kept}"
            )
            sentence = f"{client(name, ip)} is throttled: {brief}. It exceeds a quota."
            numbers = {"answers": answers, "throttle_ms": total, "throttle_max_ms": entry.maxes[0]}
            severity = WARNING if total >= self.thresholds.throttled_ms else NOTICE
            where = f"throttle_ms > 0 and client_id == {literal(name)}"
            found.append(
                Finding(
                    self.code, severity, client(name, ip), sentence,
                    numbers | ({"throttled_us": held} if held else {}), evidence(entry),
                    command("slow", where), total, share=context.of_calls(answers), brief=brief,
                )
            )  # fmt: skip
        return found

    def _answers_by_api(self) -> dict[Key, list[tuple[str, float]]]:
        """The answers that told each client to wait, by API."""
        told: dict[Key, list[tuple[str, float]]] = defaultdict(list)
        for (name, ip, api), entry in self.clients.entries.items():
            if entry.sums[1]:
                told[name, ip].append((str(api), entry.sums[1]))
        return told
