"""Clients that brokers hold back because of quotas."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from kwsniff.analysis.finding import NOTICE, WARNING, Finding, command, evidence, literal
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.eventrows import EventBatch, Keys
from kwsniff.count.tally import Key, Tally
from kwsniff.output.units import client, counted, duration, many


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
