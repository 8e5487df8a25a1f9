"""Consumers that fall behind: how far the end of a partition is from what they fetch, and from what they
commit.

The end of a partition is the greatest offset that anybody is told of: its high watermark in Fetch responses,
and one beyond what a Produce response says was written. A group's distance from it is that of its last
commit; that of a consumer outside of groups, or whose commits are not shown, is that of its last Fetch.

A group that commits every few seconds is always behind by what came since. So its distance at its first and
at its last commit are compared, with an end of the partition that moved evenly from its first reading to its
last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from kwsniff.findings.finding import WARNING, Finding, command, literal
from kwsniff.findings.readings import Reading, Readings, when
from kwsniff.findings.rule import Context, Rule
from kwsniff.findings.tally import Key, Packet, Tally
from kwsniff.findings.words import client, duration, many, name
from kwsniff.report.eventrows import EventBatch, Keys

PRODUCE, FETCH, COMMITS, HEARTBEATS = (0,), (1,), (8, 28), (12, 68, 76, 88)


class Behind(NamedTuple):
    """How far somebody is behind in one partition."""

    place: str
    lag: float
    numbers: dict[str, float]
    shown: tuple[Packet, Packet]
    words: str


class FallsBehind(Rule):
    """A group commits more slowly than records come to a partition, or a consumer is further behind the end
    of one at its last Fetch than at its first, and by a good deal. Give the group more members (there may be
    as many as partitions), make their work quicker, or fetch more at once. A member that stands still has a
    rule of its own."""

    code = "consumer_falls_behind"
    about = "lag"
    needs = frozenset(("partitions", "group_id"))
    missing = "no ends of partitions with positions in them"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.fetches = Readings()
        self.commits = Readings()
        self.ends = Readings()
        self.members = Tally()
        """Heartbeats and commits by client id, address and group."""

    def take(self, batch: EventBatch) -> None:
        calls = batch.calls
        kinds = [calls.is_in("api_key", keys) for keys in (PRODUCE, FETCH, COMMITS)]
        who: Keys = [calls.client]
        group = calls.coded("group_id")
        self.members.add(calls, calls.is_in("api_key", HEARTBEATS) | kinds[2], [*who, group])
        if not np.logical_or.reduce(kinds).any():
            return
        parts = batch.partitions
        produced, fetched, committed = (kind[parts.row] for kind in kinds)
        end, offset = parts.floats("high_watermark"), parts.floats("fetch_offset")
        commit = parts.floats("committed_offset")
        with np.errstate(invalid="ignore"):
            self.looked += self.fetches.add(batch, fetched & (offset >= 0) & (end >= 0), who, offset, end)
            self.looked += self.commits.add(batch, committed & (commit >= 0), [group], commit, commit)
            self.ends.add(batch, fetched & (end >= 0), [], end, end)
            written = parts.floats("base_offset") + parts.floats("records")
            sure = produced & (parts.floats("base_offset") >= 0) & (parts.ints("error_code") == 0)
            self.ends.add(batch, sure & (written > 0), [], written, written)

    def findings(self, context: Context) -> list[Finding]:
        found = []
        groups = self._groups(context)
        for group, rows in groups.items():
            subject, where = f"Group {name(group)}", f"group_id == {literal(group)}"
            found.append(self._finding(subject, name(group), where, rows))
        told = {key[:2] for key in self.members.entries if key[2] in groups}
        for who, rows in self._consumers(context).items():
            if who not in told:
                where = f"client_id == {literal(who[0])}"
                found.append(self._finding(client(*who), client(*who), where, rows))
        return found

    def _groups(self, context: Context) -> dict[Any, list[Behind]]:
        ends: dict[Key, tuple[Reading, Reading]] = {}
        for (topic, partition), (first, last) in self.ends.of.items():
            key = (context.topic(topic), partition)
            known = ends.get(key, (first, last))
            ends[key] = (min(known[0], first, key=when), max(known[1], last, key=when))
        behind: dict[Any, list[Behind]] = {}
        for (group, topic, partition), commits in self.commits.of.items():
            end = ends.get((context.topic(topic), partition))
            row = (
                None
                if end is None
                else self._by_commits(commits, end, f"{context.topic(topic)}[{partition}]")
            )
            if row is not None:
                behind.setdefault(group, []).append(row)
        return behind

    def _by_commits(
        self, commits: tuple[Reading, Reading], ends: tuple[Reading, Reading], place: str
    ) -> Behind | None:
        done = max(commits[1].offset - commits[0].offset, 0.0)
        came = ends[1].offset - ends[0].offset
        lag = ends[1].offset - commits[1].offset
        before, after = (max(_end_at(ends, each.packet.time) - each.offset, 0.0) for each in commits)
        limits = self.thresholds
        if after < limits.lag_records or after < limits.lag_growth * max(before, 1.0):
            return None
        seconds = (commits[1].packet.time - commits[0].packet.time) / 1e6
        numbers = {"lag_last": lag, "committed": done, "came": came, "span_s": seconds}
        words = (
            f"committed {int(done):,} of the {many(came, 'record')} that came to {name(place)}, and is "
            f"{int(lag):,} behind"
        )
        return Behind(place, lag, numbers, (commits[0].packet, commits[1].packet), words)

    def _consumers(self, context: Context) -> dict[Key, list[Behind]]:
        behind: dict[Key, list[Behind]] = {}
        for (client_id, ip, topic, partition), (first, last) in self.fetches.of.items():
            grown = last.lag >= self.thresholds.lag_growth * max(first.lag, 1.0)
            if last.lag >= self.thresholds.lag_records and grown:
                place = f"{context.topic(topic)}[{partition}]"
                seconds = (last.packet.time - first.packet.time) / 1e6
                numbers = {"lag_first": first.lag, "lag_last": last.lag, "span_s": seconds}
                words = (
                    f"was {int(first.lag):,} and is {many(last.lag, 'record')} behind in {name(place)}, "
                    f"{duration(seconds)} later"
                )
                row = Behind(place, last.lag, numbers, (first.packet, last.packet), words)
                behind.setdefault((client_id, ip), []).append(row)
        return behind

    def _finding(self, subject: str, who: str, where: str, rows: list[Behind]) -> Finding:
        worst = max(rows, key=lambda row: (row.lag, row.place))
        more = f" (and {many(len(rows) - 1, 'partition')} more)" if len(rows) > 1 else ""
        sentence = f"{subject} falls behind: it {worst.words}{more}."
        numbers = {**worst.numbers, "partitions": len(rows)}
        return Finding(
            self.code,
            WARNING,
            who,
            sentence,
            numbers,
            worst.shown,
            command("groups", where, "--table lag"),
            worst.lag,
        )


def _end_at(ends: tuple[Reading, Reading], time: int) -> float:
    """Where the end of a partition was at some time, if it moved evenly."""
    first, last = ends
    span = last.packet.time - first.packet.time
    part = (time - first.packet.time) / span if span > 0 else 1.0
    return first.offset + min(max(part, 0.0), 1.0) * (last.offset - first.offset)
