"""Requests that nobody answered, and who ended their connection."""

from __future__ import annotations

from typing import Any

import numpy as np

from kwsniff.findings.finding import NOTICE, WARNING, Finding, command, evidence, literal
from kwsniff.findings.rule import Context, Rule
from kwsniff.findings.tally import Entry, Key, Tally
from kwsniff.findings.words import client, counted, duration, listed, many
from kwsniff.report.eventrows import EventBatch, EventRows, Mask
from kwsniff.report.text import closer

PRODUCE = 0
LONG_POLLS = (1, 11, 14, 78)
"""Fetch, JoinGroup, SyncGroup, ShareFetch: a client that leaves drops those it has open."""
ENDED = ("connection_reset", "connection_closed", "timeout")
HOW = {
    "connection_reset": "the connection was reset first",
    "connection_closed": "the connection was closed first",
    "timeout": "they are still open",
    "capture_ended": "they were still open when the capture ended",
}


class Unanswered(Rule):
    """Requests got no answer although the capture shows the whole connection: the broker died, dropped the
    connection, or the client gave up first (`request.timeout.ms`). Not counted are requests that a client
    dropped by leaving right after them, long polls (Fetch, JoinGroup) that it dropped by leaving, requests
    that the end of the capture cut off early, and answers that the capture lost or, where it lost packets of
    as many connections of the broker, may have lost."""

    code = "unanswered"
    about = "answers"
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
        self.looked += len(calls)
        self.answered.add(calls, calls.known("latency_us"), [calls.client])
        rows = batch.connections
        lost = (rows.ints("client_missing_bytes") > 0) | (rows.ints("broker_missing_bytes") > 0)
        self.lossy.add(rows, lost, [rows.broker])
        which = calls.coded("status").equals("unanswered")
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
        return [
            self._finding(key, entry)
            for key, entry in self.calls.by(0, 1, 2).items()
            if self._is_sure(key, entry)
        ]

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

    def _finding(self, key: Key, entry: Entry) -> Finding:
        broker, because, closed_by = key
        mine = {whole: each for whole, each in self.calls.entries.items() if whole[:3] == key}
        apis = [(str(whole[3]), each.count) for whole, each in mine.items()]
        who = listed(client(whole[4], whole[5]) for whole in mine)
        how = (
            f"{closer(str(closed_by))} ended the connection first"
            if closed_by
            else HOW.get(because, str(because))
        )
        waited = f", after up to {duration(entry.maxes[0] / 1e6)}" if entry.maxes[0] > 0 else ""
        sentence = (
            f"{broker} left {many(entry.count, 'request')} unanswered: {how}{waited} "
            f"({counted(_summed(apis))}; from {who})."
        )
        gave_up = str(closed_by or "").startswith("client") or entry.count < self.thresholds.unanswered
        return Finding(
            self.code, NOTICE if gave_up else WARNING, str(broker), sentence, {"calls": entry.count},
            evidence(entry), command("decode", f"unanswered_because == {literal(because)}"), entry.count,
        )  # fmt: skip


def _summed(pairs: list[tuple[str, int]]) -> list[tuple[str, float]]:
    found: dict[str, float] = {}
    for name, count in pairs:
        found[name] = found.get(name, 0) + count
    return list(found.items())
