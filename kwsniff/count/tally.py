"""What rules count: entries by key, in bounded memory, mergeable.

Theory of operation. A batch is grouped with NumPy; only its distinct keys reach Python, and of those nothing
but the row that each has in a `Keyed` table: a count, sums, greatest values, and the first and last packet
that it was seen in. When there are twice as many entries as `limit`, the `limit` greatest stay and the others
become one, whose texts are `OTHERS` and whose numbers are None.

Invariant: counts and sums over the entries are those over everything taken, in any order of `add` and
`merge`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from kwsniff.count.codes import OTHERS, Coded, Joint, Keys, combined
from kwsniff.count.eventrows import UNKNOWN, EventRows, Picked
from kwsniff.count.keyed import FIRST, LAST, PACKET, REAL_GREATEST, REAL_SUM, SUM, Array, Columns, Key, Keyed
from kwsniff.rows.columns import Floats, Ints, Mask

LIMIT = 2_000
"""Entries kept of one tally."""
NAME_LENGTH = 120
"""Characters kept of a name."""
_MEASURES = {"count": SUM, "sum": REAL_SUM, "max": REAL_GREATEST, "first": FIRST, "last": LAST}
"""Those of a tally; there may be several sums and greatest values, with a number behind the name."""


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


Counted = tuple[list[Key], Columns]
"""Keys, and what is known of each."""
NONE: Counted = [], {}


class Tally:
    """Entries by key."""

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = limit
        self._table: Keyed | None = None
        self._ranked: dict[Key, Entry] | None = None
        self._by_part: dict[int | tuple[int, ...], dict[Any, dict[Key, Entry]]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_ranked": None, "_by_part": {}}

    @property
    def entries(self) -> dict[Key, Entry]:
        """The entries by key, the most frequent first, in an order that does not depend on how they came.
        Ranked once: rules ask for them again for each of their findings."""
        if self._ranked is None:
            keys = [] if self._table is None else self._table.rows
            self._ranked = ranked(dict(zip(keys, self._entries(), strict=True)))
        return self._ranked

    def _entries(self) -> list[Entry]:
        if self._table is None:
            return []
        columns = self._table.columns()
        counts, first, last = (columns[name].tolist() for name in ("count", "first", "last"))
        sums, maxes = (_rows(_numbered(columns, name), len(counts)) for name in ("sum", "max"))
        return [
            Entry(count, list(sums), list(maxes), Packet(*first), Packet(*last))
            for count, sums, maxes, first, last in zip(counts, sums, maxes, first, last, strict=True)
        ]

    def add(
        self,
        rows: EventRows | Picked,
        which: Mask | Ints | None,
        keys: Keys,
        sums: Sequence[Any] = (),
        maxes: Sequence[Any] = (),
    ) -> None:
        """Take some rows: a mask, their places, None for all. `keys`, `sums` and `maxes` are columns over all
        rows."""
        self.put(*counted(rows, which, keys, sums, maxes, limit=self.limit))

    def put(self, keys: Sequence[Key], figures: Columns) -> None:
        """Add what was counted of some keys."""
        if not keys:
            return
        self._ranked, self._by_part = None, {}
        if self._table is None:
            self._table = Keyed({name: _MEASURES[name.rstrip("0123456789")] for name in figures})
        self._table.add(self._table.numbers(keys), figures)
        if len(self._table) > 2 * self.limit:
            self._prune(self._table)

    def merge(self, other: Tally) -> None:
        """Take what another one counted."""
        if other._table is not None:
            self.put(list(other._table.rows), other._table.columns())

    def by(self, *places: int) -> dict[Key, Entry]:
        """The entries summed over all parts of the key but those at `places`."""
        return ranked(_summed((tuple(key[at] for at in places), each) for key, each in self.entries.items()))

    def named(self, place: int, name: Callable[[Any], str]) -> dict[Key, Entry]:
        """The entries with the names of topics at `place`: what was told by name and by uuid is of one."""
        return _summed(
            ((*key[:place], name(key[place]), *key[place + 1 :]), entry)
            for key, entry in self.entries.items()
        )

    def of(self, places: int | tuple[int, ...], part: Any) -> dict[Key, Entry]:
        """The entries whose key has `part` at a place, or parts at several. All parts are looked up at once:
        rules ask for each of their findings."""
        if places not in self._by_part:
            pick = itemgetter(places) if isinstance(places, int) else itemgetter(*places)
            index: dict[Any, dict[Key, Entry]] = {}
            for key, entry in self.entries.items():
                index.setdefault(pick(key), {})[key] = entry
            self._by_part[places] = index
        return self._by_part[places].get(part, {})

    def _prune(self, table: Keyed) -> None:
        """Keep the greatest, and make the others one."""
        columns, keys = table.columns(), list(table.rows)
        by = (*reversed(_numbered(columns, "sum")), columns["count"])
        for row in np.lexsort([-each for each in by])[self.limit :].tolist():
            keys[row] = tuple(_other(part) for part in keys[row])
        self._table = table.moved(keys)


def _numbered(columns: Columns, name: str) -> list[Array]:
    """The columns of several measures of a kind, in their order."""
    return [columns[each] for each in columns if each.startswith(name)]


def _rows(columns: list[Array], size: int) -> list[Any]:
    """Columns of `size` values as rows, which are empty if there is no column."""
    return list(zip(*(each.tolist() for each in columns), strict=True)) if columns else [()] * size


def _summed(entries: Iterable[tuple[Key, Entry]]) -> dict[Key, Entry]:
    """Entries by key, those of the same one in one."""
    found: dict[Key, Entry] = {}
    for key, entry in entries:
        if key in found:
            found[key].absorb(entry)
        else:
            found[key] = entry.copy()
    return found


def ranked(entries: Mapping[Key, Entry]) -> dict[Key, Entry]:
    """The most frequent first, in an order that does not depend on how they came."""
    return dict(sorted(entries.items(), key=lambda pair: (-pair[1].count, tuple(map(str, pair[0])))))


def counted(
    rows: EventRows | Picked,
    which: Mask | Ints | None,
    keys: Keys,
    sums: Sequence[Any] = (),
    maxes: Sequence[Any] = (),
    *,
    limit: int | None = None,
) -> Counted:
    """What `Tally.add` adds: each key that occurs in some rows; of more than twice `limit` those that are not
    among the `limit` most frequent are one already."""
    places: Ints | None = None
    if which is not None:
        places = np.flatnonzero(which) if which.dtype == np.bool_ else which.astype(np.int64, copy=False)
    if not len(keys[0].codes if places is None else places):
        return NONE
    picked, figures, rank = list(keys), [np.asarray(each) for each in (*sums, *maxes)], rows.rank
    if places is not None:
        picked, figures, rank = (
            [key.at(places) for key in keys], [each[places] for each in figures], rank[places]
        )  # fmt: skip
    group, firsts = grouped(picked)
    if limit is not None and len(firsts) > 2 * limit:
        picked = _folded(picked, group, len(firsts), limit)
        group, firsts = grouped(picked)
    size = len(firsts)
    first, last = _ends(rank, group, size)
    return named(picked, firsts), {
        "count": np.bincount(group, minlength=size),
        **{f"sum{at}": _sums(group, size, each) for at, each in enumerate(figures[: len(sums)])},
        **{f"max{at}": _greatest(group, size, each) for at, each in enumerate(figures[len(sums) :])},
        "first": _packets(rows, first),
        "last": _packets(rows, last),
    }


def _folded(keys: Keys, group: Ints, size: int, limit: int) -> list[Coded | Joint]:
    """The same keys, but that all rows of groups which are not among the `limit` largest have the key of the
    others. An entry of each takes hundreds of bytes, and a batch may have 100,000."""
    counts = np.bincount(group, minlength=size)
    rare = np.ones(size, np.bool_)
    rare[np.argsort(-counts, kind="stable")[:limit]] = False
    return [_with_others(each, rare[group]) for key in keys for each in key.plain]


def _with_others(key: Coded, rare: Mask) -> Coded:
    """A column in which rows that are rare have what stands for others."""
    others = [OTHERS, None]
    place = np.array([others.index(_other(value)) for value in key.values], np.int64) + len(key.values)
    return Coded([*key.values, *others], np.where(rare, place[key.codes], key.codes))


def _other(part: Any) -> str | None:
    """What stands for a part of a key in that of the others."""
    return OTHERS if part is None or isinstance(part, str) else None


def _sums(group: Ints, size: int, values: Any) -> Floats:
    known = np.nan_to_num(values) if values.dtype.kind == "f" else values
    return np.bincount(group, known, size).astype(np.float64, copy=False)


def _greatest(group: Ints, size: int, values: Any) -> Floats:
    found = np.full(size, -np.inf)
    np.fmax.at(found, group, values.astype(np.float64, copy=False))  # several times as quick as of integers
    return found


def grouped(keys: Keys) -> tuple[Ints, Ints]:
    """A number for each combination of keys that occurs: that of each row, and for each the first row that
    has it."""
    return combined([key.codes for key in keys], [key.size for key in keys])


def named(keys: Keys, rows: Ints) -> list[Key]:
    """The keys of some rows."""
    columns = [each for key in keys for each in key.named(key.codes[rows].tolist())]
    return list(zip(*(map(_cut, each) for each in columns), strict=True))


def _ends(rank: Ints, group: Ints, size: int) -> tuple[Ints, Ints]:
    """The least and the greatest rank in each group."""
    first, last = np.full(size, len(rank) + int(rank.max()), np.int64), np.zeros(size, np.int64)
    np.minimum.at(first, group, rank)
    np.maximum.at(last, group, rank)
    return first, last


def _packets(rows: EventRows | Picked, ranks: Ints) -> Array:
    """The packets of the rows with these ranks."""
    whole = rows.whole
    places = whole.in_time[ranks]
    capture = whole.coded("capture")
    names = np.array([*capture.values, None], object)[capture.codes[places]]
    found = np.empty(len(places), PACKET)
    found["time"], found["capture"], found["number"] = whole.time[places], names, whole.packet[places]
    return found


def packets(rows: EventRows | Picked, ranks: Ints) -> list[Packet]:
    """The same as objects."""
    return [Packet(*each) for each in _packets(rows, ranks).tolist()]


def _cut(value: Any) -> Any:
    return value[:NAME_LENGTH] if isinstance(value, str) else value


def _when(packet: Packet) -> tuple[int, str, int]:
    return packet.time, packet.capture or "", packet.number


def nowhere() -> Packet:
    """No packet."""
    return Packet(UNKNOWN, None, UNKNOWN)
