"""Groups that rebalance all the time, members that are expelled, and members that stand still."""

from __future__ import annotations

from typing import Any

import numpy as np

from kwsniff.analysis.failures import EXPELLED
from kwsniff.analysis.rule import WARNING, Context, Finding, Rule, command, evidence, literal
from kwsniff.count.codes import Coded, Joint, Keys
from kwsniff.count.eventrows import UNKNOWN, EventBatch
from kwsniff.count.spans import Spans
from kwsniff.count.tally import Entry, Packet, Tally
from kwsniff.output.units import client, counted, duration, listed, name, times

FETCH, JOIN, HEARTBEAT, LEAVE, SYNC = 1, 11, 12, 13, 14
CONSUMER_HEARTBEAT, SHARE_HEARTBEAT, SHARE_FETCH, STREAMS_HEARTBEAT = 68, 76, 78, 88
HEARTBEATS = (HEARTBEAT, CONSUMER_HEARTBEAT, SHARE_HEARTBEAT, STREAMS_HEARTBEAT)
NEW_PROTOCOL = HEARTBEATS[1:]
WORK = (FETCH, SHARE_FETCH, 79, 8, 28)
"""Fetch, ShareFetch, ShareAcknowledge, OffsetCommit, TxnOffsetCommit."""
NO_GROUPS = "no consumer groups"


class Rebalances(Rule):
    """A group shares its partitions out anew again and again; with the classic protocol nobody consumes
    meanwhile. The sentence says what was seen of the cause: members that left, members that were expelled
    because their heartbeats or their polls came too late (see `member_expelled`), or neither, which leaves
    members that joined. Raise `session.timeout.ms` and `max.poll.interval.ms`, use static membership
    (`group.instance.id`), the cooperative assignor or the new protocol (`group.protocol=consumer`)."""

    code = "rebalances"
    about = "rebalances"
    several = "{count} groups rebalance again and again, {rebalances:time} in all."
    needs = frozenset(("group_id", "member_id", "generation", "reason", "error_code"))
    missing = NO_GROUPS

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.spans = Spans(self.thresholds.rebalance_pause_ms * 1000)
        self.members = Tally()
        """JoinGroup and SyncGroup calls by group, client id and address."""
        self.left = Tally()
        """LeaveGroup calls by group, client id, address and reason."""
        self.expelled = Tally()
        self.epochs = Tally()
        """Heartbeats of the new protocols by group: the greatest epoch, and the least with its sign "
        "changed."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        group = calls.coded("group_id")
        joins = calls.is_in("api_key", (JOIN, SYNC))
        self.looked += int((joins | calls.is_in("api_key", HEARTBEATS)).sum())
        who: Keys = [group, calls.client]
        if joins.any():
            self._take_spans(batch, joins)
            self.members.add(calls, joins, who)
        ok = calls.ints("error_code") == 0
        self.left.add(calls, calls.is_in("api_key", (LEAVE,)) & ok, [*who, calls.coded("reason")])
        self.expelled.add(calls, calls.is_in("error_code", EXPELLED), who)
        epoch = calls.floats("generation")
        beats = calls.is_in("api_key", NEW_PROTOCOL) & (epoch > 0)
        self.epochs.add(calls, beats, [group], maxes=[epoch, -epoch])

    def _take_spans(self, batch: EventBatch, joins: Any) -> None:
        calls = batch.calls
        rows = np.flatnonzero(joins)
        begin, end = calls.ints("request_time", -1)[rows], calls.ints("response_end_time", -1)[rows]
        self.spans.add(calls.coded("group_id").at(rows), begin, np.maximum(begin, end))

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for (group,), entry in self.members.by(0).items():
            spans = self.spans.of.get(name(group), [])
            if self._too_many(len(spans), entry):
                found.append(self._finding(group, entry, spans, context))
        for (group,), entry in self.epochs.entries.items():
            changes = int(entry.maxes[0] + entry.maxes[1])
            if self._too_many(changes, entry):
                brief = (
                    f"was assigned anew {times(changes)} in {duration(entry.span_s)} "
                    f"(epoch {int(-entry.maxes[1])} to {int(entry.maxes[0])})"
                )
                numbers = {"rebalances": changes, "span_s": entry.span_s}
                found.append(self._row(group, brief, numbers, entry, context))
        return found

    def _too_many(self, count: int, entry: Entry) -> bool:
        often = entry.span_s < count * self.thresholds.rebalance_every_s
        return count >= self.thresholds.rebalances and often

    def _finding(self, group: Any, entry: Entry, spans: list[tuple[int, int]], context: Context) -> Finding:
        busy = sum(last - first for first, last in spans) / 1e6
        members = [client(key[1], key[2]) for key in self.members.of(0, group)]
        brief = (
            f"rebalanced {times(len(spans))} in {duration(entry.span_s)} and spent {duration(busy)} on it "
            f"({listed(members)})"
        )
        numbers = {"rebalances": len(spans), "rebalancing_s": busy, "span_s": entry.span_s}
        return self._row(group, brief, numbers, entry, context)

    def _row(
        self, group: Any, brief: str, numbers: dict[str, float], entry: Entry, context: Context
    ) -> Finding:
        members = {key[1:3] for key in (*self.members.entries, *self.left.entries) if key[0] == group}
        return Finding(
            self.code, WARNING, name(group), f"Group {name(group)} {brief}.{self._why(group)}", numbers,
            evidence(entry), command("groups", f"group_id == {literal(group)}"), numbers["rebalances"],
            share=context.of_clients(max(len(members), 1)), brief=brief,
        )  # fmt: skip

    def _why(self, group: Any) -> str:
        left = self.left.of(0, group)
        expelled = self.expelled.of(0, group)
        parts = []
        if left:
            reasons = _summed([(name(key[3]), float(e.count)) for key, e in left.items() if key[3]])
            who = listed(client(key[1], key[2]) for key in left)
            said = f" ({counted(reasons)})" if reasons else ""
            parts.append(f"{who} left {times(sum(e.count for e in left.values()))}{said}")
        if expelled:
            parts.append(f"{listed(client(key[1], key[2]) for key in expelled)} had been expelled")
        return f" {'; '.join(parts)}." if parts else " No member was seen to leave."


class MemberExpelled(Rule):
    """A group no longer had a member that thought it belonged to it (UNKNOWN_MEMBER_ID,
    FENCED_MEMBER_EPOCH): its heartbeats stopped for longer than `session.timeout.ms`, because of a long
    pause, a stopped machine or a lost connection, or it left because its own polls came too late
    (`max.poll.interval.ms`; Java clients say so when they leave). What it had read and not committed is read
    again by others."""

    code = "member_expelled"
    about = "expelled members"
    several = "{count} members lost their places in their groups, {times:time} in all."
    needs = frozenset(("group_id", "reason", "error_code"))
    missing = NO_GROUPS
    apis = (HEARTBEAT, SYNC, 8, 11, CONSUMER_HEARTBEAT, SHARE_HEARTBEAT, STREAMS_HEARTBEAT)
    """8: OffsetCommit."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.members = Tally()
        self.polls = Tally()

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += int(calls.is_in("api_key", HEARTBEATS).sum())
        keys: Keys = [calls.coded("group_id"), calls.client]
        mine = calls.is_in("api_key", self.apis) & calls.is_in("error_code", EXPELLED)
        self.members.add(calls, mine, keys)
        late = calls.coded("reason").matching(lambda each: "poll timeout" in (each or ""))
        self.polls.add(calls, late & calls.is_in("api_key", (LEAVE,)), keys)

    def findings(self, context: Context) -> list[Finding]:
        found = [
            self._finding(
                key, entry, "its heartbeats came too late (session.timeout.ms)", "was expelled from", context
            )
            for key, entry in self.members.entries.items()
        ]
        return found + [
            self._finding(
                key, entry, "it did not poll in time (max.poll.interval.ms)", "gave up its place in", context
            )
            for key, entry in self.polls.entries.items()
        ]

    def _finding(self, key: Any, entry: Entry, why: str, what: str, context: Context) -> Finding:
        group, client_id, ip = key
        brief = f"{what} group {name(group)} {times(entry.count)}: {why}"
        sentence = f"{client(client_id, ip)} {brief}."
        return Finding(
            self.code, WARNING, client(client_id, ip), sentence, {"times": entry.count}, evidence(entry),
            command("groups", f"group_id == {literal(group)}"), entry.count,
            share=context.of_clients(), brief=brief,
        )  # fmt: skip


class StandsStill(Rule):
    """A member's heartbeats go on, but it neither fetches nor commits: its own code hangs or takes long over
    what it was given, or it paused its partitions. The group does not notice until `max.poll.interval.ms` is
    over."""

    code = "consumer_stands_still"
    about = "idle consumers"
    several = (
        "{count} members stand still, for up to {max_still_s}: they neither fetch nor commit while their "
        "heartbeats go on."
    )
    needs = frozenset(("group_id",))
    missing = NO_GROUPS

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        pause = self.thresholds.still_s * 1e6
        self.members = Tally()
        """Heartbeats by client id, address and group."""
        self.beats = Spans(pause)
        self.work = Spans(pause)
        """Stretches of time in which a client's heartbeats, and its fetches or commits, were never further
        apart than `still_s`."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        beats, work = calls.is_in("api_key", HEARTBEATS), calls.is_in("api_key", WORK)
        if not (beats | work).any():
            return
        self.looked += int(beats.sum())
        self.members.add(calls, beats, [calls.client, calls.coded("group_id")])
        who = _clients(calls.client)
        ended = np.maximum(calls.ints("response_end_time", -1), calls.ints("request_end_time", -1))
        for spans, which in ((self.beats, beats), (self.work, work)):
            rows = np.flatnonzero(which)
            spans.add(who.at(rows), calls.time[rows], ended[rows], (calls, rows))

    def findings(self, context: Context) -> list[Finding]:
        found = []
        for client_id, ip, group in self.members.entries:
            who = client(client_id, ip)
            still = _longest_pause(self.work.of.get(who, []), self.beats.of.get(who, []))
            seconds = (still[1] - still[0]) / 1e6
            if seconds >= self.thresholds.still_s:
                found.append(self._finding(who, group, still, seconds, context))
        return found

    def _finding(
        self, who: str, group: Any, still: tuple[int, int], seconds: float, context: Context
    ) -> Finding:
        sentence = (
            f"{who} in group {name(group)} stands still: it neither fetched nor committed for "
            f"{duration(seconds)} while its heartbeats went on. It is busy with, or stuck in, what it was "
            f"given."
        )
        shown = tuple(self._packet(who, time) for time in still)
        where = f"group_id == {literal(group)}"
        return Finding(
            self.code, WARNING, who, sentence, {"still_s": seconds}, shown, command("groups", where), seconds,
            share=context.of_clients(), brief=f"in group {name(group)} for {duration(seconds)}",
        )  # fmt: skip

    def _packet(self, who: str, time: int) -> Packet:
        """Where its work or its heartbeats end or begin."""
        known = self.work.packet(who, time) or self.beats.packet(who, time)
        return known or Packet(time, None, UNKNOWN)


def _longest_pause(work: list[tuple[int, int]], beats: list[tuple[int, int]]) -> tuple[int, int]:
    """The longest stretch within one of heartbeats after work of which there is none: it ends where work
    goes on, or where the heartbeats end."""
    pauses = [(0, 0)]
    begins = [*(first for first, _ in work), None]
    for (_, end), begin in zip(work, begins[1:], strict=True):
        for first, last in beats:
            until = last if begin is None else min(begin, last)
            if first <= end < until:
                pauses.append((end, until))
    return max(pauses, key=lambda pause: pause[1] - pause[0])


def _clients(known: Joint) -> Coded:
    """Client id and address as one text."""
    pairs = zip(*known.named(list(range(known.size))), strict=True)
    return Coded([client(*pair) for pair in pairs], known.codes)


def _summed(pairs: list[tuple[str, float]]) -> list[tuple[str, float]]:
    found: dict[str, float] = {}
    for text, count in pairs:
        found[text] = found.get(text, 0) + count
    return list(found.items())
