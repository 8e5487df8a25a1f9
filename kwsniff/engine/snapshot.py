"""The state of a run between two batches, as plain arrays: to be kept, and gone on with elsewhere.

Theory of operation. State refers to rows, texts and bytes by their numbers, so a snapshot is the used part of
each table that outlives a batch. What differs from one process to another is left out and made anew: places
in hash tables (interpreted kernels use Python's hash, which is keyed), the programs of bodies, and the rows
of the batch at hand. Rows of pools that are free, and what once stood in free blocks, are left out too, so
that a snapshot is as large as what is held.

Invariant: nothing is told when a snapshot is taken; the events were drained.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine import actions as entry
from kwsniff.engine import arena, heap
from kwsniff.engine.machine import RECORDS, Machine
from kwsniff.engine.numbers import int64_at
from kwsniff.engine.tables import ARRAYS, POOLS
from kwsniff.native.rowcopies import copied, picked, put

Snapshot = dict[str, Any]
Ints = NDArray[np.int64]
WHOLE = ("run", "store", "limits")
PLAIN = ("bins", "word_bins", "lists", "pools")
"""Tables that are taken as they are."""


def taken(machine: Machine) -> Snapshot:
    """The state of a machine. Texts that nothing refers to are dropped from it first."""
    machine.compact_texts()
    store = machine.t.store[0]
    made: Snapshot = {name: copied(machine.array(name, 1)) for name in WHOLE}
    for name in POOLS:
        rows = machine.array(name, machine.used(name))
        made[f"{name}_at"] = live = _live(rows, int(machine.pool(name).first))
        made[name] = picked(rows, live)
    sides = _sides_of(made["conns_at"])
    made["sides"] = picked(machine.array("sides", 2 * machine.used("conns")), sides)
    made["texts"] = copied(machine.array("texts", int(store.texts)))
    made["text_bytes"] = machine.data("text_bytes", 0, int(store.text_bytes))
    for name in PLAIN:
        made[name] = copied(machine.array(name, len(getattr(machine.t, name))))
    made["arena"] = _arena(machine)
    made["words"] = _words(machine)
    return made


def restore(machine: Machine, snapshot: Snapshot) -> None:
    """Give a new machine the state that a snapshot holds; its limits become those of the snapshot."""
    for name in (*WHOLE, *PLAIN, "texts"):
        _fill(machine, name, np.arange(len(snapshot[name])), snapshot[name])
    for name in POOLS:
        _fill(machine, name, snapshot[f"{name}_at"], snapshot[name])
    _fill(machine, "sides", _sides_of(snapshot["conns_at"]), snapshot["sides"])
    for name in ("text_bytes", "arena", "words"):
        data = snapshot[name]
        if len(data) > len(getattr(machine.t, name)):
            machine.grow(name, len(data))
        getattr(machine.t, name)[: len(data)] = _plain(machine, name, data)
    run, store = machine.t.run[0], machine.t.store[0]
    store.programs = store.code = 0
    for name in POOLS:
        _free_the_rest(machine, name, snapshot[f"{name}_at"])
    _grow_with(machine, "sides", 2 * len(machine.t.conns))
    machine.rehash("slots", 4 * len(machine.t.conns), entry.REHASH_CONNECTIONS)
    machine.rehash("asked", 2 * len(machine.t.requests), entry.REHASH_REQUESTS)
    machine.rehash("text_slots", max(4 * int(store.texts), len(machine.t.text_slots)), entry.HASH_TEXTS)
    run.row = run.phase = 0


def _live(rows: NDArray[Any], first: int) -> Ints:
    """Numbers of the rows that are not in the list of free ones."""
    used = np.ones(len(rows), np.bool_)
    following = rows["next"].tolist()
    while first >= 0:
        used[first] = False
        first = following[first]
    return np.flatnonzero(used)


def _sides_of(conns: Ints) -> Ints:
    return np.stack((2 * conns, 2 * conns + 1), axis=1).ravel()


def _fill(machine: Machine, name: str, places: Ints, rows: NDArray[Any]) -> None:
    """Write rows into their places of a table."""
    if len(places):
        _grow_with(machine, name, int(places[-1]) + 1)
    table = getattr(machine.t, name)
    if machine.compiled:
        put(table, places, rows)
        return
    for field in RECORDS[name].names or ():
        for place, value in zip(places.tolist(), rows[field].tolist(), strict=True):
            setattr(table[place], field, value)


def _grow_with(machine: Machine, name: str, count: int) -> None:
    if len(getattr(machine.t, name)) < count:
        machine.grow(name, count)


def _free_the_rest(machine: Machine, name: str, live: Ints) -> None:
    """Make the list of free rows: those between the rows in use, the lowest first."""
    used = int(live[-1]) + 1 if len(live) else 0
    free = [*np.setdiff1d(np.arange(used), live).tolist(), -1]
    table, pool = getattr(machine.t, name), machine.pool(name)
    for row, following in itertools.pairwise(free):
        table[row].next = following
        if name == "requests":
            table[row].conn = -1
    pool.used, pool.first = used, free[0]


def _arena(machine: Machine) -> bytes:
    """The used part of the arena, with nothing but the list in free blocks."""
    data = bytearray(machine.data("arena", 0, int(machine.t.run[0].arena_used)))
    for number in range(arena.BINS):
        at, size = int(machine.t.bins[number].first), 1 << (arena.LEAST + number)
        while at >= 0:
            data[at + 8 : at + size] = bytes(size - 8)
            at = int64_at(data, at)
    return bytes(data)


def _words(machine: Machine) -> Ints:
    """The same of the heap."""
    words = np.array(machine.t.words[: int(machine.t.store[0].words)], np.int64)
    for number in range(heap.BINS):
        at, size = int(machine.t.word_bins[number].first), heap.room_of(number)
        while at >= 0:
            words[at + 1 : at + size] = 0
            at = int(words[at])
    return words


def _plain(machine: Machine, name: str, data: Any) -> Any:
    """What a table without fields takes."""
    if ARRAYS[name] == "bytes":
        return np.frombuffer(data, np.uint8) if machine.compiled else data
    return data if machine.compiled else data.tolist()
