"""Groups over time: rebalances, members, commits, how far behind they are, and what is wrong with them.

What a group does stands in bodies; stored events without them tell only who was a member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.errors import EXPELLED
from kwsniff.analysis.lag import APIS as POSITIONS
from kwsniff.analysis.lag import COMMITS, OFFSET_FETCH, Lag, Who
from kwsniff.analysis.lag import NEEDED as LAGGING
from kwsniff.analysis.membership import (
    HEARTBEAT,
    HEARTBEATS,
    JOIN_GROUP,
    LEAVE_GROUP,
    SYNC_GROUP,
    Life,
    share_text,
)
from kwsniff.analysis.rule import Context, Finding, Rule, Thresholds, command, literal, summed
from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, calls_of, columns, names_of
from kwsniff.count.codes import Coded, Keys
from kwsniff.count.eventrows import UNKNOWN, EventBatch
from kwsniff.count.spans import Spans
from kwsniff.count.tally import Entry, Packet, Tally
from kwsniff.output.units import client, counted, duration, listed, name, times

APIS = (*POSITIONS, OFFSET_FETCH, 11, 12, 13, 14, *HEARTBEATS)
BODILESS = frozenset(POSITIONS)
"""APIs of which columns say everything."""
NEEDS = LAGGING | columns(
    """
    event time client_ip client_id api api_key error_code group_id member_id request response topics
    topic_ids partitions response_end_time status
    """
)
MAX_GROUPS = 10_000


class Groups:
    """Takes EVENTS and gives what groups did. `group`: only this one."""

    def __init__(self, group: str | None = None) -> None:
        self.needs = NEEDS
        self._only = group
        self._groups: dict[str, Life] = {}
        self._of: dict[Who, set[str]] = defaultdict(set)
        self._names: dict[str, str] = {}
        """Topics by uuid."""
        self._lag = Lag()
        self._calls = self._closed = 0

    def take(self, batch: pa.RecordBatch) -> None:
        calls = calls_of(batch)
        self._lag.take(calls)
        wanted = pc.is_in(calls["api_key"], pa.array(APIS, pa.int32()))
        wanted = pc.and_(pc.fill_null(wanted, False), pc.is_valid(calls["error_code"]))
        for row in calls.filter(wanted).select(sorted(self.needs)).to_pylist():
            self._take_call(row)

    def _take_call(self, row: Row) -> None:
        self._calls += 1
        self._names |= names_of({**row, "partitions": None})
        if row["group_id"]:
            self._of[row["client_ip"], row["client_id"]].add(row["group_id"])
        if row["api_key"] in BODILESS:
            self._lag.take_call(row)
            if row["api_key"] in COMMITS and row["group_id"]:
                self._life(row["group_id"]).seen(row, row["member_id"])
            return
        if row["request"] is None or row["response"] is None:
            self._closed += 1
            return
        request, response = orjson.loads(row["request"]), orjson.loads(row["response"])
        if row["api_key"] == OFFSET_FETCH:
            self._lag.told(row, response)
        elif row["group_id"]:
            self._life(row["group_id"]).take(row, request, response)

    def _life(self, group: str) -> Life:
        """What is known of a group; of one too many nothing is kept."""
        if group not in self._groups and len(self._groups) >= MAX_GROUPS:
            return Life()
        return self._groups.setdefault(group, Life())

    def see(self, calls: Iterable[Row]) -> None:
        """Note when members made calls that were not taken: rows with group, member, client and time."""
        for row in calls:
            self._life(row["group_id"]).seen(row, row["member_id"])

    def learn(self, names: Mapping[str, str]) -> None:
        """Take names of topics by uuid from elsewhere."""
        self._names |= names

    def tables(self) -> list[AnswerTable]:
        """Rebalances, members, lag."""
        lives = {name: life for name, life in sorted(self._groups.items()) if self._only in (None, name)}
        rebalances = [
            {"group": name, "kind": life.kind, **row, **self._named(row)}
            for name, life in lives.items()
            for row in life.timeline()
        ]
        rebalances.sort(key=lambda row: (row["time"], row["group"]))
        members = [row for name, life in lives.items() for row in self._members(name, life)]
        lag = [row for row in self._lag.rows(self._of, self._names) if self._only in (None, row["group"])]
        lag.sort(key=lambda row: -(row["lag"] or row["commit_lag"] or 0))
        return [
            AnswerTable("rebalances", "Rebalances", REBALANCES, rebalances, top=30),
            AnswerTable("members", "Members", MEMBERS, members),
            AnswerTable("lag", "Lag on the wire", LAG, lag),
        ]

    def shares(self) -> list[Row]:
        """What each member had when: group, member (its client id), from when, until when (None: it is not
        known to have ended), and the partitions as text."""
        return [
            {"group": name, **row, "share": self._with_names(row["share"])}
            for name, life in sorted(self._groups.items())
            for row in life.spans()
            if self._only in (None, name)
        ]

    def notes(self) -> list[str]:
        if self._closed:
            return [f"{self._closed:,} of {self._calls:,} calls have no bodies: read the capture to see more"]
        return []

    def _named(self, row: Row) -> dict[str, Any]:
        """Assignments with names in place of uuids."""
        return {side: [self._with_names(text) for text in row[side]] for side in ("before", "after")}

    def _with_names(self, text: str) -> str:
        for uuid, topic in self._names.items():
            text = text.replace(uuid, topic)
        return text

    def _members(self, group: str, life: Life) -> Iterator[Row]:
        for member_id, member in life.members.items():
            share = member.assignment
            told = None if share is None else self._with_names(share_text(share))
            yield {**vars(member), "group": group, "member": member_id, "end": member.end, "assignment": told}


GROUP = AnswerField("group", "text", "group", "group id")
REBALANCES = (
    AnswerField("time", "time", "time", "when it began: the first join, or the heartbeat"),
    GROUP,
    AnswerField("kind", "text", "kind", "classic, consumer (KIP-848), share or streams", 7),
    AnswerField("generation", "count", "gen", "generation, or the member's epoch"),
    AnswerField("duration_us", "duration", "took", "from the first join to the last assignment", 2),
    AnswerField("members", "count", "members", "members of the generation", 3),
    AnswerField("protocol", "text", "assignor", "how partitions are shared out", 6),
    AnswerField("trigger", "text", "because", "who joined, left, or was gone"),
    AnswerField("reasons", "list", "reasons", "as the members say (KIP-800)", 5),
    AnswerField("before", "list", "before", "assignment before", 8),
    AnswerField("after", "list", "assignment", "assignment after", 1),
    AnswerField("joined", "list", "joined", "members that were not in the generation before", 9),
    AnswerField("left", "list", "left", "members that are no longer", 9),
)
MEMBERS = (
    GROUP,
    AnswerField("client", "text", "client", "client id"),
    AnswerField("address", "text", "address", "its address", 4),
    AnswerField("member", "text", "member", "member id", 7),
    AnswerField("instance", "text", "instance", "static membership (KIP-345)", 5),
    AnswerField("generation", "count", "gen", "last generation or epoch", 2),
    AnswerField("assignment", "text", "assignment", "the last it was given", 1),
    AnswerField("first_time", "time", "first seen", "packet time of its first call", 3),
    AnswerField("last_time", "time", "last seen", "packet time of its last call", 3),
    AnswerField("end", "text", "end", "how it ended, if it did", 2),
)
LAG = (
    GROUP,
    AnswerField("topic", "text", "topic", "topic"),
    AnswerField("partition", "count", "part", "partition"),
    AnswerField("client", "text", "client", "client that fetches it", 1),
    AnswerField("address", "text", "address", "its address", 8),
    AnswerField("high_watermark", "count", "end", "of the log, as anybody was told last", 3),
    AnswerField("position", "count", "position", "offset asked for last", 3),
    AnswerField("lag", "count", "lag", "records between the two, but for those that retention took"),
    AnswerField("committed", "count", "committed", "offset committed last", 4),
    AnswerField("commit_lag", "count", "uncommitted", "records between commit and end", 2),
    AnswerField("commits", "count", "commits", "commits seen", 6),
    AnswerField("last_commit", "time", "last commit", "packet time of the last", 5),
    AnswerField(
        "stands_still_us", "duration", "still for", "behind, and asking for the same offset that long", 1
    ),
)


# What is wrong with groups.

BEATS = (HEARTBEAT, *HEARTBEATS)
WORK = (1, 78, 79, 8, 28)
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
    needs = columns("group_id member_id generation reason error_code")
    missing = NO_GROUPS

    members: Tally
    """JoinGroup and SyncGroup calls by group, client id and address."""
    left: Tally
    """LeaveGroup calls by group, client id, address and reason."""
    expelled: Tally
    epochs: Tally
    """Heartbeats of the new protocols by group: the greatest epoch, and the least with its sign changed."""

    def __init__(self, thresholds: Thresholds) -> None:
        super().__init__(thresholds)
        self.spans = Spans(thresholds.rebalance_pause_ms * 1000)

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        group = calls.coded("group_id")
        joins = calls.is_in("api_key", (JOIN_GROUP, SYNC_GROUP))
        self.looked += int((joins | calls.is_in("api_key", BEATS)).sum())
        who: Keys = [group, calls.client]
        if joins.any():
            rows = np.flatnonzero(joins)
            begin, end = calls.ints("request_time", -1)[rows], calls.ints("response_end_time", -1)[rows]
            self.spans.add(group.at(rows), begin, np.maximum(begin, end))
            self.members.add(calls, joins, who)
        ok = calls.ints("error_code") == 0
        self.left.add(calls, calls.is_in("api_key", (LEAVE_GROUP,)) & ok, [*who, calls.coded("reason")])
        self.expelled.add(calls, calls.is_in("error_code", EXPELLED), who)
        epoch = calls.floats("generation")
        beats = calls.is_in("api_key", tuple(HEARTBEATS)) & (epoch > 0)
        self.epochs.add(calls, beats, [group], maxes=[epoch, -epoch])

    def findings(self, context: Context) -> Iterable[Finding]:
        for (group,), entry in self.members.by(0).items():
            spans = self.spans.of.get(name(group), [])
            if self._too_many(len(spans), entry):
                busy = sum(last - first for first, last in spans) / 1e6
                members = listed(client(key[1], key[2]) for key in self.members.of(0, group))
                brief = f"rebalanced {times(len(spans))} in {duration(entry.span_s)} and spent "
                numbers = {"rebalances": len(spans), "rebalancing_s": busy, "span_s": entry.span_s}
                yield self._row(group, f"{brief}{duration(busy)} on it ({members})", numbers, entry, context)
        for (group,), entry in self.epochs.entries.items():
            last, first = int(entry.maxes[0]), int(-entry.maxes[1])
            if self._too_many(last - first, entry):
                brief = f"was assigned anew {times(last - first)} in {duration(entry.span_s)} "
                numbers = {"rebalances": last - first, "span_s": entry.span_s}
                yield self._row(group, f"{brief}(epoch {first} to {last})", numbers, entry, context)

    def _too_many(self, count: int, entry: Entry) -> bool:
        often = entry.span_s < count * self.thresholds.rebalance_every_s
        return count >= self.thresholds.rebalances and often

    def _row(
        self, group: Any, brief: str, numbers: dict[str, float], entry: Entry, context: Context
    ) -> Finding:
        members = {key[1:3] for key in (*self.members.entries, *self.left.entries) if key[0] == group}
        return self.found(
            "warning", name(group), f"Group {name(group)} {brief}.{self._why(group)}", numbers, entry,
            command("groups", f"group_id == {literal(group)}"), weight=numbers["rebalances"],
            share=context.of_clients(max(len(members), 1)), brief=brief,
        )  # fmt: skip

    def _why(self, group: Any) -> str:
        left = self.left.of(0, group)
        expelled = self.expelled.of(0, group)
        parts = []
        if left:
            reasons = summed((name(key[3]), e.count) for key, e in left.items() if key[3])
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
    needs = columns("group_id reason error_code")
    missing = NO_GROUPS
    apis = (*BEATS, SYNC_GROUP, JOIN_GROUP, 8)
    """8: OffsetCommit."""

    members: Tally
    polls: Tally

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        self.looked += int(calls.is_in("api_key", BEATS).sum())
        keys: Keys = [calls.coded("group_id"), calls.client]
        mine = calls.is_in("api_key", self.apis) & calls.is_in("error_code", EXPELLED)
        self.members.add(calls, mine, keys)
        late = calls.coded("reason").matching(lambda each: "poll timeout" in (each or ""))
        self.polls.add(calls, late & calls.is_in("api_key", (LEAVE_GROUP,)), keys)

    def findings(self, context: Context) -> Iterable[Finding]:
        for tally, what, why in (
            (self.members, "was expelled from", "its heartbeats came too late (session.timeout.ms)"),
            (self.polls, "gave up its place in", "it did not poll in time (max.poll.interval.ms)"),
        ):
            for (group, *who), entry in tally.entries.items():
                brief = f"{what} group {name(group)} {times(entry.count)}: {why}"
                yield self.found(
                    "warning", client(*who), f"{client(*who)} {brief}.", {"times": entry.count}, entry,
                    command("groups", f"group_id == {literal(group)}"), share=context.of_clients(),
                    brief=brief,
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
    needs = columns("group_id")
    missing = NO_GROUPS

    members: Tally
    """Heartbeats by client id, address and group."""

    def __init__(self, thresholds: Thresholds) -> None:
        super().__init__(thresholds)
        self.beats, self.work = (Spans(thresholds.still_s * 1e6) for _ in range(2))
        """Stretches of time in which a client's heartbeats, and its fetches or commits, were never further
        apart than `still_s`."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        beats, work = calls.is_in("api_key", BEATS), calls.is_in("api_key", WORK)
        if not (beats | work).any():
            return
        self.looked += int(beats.sum())
        self.members.add(calls, beats, [calls.client, calls.coded("group_id")])
        pairs = zip(*calls.client.named(list(range(calls.client.size))), strict=True)
        who = Coded([client(*pair) for pair in pairs], calls.client.codes)
        ended = np.maximum(calls.ints("response_end_time", -1), calls.ints("request_end_time", -1))
        for spans, which in ((self.beats, beats), (self.work, work)):
            rows = np.flatnonzero(which)
            spans.add(who.at(rows), calls.time[rows], ended[rows], (calls, rows))

    def findings(self, context: Context) -> Iterable[Finding]:
        for client_id, ip, group in self.members.entries:
            who = client(client_id, ip)
            still = _longest_pause(self.work.of.get(who, []), self.beats.of.get(who, []))
            seconds = (still[1] - still[0]) / 1e6
            if seconds < self.thresholds.still_s:
                continue
            sentence = (
                f"{who} in group {name(group)} stands still: it neither fetched nor committed for "
                f"{duration(seconds)} while its heartbeats went on. It is busy with, or stuck in, what it "
                "was given."
            )
            yield self.found(
                "warning", who, sentence, {"still_s": seconds},
                tuple(self._packet(who, time) for time in still),
                command("groups", f"group_id == {literal(group)}"), share=context.of_clients(),
                brief=f"in group {name(group)} for {duration(seconds)}",
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
