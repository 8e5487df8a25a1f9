"""Clients that ask a broker for partitions it does not lead."""

from __future__ import annotations

from typing import Any

from kwsniff.analysis.causes import LEADER
from kwsniff.analysis.error_rule import ErrorTally, place, ranked
from kwsniff.analysis.finding import CRITICAL, WARNING, Finding, command, evidence
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.eventrows import EventBatch, Keys
from kwsniff.count.tally import Tally
from kwsniff.output.units import client, duration, listed, many, rate

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
            places = self.errors.places.entries
            where = listed(ranked((place(k, context), e) for k, e in places.items() if k[4:] == (name, ip)))
            brokers = listed(str(key[2]) for key in self.calls.entries if key[:2] == (name, ip))
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
