"""Fetch sessions from one task's rows to the next one's, for the tasks that write tables.

Theory of operation. A session's calls name only what changes (`kwsniff.report.sessions`), and a task that
begins in the midst of them has to know what the session is by then. So who decodes a split puts its calls of
sessions into a file of their own, with the few columns that following them takes. What these come to in each
group of splits, put right as all rows are (`kwsniff.spark.settling`), is found out by a task each
(`kwsniff.report.carried`), and composed from left to right into what is open before each group.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kwsniff.columns import nulls, record_batch
from kwsniff.lake.place import Place
from kwsniff.report import lists
from kwsniff.report.carried import Change, Noticed, bounded, composed
from kwsniff.report.codes import integers
from kwsniff.report.mentions import Ints
from kwsniff.report.stretch import Name, Offsets
from kwsniff.spark.staged import PLACE, STAGED, Staged

TAKEN = (
    "event",
    "broker_ip",
    "broker_port",
    "session_id",
    "session_epoch",
    "asked",
    "partitions",
    "position",
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
    return record_batch(columns, len(chosen), STAGED)


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


def in_sessions(files: Iterable[Staged]) -> list[Staged]:
    """The files with the calls of sessions of these, as far as they are no tables' yet."""
    return [replace(file, path=file.sessions) for file in files if file.sessions is not None]


def noticed(batches: Iterable[pa.RecordBatch]) -> bytes:
    """What rows do to fetch sessions, for `opened_before`."""
    found = Noticed()
    for batch in batches:
        found.take(batch)
    return pickle.dumps(found.changes(), pickle.HIGHEST_PROTOCOL)


def opened_before(changes: Iterable[bytes], place: Place) -> list[Place | None]:
    """From what `noticed` gave of groups that follow each other, for each and the one behind them a file in
    `place` with the sessions that are open before it; None if there are none."""
    files: list[Place | None] = [None]
    state: dict[Name, Change] = {}
    for number, data in enumerate(changes, 1):
        state = bounded(composed(state, pickle.loads(data)))
        files.append(place / f"{number:06}" if state else None)
        if state:
            known = {name: change.offsets for name, change in state.items()}
            (place / f"{number:06}").replace(pickle.dumps(known, pickle.HIGHEST_PROTOCOL))
    return files


def known_sessions(place: Place | None) -> dict[Name, Offsets]:
    """The sessions in such a file. Raises OSError."""
    known: dict[Name, Offsets] = pickle.loads(place.read()) if place else {}
    return known
