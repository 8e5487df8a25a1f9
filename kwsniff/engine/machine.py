"""The tables of a run and what carries out the kernels over them: compiled code, or the interpreter.

Theory of operation. Compiled, a table is a NumPy array with a record type, and `act` is code that was
written when the package was installed (see `kwsniff.engine.build` and `kwsniff.native.code`): ctypes calls it
with addresses and lengths, and other threads run meanwhile. Interpreted, a table is a list of rows, and `act`
is the very same function. A kernel that finds a table full raises Stopped; `Machine.act` makes it larger, or
lets its owner empty it, and calls again.

Invariant: rows are found by their numbers only, so tables may move when they grow.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kwsniff.engine import tables as entry
from kwsniff.engine.arena import BINS
from kwsniff.engine.packing import WORD_BINS, reset_words
from kwsniff.engine.programs import api_rows, code_rows, program_row, programs_of
from kwsniff.engine.tables import (
    ARRAYS,
    DONE,
    FULL,
    LEFT,
    OWN,
    POOLS,
    PROGRAM,
    SPEC_OF,
    WANTS,
    Stopped,
    Tables,
)
from kwsniff.native.code import ACT, STOPPED, load, places
from kwsniff.native.rowcopies import TYPES, copied, put

ROWS = {
    "segments": 0, "run": 1, "limits": 1, "item": 1, "frame": 1, "lists": 3, "pools": len(POOLS), "store": 1,
    "facts": 2, "reading": 1,
    "bins": BINS, "word_bins": WORD_BINS,
    "conns": 256, "sides": 512, "slots": 1024, "pieces": 256, "requests": 1024, "asked": 4096, "early": 64,
    "calls": 16_384, "notes": 16_384, "ends": 8192, "call_names": 16_384, "call_rows": 32_768,
    "call_resources": 1024, "call_brokers": 1024,
    "names": 256, "rows": 1024, "brokers": 64, "resources": 64, "places": 1024, "registers": 128,
    "bodies": 1, "texts": 1024, "text_bytes": 65_536, "text_slots": 4096, "words": 16_384,
    "records": 256, "record_data": 1 << 16, "programs": 64, "code": 4096, "arena": 1 << 18, "keep": 1 << 18,
    "marks": 64, "lefts": 64,
}  # fmt: skip
"""Rows that tables have at first."""
INTERPRETED = {
    name: count if name in ARRAYS and name != "text_slots" else min(count, 64) for name, count in ROWS.items()
} | {"sides": 128, "slots": 256, "asked": 256, "text_slots": 256}
"""The same if kernels are interpreted: a row is a Python object then, and takes microseconds to make."""
SCRATCH = 65_536
"""Rows above which the lists of the body at hand are made small again."""
EMITTED = (
    "calls", "notes", "ends", "call_names", "call_rows", "call_resources", "call_brokers", "keep"
)  # fmt: skip
"""Tables that are emptied when they are full."""
PARTS = {name: ROWS[name] for name in EMITTED}
"""Rows that one packet may fill before they are told in parts: whatever the size of tables, so that the
order of rows does not depend on it."""
BODIES = 8192
BODY_DATA = 4 << 20
"""Bodies, and bytes of them, that stand in the tables at a time if they are shown."""
RECORDS = {name: np.dtype([(field, np.int64) for field in spec.names]) for name, spec in SPEC_OF.items()}
Ints = NDArray[np.int64]


class Machine:
    """Tables and kernels of one run; see the module's head."""

    def __init__(self, *, compiled: bool | None = None) -> None:
        """`compiled` says how kernels run; None: compiled if there is code for this machine."""
        self._native = load(ACT) if compiled is not False else None
        if compiled and self._native is None:
            raise RuntimeError("no compiled code for this machine")
        self.compiled = self._native is not None
        first = ROWS if self.compiled else INTERPRETED
        self.t = Tables(*(self._empty(name, first.get(name, 0)) for name in Tables._fields))
        self._places: Ints | None = None
        self.refused = False
        """In a sparse run: a connection is not what a part took it for, `act` stopped behind that segment."""
        self._reset()

    # Tables

    def _empty(self, name: str, count: int) -> Any:
        if name in ARRAYS:
            if self.compiled:
                return np.zeros(count, TYPES[ARRAYS[name]])
            return bytearray(count) if ARRAYS[name] == "bytes" else [0] * count
        if self.compiled:
            return np.zeros(count, RECORDS[name]).view(np.recarray)
        make = SPEC_OF[name].row
        return [make() for _ in range(count)]

    def _reset(self) -> None:
        run, limits = self.t.run[0], self.t.limits[0]
        for name in ("oldest", "newest", "giver", "clock", "jump", "moment_row", "item", "conn", "pairing",
                     "now", "swept", "begun", "syn_time", "a_born", "b_born"):  # fmt: skip
            setattr(run, name, -1)
        run.rank = OWN
        limits.seed = secrets.randbits(62)
        for name in ("slots", "asked", "bins", "lists", "pools"):
            self.set_column(name, "first", -1)
        self.set_column("lists", "last", -1)
        reset_words(self.t)
        apis, layouts = api_rows()
        self.put("apis", apis)
        self.put("layouts", layouts)

    def put(self, name: str, rows: list[dict[str, int]]) -> None:
        """Replace a table by these rows."""
        self.replace(name, self._empty(name, len(rows)))
        columns = {field: [row[field] for row in rows] for field in (rows[0] if rows else ())}
        self.set_columns(name, {field: np.array(values, np.int64) for field, values in columns.items()})

    def set_column(self, name: str, field: str, value: int) -> None:
        """Write the same value into a field of all rows."""
        table = getattr(self.t, name)
        if self.compiled:
            table[field] = value
        else:
            for row in table:
                setattr(row, field, value)

    def set_columns(self, name: str, columns: dict[str, Ints]) -> None:
        """Write fields of the first rows of a table."""
        table = getattr(self.t, name)
        for field, values in columns.items():
            if self.compiled:
                table[field][: len(values)] = values
            else:
                for row, value in zip(table, values.tolist(), strict=False):
                    setattr(row, field, value)

    def replace(self, name: str, table: Any) -> None:
        """Put another table in the place of one."""
        self.t = self.t._replace(**{name: table})
        self._places = None

    def grow(self, name: str, room: int) -> None:
        """Give a table at least `room` rows."""
        table = getattr(self.t, name)
        count = max(len(table), 1)
        while count < room:
            count *= 2
        if self.compiled:
            grown = self._empty(name, count)
            put(grown, slice(len(table)), table)
        elif name in ARRAYS:
            table.extend(bytes(count - len(table)) if ARRAYS[name] == "bytes" else [0] * (count - len(table)))
            grown = table
        else:
            make = SPEC_OF[name].row
            table.extend(make() for _ in range(count - len(table)))
            grown = table
        self.replace(name, grown)

    def array(self, name: str, end: int, first: int = 0) -> NDArray[Any]:
        """Rows of a table as a record array, which the next call of a kernel may overwrite."""
        table = getattr(self.t, name)
        if self.compiled:
            return np.asarray(table)[first:end]
        fields = SPEC_OF[name].names
        made = np.zeros(end - first, RECORDS[name])
        for field in fields:
            made[field] = [getattr(row, field) for row in table[first:end]]
        return made

    def text(self, number: int) -> tuple[int, bytes]:
        """Kind and bytes of a text."""
        row = self.t.texts[number]
        # NumPy's records have a `size` of their own.
        at, size = (int(row["at"]), int(row["size"])) if self.compiled else (row.at, row.size)
        return int(row.kind), self.data("text_bytes", at, at + size)

    def write(self, name: str, at: Ints | slice, rows: NDArray[Any]) -> None:
        """Write rows, given as a record array, to these places of a table."""
        table = getattr(self.t, name)
        if self.compiled:
            put(table, at, rows)
            return
        places = range(len(table))[at] if isinstance(at, slice) else at.tolist()
        for place, row in zip(places, rows.tolist(), strict=True):
            for field, value in zip(RECORDS[name].names or (), row, strict=True):
                setattr(table[place], field, value)

    def column(self, name: str, field: str, count: int) -> Ints:
        """A field of the first rows of a table, copied."""
        table = getattr(self.t, name)
        if self.compiled:
            return np.array(table[field][:count])
        return np.array([getattr(row, field) for row in table[:count]], np.int64)

    def pool(self, name: str) -> Any:
        """The row of `pools` for a table."""
        return self.t.pools[POOLS.index(name)]

    def used(self, name: str) -> int:
        """Rows of a pool that are in use or free; behind them nothing was written."""
        return int(self.pool(name).used)

    def data(self, name: str, first: int, end: int) -> bytes:
        """A stretch of an array of bytes."""
        return bytes(memoryview(getattr(self.t, name))[first:end])

    # Kernels

    def act(self, what: int, how: int = 0) -> Iterator[bool | None]:
        """Carry out one of the actions of `kwsniff.engine.follow`, with as much room as it takes. Yields
        whenever what was told (calls, notes, ends) has to be taken out of the tables: False for what packets
        before the one at hand settled, True for everything; None if only the bodies have to."""
        while (code := self._call(what, how)) != DONE:
            if code == PROGRAM:
                run = self.t.run[0]
                self.learn(int(run.key), int(run.version))
            elif code == FULL:
                yield from self._make_room(WANTS[self.t.run[0].want], int(self.t.run[0].room))
            elif code == LEFT:
                self.refused = True
                return

    def _call(self, what: int, how: int) -> int:
        """Why kernels stopped, DONE if they did not."""
        if self._native is None:
            from kwsniff.engine.follow import act

            try:
                return act(self.t, what, how)
            except Stopped:
                return int(self.t.run[0].stopped)
        if self._places is None:
            self._places = places(self.t)
        code = self._native(self._places.ctypes.data, what, how)
        return int(self.t.run[0].stopped) if code == STOPPED else code

    def _make_room(self, name: str, room: int) -> Iterator[bool | None]:
        table = getattr(self.t, name)
        if name in ("bodies", "body_data"):
            yield None
            if room > len(table):
                self.grow(name, room)
        elif name in EMITTED:
            yield from self._empty_emitted(name, room)
        elif name in POOLS:
            self.grow(name, 2 * len(table))
            if name == "conns":
                self.grow("sides", 2 * len(self.t.conns))
                self.rehash("slots", 4 * len(self.t.conns), entry.REHASH_CONNECTIONS)
            elif name == "requests":
                self.rehash("asked", 2 * len(self.t.requests), entry.REHASH_REQUESTS)
        elif name == "arena":
            self.grow(name, max(len(table) + room, len(table) * 3 // 2))
        elif name == "text_slots":
            self.rehash(name, max(room, 2 * len(table)), entry.REHASH_TEXTS)
        elif name == "places":
            self.replace(name, self._empty(name, max(2 * len(table), _power(room))))
        else:
            self.grow(name, max(room, 2 * len(table)))

    def _empty_emitted(self, name: str, room: int) -> Iterator[bool]:
        """Make room in one of the tables of what was told."""
        if room == 0:  # enough is told
            yield not self._emitted_before()
            return
        if self._began_small(name):
            self.grow(name, max(2 * len(getattr(self.t, name)), self._used(name) + room))
            return
        if self._emitted_before():
            yield False
            if self._used(name) + room <= len(getattr(self.t, name)):
                return
        if self._used(name) + room > PARTS[name] and self._emitter():
            yield True
        if (room := self._used(name) + room) > len(getattr(self.t, name)):
            self.grow(name, room)

    def _began_small(self, name: str) -> bool:
        """Whether it has not even the rows yet that compiled code begins with."""
        return not self.compiled and len(getattr(self.t, name)) < ROWS[name]

    def _used(self, name: str) -> int:
        owner = self.t.store[0] if name.startswith("call_") else self.t.run[0]
        return int(getattr(owner, "kept" if name == "keep" else name))

    def _emitter(self) -> bool:
        run = self.t.run[0]
        return bool(run.calls or run.notes or run.ends)

    def _emitted_before(self) -> bool:
        """Whether packets before the one at hand settled something."""
        run = self.t.run[0]
        tables = ((self.t.calls, run.calls), (self.t.notes, run.notes), (self.t.ends, run.ends))
        return any(count and table[0].order < run.order for table, count in tables)

    def shrink(self) -> None:
        """Between blocks: give back the room of tables that a flood made large and that are nearly empty."""
        for name, least in PARTS.items():
            if len(getattr(self.t, name)) > 4 * least and not self._used(name):
                self.replace(name, self._empty(name, least))
        if len(self.t.body_data) > 4 * BODY_DATA and not self.t.run[0].body_bytes:
            self.replace("body_data", self._empty("body_data", BODY_DATA))
        for name in ("names", "rows", "brokers", "resources", "places"):
            if len(getattr(self.t, name)) > SCRATCH:
                self.replace(name, self._empty(name, ROWS[name]))
        run, store = self.t.run[0], self.t.store[0]
        if not run.arena_live and len(self.t.arena) > 4 * ROWS["arena"]:
            run.arena_used = 0
            self.set_column("bins", "first", -1)
            self.replace("arena", self._empty("arena", ROWS["arena"]))
        if not store.words_live and len(self.t.words) > 4 * ROWS["words"]:
            reset_words(self.t)
            self.replace("words", self._empty("words", ROWS["words"]))
        for name in ("requests", "pieces", "conns"):
            if not self.pool(name).live and len(getattr(self.t, name)) > 4 * ROWS[name]:
                self._renew(name)

    def _renew(self, name: str) -> None:
        """Start a pool of which no row is in use anew."""
        self.replace(name, self._empty(name, ROWS[name]))
        self.pool(name).used, self.pool(name).first = 0, -1
        if name == "conns":
            self.replace("sides", self._empty("sides", ROWS["sides"]))
            self.rehash("slots", ROWS["slots"], entry.REHASH_CONNECTIONS)
        elif name == "requests":
            self.rehash("asked", ROWS["asked"], entry.REHASH_REQUESTS)

    def compact_texts(self) -> None:
        """Between blocks, when nothing is told: drop the texts that nothing refers to any more."""
        if self.compiled:  # what events are being made of may lie in there
            self.replace("text_bytes", self.t.text_bytes.copy())
        self._call(entry.COMPACT_TEXTS, 0)
        store = self.t.store[0]
        for name, used in (("texts", int(store.texts)), ("text_bytes", int(store.text_bytes))):
            table = getattr(self.t, name)
            count = max(_power(2 * used), ROWS[name])
            if len(table) >= 4 * count:
                self.replace(name, self._cut(table, count))
        room = max(4 * _power(int(store.texts)), ROWS["text_slots"])
        if len(self.t.text_slots) >= 4 * room:
            self.rehash("text_slots", room, entry.REHASH_TEXTS)

    def _cut(self, table: Any, count: int) -> Any:
        if not self.compiled:
            return table[:count]
        return copied(table[:count]).view(type(table))

    def rehash(self, name: str, room: int, rehash: int) -> None:
        """Make a hash table of at least so many places and fill it again."""
        self.replace(name, self._empty(name, _power(room)))
        self._call(rehash, 0)

    def learn(self, key: int, version: int) -> None:
        """Load the programs of one version of an API."""
        api = self.t.apis[key]
        layout = self.t.layouts[int(api.first) + version - int(api.low)]
        store = self.t.store[0]
        for field, program in zip(("request", "response"), programs_of(key, version), strict=True):
            start, at = int(store.code), int(store.programs)
            if start + len(program.code) > len(self.t.code):
                self.grow("code", start + len(program.code))
            if at >= len(self.t.programs):
                self.grow("programs", at + 1)
            words = code_rows(program, start)
            if self.compiled:
                code = np.asarray(self.t.code).view(np.int64).reshape(len(self.t.code), -1)
                code[start : start + len(words)] = words
            else:
                for row, each in zip(self.t.code[start:], words, strict=False):
                    row.op, row.a, row.b, row.c, row.d = each
            row = self.t.programs[at]
            for name, value in program_row(program, start).items():
                setattr(row, name, value)
            setattr(layout, field, at)
            store.code, store.programs = start + len(program.code), at + 1


def _power(count: int) -> int:
    """The power of two that is at least `count`."""
    return 1 << max(count - 1, 1).bit_length()
