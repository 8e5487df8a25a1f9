"""What the network and the two ends' buffers do: retransmissions and closed windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kwsniff.findings.connections import who
from kwsniff.findings.finding import NOTICE, WARNING, Finding, command, evidence
from kwsniff.findings.rows import Batch
from kwsniff.findings.rule import Context, Rule
from kwsniff.findings.tally import Entry, Key, Tally
from kwsniff.findings.words import client, many, percent, times

SEVERE = 5
"""Times `retransmitted_ratio` from which on it is a warning."""


class _Tcp(Rule):
    """Sums columns of connections by client and broker."""

    columns: tuple[str, str]
    """Of the client, and of the broker."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.pairs = Tally()

    def take(self, batch: Batch) -> None:
        rows = batch.connections
        self.looked += int(np.logical_or(*(rows.known(name) for name in self.columns)).sum())
        mine = [rows.ints(name) for name in self.columns]
        packets = [rows.ints("client_packets"), rows.ints("broker_packets")]
        keys = [rows.coded("client_id"), rows.coded("client_ip"), rows.broker]
        self.pairs.add(rows, np.ones(len(rows), np.bool_), keys, [*mine, *packets])


class Retransmissions(_Tcp):
    """Packets had to be sent again: the network loses some, or delays them until the sender gives up
    waiting. One retransmission costs 200 ms and more, and everything behind it on the connection waits. Look
    at the links between the two, at their counters of errors and drops."""

    code = "retransmissions"
    about = "retransmissions"
    needs = frozenset(("client_retransmissions", "broker_retransmissions"))
    missing = "no count of retransmissions"
    columns = ("client_retransmissions", "broker_retransmissions")

    def findings(self, context: Context) -> list[Finding]:
        limits = self.thresholds
        found = []
        for key, entry in self.pairs.entries.items():
            for again, sent, from_client in (
                (entry.sums[0], entry.sums[2], True),
                (entry.sums[1], entry.sums[3], False),
            ):
                ratio = again / sent if sent else 0.0
                if again >= limits.retransmissions and ratio >= limits.retransmitted_ratio:
                    found.append(self._finding(key, entry, again, ratio, from_client, context))
        return found

    def _finding(
        self, key: Key, entry: Entry, again: float, ratio: float, from_client: bool, context: Context
    ) -> Finding:
        ends = [who(key[0], key[1], context), str(key[2])]
        sender, receiver = ends if from_client else ends[::-1]
        sentence = (
            f"{sender} sent {many(again, 'packet')} again to {receiver}, {percent(ratio)} of all: the "
            "network loses "
            "or delays them."
        )
        severity = WARNING if ratio >= SEVERE * self.thresholds.retransmitted_ratio else NOTICE
        return Finding(
            self.code, severity, client(key[0], key[1]), sentence, {"retransmissions": again, "ratio": ratio},
            evidence(entry), command("decode", 'event == "connection" and client_retransmissions > 0'), again,
        )  # fmt: skip


class ZeroWindows(_Tcp):
    """A receiver closed its TCP window: it does not read what it is sent as fast as it comes. A client that
    does so is busy with what it has or too small for what it asks for; a broker that does so is throttling
    the connection, or its network threads or request queue are full."""

    code = "zero_windows"
    about = "windows"
    needs = frozenset(("client_zero_windows", "broker_zero_windows"))
    missing = "no TCP windows"
    columns = ("client_zero_windows", "broker_zero_windows")

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for key, entry in self.pairs.entries.items():
            client_end, broker = who(key[0], key[1], context), str(key[2])
            found += self._of(entry, entry.sums[0], client_end, broker)
            found += self._of(entry, entry.sums[1], broker, client_end)
        return found

    def _of(self, entry: Entry, closed: float, receiver: str, sender: str) -> list[Finding]:
        if closed < self.thresholds.zero_windows:
            return []
        sentence = (
            f"{receiver} closed its receive window {times(closed)}: it does not read what {sender} sends as "
            "fast "
            "as it comes."
        )
        where = 'event == "connection" and client_zero_windows > 0'
        return [
            Finding(
                self.code, NOTICE, receiver, sentence, {"zero_windows": closed}, evidence(entry),
                command("decode", where), closed,
            )
        ]  # fmt: skip
