"""How far consumers are behind, as the wire shows it: a row for each partition that one fetches, or a group
commits. `kwsniff.findings.positions` calculates how far; what a group was told to have committed
stands in bodies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kwsniff.answers.tabular import Row
from kwsniff.findings.positions import COMMITS, Ends, Logs, Place, Positions, renamed
from kwsniff.report.eventrows import EventBatch

FETCH, OFFSET_FETCH = 1, 9
KEPT = 500_000
"""Partitions of consumers and groups, each, that are followed."""
Who = tuple[str | None, str | None]


class Lag:
    """Positions of consumers and commits of groups."""

    def __init__(self) -> None:
        self._positions = Positions(KEPT)
        self._moved: dict[tuple[Who, str | None, int], tuple[int, datetime]] = {}
        """The offset that a consumer asks for, and since when."""
        self._asked: dict[Who, datetime] = {}
        """When a consumer asked last."""
        self._told: dict[tuple[str | None, str, int], int] = {}
        """Offsets that groups were told to have committed."""
        self._commits: dict[tuple[str | None, str | None, int], int] = {}

    def take(self, calls: pa.RecordBatch) -> None:
        """Take calls of EVENTS."""
        self._positions.take(EventBatch(calls))

    def take_call(self, row: Row) -> None:
        """Take one of them, too, if it was answered."""
        parts = row["partitions"] or ()
        if row["api_key"] == FETCH:
            who = (row["client_ip"], row["client_id"])
            self._asked[who] = row["time"]
            for part in (*parts, *(row["asked"] or ())):
                offset, key = (
                    part["fetch_offset"],
                    (who, part["topic"] or part["topic_id"], part["partition"]),
                )
                known = self._moved.get(key)
                room = known is not None or len(self._moved) < KEPT
                if offset is not None and room and (known is None or known[0] != offset):
                    self._moved[key] = offset, row["time"]
        elif row["api_key"] in COMMITS:
            for part in parts:
                if not part["error_code"] and (part["committed_offset"] or 0) >= 0:
                    place = (row["group_id"], part["topic"] or part["topic_id"], part["partition"])
                    self._commits[place] = self._commits.get(place, 0) + 1

    def told(self, row: Row, response: Row) -> None:
        """Take the body of an answered OffsetFetch."""
        for group in response.get("groups") or [{**response, "group_id": row["group_id"]}]:
            for topic, part in _parts(group.get("topics"), names_of(row)):
                if part.get("committed_offset", -1) >= 0:
                    key = (group["group_id"], topic, part["partition_index"])
                    self._told.setdefault(key, part["committed_offset"])

    def rows(self, groups: Mapping[Who, set[str]], names: Mapping[str, str]) -> Iterator[Row]:
        """A row for each partition that a consumer fetches or a group commits. `groups` are those of each
        client, `names` topics by uuid."""

        def name(topic: Any) -> str:
            return str(names.get(topic, topic))

        logs = self._positions.logs(name)
        commits = renamed(self._positions.commits.of, name)
        counts: Counter[Any] = Counter()
        for (group, topic, part), count in self._commits.items():
            counts[group, name(topic), part] += count
        standing: dict[Any, datetime] = {}
        for (who, topic, part), (_, since) in self._moved.items():
            place = (who, name(topic), part)
            standing[place] = max(since, standing.get(place, since))
        told = {(group, name(topic), part): at for (group, topic, part), at in self._told.items()}
        seen: set[tuple[Any, ...]] = set()
        fetches = renamed(self._positions.fetches.of, name)
        for (client, ip, topic, part), ends in sorted(fetches.items(), key=_order):
            for group in sorted(groups.get((ip, client), ())) or (None,):
                key = (group, topic, part)
                seen.add(key)
                row = _row(key, logs, ends, commits.get(key), counts[key], told.get(key))
                began, asked = standing.get(((ip, client), topic, part)), self._asked.get((ip, client))
                still = (
                    (asked - began) / timedelta(microseconds=1) if row["lag"] and began and asked else None
                )
                yield row | {"client": client, "address": ip, "stands_still_us": still}
        for key, ends in sorted(commits.items(), key=str):
            if key not in seen and key[0] is not None:
                yield _row(key, logs, None, ends, counts[key], None)


def _row(
    key: tuple[Any, ...], logs: Logs, fetched: Ends | None, commits: Ends | None, count: int, told: int | None
) -> dict[str, Any]:
    group, topic, partition = key
    place: Place = (topic, partition)
    position = None if fetched is None else int(fetched[1].offset)
    committed = told if commits is None else int(commits[1].offset)
    last = (
        None
        if commits is None
        else datetime.fromtimestamp(0, UTC) + timedelta(microseconds=commits[1].packet.time)
    )
    return {
        "group": group, "topic": topic, "partition": partition, "client": None, "address": None,
        "high_watermark": logs.end(place), "position": position, "lag": logs.lag(place, position),
        "committed": committed, "commit_lag": logs.lag(place, committed), "commits": count,
        "last_commit": last, "stands_still_us": None,
    }  # fmt: skip


def _order(item: Any) -> Any:
    client, ip, topic, partition = item[0]
    return topic, partition, str((ip, client))


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
