"""Finding topics and partitions of one call again: a hash table over the lists at hand.

Theory of operation. A place of the table holds a row of `names` or `rows` and the stamp of who wrote it: a
new stamp empties the table at once. At least half of the places stay empty, and the hash is keyed, so that
nobody can choose partitions that meet in one place.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import lacks
from kwsniff.engine.numbers import FULL, OK
from kwsniff.engine.tables import WANTS
from kwsniff.engine.texts import mixed
from kwsniff.native.mode import int64, kernel, uintp

_PLACES, _NAMES = WANTS.index("places"), WANTS.index("names")


@kernel
def open_places(t: Any, count: int) -> int:
    """Empty the table and see that it has room for `count` rows: OK or FULL."""
    if 2 * count > len(t.places):
        return lacks(t, _PLACES, 2 * count)
    t.store[0].stamp += 1
    return OK


@kernel
def name_place(t: Any, name: int, uuid: int, at: int) -> int:
    """The row of `names` that the table has for a topic; if it has none, it is `at` from now on."""
    stamp, mask = t.store[0].stamp, int64(len(t.places)) - 1
    slot = mixed(name, uuid, int64(0), t.limits[0].seed) & mask
    while True:
        place = t.places[uintp(slot)]
        if place.stamp != stamp:
            place.stamp, place.at = stamp, at
            return at
        row = t.names[uintp(place.at)]
        if row.name == name and row.uuid == uuid:
            return place.at
        slot = (slot + 1) & mask


@kernel
def row_place(t: Any, name: int, uuid: int, partition: int, at: int) -> int:
    """The row of `rows` that the table has for a partition; -1 if it has none, or if `at` is not -1, that."""
    stamp, mask = t.store[0].stamp, int64(len(t.places)) - 1
    slot = mixed(name, uuid, partition, t.limits[0].seed) & mask
    while True:
        place = t.places[uintp(slot)]
        if place.stamp != stamp:
            if at >= 0:
                place.stamp, place.at = stamp, at
            return at
        row = t.rows[uintp(place.at)]
        if row.partition == partition and row.name == name and row.uuid == uuid:
            return place.at
        slot = (slot + 1) & mask


@kernel
def add_name(t: Any, names: int, name: int, uuid: int) -> int:
    """Append a topic to the first `names` rows of `names` if it is not among them: how many there are then,
    or FULL. All of them must have come this way."""
    if names > 0:
        last = t.names[uintp(names - 1)]
        if last.name == name and last.uuid == uuid:
            return names
    if names == 1:
        if open_places(t, int64(2)) == FULL:
            return FULL
        first = t.names[0]
        name_place(t, first.name, first.uuid, int64(0))
    if 2 * (names + 1) > len(t.places):
        return lacks(t, _PLACES, 2 * (names + 1))
    if names >= len(t.names):
        return lacks(t, _NAMES, names + 1)
    if names > 0 and name_place(t, name, uuid, names) != names:
        return names
    topic = t.names[uintp(names)]
    topic.name, topic.uuid = name, uuid
    return names + 1
