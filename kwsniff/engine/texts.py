"""Texts and uuids as small numbers: the same bytes have the same number while the run lasts.

Theory of operation. An open hash table from bytes to rows of `texts`; the bytes lie one behind the other in
`text_bytes`. Half of the slots stay empty, and the hash is HalfSipHash-1-3 (Aumasson and Bernstein) with the
run's own key, so that nobody can choose names that meet in one place.

What nothing refers to any more goes when the driver compacts: it marks what it and the waiting requests refer
to, calls `compact`, and replaces each number by what `moved` says. Between that numbers hold.

Invariants: `text_slots` is a power of two and at least twice as many as there are texts.
"""

from __future__ import annotations

from typing import Any

from kwsniff.engine.arena import lacks
from kwsniff.engine.tables import WANTS
from kwsniff.native.mode import inlined, int64, kernel, uintp
from kwsniff.native.octets import copy, hashed, mixed, same

TEXT, UUID, OCTETS = 0, 1, 2
"""Kinds. Octets are no text: they are not shown."""
_TEXTS, _BYTES, _SLOTS = WANTS.index("texts"), WANTS.index("text_bytes"), WANTS.index("text_slots")
_PLACES, _NAMES = WANTS.index("places"), WANTS.index("names")
_WORD = 0xFFFFFFFF


@kernel
def _new(t: Any, data: Any, pos: int, size: int, kind: int, found: int, slot: int) -> int:
    """Add a text of hash `found` at an empty slot."""
    store = t.store[0]
    number = store.texts
    if number >= len(t.texts):
        lacks(t, _TEXTS, number + 1)
    if 2 * number + 2 > len(t.text_slots):
        lacks(t, _SLOTS, 2 * number + 2)
    if store.text_bytes + size > len(t.text_bytes):
        lacks(t, _BYTES, store.text_bytes + size)
    row = t.texts[uintp(number)]
    row.at, row.size, row.kind, row.hash = store.text_bytes, size, kind, found
    copy(data, pos, size, t.text_bytes, store.text_bytes)
    store.text_bytes += size
    store.texts = number + 1
    t.text_slots[uintp(slot)] = number + 1
    return number


@inlined
def text(t: Any, data: Any, pos: int, size: int, kind: int) -> int:
    """The number of a text (`kind` TEXT) or uuid (UUID)."""
    found = hashed(data, pos, size, kind, t.limits[0].seed)
    mask = int64(len(t.text_slots)) - 1
    slot = found & mask
    while True:
        number = int64(t.text_slots[uintp(slot)]) - 1
        if number < 0:
            break
        row = t.texts[uintp(number)]
        alike = row.hash == found and row.size == size and row.kind == kind
        if alike and same(data, pos, t.text_bytes, row.at, size):
            return number
        slot = (slot + 1) & mask
    return _new(t, data, pos, size, kind, found, slot)


@kernel
def rehash(t: Any) -> None:
    """Fill the slots, which must be empty, from the texts: after their number has grown."""
    mask = int64(len(t.text_slots)) - 1
    for number in range(t.store[0].texts):
        slot = t.texts[number].hash & mask
        while t.text_slots[uintp(slot)]:
            slot = (slot + 1) & mask
        t.text_slots[uintp(slot)] = number + 1


@kernel
def unmark(t: Any) -> None:
    """Before compacting: nobody refers to any text."""
    for number in range(t.store[0].texts):
        t.texts[number].mark = 0


@kernel
def mark(t: Any, number: int) -> None:
    """Somebody refers to a text; nothing happens for -1 and less."""
    if number >= 0:
        t.texts[number].mark = 1


@inlined
def moved(t: Any, number: int) -> int:
    """The number of a text after compacting."""
    return t.texts[number].moved if number >= 0 else number


@kernel
def compact(t: Any) -> None:
    """Drop the texts that have no mark. `moved` of each old number says what became of it."""
    store = t.store[0]
    kept, at = int64(0), int64(0)
    for number in range(store.texts):
        row = t.texts[number]
        if not row.mark:
            row.moved = -1
            continue
        row.moved = kept
        target = t.texts[kept]
        copy(t.text_bytes, row.at, row.size, t.text_bytes, at)
        target.at, target.size, target.kind, target.hash = at, row.size, row.kind, row.hash
        at += row.size
        kept += 1
    store.texts, store.text_bytes = kept, at
    for slot in range(len(t.text_slots)):
        t.text_slots[slot] = 0
    rehash(t)


# Finding topics and partitions of one call again: a hash table over the lists at hand.
#
# Theory of operation. A place of the table holds a row of `names` or `rows` and the stamp of who wrote it: a
# new stamp empties the table at once. At least half of the places stay empty, and the hash is keyed, so that
# nobody can choose partitions that meet in one place.


@kernel
def open_places(t: Any, count: int) -> None:
    """Empty the table and see that it has room for `count` rows."""
    if 2 * count > len(t.places):
        lacks(t, _PLACES, 2 * count)
    t.store[0].stamp += 1


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
    """Append a topic to the first `names` rows of `names` if it is not among them: how many there are then.
    All of them must have come this way."""
    if names > 0:
        last = t.names[uintp(names - 1)]
        if last.name == name and last.uuid == uuid:
            return names
    if names == 1:
        open_places(t, int64(2))
        first = t.names[0]
        name_place(t, first.name, first.uuid, int64(0))
    if 2 * (names + 1) > len(t.places):
        lacks(t, _PLACES, 2 * (names + 1))
    if names >= len(t.names):
        lacks(t, _NAMES, names + 1)
    if names > 0 and name_place(t, name, uuid, names) != names:
        return names
    topic = t.names[uintp(names)]
    topic.name, topic.uuid = name, uuid
    return names + 1
