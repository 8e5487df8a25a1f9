"""What Fetch calls say of partitions: columns `asked` and `partitions`, in the order in which it was said.

A call's request comes first. `asked` names what only the request does: an offset to fetch from, or that the
partition leaves the session. `partitions` is what the response brings, with the offset that the request asked
for where it named one; where it has none the one asked for before holds on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kwsniff.count.codes import distinct, occurring
from kwsniff.rows import lists
from kwsniff.rows.arrays import NONE, nulls
from kwsniff.rows.columns import integers

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Topic = tuple[str | None, str | None]
"""Name and uuid."""
Key = tuple[str | None, str | None, int]
"""Topic, its uuid, partition."""


class Mentions(NamedTuple):
    """One element for each time that a call mentions a partition, in the order in which they do."""

    call: Ints
    """Which call, of those at hand."""
    key: Ints
    """Which of `keys` the partition is."""
    offset: Ints
    """Fetched from here; NONE if it is not said."""
    answered: Bools
    """By the response."""
    place: Ints
    """Which element of `partitions` (or `asked`) it is, as `lists.spread` has them."""
    keys: list[Key]

    def between(self, first: int, end: int) -> Mentions:
        """Those of the calls from `first` to before `end`, which are counted from `first` on."""
        some = slice(*np.searchsorted(self.call, [first, end]).tolist())
        call, key, offset = self.call[some] - first, self.key[some], self.offset[some]
        return Mentions(call, key, offset, self.answered[some], self.place[some], self.keys)

    @property
    def gone(self) -> Bools:
        """Whether the partition leaves the session by this."""
        gone: Bools = ~self.answered & (self.offset == NONE)
        return gone


def mentions(batch: pa.RecordBatch, rows: Ints) -> Mentions:
    """Of the calls in these rows of `batch` (EVENTS)."""
    parts = [_Part.of(batch[name], rows) for name in ("asked", "partitions")]
    call = np.concatenate([part.call for part in parts])
    order = sorted_places(call, len(rows))
    answered = np.repeat([False, True], [len(part.call) for part in parts])
    place = np.concatenate([part.place for part in parts])
    offset = np.concatenate([part.numbers("fetch_offset", NONE) for part in parts])
    number = np.concatenate([part.numbers("partition", -1) for part in parts])
    names, uuids = (
        distinct(pa.concat_arrays([part.texts(name) for part in parts])) for name in ("topic", "topic_id")
    )
    key, keys = _keys(names, uuids, number)
    return Mentions(call[order], key[order], offset[order], answered[order], place[order], keys)


class _Part(NamedTuple):
    """What one column says. Only the elements of the rows asked for are looked at: others are many more."""

    call: Ints
    place: Ints
    values: pa.StructArray

    @classmethod
    def of(cls, column: pa.ListArray, rows: Ints) -> _Part:
        spread = lists.spread(column)
        size = spread.size[rows]
        return cls(lists.parents(size), spread.places(rows, size), spread.values)

    def numbers(self, name: str, null: int) -> Ints:
        return integers(self.values.field(name), null)[self.place]

    def texts(self, name: str) -> pa.Array:
        values = self.values.field(name)
        if values.null_count == len(values):
            return nulls(len(self.place), values.type)
        return values.take(pa.array(self.place))


def _keys(
    names: tuple[list[str], Ints], uuids: tuple[list[str], Ints], number: Ints
) -> tuple[Ints, list[Key]]:
    topics, topic = occurring(names[1] * len(uuids[0]) + uuids[1], len(names[0]) * len(uuids[0]))
    least = int(number.min(initial=0))
    width = int(number.max(initial=0)) - least + 1
    found, key = occurring(topic * width + number - least, len(topics) * width)
    name, uuid = np.divmod(topics[found // width], max(len(uuids[0]), 1))
    partition = found % width + least
    chosen = zip(name.tolist(), uuid.tolist(), partition.tolist(), strict=True)
    return key, [(names[0][name], uuids[0][uuid], partition) for name, uuid, partition in chosen]


def sorted_places(codes: Ints, limit: int) -> Ints:
    """Their places in ascending order of the codes (from 0 to before `limit`), equal ones as they came."""
    # Short integers are sorted by their digits, in a time that is proportional to their number.
    return np.argsort(codes.astype(np.uint16) if limit <= 1 << 16 else codes, kind="stable")
