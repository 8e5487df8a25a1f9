"""What the rows of one task have to know of those of others: names of topics, and fetch sessions.

Theory of operation. The name of a uuid is that of the first row, in the order of the input, that gives both.
Rows of a split may turn out not to be believed, those of a connection together. So of each uuid a task keeps
the first naming on each of a few connections; when joining has said which of those are not believed, the
first of the others is left. If none is, and there were more than were kept, the rows have to be read again.

A call of a fetch session names only what changes (`kwsniff.count.sessions`), and a task that begins in the
midst of them has to know what the session is by then. So who decodes a split puts its calls of sessions into
files of their own, with the few columns that following them takes. What these come to in each group of files,
put right as all rows are (`kwsniff.spark.joining`), is found out by a task each (`kwsniff.count.sessions`),
and composed from left to right into what is open before each group.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from kwsniff.capture.place import Place
from kwsniff.count.sessions import Change, Changes, Name, Offsets, bounded, composed
from kwsniff.count.topics import FIXED, MAX_LEARNT, Named, Pairs
from kwsniff.rows import lists
from kwsniff.rows.arrays import nulls, record_batch
from kwsniff.rows.columns import Ints, integers
from kwsniff.rows.events import MAX_TOPIC
from kwsniff.spark.staged import PLACE
from kwsniff.spark.tasks import fetched, kept

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

    def __init__(self, kept: int = KEPT) -> None:
        """`kept`: connections; one is enough for rows that are believed."""
        self._kept = kept
        self._first: dict[str, list[Naming]] = {}
        self._more: set[str] = set()
        """Uuids that other connections named, too."""
        self._full = False
        """There were more uuids than are kept."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Learn from rows (STAGED) behind those before."""
        named = Named.of(Pairs.of(batch["topics"], batch["topic_ids"]))
        if not named.uuids:
            return
        uuid, rows = named.code, named.row
        unsettled = np.array([text not in self._more for text in named.uuids])
        told, name = named.texts(slice(None))
        usable = np.array([len(text) <= MAX_TOPIC for text in told])
        open_ = np.flatnonzero(unsettled[uuid] & usable[name])
        numbers, number = np.unique(batch[PLACE[-1]].to_numpy()[rows[open_]], return_inverse=True)
        _, firsts = np.unique(uuid[open_] * len(numbers) + number, return_index=True)
        position, rank, connection = (batch[each].to_numpy() for each in PLACE)
        for at in open_[np.sort(firsts)].tolist():
            row = rows[at]
            place = int(position[row]), int(rank[row]), int(connection[row])
            self._take(named.uuids[uuid[at]], Naming(*place, told[name[at]]))

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


# Fetch sessions

TAKEN = (
    *("event", "broker_ip", "broker_port", "session_id", "session_epoch", "asked", "partitions", "position"),
)
"""Columns that what becomes of sessions is made of ..."""
LISTS = ("asked", "partitions")
MENTIONED = ("topic", "topic_id", "partition", "fetch_offset")
"""... and fields of the elements of these."""


def calls_of_sessions(rows: pa.RecordBatch) -> pa.RecordBatch | None:
    """Of rows (STAGED) the calls in fetch sessions, with the columns that following them takes; None if there
    are none."""
    epochs = rows["session_epoch"]
    if epochs.null_count == len(epochs):
        return None
    chosen = np.flatnonzero((integers(rows["session_id"]) != 0) & (integers(epochs, -1) >= 0))
    if not len(chosen):
        return None
    places = pa.array(chosen)
    columns = {name: rows[name].take(places) for name in {*TAKEN, *PLACE}.difference(LISTS)}
    columns |= {name: _narrowed(rows[name], chosen) for name in LISTS}
    return record_batch(columns, len(chosen), rows.schema)


def _narrowed(column: pa.ListArray, rows: Ints) -> pa.ListArray:
    """The lists of these rows; of an element only which partition it is, and the offset asked for. That is a
    fraction of what responses tell of partitions."""
    spread = lists.spread(column)
    size = spread.size[rows]
    places = pa.array(spread.places(rows, size))
    fields = list(spread.values.type)
    arrays = [
        spread.values.field(field.name).take(places) if field.name in MENTIONED
        else nulls(len(places), field.type)
        for field in fields
    ]  # fmt: skip
    structs = pa.StructArray.from_arrays(arrays, fields=fields)
    return lists.rebuilt(structs, size, np.zeros(len(size), np.bool_))


def opened_before(changes: Iterable[Changes], place: Place) -> list[str | None]:
    """From what `noticed` gave of groups that follow each other, for each and the one behind them a file in
    `place` with the sessions that are open before it; None if there are none."""
    files: list[str | None] = [None]
    state: dict[Name, Change] = {}
    for each in changes:
        state = bounded(composed(state, each))
        known = {name: change.offsets for name, change in state.items()}
        files.append(kept(place, known)[0] if known else None)
    return files


def known_sessions(url: str | None) -> dict[Name, Offsets]:
    """The sessions in such a file. Raises OSError."""
    known: dict[Name, Offsets] = fetched(url) if url else {}
    return known
