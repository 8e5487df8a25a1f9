"""What rules count: entries by key, in bounded memory, mergeable.

Theory of operation. A batch is grouped with NumPy; only its distinct keys reach Python. Each entry keeps a
count, sums, greatest values, and the first and last packet that it was seen in. When there are twice as many
entries as `limit`, the `limit` greatest stay and the others become one, whose texts are `OTHERS` and whose
numbers are None: names come from the wire, and a stranger can make up millions.

Invariant: counts and sums over the entries are those over everything taken, in any order of `add` and
`merge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from kwsniff.findings.eventrows import UNKNOWN, Coded, EventRows, Ints, Mask, Picked
from kwsniff.report.codes import OTHERS, combined

LIMIT = 2_000
"""Entries kept of one tally."""
NAME_LENGTH = 120
"""Characters kept of a name."""


class Packet(NamedTuple):
    """A packet that shows something; `time` is in microseconds since 1970."""

    time: int
    capture: str | None
    number: int


@dataclass(slots=True)
class Entry:
    """What is known of one key."""

    count: int
    sums: list[float]
    maxes: list[float]
    first: Packet
    last: Packet

    def absorb(self, other: Entry) -> None:
        """Add what another one counted."""
        self.count += other.count
        for place, each in enumerate(other.sums):
            self.sums[place] += each
        for place, each in enumerate(other.maxes):
            if each > self.maxes[place]:
                self.maxes[place] = each
        # Most come in the order of time: only where it is the same does anything else have to be looked at.
        if other.first.time <= self.first.time:
            self.first = min(self.first, other.first, key=_when)
        if other.last.time >= self.last.time:
            self.last = max(self.last, other.last, key=_when)

    def copy(self) -> Entry:
        return Entry(self.count, list(self.sums), list(self.maxes), self.first, self.last)

    @property
    def span_s(self) -> float:
        """Seconds from the first to the last."""
        return (self.last.time - self.first.time) / 1e6


Key = tuple[Any, ...]


class Tally:
    """Entries by key."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._entries: dict[Key, Entry] = {}
        self._ranked: dict[Key, Entry] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ranked": None}

    @property
    def entries(self) -> dict[Key, Entry]:
        """The entries by key, the most frequent first, in an order that does not depend on how they came.
        Ranked once: rules ask for them again for each of their findings."""
        if self._ranked is None:
            pairs = self._entries.items()
            self._ranked = dict(sorted(pairs, key=lambda pair: (-pair[1].count, tuple(map(str, pair[0])))))
        return self._ranked

    def add(
        self,
        rows: EventRows | Picked,
        which: Mask | Ints,
        keys: Sequence[Coded],
        sums: Sequence[Any] = (),
        maxes: Sequence[Any] = (),
    ) -> None:
        """Take some rows (a mask, or their places). `keys`, `sums` and `maxes` are columns over all rows."""
        for key, entry in counted(rows, which, keys, sums, maxes, limit=self.limit):
            self.put(key, entry)

    def put(self, key: Key, entry: Entry) -> None:
        """Add one entry."""
        self._ranked = None
        known = self._entries.get(key)
        if known is None:
            self._entries[key] = entry
            if len(self._entries) > 2 * self.limit:
                self._prune()
        else:
            known.absorb(entry)

    def merge(self, other: Tally) -> None:
        """Take what another one counted."""
        for key, entry in other._entries.items():
            self.put(key, entry.copy())

    def by(self, *places: int) -> dict[Key, Entry]:
        """The entries summed over all parts of the key but those at `places`."""
        found = Tally(limit=len(self._entries) + 1)
        for key, entry in self._entries.items():
            found.put(tuple(key[place] for place in places), entry.copy())
        return found.entries

    def of(self, place: int, value: Any) -> dict[Key, Entry]:
        """The entries whose key has `value` at `place`."""
        return {key: entry for key, entry in self.entries.items() if key[place] == value}

    def _prune(self) -> None:
        ranked = sorted(self._entries.items(), key=lambda item: (item[1].count, *item[1].sums), reverse=True)
        self._entries = dict(ranked[: self.limit])
        for key, entry in ranked[self.limit :]:
            rest = tuple(_other(part) for part in key)
            if rest in self._entries:
                self._entries[rest].absorb(entry)
            else:
                self._entries[rest] = entry


def counted(
    rows: EventRows | Picked,
    which: Mask | Ints,
    keys: Sequence[Coded],
    sums: Sequence[Any] = (),
    maxes: Sequence[Any] = (),
    *,
    limit: int | None = None,
) -> list[tuple[Key, Entry]]:
    """What `Tally.add` adds: an entry for each key that occurs in some rows; of more than twice `limit` those
    that are not among the `limit` most frequent are one already."""
    places: Ints = np.flatnonzero(which) if which.dtype == np.bool_ else which.astype(np.int64)
    if not len(places):
        return []
    picked = [key.at(places) for key in keys]
    figures = [np.asarray(each, np.float64)[places] for each in (*sums, *maxes)]
    group, firsts = grouped(picked)
    if limit is not None and len(firsts) > 2 * limit:
        picked = _folded(picked, group, len(firsts), limit)
        group, firsts = grouped(picked)
    return _counted(rows, places, picked, (group, firsts), figures[: len(sums)], figures[len(sums) :])


def _folded(keys: list[Coded], group: Ints, size: int, limit: int) -> list[Coded]:
    """The same keys, but that all rows of groups which are not among the `limit` largest have the key of the
    others. An entry of each takes hundreds of bytes, and a batch may have 100,000."""
    counts = np.bincount(group, minlength=size)
    rare = np.ones(size, np.bool_)
    rare[np.argsort(-counts, kind="stable")[:limit]] = False
    return [_with_others(key, rare[group]) for key in keys]


def _with_others(key: Coded, rare: Mask) -> Coded:
    """A column in which rows that are rare have what stands for others."""
    others = [OTHERS, None]
    place = np.array([others.index(_other(value)) for value in key.values], np.int64) + len(key.values)
    return Coded([*key.values, *others], np.where(rare, place[key.codes], key.codes))


def _other(part: Any) -> str | None:
    """What stands for a part of a key in that of the others."""
    return OTHERS if part is None or isinstance(part, str) else None


def _counted(
    rows: EventRows | Picked,
    places: Ints,
    keys: list[Coded],
    groups: tuple[Ints, Ints],
    sums: list[Any],
    maxes: list[Any],
) -> list[tuple[Key, Entry]]:
    group, firsts = groups
    size = len(firsts)
    counts = np.bincount(group, minlength=size).tolist()
    totals = [np.bincount(group, weights=np.nan_to_num(each), minlength=size).tolist() for each in sums]
    greatest = [_greatest(group, size, each) for each in maxes]
    first, last = (packets(rows, each) for each in _ends(rows.rank[places], group, size))
    texts = [[_cut(column.values[code]) for code in column.codes[firsts].tolist()] for column in keys]
    return [
        (key, Entry(count, list(summed), list(most), begin, end))
        for key, count, summed, most, begin, end in zip(
            _rows(texts, size), counts, _rows(totals, size), _rows(greatest, size), first, last, strict=True
        )
    ]


def _greatest(group: Ints, size: int, values: Any) -> list[float]:
    found = np.full(size, -np.inf)
    np.fmax.at(found, group, values)
    return found.tolist()


def _rows(columns: list[list[Any]], size: int) -> list[tuple[Any, ...]]:
    """Columns of `size` values as rows, which are empty if there is no column."""
    return list(zip(*columns, strict=True)) if columns else [()] * size


def grouped(keys: Sequence[Coded]) -> tuple[Ints, Ints]:
    """A number for each combination of keys that occurs: that of each row, and for each the first row that
    has it."""
    return combined([key.codes for key in keys], [len(key.values) for key in keys])


def _ends(rank: Ints, group: Ints, size: int) -> tuple[Ints, Ints]:
    """The least and the greatest rank in each group."""
    first, last = np.full(size, len(rank) + int(rank.max()), np.int64), np.zeros(size, np.int64)
    np.minimum.at(first, group, rank)
    np.maximum.at(last, group, rank)
    return first, last


def packets(rows: EventRows | Picked, ranks: Ints) -> list[Packet]:
    """The packets of the rows with these ranks."""
    whole = rows.whole
    places = whole.in_time[ranks]
    capture = whole.coded("capture")
    names = [capture.values[code] for code in capture.codes[places].tolist()]
    times, numbers = whole.time[places].tolist(), whole.packet[places].tolist()
    return list(map(Packet, times, names, numbers))


def _cut(value: Any) -> Any:
    return value[:NAME_LENGTH] if isinstance(value, str) else value


def _when(packet: Packet) -> tuple[int, str, int]:
    return packet.time, packet.capture or "", packet.number


def nowhere() -> Packet:
    """No packet."""
    return Packet(UNKNOWN, None, UNKNOWN)
