"""Rules about connections: what the network and the buffers of both ends do to them (retransmissions, closed
windows), clients that connect anew all the time, brokers that do not answer a SYN or a request."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow.compute as pc

from kwsniff.analysis.rule import (
    Context,
    Finding,
    Rule,
    Severity,
    both,
    command,
    is_broker,
    is_client,
    literal,
    summed,
)
from kwsniff.analysis.tabular import columns
from kwsniff.count.codes import Keys, kinds_of
from kwsniff.count.eventrows import EventBatch, EventRows, Picked, addresses
from kwsniff.count.keyed import Key
from kwsniff.count.tally import Entry, Tally
from kwsniff.output.units import client, closer, counted, duration, listed, many, name, percent, rate, times
from kwsniff.rows import lists
from kwsniff.rows.columns import Mask

SEVERE = 5
"""Times `retransmitted_ratio` from which on it is a warning."""


class _Tcp(Rule):
    """Sums a column of connections by client and broker, for each end of its own."""

    counted: str
    """What is counted: the column without `client_` or `broker_`."""

    clients: Tally
    """Connections of which the client has some, by client id, its address and broker."""
    brokers: Tally
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
    needs = columns("client_retransmissions broker_retransmissions client_packets broker_packets")
    missing = "no count of retransmissions"
    counted = "retransmissions"

    sent: Tally
    """Packets of clients and of brokers, by the same key."""

    def take(self, batch: EventBatch) -> None:
        super().take(batch)
        rows = batch.connections
        packets = [rows.ints("client_packets"), rows.ints("broker_packets")]
        self.sent.add(rows, None, [rows.client, rows.broker], packets)

    def findings(self, context: Context) -> Iterable[Finding]:
        limits, sent = self.thresholds, self.sent.entries
        for place, tally in enumerate((self.clients, self.brokers)):
            for key, entry in tally.entries.items():
                again, packets = entry.sums[0], sent[key].sums[place] if key in sent else 0.0
                ratio = again / packets if packets else 0.0
                if again >= limits.retransmissions and ratio >= limits.retransmitted_ratio:
                    yield self._finding(key, entry, ratio, place == 0, context)

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
        severity: Severity = "warning" if ratio >= SEVERE * self.thresholds.retransmitted_ratio else "notice"
        which = "client_retransmissions > 0" if from_client else "broker_retransmissions > 0"
        where = both(is_client(name, ip), which)
        return self.found(
            severity, client(name, ip) if from_client else str(broker), sentence,
            {"retransmissions": again, "ratio": ratio}, entry, command("decode", where),
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
    needs = columns("client_zero_windows broker_zero_windows")
    missing = "no TCP windows"
    counted = "zero_windows"

    def findings(self, context: Context) -> Iterable[Finding]:
        for (id_, ip), entry in self.clients.by(0, 1).items():
            brokers = [str(key[2]) for key in self.clients.of((0, 1), (id_, ip))]
            yield from self._of(entry, who(id_, ip, context), brokers, is_client(id_, ip), context)
        for (broker,), entry in self.brokers.by(2).items():
            senders = [who(key[0], key[1], context) for key in self.brokers.of(2, broker)]
            yield from self._of(entry, str(broker), senders, is_broker(broker), context)

    def _of(
        self, entry: Entry, receiver: str, senders: list[str], where: str, context: Context
    ) -> Iterable[Finding]:
        closed = entry.sums[0]
        if closed < self.thresholds.zero_windows:
            return
        side = "broker" if where.startswith("broker") else "client"
        what = f"TCP zero window, {times(closed)}"
        sends = "sends" if len(set(senders)) == 1 else "send"
        sentence = f"{receiver} stops reading ({what}): {listed(senders)} {sends} faster than it reads."
        yield self.found(
            "notice", receiver, sentence, {"zero_windows": closed, "connections": entry.count}, entry,
            command("decode", both(where, f"{side}_zero_windows > 0")),
            share=context.of_connections(entry.count),
            brief=f"{times(closed)}, sent to by {listed(senders)}",
        )  # fmt: skip


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
    needs = columns("first_time last_time syn client_bytes broker_bytes")
    missing = "no connections"

    short: Tally

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += len(rows)
        first, last = rows.ints("first_time", -1), rows.ints("last_time", -1)
        life = (last - first) / 1e6
        short = (rows.ints("syn") == 1) & (rows.ints("broker_bytes") > 0) & (first >= 0)
        short &= life < self.thresholds.churn_life_s
        keys: Keys = [rows.client, rows.broker]
        self.short.add(rows, short, keys, [life])

    def findings(self, context: Context) -> Iterable[Finding]:
        limits = self.thresholds
        for (client_id, ip), entry in self.short.by(0, 1).items():
            ids = 1 if client_id else max(len(context.clients.get(ip, [])), 1)
            slow = entry.count <= limits.churn_per_s * entry.span_s
            if slow or entry.count < limits.churn_connections * ids:
                continue
            brokers = listed(str(key[2]) for key in self.short.of((0, 1), (client_id, ip)))
            quick = f", {rate(entry.count / entry.span_s)}" if entry.span_s else ""
            life = entry.sums[0] / entry.count
            brief = f"{entry.count:,} times to {brokers}{quick}, for {duration(life)} each on average"
            sentence = f"{who(client_id, ip, context)} connected {brief}."
            numbers = {"connections": entry.count, "span_s": entry.span_s, "life_s": life}
            yield self.found(
                "warning", client(client_id, ip), sentence, numbers, entry,
                command("clients", is_client(client_id, ip)), weight=entry.count,
                share=context.of_connections(entry.count), brief=brief,
            )  # fmt: skip


class Unreachable(Rule):
    """Clients try to connect to an address that refuses them (RST) or does not answer. If it never answered
    anybody and a broker names it to its clients (Metadata, FindCoordinator), `advertised.listeners` is
    wrong: it has to be an address that the *clients* can reach, not the one the broker listens at. If it
    answered at other times, the broker was down; if nobody tries any more (a controller that nobody needs
    since another one leads), it is worth a notice."""

    code = "unreachable"
    about = "addresses"
    several = "{attempts:attempt} to connect to {count} addresses failed."
    needs = columns("syn rst client_bytes broker_bytes broker_packets advertised")
    missing = "no connections"

    refused: Tally
    """By broker and client address: attempts, and those that nobody answered."""
    served: Tally
    """By broker: connections that carried something."""
    begun: Tally
    """All connections, by broker."""
    advertised: Tally
    """By address that a broker named, and that broker."""

    def take(self, batch: EventBatch) -> None:
        rows = batch.connections
        self.looked += len(rows)
        nothing = (rows.ints("client_bytes") == 0) & (rows.ints("broker_bytes") == 0)
        silent = rows.ints("broker_packets", 1) == 0
        refused = (
            (rows.ints("syn") == 1)
            & nothing
            & ~rows.known("handshake_us")
            & (silent | (rows.ints("rst") == 1))
        )
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

    def findings(self, context: Context) -> Iterable[Finding]:
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
        within = duration(entry.span_s)
        brief = tries = f"{many(entry.count, 'attempt')} to connect from {names} were {how} within {within}"
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
        where = both(is_broker(broker), "broker_bytes == 0")
        notable: Severity = "warning" if entry.count >= self.thresholds.outage_refused else "notice"
        return self.found(
            notable if up or over else "critical", str(broker), sentence, {"attempts": entry.count}, entry,
            command("decode", where), share=context.of_connections(entry.count), brief=brief,
        )  # fmt: skip

    def _is_over(self, entry: Entry) -> bool:
        """Whether others went on connecting for long after the last attempt."""
        last = max((each.last.time for each in self.begun.entries.values()), default=entry.last.time)
        return last - entry.last.time > self.thresholds.given_up_s * 1e6


# Requests that nobody answered, and who ended their connection.

PRODUCE = 0
LONG_POLLS = (1, 11, 14, 78)
"""Fetch, JoinGroup, SyncGroup, ShareFetch: a client that leaves drops those it has open."""
ENDED = ("connection_reset", "connection_closed", "timeout")
HOW = {
    "connection_reset": "the connection was reset",
    "connection_closed": "the connection was closed",
    "timeout": "they are still open",
    "capture_ended": "they were still open when the capture ended",
}
AT_STAKE = "Their records may be lost or written twice."


class Unanswered(Rule):
    """Requests got no answer although the capture shows the whole connection: the broker died, dropped the
    connection, or the client gave up first (`request.timeout.ms`). Not counted are requests that a client
    dropped by leaving right after them, long polls (Fetch, JoinGroup) that it dropped by leaving, requests
    that the end of the capture cut off early, and answers that the capture lost or, where it lost packets of
    as many connections of the broker, may have lost. Whoever sent a Produce does not know whether its
    records were written: if it tries again they may be there twice, if it does not they may be lost. It is
    critical from a share of all requests that expect an answer on."""

    code = "unanswered"
    about = "unanswered requests"
    several = "{calls:request} got no answer after up to {max_waited_us}, {{share}} of those that expect one."
    needs = columns(
        """
        status unanswered_because closed_by waited_open_us max_wait_ms acks client_missing_bytes
        broker_missing_bytes
        """
    )
    missing = "no calls"

    calls: Tally
    answered: Tally
    """Calls that were answered, by client id and address."""
    lossy: Tally
    """Connections of which the capture lacks bytes, by broker."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        status = calls.coded("status")
        self.looked += int((~status.equals("no_reply_expected") & ~status.equals("orphan")).sum())
        self.answered.add(calls, calls.known("latency_us"), [calls.client])
        rows = batch.connections
        lost = (rows.ints("client_missing_bytes") > 0) | (rows.ints("broker_missing_bytes") > 0)
        self.lossy.add(rows, lost, [rows.broker])
        which = status.equals("unanswered")
        if which.any():
            names = ("unanswered_because", "closed_by", "api", "client_id", "client_ip")
            keys = [calls.broker, *(calls.coded(name) for name in names)]
            waited = calls.floats("waited_open_us")
            self.calls.add(calls, which & self._counts(calls), keys, [waited], [waited])

    def _counts(self, calls: EventRows) -> Mask:
        because = calls.coded("unanswered_because")
        waited = np.nan_to_num(calls.floats("waited_open_us"), nan=-1.0)
        asked = calls.ints("max_wait_ms") * 1000.0
        # A Produce of which the capture lacks the acks may be one that wants no reply.
        wanted = ~calls.is_in("api_key", (PRODUCE,)) | calls.known("acks")
        overdue = waited > asked + self.thresholds.long_poll_margin_ms * 1000
        by_client = calls.coded("closed_by").beginning(("client",))
        soon = (waited >= 0) & (waited < self.thresholds.long_poll_margin_ms * 1000)
        ended = ~(by_client & soon) & np.logical_or.reduce([because.equals(reason) for reason in ENDED])
        long_open = waited > asked + self.thresholds.unanswered_wait_ms * 1000
        mask: Mask = (ended & (overdue | ~calls.is_in("api_key", LONG_POLLS))) | (
            because.equals("capture_ended") & long_open
        )
        return mask & wanted

    def findings(self, context: Context) -> Iterable[Finding]:
        sure = {key: entry for key, entry in self.calls.by(0, 1, 2).items() if self._is_sure(key, entry)}
        limits, total = self.thresholds, sum(entry.count for entry in sure.values())
        severe = total >= limits.unanswered_many and total >= limits.unanswered_share * self.looked
        return [self._finding(key, entry, severe) for key, entry in sure.items()]

    @classmethod
    def headline(cls, found: Sequence[Finding]) -> str:
        share = percent(sum(each.share for each in found))
        said = super().headline(found).replace("{share}", share)
        return f"{said} {AT_STAKE}" if any(each.numbers["produce_calls"] for each in found) else said

    def _is_sure(self, key: Key, entry: Entry) -> bool:
        """Whether there are more than the capture may have lost, and more than a few of clients that were
        never answered at all: what looks like a request after a gap may be none."""
        lost = self.lossy.entries.get((key[0],))
        if lost is not None and lost.count >= entry.count:
            return False
        clients = {whole[4:6] for whole in self.calls.entries if whole[:3] == key}
        return entry.count >= self.thresholds.unanswered or any(
            each in self.answered.entries for each in clients
        )

    def _finding(self, key: Key, entry: Entry, severe: bool) -> Finding:
        broker, because, closed_by = key
        mine = {whole: each for whole, each in self.calls.entries.items() if whole[:3] == key}
        apis = summed((str(whole[3]), each.count) for whole, each in mine.items())
        clients = list(dict.fromkeys(client(whole[4], whole[5]) for whole in mine))
        who = clients[0] if len(clients) == 1 else f"{len(clients):,} clients ({listed(clients)})"
        only = f"{apis[0][0]} request" if len(apis) == 1 else "request"
        what = many(entry.count, only) + (f" ({counted(apis)})" if len(apis) > 1 else "")
        after = f" after up to {duration(entry.maxes[0] / 1e6)}" if entry.maxes[0] > 0 else ""
        share = entry.count / max(self.looked, 1)
        of_all = f", {percent(share)} of those that expect an answer"
        if str(closed_by or "").startswith("client"):
            sentence = f"{who} gave up on {what} to {broker}{after}{of_all}."
            brief = f"{who} gave up on {what}{after}"
        else:
            how = f"{closer(str(closed_by))} ended the connection" if closed_by else HOW.get(because, because)
            sentence = f"{broker} did not answer {what} of {who}: {how}{after}{of_all}."
            brief = f"{what} of {who}: {how}{after}"
        produce = dict(apis).get("Produce", 0)
        enough = entry.count >= self.thresholds.unanswered
        waited = max(entry.maxes[0], 0)
        return self.found(
            "critical" if severe else "warning" if enough else "notice", str(broker),
            f"{sentence} {AT_STAKE}" if produce else sentence,
            {"calls": entry.count, "waited_us": waited, "produce_calls": produce}, entry,
            command("decode", f"unanswered_because == {literal(because)}"), share=share, brief=brief,
        )  # fmt: skip
