"""How far consumers are behind, as the wire shows it: a row for each partition that one fetches, or a group
commits. `kwsniff.analysis.positions` calculates how far; what a group was told to have committed
stands in bodies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from kwsniff.analysis.positions import COMMITS, Logs, Place, Positions
from kwsniff.analysis.positions import Lag as Committed
from kwsniff.analysis.tabular import Row
from kwsniff.count.eventrows import EventBatch

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

        logs, lags = self._positions.logs(name), list(self._positions.lags(name))
        commits: dict[Any, Committed] = {
            (row.group, row.topic, row.partition): row for row in lags if row.group is not None
        }
        counts: Counter[Any] = Counter()
        for (group, topic, part), count in self._commits.items():
            counts[group, name(topic), part] += count
        standing: dict[Any, datetime] = {}
        for (who, topic, part), (_, since) in self._moved.items():
            place = (who, name(topic), part)
            standing[place] = max(since, standing.get(place, since))
        told: dict[Any, int] = {
            (group, name(topic), part): at for (group, topic, part), at in self._told.items()
        }
        seen: set[tuple[Any, ...]] = set()
        fetches = sorted((row for row in lags if row.group is None), key=_order)
        for row in fetches:
            who = (row.address, row.client)
            for group in sorted(groups.get(who, ())) or (None,):
                key = (group, row.topic, row.partition)
                seen.add(key)
                began, asked = standing.get((who, *key[1:])), self._asked.get(who)
                still = (asked - began) / timedelta(microseconds=1) if row.lag and began and asked else None
                shown = _row(key, logs, commits.get(key), counts[key], told.get(key))
                yield shown | {
                    "client": row.client, "address": row.address, "position": row.offset, "lag": row.lag,
                    "stands_still_us": still,
                }  # fmt: skip
        for key, row in sorted(commits.items(), key=str):
            if key not in seen:
                yield _row(key, logs, row, counts[key], None)


def _row(
    key: tuple[Any, ...], logs: Logs, commits: Committed | None, count: int, told: int | None
) -> dict[str, Any]:
    """The row of a partition for a group, as if nobody fetched it."""
    group, topic, partition = key
    place: Place = (topic, partition)
    last = None
    if commits is not None:
        last = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=commits.time)
    return {
        "group": group, "topic": topic, "partition": partition, "client": None, "address": None,
        "high_watermark": logs.end(place), "position": None, "lag": None,
        "committed": told if commits is None else commits.offset,
        "commit_lag": logs.lag(place, told) if commits is None else commits.lag, "commits": count,
        "last_commit": last, "stands_still_us": None,
    }  # fmt: skip


def _order(row: Committed) -> Any:
    return row.topic, row.partition, str((row.address, row.client))


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
