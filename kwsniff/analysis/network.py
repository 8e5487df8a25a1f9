"""What the network and the two ends' buffers do: retransmissions and closed windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from kwsniff.analysis.finding import NOTICE, WARNING, Finding, both, command, evidence, is_client, literal
from kwsniff.analysis.reconnecting import who
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.eventrows import EventBatch, Keys
from kwsniff.count.tally import Entry, Key, Tally
from kwsniff.output.units import client, listed, many, percent, times

SEVERE = 5
"""Times `retransmitted_ratio` from which on it is a warning."""


class _Tcp(Rule):
    """Sums a column of connections by client and broker, for each end of its own."""

    counted: str
    """What is counted: the column without `client_` or `broker_`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.clients = Tally()
        """Connections of which the client has some, by client id, its address and broker."""
        self.brokers = Tally()
        """Those of which the broker has some."""

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        keys: Keys = [rows.client, rows.broker]
        known = np.zeros(len(rows), np.bool_)
        for side, tally in (("client", self.clients), ("broker", self.brokers)):
            column = f"{side}_{self.counted}"
            known |= rows.known(column)
            found = rows.ints(column)
            tally.add(rows, found > 0, keys, [found])
        self.looked += int(known.sum())


class Retransmissions(_Tcp):
    """Packets were sent again: the network loses some or their acknowledgements, or delays them until the
    sender gives up waiting. One that was lost costs up to 200 ms and more, and everything behind it on the
    connection waits. A sender that has nothing more to send also probes after a few milliseconds with what it
    sent last (RFC 8985, tail loss probe): that costs nothing, and looks the same. Look at the links between
    the two, at their counters of errors and drops."""

    code = "retransmissions"
    several = "Packets were lost or came late: {retransmissions:packet} were sent again on {count} paths."
    about = "retransmissions"
    needs = frozenset(
        ("client_retransmissions", "broker_retransmissions", "client_packets", "broker_packets")
    )
    missing = "no count of retransmissions"
    counted = "retransmissions"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.sent = Tally()
        """Packets of clients and of brokers, by the same key."""

    def take(self, batch: EventBatch) -> None:
        super().take(batch)
        rows = batch.connections
        packets = [rows.ints("client_packets"), rows.ints("broker_packets")]
        self.sent.add(rows, None, [rows.client, rows.broker], packets)

    def findings(self, context: Context) -> list[Finding]:
        limits, sent = self.thresholds, self.sent.entries
        found = []
        for place, tally in enumerate((self.clients, self.brokers)):
            for key, entry in tally.entries.items():
                again, packets = entry.sums[0], sent[key].sums[place] if key in sent else 0.0
                ratio = again / packets if packets else 0.0
                if again >= limits.retransmissions and ratio >= limits.retransmitted_ratio:
                    found.append(self._finding(key, entry, ratio, place == 0, context))
        return found

    def _finding(self, key: Key, entry: Entry, ratio: float, from_client: bool, context: Context) -> Finding:
        name, ip, broker = key
        ends = [who(name, ip, context), str(broker)]
        sender, receiver = ends if from_client else ends[::-1]
        again = entry.sums[0]
        sentence = (
            f"{sender} sent {many(again, 'packet')} again to {receiver}, {percent(ratio)} of all: packets "
            "or their acknowledgements were lost, or came late."
        )
        brief = f"{many(again, 'packet')} to {receiver}, {percent(ratio)} of all"
        severity = WARNING if ratio >= SEVERE * self.thresholds.retransmitted_ratio else NOTICE
        which = "client_retransmissions > 0" if from_client else "broker_retransmissions > 0"
        where = both(is_client(name, ip), which)
        return Finding(
            self.code, severity, client(name, ip) if from_client else str(broker), sentence,
            {"retransmissions": again, "ratio": ratio}, evidence(entry), command("decode", where), again,
            share=context.of_connections(entry.count), brief=brief,
        )  # fmt: skip


class ZeroWindows(_Tcp):
    """A receiver closed its TCP window: it does not read what it is sent as fast as it comes. A client that
    does so is busy with what it has or too small for what it asks for; a broker that does so is throttling
    the connection, or its network threads or request queue are full."""

    code = "zero_windows"
    about = "TCP windows"
    several = (
        "{count} receivers stop reading (TCP zero window, {zero_windows:time}): more comes than they read."
    )
    needs = frozenset(("client_zero_windows", "broker_zero_windows"))
    missing = "no TCP windows"
    counted = "zero_windows"

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for (name, ip), entry in self.clients.by(0, 1).items():
            brokers = [str(key[2]) for key in self.clients.entries if key[:2] == (name, ip)]
            found += self._of(entry, who(name, ip, context), brokers, is_client(name, ip), context)
        for (broker,), entry in self.brokers.by(2).items():
            senders = [who(key[0], key[1], context) for key in self.brokers.entries if key[2] == broker]
            found += self._of(entry, str(broker), senders, f"broker == {literal(str(broker))}", context)
        return found

    def _of(
        self, entry: Entry, receiver: str, senders: list[str], where: str, context: Context
    ) -> list[Finding]:
        closed = entry.sums[0]
        if closed < self.thresholds.zero_windows:
            return []
        side = "broker" if where.startswith("broker") else "client"
        what = f"TCP zero window, {times(closed)}"
        sends = "sends" if len(set(senders)) == 1 else "send"
        sentence = f"{receiver} stops reading ({what}): {listed(senders)} {sends} faster than it reads."
        return [
            Finding(
                self.code, NOTICE, receiver, sentence,
                {"zero_windows": closed, "connections": entry.count}, evidence(entry),
                command("decode", both(where, f"{side}_zero_windows > 0")), closed,
                share=context.of_connections(entry.count),
                brief=f"{times(closed)}, sent to by {listed(senders)}",
            )
        ]  # fmt: skip
