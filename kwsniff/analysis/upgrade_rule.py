"""Clients that would stop working with brokers of Kafka 4.0, which dropped old versions of many APIs
(KIP-896).

`kwsniff.analysis.compatible` has the verdict. What a broker offers stands in bodies, which rules don't see;
what it served to anybody is known.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kwsniff.analysis.compatible import (
    API_VERSIONS,
    BETWEEN_BROKERS,
    BREAKS,
    BY_PLUGIN,
    REPLICAS,
    UNKNOWN,
    WORKS,
    Asking,
    verdict,
)
from kwsniff.analysis.finding import NOTICE, Finding, command, evidence
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.eventrows import EventBatch, Ints, Keys
from kwsniff.count.tally import Entry, Key, Tally
from kwsniff.output.units import client, listed, many
from kwsniff.spec.model import Versions
from kwsniff.spec.releases import releases

TARGET = "4.0"
SERVED = releases()
RELEASE = SERVED.find(TARGET)
ANY = Versions(((0, 1 << 15),))
UNKNOWN_VERSION = 1 << 20


def _ends(served: Versions) -> tuple[int, int]:
    """The least and the greatest version; of none a range that holds nothing."""
    return (served.first, served.last) if served else (1 << 15, -1)


class OldClients(Rule):
    """A client uses versions of APIs that Kafka 4.0 no longer serves, and will not choose others: it never
    asks what the broker offers, or the broker offers newer versions (it served them to others) and the
    client took the old one. Upgrade it before the brokers. `upgrade-check` looks at every client and
    target."""

    code = "old_client"
    about = "old clients"
    several = "{clients:client} would not work with Kafka 4.0."
    needs = frozenset(("api_version", "software_name", "software_version", "syn"))
    missing = "no calls"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.old = Tally()
        """Versions that 4.0 does not serve, by client id, address, broker, API's name and key."""
        self.asked = Tally()
        """ApiVersions calls by client id and address: their greatest version, calls that name a software."""
        self.brokers = Tally()
        """Clients that are brokers."""
        self.served = Tally()
        """By broker and API's key: the greatest version answered."""
        self.begun = Tally()
        """By client id and address: connections seen from their SYN, and others."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += len(calls)
        key, version = calls.coded("api_key"), calls.ints("api_version", UNKNOWN_VERSION)
        served = [SERVED.serves(RELEASE, each) if each is not None else ANY for each in key.values] or [ANY]
        first, last = (np.array(each)[key.codes] for each in zip(*map(_ends, served), strict=True))
        # What nobody answered may be no request: bytes that looked like one after a gap.
        sure = calls.known("latency_us") | calls.coded("status").equals("no_reply_expected")
        sure &= version != UNKNOWN_VERSION
        old = sure & ((version < first) | (version > last)) & ~calls.is_in("api_key", BY_PLUGIN)
        who: Keys = [calls.client]
        self.old.add(calls, old, [*who, calls.broker, calls.coded("api"), key], maxes=[version, -version])
        asks = calls.is_in("api_key", (API_VERSIONS,)) & sure
        self.asked.add(calls, asks, who, [calls.known("software_name")], [version])
        among = calls.coded("client_id").beginning(REPLICAS) | calls.is_in("api_key", tuple(BETWEEN_BROKERS))
        self.brokers.add(calls, among, who)
        self.served.add(calls, sure & (first > 0), [calls.broker, key], maxes=[version])
        rows = batch.connections
        syn: Ints = rows.ints("syn")
        self.begun.add(rows, rows.ints("frames") > 0, [rows.client], [syn, 1 - syn])

    def findings(self, context: Context) -> list[Finding]:
        breaking: dict[bool, dict[Key, Entry]] = {}
        for key, entry in self.old.entries.items():
            if self._verdict(key, entry) == BREAKS:
                breaking.setdefault(key[:2] in self.asked.entries, {})[key] = entry
        return [self._finding(asks, entries, context) for asks, entries in breaking.items()]

    def unjudged(self) -> str:
        unsure = any(self._verdict(key, entry) == UNKNOWN for key, entry in self.old.entries.items())
        return "what brokers offer stands in bodies: kwsniff upgrade-check" if unsure else ""

    def _verdict(self, key: Key, entry: Entry) -> str:
        who = key[:2]
        if who in self.brokers.entries:
            return WORKS
        asked, begun = self.asked.entries.get(who), self.begun.entries.get(who)
        asking = Asking(
            asked=-1 if asked is None else int(asked.maxes[0]),
            whole=begun is not None and begun.sums[0] > 0,
            partly=begun is not None and begun.sums[1] > 0,
            named=asked is not None and asked.sums[0] > 0,
        )
        answered = self.served.entries.get((key[2], key[4]))
        newest = None if answered is None else int(answered.maxes[0])
        return verdict(asking, key[4], int(-entry.maxes[1]), SERVED.serves(RELEASE, key[4]), newest)[0]

    def _finding(self, asks: bool, entries: dict[Key, Entry], context: Context) -> Finding:
        clients = list(dict.fromkeys(client(key[0], key[1]) for key in entries))
        versions = sorted({f"{key[3]} v{int(-entry.maxes[1])}" for key, entry in entries.items()})
        why = "although the broker offers newer ones" if asks else "without asking what the broker offers"
        calls = sum(entry.count for entry in entries.values())
        some = clients[0] if len(clients) == 1 else many(len(clients), "client")
        named = "" if len(clients) == 1 else f" ({listed(clients)})"
        brief = f"{'uses' if len(clients) == 1 else 'use'} {listed(versions, 3)} {why}"
        it = "it" if len(clients) == 1 else "they"
        sentence = f"{some} would not work with Kafka 4.0{named}: {it} {brief}."
        return Finding(
            self.code, NOTICE, some, sentence, {"clients": len(clients), "calls": calls},
            evidence(*entries.values()), command(f"upgrade-check --target {TARGET}"), calls,
            share=context.of_calls(calls), brief=brief,
        )  # fmt: skip
