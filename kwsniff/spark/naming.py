"""Names of topics by uuid, learnt by the tasks that make the rows which name them.

Theory of operation. The name of a uuid is that of the first row, in the order of the input, that gives both.
Rows of a split may turn out not to be believed, those of a connection together. So of each uuid a task keeps
the first naming on each of a few connections; when joining has said which of those are not believed, the
first of the others is left. If none is, and there were more than were kept, the rows have to be read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.events import MAX_TOPIC
from kwsniff.report import lists
from kwsniff.report.codes import distinct
from kwsniff.report.topics import FIXED, MAX_LEARNT
from kwsniff.spark.staged import PLACE

KEPT = 4
"""Connections whose first naming of a uuid is kept."""
ROOM = MAX_LEARNT - len(FIXED)
"""Uuids whose names are kept."""
First = dict[str, tuple[int, str]]
"""For each uuid the position of the first row that names it, and the name."""


class Naming(NamedTuple):
    """A row that names a uuid: its `PLACE`, and the name."""

    position: int
    rank: int
    number: int
    name: str


class Namings:
    """What some rows that follow each other name."""

    def __init__(
        self, kept: int = KEPT, *, first: Mapping[str, list[Naming]] | None = None,
        more: Iterable[str] = (), full: bool = False,
    ) -> None:  # fmt: skip
        """`kept`: connections; one is enough for rows that are believed."""
        self._kept = kept
        self._first = dict(first or {})
        self._more = set(more)
        """Uuids that other connections named, too."""
        self._full = full
        """There were more uuids than are kept."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Learn from rows (STAGED) behind those before."""
        rows = np.flatnonzero(~(lists.is_null(batch["topic_ids"]) | lists.is_null(batch["topics"])))
        if not len(rows):
            return
        topics, ids = (batch[name].take(pa.array(rows)) for name in ("topics", "topic_ids"))
        counts = lists.lengths(topics)
        names, uuids = topics.flatten(), lists.aligned(ids, counts)
        both = np.flatnonzero(~(lists.is_null(names) | lists.is_null(uuids)))
        if not len(both):
            return
        parents = rows[lists.parents(counts)[both]]
        self._learn(batch, parents, uuids.take(pa.array(both)), names.take(pa.array(both)))

    def _learn(self, batch: pa.RecordBatch, rows: Any, uuids: pa.Array, names: pa.Array) -> None:
        """Learn from names beside uuids, in the order in which these rows have them."""
        texts, uuid = distinct(uuids)
        unsettled = np.array([text not in self._more for text in texts])
        told, name = distinct(names)
        usable = np.array([len(text) <= MAX_TOPIC for text in told])
        open_ = np.flatnonzero(unsettled[uuid] & usable[name])
        numbers, number = np.unique(batch[PLACE[-1]].to_numpy()[rows[open_]], return_inverse=True)
        _, firsts = np.unique(uuid[open_] * len(numbers) + number, return_index=True)
        position, rank, connection = (batch[each].to_numpy() for each in PLACE)
        for at in open_[np.sort(firsts)].tolist():
            row = rows[at]
            place = int(position[row]), int(rank[row]), int(connection[row])
            self._take(texts[uuid[at]], Naming(*place, told[name[at]]))

    def _take(self, uuid: str, naming: Naming) -> None:
        own = self._first.get(uuid)
        if own is None:
            self._full = self._full or len(self._first) >= ROOM
            if not self._full:
                self._first[uuid] = [naming]
        elif all(each.number != naming.number for each in own):
            if len(own) < self._kept:
                own.append(naming)
            else:
                self._more.add(uuid)

    def numbers(self) -> set[int]:
        """Connections that name something, as far as it is kept."""
        return {each.number for own in self._first.values() for each in own}

    def without(self, wrong: Collection[int]) -> list[tuple[str, Naming]] | None:
        """The first naming of each uuid on other connections than these; None if that is not known."""
        if self._full and wrong:
            return None
        made = []
        for uuid, own in self._first.items():
            left = [each for each in own if each.number not in wrong]
            if not left and uuid in self._more:
                return None
            made += [(uuid, min(left))] if left else []
        return made

    def plain(self) -> dict[str, Any]:
        """For JSON."""
        return {"first": self._first, "more": sorted(self._more), "full": self._full}

    @classmethod
    def of(cls, plain: dict[str, Any]) -> Namings:
        """From what `plain` gave."""
        first = {uuid: [Naming(*each) for each in own] for uuid, own in plain["first"].items()}
        return cls(first=first, more=plain["more"], full=plain["full"])


def earliest(namings: Iterable[tuple[str, Naming]]) -> First:
    """Of each uuid the first."""
    first: dict[str, Naming] = {}
    for uuid, naming in namings:
        first[uuid] = min(first.get(uuid, naming), naming)
    return {uuid: (naming.position, naming.name) for uuid, naming in first.items()}


def names_of(first: First) -> dict[str, str]:
    """The names that one process would keep."""
    kept = sorted(first.items(), key=lambda each: each[1])[:ROOM]
    return {uuid: name for uuid, (_, name) in kept}
