"""Clients that ask brokers for the same thing all the time."""

from __future__ import annotations

from typing import Any

from kwsniff.analysis.finding import WARNING, Finding, command, evidence, literal
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.codes import OTHERS
from kwsniff.count.eventrows import EventBatch, Keys
from kwsniff.count.tally import Entry, Key, Tally
from kwsniff.output.units import bytes_text, client, many, rate


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
