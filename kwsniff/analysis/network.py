"""What the network and the two ends' buffers do: retransmissions and closed windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from kwsniff.analysis.rule import (
    CRITICAL,
    NOTICE,
    WARNING,
    Context,
    Finding,
    Rule,
    both,
    command,
    evidence,
    is_client,
    literal,
)
from kwsniff.count.codes import Keys, kinds_of
from kwsniff.count.eventrows import EventBatch, EventRows, Picked, addresses
from kwsniff.count.keyed import Key
from kwsniff.count.tally import Entry, Tally
from kwsniff.output.units import client, duration, listed, many, name, percent, rate, times
from kwsniff.rows import lists
from kwsniff.rows.columns import Mask

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
        for (id_, ip), entry in self.clients.by(0, 1).items():
            brokers = [str(key[2]) for key in self.clients.of((0, 1), (id_, ip))]
            found += self._of(entry, who(id_, ip, context), brokers, is_client(id_, ip), context)
        for (broker,), entry in self.brokers.by(2).items():
            senders = [who(key[0], key[1], context) for key in self.brokers.of(2, broker)]
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


# Clients that connect anew all the time, and addresses that nobody answers at.

FEW = 3
"""Client ids of an address that are named where it is not known which of them is meant."""


def who(key_id: Any, ip: Any, context: Context) -> str:
    """The client of a connection: by its own id, else by those seen from its address."""
    if key_id:
        return client(key_id, ip)
    ids = context.clients.get(ip, [])
    return f"{ip} ({listed(map(name, ids))})" if 0 < len(ids) <= FEW else str(ip)


class Churn(Rule):
    """A client opens many connections that live only seconds. Each costs a handshake, maybe TLS and SASL, an
    ApiVersions and a Metadata call, and a slot of the broker's. Keep one producer or consumer for the life
    of the process; look for liveness checks, for load balancers, and for clients that fail and try again."""

    code = "connection_churn"
    about = "reconnects"
    several = "{count} clients connected {connections:time}, for a moment each."
    needs = frozenset(("first_time", "last_time", "syn", "client_bytes", "broker_bytes"))
    missing = "no connections"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.short = Tally()

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += len(rows)
        first, last = rows.ints("first_time", -1), rows.ints("last_time", -1)
        life = (last - first) / 1e6
        short = (rows.ints("syn") == 1) & (rows.ints("broker_bytes") > 0) & (first >= 0)
        short &= life < self.thresholds.churn_life_s
        keys = [rows.coded("client_id"), rows.coded("client_ip"), rows.broker]
        self.short.add(rows, short, keys, [life])

    def findings(self, context: Context) -> list[Finding]:
        limits = self.thresholds
        found = []
        for (client_id, ip), entry in self.short.by(0, 1).items():
            ids = 1 if client_id else max(len(context.clients.get(ip, [])), 1)
            slow = entry.count <= limits.churn_per_s * entry.span_s
            if slow or entry.count < limits.churn_connections * ids:
                continue
            brokers = listed(str(key[2]) for key in self.short.of((0, 1), (client_id, ip)))
            quick = f", {rate(entry.count / entry.span_s)}" if entry.span_s else ""
            brief = (
                f"{entry.count:,} times to {brokers}{quick}, for {duration(entry.sums[0] / entry.count)} "
                f"each "
                "on average"
            )
            sentence = f"{who(client_id, ip, context)} connected {brief}."
            numbers = {
                "connections": entry.count,
                "span_s": entry.span_s,
                "life_s": entry.sums[0] / entry.count,
            }
            found.append(
                Finding(
                    self.code, WARNING, client(client_id, ip), sentence, numbers, evidence(entry),
                    command("clients", is_client(client_id, ip)), entry.count,
                    share=context.of_connections(entry.count), brief=brief,
                )
            )  # fmt: skip
        return found


class Unreachable(Rule):
    """Clients try to connect to an address that refuses them (RST) or does not answer. If it never answered
    anybody and a broker names it to its clients (Metadata, FindCoordinator), `advertised.listeners` is
    wrong: it has to be an address that the *clients* can reach, not the one the broker listens at. If it
    answered at other times, the broker was down; if nobody tries any more (a controller that nobody needs
    since another one leads), it is worth a notice."""

    code = "unreachable"
    about = "addresses"
    several = "{attempts:attempt} to connect to {count} addresses failed."
    needs = frozenset(("syn", "rst", "client_bytes", "broker_bytes", "broker_packets", "advertised"))
    missing = "no connections"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.refused = Tally()
        """By broker and client address: attempts, and those that nobody answered."""
        self.served = Tally()
        """By broker: connections that carried something."""
        self.begun = Tally()
        """All connections, by broker."""
        self.advertised = Tally()
        """By address that a broker named, and that broker."""

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += len(rows)
        nothing = (rows.ints("client_bytes") == 0) & (rows.ints("broker_bytes") == 0)
        silent = rows.ints("broker_packets", 1) == 0
        refused = (rows.ints("syn") == 1) & nothing & _never_open(rows) & (silent | (rows.ints("rst") == 1))
        self.refused.add(rows, refused, [rows.broker, rows.coded("client_ip")], [refused, silent])
        self.served.add(rows, rows.ints("broker_bytes") > 0, [rows.broker])
        self.begun.add(rows, np.ones(len(rows), np.bool_), [rows.broker])
        if batch.calls.has("advertised"):
            self._take_advertised(batch.calls)

    def _take_advertised(self, calls: EventRows) -> None:
        column = calls.unfiltered("advertised")  # nothing but calls has any
        of = calls.places[lists.parents(lists.lengths(column))]
        flat = column.flatten()
        host, port = (kinds_of(pc.struct_field(flat, name)) for name in ("host", "port"))
        self.advertised.add(Picked(calls, of), None, [addresses(host, port), calls.broker.at(of)])

    def findings(self, context: Context) -> list[Finding]:
        return [
            self._finding(broker, entry, context)
            for (broker,), entry in self.refused.by(0).items()
            if entry.count >= self.thresholds.refused
        ]

    def _finding(self, broker: Any, entry: Entry, context: Context) -> Finding:
        ips = [key[1] for key in self.refused.of(0, broker)]
        names = listed(who(None, ip, context) for ip in ips)
        silent = entry.sums[1]
        how = "refused" if not silent else "unanswered" if silent == entry.count else "refused or unanswered"
        named_by = [str(key[1]) for key in self.advertised.of(0, broker)]
        up = (broker,) in self.served.entries
        tries = f"{many(entry.count, 'attempt')} to connect from {names} were {how}"
        tries += f" within {duration(entry.span_s)}"
        brief = tries
        over = not up and not named_by and self._is_over(entry)
        sentence = f"Nobody answers at {broker}: {tries}."
        if over:
            sentence = f"Nobody answered at {broker} for a time: {tries}. Nobody tried it later."
            brief += "; nobody tried later"
        elif up:
            sentence = f"{broker} was down for a time: {tries}; others were answered."
            brief += "; others were answered"
        elif named_by:
            wrong = f"{listed(named_by)} names that address to clients: its advertised.listeners is wrong"
            sentence += f" {wrong}."
            brief += f"; {wrong}"
        else:
            sentence += " If a broker names that address to clients, its advertised.listeners is wrong."
        where = both(f"broker == {literal(str(broker))}", "broker_bytes == 0")
        severity = CRITICAL
        if up or over:
            severity = WARNING if entry.count >= self.thresholds.outage_refused else NOTICE
        return Finding(
            self.code, severity, str(broker), sentence, {"attempts": entry.count},
            evidence(entry), command("decode", where), entry.count, share=context.of_connections(entry.count),
            brief=brief,
        )  # fmt: skip

    def _is_over(self, entry: Entry) -> bool:
        """Whether others went on connecting for long after the last attempt."""
        last = max((each.last.time for each in self.begun.entries.values()), default=entry.last.time)
        return last - entry.last.time > self.thresholds.given_up_s * 1e6


def _never_open(rows: EventRows) -> Mask:
    return ~rows.known("handshake_us")
