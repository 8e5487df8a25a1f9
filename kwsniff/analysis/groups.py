"""Groups over time: rebalances, members, commits, and how far behind they are.

What a group does stands in bodies; stored events without them tell only who was a member.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.lag import OFFSET_FETCH, Lag, Who
from kwsniff.analysis.membership import HEARTBEATS, Life, Member, share_text
from kwsniff.analysis.positions import APIS as POSITIONS
from kwsniff.analysis.positions import COMMITS
from kwsniff.analysis.positions import NEEDED as LAGGING
from kwsniff.analysis.tabular import AnswerField, AnswerTable, Row, calls_of

APIS = (*POSITIONS, OFFSET_FETCH, 11, 12, 13, 14, *HEARTBEATS)
BODILESS = frozenset(POSITIONS)
"""APIs of which columns say everything."""
NEEDS = frozenset(
    (
        *("event", "time", "client_ip", "client_id", "api", "api_key", "error_code", "group_id", "member_id"),
        *("request", "response", "topics", "topic_ids", "partitions", "response_end_time", "status"),
        *LAGGING,
    )
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
        self._learn_names(row)
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

    def _learn_names(self, row: Row) -> None:
        for uuid, name in zip(row["topic_ids"] or (), row["topics"] or (), strict=False):
            if uuid and name:
                self._names[uuid] = name

    def tables(self) -> list[AnswerTable]:
        """Rebalances, members, lag."""
        lives = {name: life for name, life in sorted(self._groups.items()) if self._only in (None, name)}
        rebalances = [
            {"group": name, "kind": life.kind, **self._named(row)}
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
        """The same with names in place of uuids."""
        return {
            **row,
            **{side: [self._with_names(text) for text in row[side]] for side in ("before", "after")},
        }

    def _with_names(self, text: str) -> str:
        for uuid, name in self._names.items():
            text = text.replace(uuid, name)
        return text

    def _members(self, group: str, life: Life) -> Iterator[Row]:
        for member_id, member in life.members.items():
            yield {
                "group": group, "client": member.client, "address": member.address, "member": member_id,
                "instance": member.instance, "generation": member.generation, "first_time": member.first,
                "last_time": member.last, "end": _end(member),
                "assignment": self._with_names(share_text(member.assignment)) if member.assignment is not None
                else None,
            }  # fmt: skip


def _end(member: Member) -> str | None:
    if member.left is None:
        return None
    return "left" if member.why in (None, "left") else f"left: {member.why}"


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
