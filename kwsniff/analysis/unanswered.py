"""Requests that nobody answered, and who ended their connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from kwsniff.analysis.finding import CRITICAL, NOTICE, WARNING, Finding, command, evidence, literal
from kwsniff.analysis.rule import Context, Rule
from kwsniff.count.eventrows import EventBatch, EventRows, Mask
from kwsniff.count.tally import Entry, Key, Tally
from kwsniff.output.units import client, closer, counted, duration, listed, many, percent

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
    needs = frozenset(
        (
            *("status", "unanswered_because", "closed_by", "waited_open_us", "max_wait_ms", "acks"),
            *("client_missing_bytes", "broker_missing_bytes"),
        )
    )
    missing = "no calls"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.calls = Tally()
        self.answered = Tally()
        """Calls that were answered, by client id and address."""
        self.lossy = Tally()
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

    def findings(self, context: Context) -> list[Finding]:
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
        apis = _summed([(str(whole[3]), each.count) for whole, each in mine.items()])
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
        return Finding(
            self.code, CRITICAL if severe else WARNING if enough else NOTICE, str(broker),
            f"{sentence} {AT_STAKE}" if produce else sentence,
            {"calls": entry.count, "waited_us": waited, "produce_calls": produce},
            evidence(entry), command("decode", f"unanswered_because == {literal(because)}"), entry.count,
            share=share, brief=brief,
        )  # fmt: skip


def _summed(pairs: list[tuple[str, int]]) -> list[tuple[str, float]]:
    found: dict[str, float] = {}
    for name, count in pairs:
        found[name] = found.get(name, 0) + count
    return list(found.items())
