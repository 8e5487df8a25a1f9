"""Clients that ask the wrong broker, ask too often or for more than their quota lets them have, and producers
that send records one by one, uncompressed, or to one partition."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from kwsniff.analysis.errors import LEADER, ErrorTally, place, ranked
from kwsniff.analysis.rule import Context, Finding, Rule, both, command, literal
from kwsniff.analysis.tabular import columns
from kwsniff.count.codes import OTHERS, Keys
from kwsniff.count.eventrows import EventBatch, Picked
from kwsniff.count.keyed import Key
from kwsniff.count.tally import NONE, Counted, Entry, Tally
from kwsniff.count.tally import counted as tallied
from kwsniff.output.units import bytes_text, client, counted, digits, duration, listed, many, name, rate
from kwsniff.rows.columns import Ints

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
    needs = columns("error_code topics topic_ids partitions")
    missing = "no decoded responses"

    calls: Tally
    errors: ErrorTally

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += int(calls.is_in("api_key", (0, 1)).sum())
        which = calls.is_in("error_code", LEADER) & ~calls.coded("client_id").beginning(QUORUM)
        if which.any():
            keys: Keys = [calls.client, calls.broker]
            self.calls.add(calls, which, keys)
            self.errors.take(batch, which)

    def findings(self, context: Context) -> Iterable[Finding]:
        for (client_id, ip), entry in self.calls.by(0, 1).items():
            if entry.count < self.thresholds.stale_leader_errors:
                continue
            places = self.errors.places.of((4, 5), (client_id, ip))
            where = listed(ranked((place(k, context), e) for k, e in places.items()))
            brokers = listed(str(key[2]) for key in self.calls.of((0, 1), (client_id, ip)))
            quick = f", {rate(entry.count / entry.span_s)}" if entry.span_s else ""
            said = f"{many(entry.count, 'answer')} said so in {duration(entry.span_s)}{quick}"
            about = f"{client(client_id, ip)} asks {brokers}, which does not lead {where}"
            sentence = f"{about}: {said}. Its metadata is old."
            severe = entry.count >= MANY * self.thresholds.stale_leader_errors
            yield self.found(
                "critical" if severe else "warning", client(client_id, ip), sentence,
                {"answers": entry.count, "span_s": entry.span_s}, entry,
                command("errors", "error_code in (6, 9, 74, 75)"), share=context.of_calls(entry.count),
                brief=f"{said}, about {where}",
            )  # fmt: skip


class _Storm(Rule):
    """Counts the calls of some APIs by client."""

    missing = "no calls"
    apis: tuple[int, ...]
    why: str

    calls: Tally

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += len(calls)
        keys: Keys = [calls.client, calls.coded("api")]
        self.calls.add(calls, calls.is_in("api_key", self.apis), keys, [calls.ints("response_bytes")])

    def findings(self, context: Context) -> Iterable[Finding]:
        limits = self.thresholds
        for (client_id, ip, api), entry in self.calls.entries.items():
            often = entry.count >= limits.storm_calls and entry.count > limits.storm_per_s * entry.span_s
            if ip == OTHERS or not often:  # others: each of them may ask as often as it should
                continue
            quick = f", {rate(entry.count / entry.span_s)}" if entry.span_s else " at once"
            size = bytes_text(int(entry.sums[0]))
            brief = f"{many(entry.count, f'{api} request')}{quick}, {size} of answers"
            who = client(client_id, ip)
            where = both(f"api == {literal(api)}", f"client_id == {literal(client_id)}")
            yield self.found(
                "warning", who, f"{who} sent {brief}. {self.why}",
                {"calls": entry.count, "span_s": entry.span_s, "response_bytes": entry.sums[0]}, entry,
                command("clients", where), share=context.of_calls(entry.count), brief=brief,
            )  # fmt: skip


class MetadataStorm(_Storm):
    """A client asks for metadata (or for coordinators) far more often than every five minutes, as clients do
    of themselves: it makes a new client for each piece of work, polls the cluster as a monitor, waits for a
    topic that does not exist, or cannot reach the leaders it is told of. Answers that name all topics are
    large."""

    code = "metadata_storm"
    about = "Metadata storms"
    needs = columns("response_bytes")
    apis = (3, 10, 60, 75)
    """Metadata, FindCoordinator, DescribeCluster, DescribeTopicPartitions."""
    why = "Clients need it every five minutes and when a leader changes."
    several = f"{{count}} clients ask for metadata all the time, in {{calls:request}}. {why}"


class ApiVersionsStorm(_Storm):
    """A client sends ApiVersions again and again. It does so once for each connection, so it connects anew
    all the time: see `connection_churn`."""

    code = "api_versions_storm"
    about = "ApiVersions storms"
    needs = columns("response_bytes")
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
        "They exceed a quota."
    )
    needs = columns("throttle_ms throttled_us")
    missing = "no response with a throttle time"

    clients: Tally

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += int(calls.known("throttle_ms").sum())
        throttle = calls.ints("throttle_ms")
        keys: Keys = [calls.client, calls.coded("api")]
        held = calls.floats("throttled_us")
        self.clients.add(calls, (throttle > 0) | (held > 0), keys, [throttle, throttle > 0, held], [throttle])

    def findings(self, context: Context) -> Iterable[Finding]:
        for (client_id, ip), entry in self.clients.by(0, 1).items():
            total, answers, held = entry.sums
            if not answers:
                continue
            each_api = self.clients.of((0, 1), (client_id, ip)).items()
            apis = [(str(api), of_api.sums[1]) for (_, _, api), of_api in each_api if of_api.sums[1]]
            kept = f", and was held up for {duration(held / 1e6)}" if held else ""
            brief = (
                f"{many(answers, 'answer')} told it to wait, {duration(total / 1000)} in all, up to "
                f"{duration(entry.maxes[0] / 1000)} ({counted(apis)}){kept}"
            )
            sentence = f"{client(client_id, ip)} is throttled: {brief}. It exceeds a quota."
            numbers = {"answers": answers, "throttle_ms": total, "throttle_max_ms": entry.maxes[0]}
            where = f"throttle_ms > 0 and client_id == {literal(client_id)}"
            yield self.found(
                "warning" if total >= self.thresholds.throttled_ms else "notice", client(client_id, ip),
                sentence, numbers | ({"throttled_us": held} if held else {}), entry, command("slow", where),
                weight=total, share=context.of_calls(answers), brief=brief,
            )  # fmt: skip


# Producers that send records one by one, uncompressed, or to one partition.

PRODUCE = (0,)


class _Produced(Rule):
    """Sums the batches that clients send to topics."""

    needs = columns("partitions acks")
    missing = "no record data from producers"

    batches: Tally
    """By client id, address and topic: records, bytes, uncompressed batches and their bytes."""

    def take(self, batch: EventBatch) -> None:
        looked, found = batch.once("produced", _produced)
        self.looked += looked
        self.batches.put(*found)


def _rows_produced(batch: EventBatch) -> Ints:
    """The partitions that record data was produced to."""
    produce = batch.calls.is_in("api_key", PRODUCE)
    if not produce.any():
        return np.empty(0, np.int64)
    parts = batch.partitions
    return np.flatnonzero(produce[parts.row] & (parts.ints("bytes") > 0))


def _produced(batch: EventBatch) -> tuple[int, Counted]:
    """How many partitions were produced to, and what `_Produced.batches` adds of them."""
    rows = batch.once("produced rows", _rows_produced)
    if not len(rows):
        return 0, NONE
    calls, parts = batch.calls, batch.partitions
    of = parts.row[rows]
    size_of, plain = parts.ints("bytes")[rows], parts.coded("codec").equals("none")[rows]
    keys: Keys = [calls.client.at(of), parts.key.at(rows)]
    sums = [parts.ints("records")[rows], size_of, plain, np.where(plain, size_of, 0)]
    return len(rows), tallied(Picked(calls, of), None, keys, sums)


class TinyBatches(_Produced):
    """A producer sends many small batches: each costs a request, a header of 61 bytes or more, and work at
    the broker and at every consumer. Let records wait for each other (`linger.ms`, 5 in Java clients from
    4.0 on), do not flush after each one, and use one producer, not one for each thread or request."""

    code = "tiny_batches"
    about = "batch sizes"
    several = "{count} producers send tiny batches: {batches} of less than 1 kB on average."

    def findings(self, context: Context) -> Iterable[Finding]:
        found: dict[Key, Entry] = {}
        topics: dict[Key, list[str]] = {}
        for key, entry in self.batches.named(2, context.topic).items():
            if self._tiny(entry):
                topics.setdefault(key[:2], []).append(name(key[2]))
                if key[:2] in found:
                    found[key[:2]].absorb(entry)
                else:
                    found[key[:2]] = entry.copy()
        return [self._finding(key, entry, topics[key], context) for key, entry in found.items()]

    def _tiny(self, entry: Entry) -> bool:
        limits = self.thresholds
        return (
            entry.count >= limits.tiny_batches
            and entry.sums[1] < entry.count * limits.tiny_batch_bytes
            and entry.count > limits.tiny_batches_per_s * entry.span_s
        )

    def _finding(self, key: Key, entry: Entry, topics: list[str], context: Context) -> Finding:
        records, total = entry.sums[0] / entry.count, entry.sums[1] / entry.count
        quick = rate(entry.count / entry.span_s) if entry.span_s else "at once"
        brief = (
            f"{entry.count:,} of {digits(records)} {'record' if records == 1 else 'records'} and "
            f"{bytes_text(round(total))} on average, {quick}"
        )
        sentence = f"{client(*key)} sends tiny batches to {listed(topics)}: {brief}."
        numbers = {"batches": entry.count, "records_per_batch": records, "bytes_per_batch": total}
        return self.found(
            "notice", client(*key), sentence, numbers, entry,
            command("clients", f"client_id == {literal(key[0])}"), weight=entry.count,
            share=context.of_calls(entry.count), brief=f"{brief}, to {listed(topics)}",
        )  # fmt: skip


class Uncompressed(_Produced):
    """A producer sends much record data without compression, in batches large enough to shrink: texts such
    as JSON become three to ten times smaller with `compression.type=zstd` or `lz4`, on the network, on the
    brokers' disks and for consumers. What is compressed already (images, encrypted data) does not gain."""

    code = "uncompressed"
    about = "compression"
    several = (
        "{uncompressed_bytes} of record data are sent without compression, by clients to {count} topics."
    )

    def findings(self, context: Context) -> Iterable[Finding]:
        whole = sum(each.sums[1] for each in self.batches.entries.values())
        limits = self.thresholds
        for (client_id, ip, topic), entry in self.batches.named(2, context.topic).items():
            _, total, batches, plain = entry.sums
            least = max(limits.uncompressed_bytes, limits.uncompressed_batch_bytes * batches, total / 2)
            if plain < least:
                continue
            what, within = f"{bytes_text(int(plain))} to {name(topic)}", f"within {duration(entry.span_s)}"
            yield self.found(
                "notice", client(client_id, ip),
                f"{client(client_id, ip)} sends {what} without compression, {within}.",
                {"uncompressed_bytes": plain, "record_bytes": total}, entry,
                command("clients", f"client_id == {literal(client_id)}"), share=plain / max(whole, 1),
                brief=f"{what} {within}",
            )  # fmt: skip


class HotPartition(Rule):
    """One partition of a topic takes most of what is produced to it: its leader, its consumer and its disk
    do the work of all. Keys are skewed (one customer, a null key with an old partitioner, a constant), or
    producers name the partition themselves."""

    code = "hot_partition"
    about = "partition balance"
    several = "{count} partitions take most of what is produced to their topics: keys are skewed."
    needs = _Produced.needs
    missing = "no record data from producers"

    partitions: Tally
    """By topic and partition: bytes, records."""
    clients: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.once("produced rows", _rows_produced)
        self.looked += len(rows)
        if not len(rows):
            return
        parts, of = batch.partitions, batch.partitions.row[rows]
        sums = [parts.ints("bytes")[rows], parts.ints("records")[rows]]
        picked, place = Picked(batch.calls, of), parts.place.at(rows)
        self.partitions.add(picked, None, [place], sums)
        self.clients.add(picked, None, [place, batch.calls.client.at(of)], sums)

    def findings(self, context: Context) -> Iterable[Finding]:
        topics: dict[Any, dict[int, Entry]] = defaultdict(dict)
        for (topic, partition), entry in self.partitions.named(0, context.topic).items():
            topics[topic][partition] = entry
        for topic, entries in topics.items():
            hot = max(entries, key=lambda number: entries[number].sums[0])
            if self._hot(entries, hot):
                yield self._finding(topic, hot, entries, context)

    def _hot(self, entries: dict[int, Entry], hot: int) -> bool:
        total = sum(entry.sums[0] for entry in entries.values())
        count = max(len(entries), max(entries) + 1)
        share = entries[hot].sums[0] / total
        limits = self.thresholds
        return (
            len(entries) > 2
            and total >= limits.hot_bytes
            and share >= limits.hot_share
            and share * count >= limits.hot_times_fair
        )

    def _finding(self, topic: Any, hot: int, entries: dict[int, Entry], context: Context) -> Finding:
        total = sum(entry.sums[0] for entry in entries.values())
        entry = entries[hot]
        clients = self.clients.named(0, context.topic)
        who = listed(client(key[2], key[3]) for key in clients if key[:2] == (topic, hot))
        spot = f"{name(topic)}[{hot}]"
        share = entry.sums[0] / total
        brief = (
            f"{100 * share:.0f} % of what is produced to its topic: {bytes_text(int(entry.sums[0]))} of "
            f"{bytes_text(int(total))} to {len(entries):,} partitions (from {who})"
        )
        whole = sum(each.sums[0] for each in self.partitions.entries.values())
        return self.found(
            "notice", spot, f"{spot} takes {brief}. Its keys are skewed.",
            {"share_ratio": share, "bytes": entry.sums[0], "topic_bytes": total, "partitions": len(entries)},
            entry, command("clients", f"{literal(topic)} in topics"), weight=total,
            share=entry.sums[0] / max(whole, 1), brief=brief,
        )  # fmt: skip
