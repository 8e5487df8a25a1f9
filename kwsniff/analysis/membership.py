"""The life of a group as its calls show it: who joined and left and why, which generation brought which
assignment.

Classic groups rebalance together: the joins that are answered with one generation are one rebalance, which
lasts until the last member has synchronised. In the newer protocols (KIP-848, share and streams groups) the
coordinator gives each member its share in a heartbeat: each new assignment is a line of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kwsniff.analysis.tabular import Row, Seen

JOIN_GROUP, HEARTBEAT, LEAVE_GROUP, SYNC_GROUP = 11, 12, 13, 14
HEARTBEATS = {68: "consumer (KIP-848)", 76: "share", 88: "streams"}
"""Heartbeats that carry assignments, and the kind of their groups."""
NAMES = ("topic", "topic_name", "topic_id", "subtopology_id")
LEAVES = (-1, -2)
"""Member epochs that say goodbye: for good, and for a static member for a while."""
Share = dict[str, list[int]]
"""Partitions by topic."""


@dataclass
class Member(Seen):
    """One member, by its id."""

    client: str | None = None
    address: str | None = None
    instance: str | None = None
    assignment: Share | None = None
    generation: int | None = None
    left: datetime | None = None
    why: str | None = None

    @property
    def end(self) -> str | None:
        """How it ended, if it did."""
        if self.left is None:
            return None
        return "left" if self.why in (None, "left") else f"left: {self.why}"


@dataclass(slots=True)
class Rebalance:
    """One generation of a classic group."""

    generation: int
    start: datetime
    joined: datetime
    """When the last of the joins was answered."""
    end: datetime | None = None
    """When the last member had its assignment."""
    members: set[str] = field(default_factory=set)
    protocol: str | None = None
    reasons: list[str] = field(default_factory=list)
    shares: dict[str, Share] = field(default_factory=dict)


@dataclass(slots=True)
class Life:
    """What was seen of one group."""

    kind: str = "classic"
    members: dict[str, Member] = field(default_factory=dict)
    rebalances: dict[int, Rebalance] = field(default_factory=dict)
    changes: list[Row] = field(default_factory=list)
    """Of newer protocols: the lines of the timeline."""

    def take(self, row: Row, request: Row, response: Row) -> None:
        """Take one answered call."""
        key = row["api_key"]
        if key == JOIN_GROUP:
            self._join(row, request, response)
        elif key == SYNC_GROUP:
            self._sync(row, request, response)
        elif key == LEAVE_GROUP:
            self._leave(row, request)
        elif key in HEARTBEATS:
            self.kind = HEARTBEATS[key]
            self._heartbeat(row, request, response)
        elif key == HEARTBEAT:
            self.seen(row, request.get("member_id"))

    def seen(self, row: Row, member_id: str | None) -> Member | None:
        """Note that a member made a call; the member, None without an id."""
        if not member_id:
            return None
        new = Member(client=row["client_id"], address=row["client_ip"])
        member = self.members.setdefault(member_id, new)
        member.see(row["time"], row["time"])
        return member

    def _join(self, row: Row, request: Row, response: Row) -> None:
        # Refused joins count as well: with the first one a new member is given its id.
        member = self.seen(row, response.get("member_id") or request.get("member_id"))
        if row["error_code"]:
            return
        generation = response.get("generation_id")
        if member is None or generation is None:
            return
        member.instance = request.get("group_instance_id") or member.instance
        end = row["response_end_time"] or row["time"]
        found = self.rebalances.setdefault(generation, Rebalance(generation, row["time"], end))
        found.start, found.joined = min(found.start, row["time"]), max(found.joined, end)
        found.members.add(response["member_id"])
        found.members.update(each["member_id"] for each in response.get("members") or ())
        found.protocol = response.get("protocol_name") or found.protocol
        if request.get("reason") and request["reason"] not in found.reasons:
            found.reasons.append(request["reason"])

    def _sync(self, row: Row, request: Row, response: Row) -> None:
        member = self.seen(row, request.get("member_id"))
        found = self.rebalances.get(request.get("generation_id", -1))
        if row["error_code"] or member is None:
            return
        member.assignment = share_of(response.get("assignment"))
        member.generation = request.get("generation_id")
        if found is not None:
            end = row["response_end_time"] or row["time"]
            found.end = end if found.end is None else max(found.end, end)
            found.shares[request["member_id"]] = member.assignment

    def _leave(self, row: Row, request: Row) -> None:
        for each in request.get("members") or [request]:
            instance = each.get("group_instance_id")
            member = self.seen(row, each.get("member_id")) or self._by_instance(instance)
            if member is not None and not row["error_code"]:
                member.left, member.why = row["time"], each.get("reason") or "left"

    def _by_instance(self, instance: str | None) -> Member | None:
        return next((each for each in self.members.values() if instance and each.instance == instance), None)

    def _heartbeat(self, row: Row, request: Row, response: Row) -> None:
        member_id = response.get("member_id") or request.get("member_id")
        fresh = bool(member_id) and member_id not in self.members
        member = self.seen(row, member_id)
        if member is None or row["error_code"]:
            return
        epoch = request.get("member_epoch")
        member.instance = request.get("instance_id") or member.instance
        before, trigger = member.assignment, "joined" if fresh and epoch == 0 else "assigned"
        if epoch in LEAVES:
            member.left, member.why = row["time"], "left"
            member.assignment, trigger = {}, "left"
        elif response.get("assignment") is not None or response.get("active_tasks") is not None:
            member.assignment = share_of(response.get("assignment") or response)
        elif trigger != "joined":
            return
        if epoch not in LEAVES:
            member.generation = response.get("member_epoch", member.generation)
        self.changes.append({
            "time": row["time"], "trigger": f"{member.client or member_id} {trigger}", "who": member_id,
            "generation": member.generation, "before": before, "after": member.assignment,
        })  # fmt: skip

    # The timeline

    def timeline(self) -> Iterator[Row]:
        """Rebalances and assignments in the order of time."""
        yield from self._rebalance_rows()
        for change in self.changes:
            name = self._name(change["who"])
            yield {
                "time": change["time"], "generation": change["generation"], "trigger": change["trigger"],
                "before": _told({name: change["before"]}), "after": _told({name: change["after"]}),
                "members": None, "protocol": self.kind,
            }  # fmt: skip

    def spans(self) -> Iterator[Row]:
        """What each member had when: a row for each stretch of time; `until` is None if no end was seen."""
        given = [
            (found.end or found.joined, member_id, found.shares.get(member_id))
            for _, found in sorted(self.rebalances.items())
            for member_id in sorted(found.members | set(self.members))
        ]
        given += [(change["time"], change["who"], change["after"]) for change in self.changes]
        by_member: dict[str, list[tuple[datetime, Share | None]]] = {}
        for time, member_id, share in given:
            by_member.setdefault(member_id, []).append((time, share))
        for member_id, shares in by_member.items():
            yield from self._spans_of(member_id, sorted(shares, key=lambda item: item[0]))

    def _spans_of(self, member_id: str, shares: list[tuple[datetime, Share | None]]) -> Iterator[Row]:
        member = self.members.get(member_id)
        left = member.left if member else None
        for place, (time, share) in enumerate(shares):
            if share is None or (left is not None and left <= time):
                continue
            until = shares[place + 1][0] if place + 1 < len(shares) else None
            if left is not None:
                until = left if until is None else min(until, left)
            yield {"member": self._name(member_id), "member_id": member_id, "from": time, "until": until,
                   "share": share_text(share)}  # fmt: skip

    def _rebalance_rows(self) -> Iterator[Row]:
        before: Rebalance | None = None
        shares: dict[str, Share] = {}
        for generation in sorted(self.rebalances):
            found = self.rebalances[generation]
            end = found.end or found.joined
            yield {
                "time": found.start, "generation": generation, "trigger": self._trigger(found, before),
                "reasons": found.reasons, "protocol": found.protocol, "members": len(found.members),
                "duration_us": (end - found.start).total_seconds() * 1e6,
                "joined": sorted(map(self._name, found.members - (before.members if before else set()))),
                "left": sorted(map(self._name, (before.members if before else set()) - found.members)),
                "before": self._shares(shares), "after": self._shares(found.shares),
            }  # fmt: skip
            before, shares = found, found.shares

    def _trigger(self, found: Rebalance, before: Rebalance | None) -> str:
        if before is None:
            names = ", ".join(sorted(map(self._name, found.members)))
            return f"{names} joined" if found.generation <= 1 else f"seen first: {names}"
        new, gone = found.members - before.members, before.members - found.members
        parts = [f"{self._name(each)} joined" for each in sorted(new)]
        ends = {each: self.members[each].end if each in self.members else None for each in sorted(gone)}
        parts += [f"{self._name(each)} {end or 'was gone without leaving'}" for each, end in ends.items()]
        return ", ".join(parts) or "the same members joined again"

    def _name(self, member_id: str) -> str:
        member = self.members.get(member_id)
        return (member.client if member else None) or member_id

    def _shares(self, shares: dict[str, Share]) -> list[str]:
        return _told({self._name(each): share for each, share in shares.items()})


def _told(shares: dict[str, Share | None]) -> list[str]:
    return [f"{name}: {share_text(share)}" for name, share in sorted(shares.items()) if share is not None]


def share_of(assignment: Any) -> Share:
    """The partitions of an assignment, by topic (or its uuid, or the subtopology of a streams task)."""
    if not isinstance(assignment, dict):
        return {}
    body = assignment.get("data", assignment)
    parts = body.get("assigned_partitions") or body.get("topic_partitions") or body.get("active_tasks") or ()
    found: Share = {}
    for each in parts:
        name = next((each[key] for key in NAMES if each.get(key)), None)
        found[str(name)] = sorted(each.get("partitions") or ())
    return found


def share_text(share: Share) -> str:
    """`orders[0-3,5]`, or `nothing`."""
    return " ".join(f"{topic}[{_ranges(numbers)}]" for topic, numbers in sorted(share.items())) or "nothing"


def _ranges(numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
