"""How far consumers are behind, as the wire shows it: the end of the log beside what they fetch and commit.

The high watermark is that of Fetch responses, the position the offset that the consumer asked for last, the
commit what it committed, or was told to have committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kwsniff.answers.tabular import Row

FETCH, OFFSET_COMMIT, OFFSET_FETCH = 1, 8, 9
Who = tuple[str | None, str | None]


@dataclass(slots=True)
class Position:
    """One partition of one consumer."""

    watermark: int | None = None
    offset: int | None = None
    moved: datetime | None = None
    """When it last asked for another offset."""
    asked: datetime | None = None
    """When it last asked at all."""


@dataclass(slots=True)
class Commit:
    """What a group committed of one partition."""

    offset: int | None = None
    time: datetime | None = None
    commits: int = 0


class Lag:
    """Positions of consumers and commits of groups."""

    def __init__(self) -> None:
        self.positions: dict[tuple[Who, str, int], Position] = {}
        self.commits: dict[tuple[str, str, int], Commit] = {}

    def fetch(self, row: Row, request: Row, response: Row) -> None:
        """Take an answered Fetch."""
        who, names = (row["client_ip"], row["client_id"]), names_of(row)
        for topic, part in _parts(request.get("topics"), names):
            position = self.positions.setdefault((who, topic, part["partition"]), Position())
            offset = part.get("fetch_offset")
            if offset != position.offset:
                position.offset, position.moved = offset, row["time"]
            position.asked = row["time"]
        for topic, part in _parts(response.get("responses"), names):
            number = part.get("partition_index", part.get("partition"))
            position = self.positions.get((who, topic, number)) or Position()
            if part.get("high_watermark", -1) >= 0:
                position.watermark = part["high_watermark"]
                self.positions[who, topic, number] = position
        # An incremental Fetch that names nothing asks for what it asked for before.
        if not request.get("topics"):
            for (asker, _, _), position in self.positions.items():
                if asker == who:
                    position.asked = row["time"]

    def commit(self, row: Row, request: Row) -> None:
        """Take an answered OffsetCommit."""
        failed = {(part["topic"] or part["topic_id"], part["partition"]) for part in row["partitions"] or ()
                  if part["error_code"]}  # fmt: skip
        for topic, part in _parts(request.get("topics"), names_of(row)):
            if (topic, part["partition_index"]) not in failed:
                found = self.commits.setdefault((row["group_id"], topic, part["partition_index"]), Commit())
                found.offset, found.time = part.get("committed_offset"), row["time"]
                found.commits += 1

    def told(self, row: Row, response: Row) -> None:
        """Take an answered OffsetFetch."""
        for group in response.get("groups") or [{**response, "group_id": row["group_id"]}]:
            for topic, part in _parts(group.get("topics"), names_of(row)):
                found = self.commits.setdefault((group["group_id"], topic, part["partition_index"]), Commit())
                if found.time is None and part.get("committed_offset", -1) >= 0:
                    found.offset = part["committed_offset"]

    def rows(self, groups: dict[Who, set[str]]) -> Iterator[Row]:
        """A row for each partition that a group fetches or commits. `groups` are those of each client."""
        seen: set[tuple[str, str, int]] = set()
        for (who, topic, partition), position in sorted(self.positions.items(), key=_order):
            for group in sorted(groups.get(who, ())):
                seen.add((group, topic, partition))
                commit = self.commits.get((group, topic, partition))
                yield _row(group, topic, partition, who, position, commit)
        for (group, topic, partition), commit in sorted(self.commits.items(), key=str):
            if (group, topic, partition) not in seen and commit.commits:
                yield _row(group, topic, partition, (None, None), Position(), commit)


def _order(item: Any) -> Any:
    return str(item[0][1]), item[0][2], str(item[0][0])


def _row(group: str, topic: str, partition: int, who: Who, position: Position, commit: Commit | None) -> Row:
    end, offset = position.watermark, position.offset
    committed = commit.offset if commit else None
    lag = max(end - offset, 0) if end is not None and offset is not None and offset >= 0 else None
    still = None
    if lag and position.asked is not None and position.moved is not None:
        still = (position.asked - position.moved).total_seconds() * 1e6
    return {
        "group": group, "topic": topic, "partition": partition, "client": who[1], "address": who[0],
        "high_watermark": end, "position": offset, "lag": lag, "committed": committed,
        "commit_lag": max(end - committed, 0) if end is not None and committed is not None else None,
        "commits": commit.commits if commit else 0, "last_commit": commit.time if commit else None,
        "stands_still_us": still,
    }  # fmt: skip


def names_of(row: Row) -> dict[str, str]:
    """Topics of a call by uuid."""
    pairs = zip(row["topic_ids"] or (), row["topics"] or (), strict=False)
    parts = ((part["topic_id"], part["topic"]) for part in row["partitions"] or ())
    return {uuid: name for uuid, name in (*pairs, *parts) if uuid and name}


def _parts(topics: Any, names: dict[str, str]) -> Iterator[tuple[str, Row]]:
    for topic in topics or ():
        uuid = topic.get("topic_id")
        name = topic.get("topic") or topic.get("name") or names.get(uuid, uuid)
        for part in topic.get("partitions") or ():
            yield str(name), part
