"""Clients that connect anew all the time, and addresses that nobody answers at."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow.compute as pc

from kwsniff.analysis.finding import (
    CRITICAL,
    NOTICE,
    WARNING,
    Finding,
    both,
    command,
    evidence,
    is_client,
    literal,
)
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.coded import kinds_of
from kwsniff.count.eventrows import EventBatch, EventRows, Mask, Picked, addresses
from kwsniff.count.tally import Entry, Tally
from kwsniff.output.units import client, duration, listed, many, name, rate
from kwsniff.rows import lists

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
            brokers = listed(str(key[2]) for key in self.short.entries if key[:2] == (client_id, ip))
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
        ips = [key[1] for key in self.refused.entries if key[0] == broker]
        names = listed(who(None, ip, context) for ip in ips)
        silent = entry.sums[1]
        how = "refused" if not silent else "unanswered" if silent == entry.count else "refused or unanswered"
        named_by = [str(key[1]) for key in self.advertised.entries if key[0] == broker]
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
