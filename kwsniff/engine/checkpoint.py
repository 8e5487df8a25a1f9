"""Connections taken out of one machine and put into another: all rows that belong to them.

Theory of operation. What connections hold are rows of a few tables that refer to each other by number:
requests in flight, pieces that wait, responses without request; blocks of bytes and of words; and texts.
`taken` follows the references, which tables declare as such, and numbers what it finds anew, `put` gives it
places in another machine. Both work on columns, for all connections at once. With the row of the run that is
all of a run between two batches: `state` keeps it, `restore` goes on with it elsewhere, whether kernels are
compiled there or not. What differs from one process to another is made anew: hash tables, lists, programs.

Invariant: `taken` leaves the machine as it was; when it is called nothing is told that refers to texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine import tables as entry
from kwsniff.engine.arena import block_size
from kwsniff.engine.machine import RECORDS, Machine
from kwsniff.engine.packing import OF_RESOURCE, bin_of_words, width_of, words_of_bin
from kwsniff.engine.tables import POOLS, SPEC_OF
from kwsniff.native.rowcopies import REF, copied, picked

Ints = NDArray[np.int64]
Rows = NDArray[Any]
TABLES = ("conns", "sides", "pieces", "requests", "early")
"""Whose rows belong to connections."""
FEW = 32
"""Lists that are walked one after the other."""


@dataclass(slots=True)
class Tail:
    """Connections with all that they hold; references are numbers of rows in here, -1 for none."""

    conns: Rows
    sides: Rows
    """Two for each connection."""
    pieces: Rows
    requests: Rows
    early: Rows
    arena: bytes
    words: Ints
    texts: Rows
    text_bytes: bytes
    serial: int = 0
    """Bodies numbered so far (`--full`) ..."""
    shown: dict[int, bytes] = field(default_factory=dict)
    """... and those that wait, as `kwsniff.engine.details` keeps them."""

    def without(self, numbers: Sequence[int]) -> Tail:
        """This without some connections and what they hold."""
        if not numbers:
            return self
        live = np.flatnonzero(~np.isin(self.conns["number"], np.array(numbers, np.int64)))
        found = _gathered(_Shelf(self), live, {name: len(getattr(self, name)) for name in POOLS})
        return replace(
            found, texts=self.texts, text_bytes=self.text_bytes, serial=self.serial, shown=self.shown
        )


class _Shelf:
    """The tables of a tail, to be read as those of a machine."""

    def __init__(self, tail: Tail) -> None:
        self.t: Any = tail

    def array(self, name: str, count: int) -> Rows:
        """The first rows of a table."""
        rows: Rows = getattr(self.t, name)
        return rows[:count]


def taken(machine: Machine) -> Tail:
    """All connections of a machine. Drops the texts that nothing refers to."""
    machine.compact_texts()
    store = machine.t.store[0]
    used = {name: machine.used(name) for name in POOLS}
    live = np.flatnonzero(machine.array("conns", used["conns"])["number"] > 0)
    count = int(store.texts)
    return replace(
        _gathered(machine, live, used),
        texts=copied(machine.array("texts", count)),
        text_bytes=machine.data("text_bytes", 0, int(store.text_bytes)),
    )


def _gathered(source: Machine | _Shelf, live: Ints, used: dict[str, int]) -> Tail:
    """The connections in these rows and what they hold, but for texts."""
    every = {name: source.array(name, used[name]) for name in POOLS}
    every["sides"] = source.array("sides", 2 * used["conns"])
    conns, sides = picked(every["conns"], live), picked(every["sides"], _sides_of(live))
    following = every["pieces"]["next"]
    waiting = walked(following, np.concatenate([sides["wait_first"], conns["held_first"]]))
    first = np.concatenate([conns[name] for name in ("first_request", "first_unasked", "reply")])
    rows = {
        "conns": live, "requests": walked(every["requests"]["after"], first),
        "pieces": np.concatenate([waiting, walked(following, conns["pending_first"])]),
        "early": walked(every["early"]["next"], conns["first_early"]),
    }  # fmt: skip
    found = {name: picked(every[name], at) for name, at in rows.items()} | {"conns": conns, "sides": sides}
    for to, at in rows.items():
        new = np.full(used[to] + 1, -1, np.int64)
        new[at] = np.arange(len(at))
        _refer(found, to, new)
    pieces, requests, early = found["pieces"], found["requests"], found["early"]
    requests["next"] = -1
    pieces["at"][len(waiting) :] = -1  # these are notes
    arena = _Blocks()
    kept = np.flatnonzero(pieces["at"] >= 0)
    pieces["at"][kept] = arena.add(pieces["at"][kept], pieces["size"][kept])
    early["at"] = arena.add(early["at"], early["room"], early["have"])
    _side_blocks(sides, arena)
    words = _words(source, requests)
    return Tail(
        **found,
        arena=arena.bytes_of(source),
        words=words,
        texts=np.zeros(0, RECORDS["texts"]),
        text_bytes=b"",
    )  # fmt: skip


def _sides_of(conns: Ints) -> Ints:
    return np.stack([2 * conns, 2 * conns + 1], axis=1).ravel()


def walked(following: Ints, heads: Ints) -> Ints:
    """The rows of all lists that begin at `heads`."""
    found = []
    at = heads[heads >= 0]
    while len(at) > FEW:
        found.append(at)
        at = following[at]
        at = at[at >= 0]
    found.append(_walked_apart(following, at))
    return np.concatenate(found)


def _walked_apart(following: Ints, heads: Ints) -> Ints:
    """The same of a few, which may be long: NumPy takes as long for a step of one as of many."""
    if not len(heads):
        return heads
    next_of, found = following.tolist(), []
    for at in heads.tolist():
        while at >= 0:
            found.append(at)
            at = next_of[at]
    return np.array(found, np.int64)


def _refer(tables: dict[str, Rows], to: str, new: Ints) -> None:
    """Replace what refers to rows of a table; -1 stays."""
    for name, table in tables.items():
        for field_ in SPEC_OF[name].of(REF, to):
            table[field_] = new[table[field_]]


def shifted(tail: Tail, begins: dict[str, int]) -> dict[str, Rows]:
    """The tables of a tail, with what refers to some of them, or to its bytes and words, that much higher."""
    tables = {name: getattr(tail, name).copy() for name in TABLES}
    sides = tables["sides"]
    sides["block"] += np.where(sides["buf"] >= 0, begins["arena"], 0)
    for to, begin in begins.items():
        for name, table in tables.items():
            for field_ in SPEC_OF[name].of(REF, to):
                table[field_] += np.where(table[field_] >= 0, begin, 0)
    return tables


def _side_blocks(sides: Rows, arena: _Blocks) -> None:
    used = np.flatnonzero(sides["buf"] >= 0)
    inside = sides["buf"][used] - sides["block"][used]
    sides["block"][used] = arena.add(
        sides["block"][used], sides["block_room"][used], sides["have"][used], inside
    )
    sides["buf"][used] = sides["block"][used] + inside
    kept = np.flatnonzero(sides["history_at"] >= 0)
    own = sides[kept]
    sides["history_at"][kept] = arena.add(own["history_at"], own["history_room"], own["history"])


class _Blocks:
    """Blocks of the arena, moved close to each other."""

    def __init__(self) -> None:
        self._parts: list[tuple[Ints, Ints, Ints]] = []
        self._end = 0

    def add(self, at: Ints, sizes: Ints, used: Ints | None = None, first: Ints | int = 0) -> Ints:
        """Where the blocks that were taken for these sizes are to be; in each, so many bytes are used, from
        `first` on. What else is in there means nothing."""
        rooms = np.array([block_size(size) for size in sizes.tolist()], np.int64)
        places = self._end + np.cumsum(rooms) - rooms
        self._end += int(rooms.sum())
        self._parts.append((at + first, np.array(sizes if used is None else used), places + first))
        return places

    def bytes_of(self, machine: Machine | _Shelf) -> bytes:
        """The bytes of all blocks."""
        made = bytearray(self._end)
        arena = memoryview(machine.t.arena)
        for at, sizes, places in self._parts:
            for first, size, place in zip(at.tolist(), sizes.tolist(), places.tolist(), strict=True):
                made[place : place + size] = arena[first : first + size]
        return bytes(made)


def _words(machine: Machine | _Shelf, requests: Rows) -> Ints:
    """What requests remember, their `words` being where it is."""
    widths = {columns: width_of(columns) for columns in np.unique(requests["columns"]).tolist()}
    width = np.array([widths[columns] for columns in requests["columns"].tolist()], np.int64)
    sizes = requests["names"] + requests["rows"] * width + OF_RESOURCE * requests["resources"]
    own = np.flatnonzero(requests["words"] >= 0)
    rooms = {size: words_of_bin(bin_of_words(size)) for size in np.unique(sizes[own]).tolist()}
    room = np.array([rooms[size] for size in sizes[own].tolist()], np.int64)
    places = np.cumsum(room) - room
    made = np.zeros(int(room.sum()), np.int64)
    first = np.repeat(requests["words"][own] - places, room) + np.arange(len(made))
    if len(made):
        every = np.asarray(machine.t.words, np.int64)
        within = np.arange(len(made)) - np.repeat(places, room) < np.repeat(sizes[own], room)
        made[:] = np.where(within, every[np.minimum(first, len(every) - 1)], 0)
    requests["words"][own] = places
    return made


# Putting in


def put(machine: Machine, tail: Tail) -> Ints:
    """Put connections into a machine; their rows there. `link` has to follow, before the next segment."""
    rows = {name: _places(machine, name, len(getattr(tail, name))) for name in POOLS}
    texts = _texts(machine, tail)
    run = machine.t.run[0]
    arena, words = _room(machine, "arena", len(tail.arena)), _room(machine, "words", len(tail.words))
    tables = shifted(tail, {"arena": arena, "words": words})
    for name, places in rows.items():
        _refer(tables, name, np.append(places, -1))
    conns, requests = tables["conns"], tables["requests"]
    conns["left"], conns["left_row"] = 0, -1
    requests["serial"] = np.where(requests["serial"] >= 0, requests["serial"] + int(run.serial), -1)
    for name in POOLS:
        machine.write(name, rows[name], tables[name])
    machine.write("sides", _sides_of(rows["conns"]), tables["sides"])
    _fill(machine, tail, arena, words)
    _adopt(machine, texts, rows["conns"], rows["requests"])
    run = machine.t.run[0]
    run.opened += len(conns)
    run.followed += len(conns)
    run.waiting += int(conns["in_flight"].sum())
    machine.t.store[0].named += int(requests["named"].sum())
    run.serial += tail.serial
    run.bodies_waiting += int(requests["shown"].sum())
    return rows["conns"]


def _places(machine: Machine, name: str, count: int) -> Ints:
    """Free rows of a pool."""
    pool = machine.pool(name)
    found: list[int] = []
    free = int(pool.first)
    if free >= 0 and count:
        following = machine.column(name, "next", int(pool.used)).tolist()
        while free >= 0 and len(found) < count:
            found.append(free)
            free = following[free]
    first = int(pool.used)
    end = first + count - len(found)
    pool.first, pool.used = free, end
    pool.live += count
    if end > len(getattr(machine.t, name)):
        machine.grow(name, end)
    if name == "conns" and 2 * end > len(machine.t.sides):
        machine.grow("sides", 2 * end)
    return np.concatenate([np.array(found, np.int64), np.arange(first, end)])


def _room(machine: Machine, name: str, size: int) -> int:
    """Room at the end of the arena or the heap: where it begins."""
    run, store = machine.t.run[0], machine.t.store[0]
    first = int(run.arena_used if name == "arena" else store.words)
    if first + size > len(getattr(machine.t, name)):
        machine.grow(name, first + size)
    return first


def _fill(machine: Machine, tail: Tail, arena: int, words: int) -> None:
    size, count = len(tail.arena), len(tail.words)
    data = np.frombuffer(tail.arena, np.uint8) if machine.compiled else tail.arena
    machine.t.arena[arena : arena + size] = data
    machine.t.words[words : words + count] = tail.words if machine.compiled else tail.words.tolist()
    run, store = machine.t.run[0], machine.t.store[0]
    run.arena_used += size
    run.arena_live += size
    store.words += count
    store.words_live += count


def _texts(machine: Machine, tail: Tail) -> Ints:
    """The numbers that the texts of a tail have in a machine."""
    count = len(tail.texts)
    if count > len(machine.t.marks):
        machine.grow("marks", count)
    marks = np.zeros(count, RECORDS["marks"])
    marks["order"], marks["number"], marks["kind"] = (tail.texts[name] for name in ("at", "size", "kind"))
    machine.write("marks", slice(0, count), marks)
    data: Any = tail.text_bytes
    machine.replace("extra", np.frombuffer(data, np.uint8) if machine.compiled and data else data)
    if machine.compiled and not data:
        machine.replace("extra", np.zeros(0, np.uint8))
    for _ in machine.act(entry.INTERN, count):
        raise AssertionError("texts are not told")
    return machine.column("marks", "conn", count)


def _adopt(machine: Machine, texts: Ints, conns: Ints, requests: Ints) -> None:
    """Give the rows of connections and requests the numbers of texts of their new machine."""
    if len(texts) > len(machine.t.texts):
        machine.grow("texts", len(texts))
    for number, new in enumerate(texts.tolist()):
        machine.t.texts[number].moved = new
    _name(machine, np.concatenate([conns, requests]))
    machine.t.run[0].marks = len(conns) + len(requests)
    list(machine.act(entry.ADOPT, len(conns)))


def _name(machine: Machine, rows: Ints) -> None:
    """Name rows in `marks`."""
    if len(rows) > len(machine.t.marks):
        machine.grow("marks", len(rows))
    marks = np.zeros(len(rows), RECORDS["marks"])
    marks["row"] = rows
    machine.write("marks", slice(0, len(rows)), marks)


def link(machine: Machine) -> None:
    """Put all connections and requests into their lists and hash tables."""
    for name, room, rehash in (
        ("slots", 4 * len(machine.t.conns), entry.REHASH_CONNECTIONS),
        ("asked", 2 * len(machine.t.requests), entry.REHASH_REQUESTS),
    ):
        if len(getattr(machine.t, name)) < room:
            machine.rehash(name, room, rehash)
        else:
            list(machine.act(rehash))
    used = machine.used("conns")
    live = np.flatnonzero(machine.column("conns", "number", used) > 0)
    number, last, listed = (
        machine.column("conns", name, used)[live] for name in ("number", "last_order", "listed")
    )
    _name(machine, np.concatenate([live[np.lexsort((last, listed))], live[np.argsort(number)]]))
    list(machine.act(entry.LINK, len(live)))


# A whole run

State = dict[str, Any]
HELD = (
    "opened", "followed", "waiting", "arena_used", "arena_live", "serial", "bodies_waiting",
)  # fmt: skip
"""Of the run, what `put` adds to."""


def state(machine: Machine) -> State:
    """The state of a machine between two batches; nothing is told that was not made into events."""
    return {name: copied(machine.array(name, 1)) for name in ("run", "limits")} | {"tail": taken(machine)}


def restore(machine: Machine, kept: State) -> None:
    """Give a new machine the state that was kept; its limits become those of then."""
    for name in ("run", "limits"):
        machine.write(name, slice(0, 1), kept[name])
    run = machine.t.run[0]
    for name in HELD:
        setattr(run, name, 0)
    put(machine, kept["tail"])
    link(machine)
    run = machine.t.run[0]
    run.opened, run.serial = kept["run"]["opened"][0], kept["run"]["serial"][0]
    run.row = run.phase = 0
