"""Clients that would stop working with brokers of Kafka 4.0, which dropped old versions of many APIs
(KIP-896).

A client that asks the broker what it offers (ApiVersions) and uses an old version because the broker offers
no newer one is not affected: it will choose another. Told apart by what the same broker served to others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kwsniff.findings.finding import NOTICE, Finding, command, evidence
from kwsniff.findings.rule import Context, Rule
from kwsniff.findings.tally import Entry, Key, Tally
from kwsniff.findings.words import client, listed, many
from kwsniff.report.eventrows import EventBatch, Ints, Keys

FLOORS = {
    0: 3, 1: 4, 2: 1, 8: 2, 9: 1, 19: 2, 20: 1, 23: 2, 27: 1, 29: 1, 30: 1, 31: 1, 32: 1, 34: 1, 35: 1,
    38: 1, 39: 1, 40: 1, 41: 1,
}  # fmt: skip
"""Least version of each API that brokers of 4.0 to 4.4 serve, where it is not 0. Of Produce they advertise 0
as well, for old clients of librdkafka, but serve none below 3. JoinGroup 0 and 1, which 4.0.0 refuses, 4.0.1
serves again."""
API_VERSIONS = 18
BETWEEN_BROKERS = ("ReplicaFetcherThread-", "broker-")
"""How client ids of brokers begin: they are upgraded with themselves."""


class OldClients(Rule):
    """A client uses versions of APIs that Kafka 4.0 no longer serves, and will not choose others: it never
    asks what the broker offers, or the broker offers newer versions (it served them to others) and the
    client took the old one. Upgrade it before the brokers. `upgrade-check` looks at every client and
    target."""

    code = "old_client"
    about = "old clients"
    needs = frozenset(("api_version", "software_name", "software_version", "syn"))
    missing = "no calls"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.old = Tally()
        """Old versions by client id, address, broker, API's name and key."""
        self.asked = Tally()
        """ApiVersions calls by client id and address."""
        self.served = Tally()
        """By broker and API's key: the greatest version answered."""
        self.begun = Tally()
        """By client address: connections seen from their SYN, and others."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += len(calls)
        key = calls.coded("api_key")
        floors = np.array([FLOORS.get(each, 0) for each in key.values] or [0])[key.codes]
        version = calls.ints("api_version", 1 << 20)
        own = calls.coded("client_id").beginning(BETWEEN_BROKERS)
        keys: Keys = [calls.client, calls.broker, calls.coded("api"), key]
        # What nobody answered may be no request: bytes that looked like one after a gap.
        sure = calls.known("latency_us") | calls.coded("status").equals("no_reply_expected")
        self.old.add(calls, (version < floors) & ~own & sure, keys, maxes=[version, -version])
        self.asked.add(calls, calls.is_in("api_key", (API_VERSIONS,)), [calls.client])
        if (floors > 0).any():
            answered = calls.known("latency_us") & (floors > 0) & calls.known("api_version")
            self.served.add(calls, answered, [calls.broker, key], maxes=[version])
        rows = batch.connections
        syn: Ints = rows.ints("syn")
        self.begun.add(rows, rows.ints("frames") > 0, [rows.coded("client_ip")], [syn, 1 - syn])

    def findings(self, context: Context) -> list[Finding]:
        breaking: dict[bool, dict[Key, Entry]] = {}
        for key, entry in self.old.entries.items():
            if self._breaks(key):
                breaking.setdefault(key[:2] in self.asked.entries, {})[key] = entry
        return [self._finding(asks, entries) for asks, entries in breaking.items()]

    def _breaks(self, key: Key) -> bool:
        begun = self.begun.entries.get((key[1],))
        asks = key[:2] in self.asked.entries
        never_asks = not asks and begun is not None and begun.sums[0] > 0 and begun.sums[1] == 0
        return never_asks or self._offered(key)

    def _offered(self, key: Key) -> bool:
        """Whether the broker served somebody a version of this API that 4.0 serves."""
        served = self.served.entries.get((key[2], key[4]))
        return served is not None and served.maxes[0] >= FLOORS.get(key[4], 0)

    def _finding(self, asks: bool, entries: dict[Key, Entry]) -> Finding:
        clients = list(dict.fromkeys(client(key[0], key[1]) for key in entries))
        versions = sorted({f"{key[3]} v{int(-entry.maxes[1])}" for key, entry in entries.items()})
        why = "although the broker offers newer ones" if asks else "without asking what the broker offers"
        calls = sum(entry.count for entry in entries.values())
        some = clients[0] if len(clients) == 1 else many(len(clients), "client")
        named = "" if len(clients) == 1 else f" ({listed(clients)})"
        sentence = f"{some} would not work with Kafka 4.0{named}: {listed(versions, 3)} used {why}."
        return Finding(
            self.code, NOTICE, some, sentence, {"clients": len(clients), "calls": calls},
            evidence(*entries.values()), command("upgrade-check --target 4.0"), calls,
        )  # fmt: skip
