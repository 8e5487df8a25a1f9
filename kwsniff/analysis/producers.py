"""Producers that send records one by one, or uncompressed."""

from __future__ import annotations

from typing import Any

import numpy as np

from kwsniff.analysis.rule import NOTICE, Context, Finding, Rule, command, evidence, literal
from kwsniff.count.codes import Keys
from kwsniff.count.eventrows import EventBatch, Picked
from kwsniff.count.keyed import Key
from kwsniff.count.tally import NONE, Counted, Entry, Tally, counted
from kwsniff.output.units import bytes_text, client, digits, duration, listed, name, rate

PRODUCE = (0,)
NEEDED = frozenset(("partitions", "acks"))


class _Produced(Rule):
    """Sums the batches that clients send to topics."""

    needs = NEEDED
    missing = "no record data from producers"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.batches = Tally()
        """By client id, address and topic: records, bytes, uncompressed batches and their bytes."""

    def take(self, batch: EventBatch) -> None:
        looked, found = batch.once("produced", _produced)
        self.looked += looked
        self.batches.put(*found)


def _produced(batch: EventBatch) -> tuple[int, Counted]:
    """How many partitions were produced to, and what `_Produced.batches` adds of them."""
    calls = batch.calls
    produce = calls.is_in("api_key", PRODUCE)
    if not produce.any():
        return 0, NONE
    parts = batch.partitions
    rows = np.flatnonzero(produce[parts.row] & (parts.ints("bytes") > 0))
    if not len(rows):
        return 0, NONE
    of = parts.row[rows]
    size_of, plain = parts.ints("bytes")[rows], parts.coded("codec").equals("none")[rows]
    keys: Keys = [calls.client.at(of), parts.key.at(rows)]
    sums = [parts.ints("records")[rows], size_of, plain, np.where(plain, size_of, 0)]
    return len(rows), counted(Picked(calls, of), None, keys, sums)


class TinyBatches(_Produced):
    """A producer sends many small batches: each costs a request, a header of 61 bytes or more, and work at
    the broker and at every consumer. Let records wait for each other (`linger.ms`, 5 in Java clients from
    4.0 on), do not flush after each one, and use one producer, not one for each thread or request."""

    code = "tiny_batches"
    about = "batch sizes"
    several = "{count} producers send tiny batches: {batches} of less than 1 kB on average."

    def findings(self, context: Context) -> list[Finding]:
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
        return Finding(
            self.code, NOTICE, client(*key), sentence, numbers, evidence(entry),
            command("clients", f"client_id == {literal(key[0])}"), entry.count,
            share=context.of_calls(entry.count),
            brief=f"{brief}, to {listed(topics)}",
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

    def findings(self, context: Context) -> list[Finding]:
        return [
            self._finding(key, entry)
            for key, entry in self.batches.named(2, context.topic).items()
            if entry.sums[3] >= self.thresholds.uncompressed_bytes
            and entry.sums[3] >= self.thresholds.uncompressed_batch_bytes * entry.sums[2]
            and 2 * entry.sums[3] >= entry.sums[1]
        ]

    def _finding(self, key: Key, entry: Entry) -> Finding:
        what = f"{bytes_text(int(entry.sums[3]))} to {name(key[2])}"
        within = f"within {duration(entry.span_s)}"
        sentence = f"{client(key[0], key[1])} sends {what} without compression, {within}."
        whole = sum(each.sums[1] for each in self.batches.entries.values())
        numbers = {"uncompressed_bytes": entry.sums[3], "record_bytes": entry.sums[1]}
        return Finding(
            self.code, NOTICE, client(key[0], key[1]), sentence, numbers, evidence(entry),
            command("clients", f"client_id == {literal(key[0])}"), entry.sums[3],
            share=entry.sums[3] / max(whole, 1), brief=f"{what} {within}",
        )  # fmt: skip


class HotPartition(Rule):
    """One partition of a topic takes most of what is produced to it: its leader, its consumer and its disk
    do the work of all. Keys are skewed (one customer, a null key with an old partitioner, a constant), or
    producers name the partition themselves."""

    code = "hot_partition"
    about = "partition balance"
    several = "{count} partitions take most of what is produced to their topics: keys are skewed."
    needs = NEEDED
    missing = "no record data from producers"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.partitions = Tally()
        """By topic and partition: bytes, records."""
        self.clients = Tally()

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        produce = calls.is_in("api_key", PRODUCE)
        if not produce.any():
            return
        parts = batch.partitions
        rows = np.flatnonzero(produce[parts.row] & (parts.ints("bytes") > 0))
        self.looked += len(rows)
        if not len(rows):
            return
        of = parts.row[rows]
        place = parts.place.at(rows)
        sums = [parts.ints("bytes")[rows], parts.ints("records")[rows]]
        picked = Picked(calls, of)
        self.partitions.add(picked, None, [place], sums)
        self.clients.add(picked, None, [place, calls.client.at(of)], sums)

    def findings(self, context: Context) -> list[Finding]:
        topics: dict[Any, dict[int, Entry]] = {}
        for (topic, partition), entry in self.partitions.named(0, context.topic).items():
            topics.setdefault(topic, {})[partition] = entry
        return [
            self._finding(topic, hot, entries, context)
            for topic, entries in topics.items()
            for hot in [max(entries, key=lambda number: entries[number].sums[0])]
            if self._hot(entries, hot)
        ]

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
        place = f"{name(topic)}[{hot}]"
        share = entry.sums[0] / total
        brief = (
            f"{100 * share:.0f} % of what is produced to its topic: {bytes_text(int(entry.sums[0]))} of "
            f"{bytes_text(int(total))} to {len(entries):,} partitions (from {who})"
        )
        sentence = f"{place} takes {brief}. Its keys are skewed."
        whole = sum(each.sums[0] for each in self.partitions.entries.values())
        numbers = {
            "share_ratio": share,
            "bytes": entry.sums[0],
            "topic_bytes": total,
            "partitions": len(entries),
        }
        where = f"{literal(topic)} in topics"
        return Finding(
            self.code, NOTICE, place, sentence, numbers, evidence(entry), command("clients", where), total,
            share=entry.sums[0] / max(whole, 1), brief=brief,
        )  # fmt: skip
