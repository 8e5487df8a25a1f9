"""What the rows of each grouping are: which keys a batch of calls has, and which call belongs to which.

Texts come from the wire and may be long; keys longer than `MAX_TEXT` characters are cut, so two that begin
alike are one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from kwsniff.count.codes import Coded, Joint
from kwsniff.count.eventrows import EventBatch, EventRows
from kwsniff.count.topicstore import TopicCalls
from kwsniff.rows.columns import Ints

MAX_TEXT = 250
"""Characters; Kafka allows 249 in the name of a topic."""

Key = tuple[str | None, str]
"""A name, and what tells it from others of the same name: a client's address, a broker's port. Else empty."""
GROUPINGS = ("api", "client", "topic", "broker", "group")


class Entries(NamedTuple):
    """What a grouping counts of a batch: one for each call, or for each topic of each call."""

    keys: list[Key]
    """Distinct."""
    codes: Ints
    """Which key each entry has."""
    calls: Ints
    """The call that each entry is about."""


def by_column(calls: EventRows) -> dict[str, Entries]:
    """All groupings but that by topic."""
    every = np.arange(len(calls), dtype=np.int64)
    named = np.flatnonzero(calls.known("group_id"))
    ports = Joint.of(calls.coded("broker_ip"), calls.coded("broker_port"))
    apis = Joint.of(calls.coded("api"), calls.coded("api_key"))
    return {
        "api": Entries(*_keyed(apis, _api), every),
        "client": Entries(*_keyed(calls.client, lambda name, ip: (cut(name), ip or "")), every),
        "broker": Entries(*_keyed(ports, lambda ip, port: (ip, "" if port is None else str(port))), every),
        "group": Entries(*_keyed(calls.coded("group_id").at(named), lambda name: (cut(name), "")), named),
    }


def by_topic(seen: EventBatch, names: Mapping[str, str]) -> tuple[Entries, TopicCalls]:
    """Topics: an entry for each that a call names. `names` gives those of uuids."""
    places: dict[Key, int] = {}

    def numbers(topics: Coded) -> Ints:
        found = [
            -1 if topic is None else places.setdefault((cut(names.get(topic, topic)), ""), len(places))
            for topic in topics.values
        ]
        return np.array(found, np.int64)[topics.codes]

    pairs = TopicCalls.of(seen, numbers(seen.topics.key), numbers(seen.partitions.key))
    return Entries(list(places), pairs.topic, pairs.row), pairs


def first_topics(calls: EventBatch, names: Mapping[str, str]) -> tuple[list[str | None], Ints]:
    """The first topic that each call names, None if none, and how many it names."""
    row, key = calls.topics
    counts = np.bincount(row, minlength=len(calls.calls))
    shown = [None if topic is None else cut(names.get(topic, topic)) for topic in key.values]
    first = np.append(key.codes, 0)[np.cumsum(counts) - counts].tolist()
    return [shown[at] if count else None for at, count in zip(first, counts.tolist(), strict=True)], counts


def cut(text: str | None) -> str | None:
    """A text that is not too long."""
    return text and text[:MAX_TEXT]


def _api(name: str | None, number: int | None) -> Key:
    return name if name is not None or number is None else f"API {number}", ""


def _keyed(column: Coded | Joint, key: Callable[..., Key]) -> tuple[list[Key], Ints]:
    """The keys of a column, each once: cutting or naming may make some equal."""
    places: dict[Key, int] = {}
    values: list[list[Any]] = column.named(list(range(column.size)))
    numbers = [places.setdefault(key(*each), len(places)) for each in zip(*values, strict=True)]
    return list(places), np.array(numbers, np.int64)[column.codes]
