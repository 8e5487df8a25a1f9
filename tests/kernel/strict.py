"""Interpreted tables that refuse what compiled code would do silently: negative indexes, and writing or
copying beyond an end. Their tables begin as small as can be, so that each of them is found full."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine import analyze as driver
from kwsniff.engine.machine import ROWS, Machine
from kwsniff.engine.tables import ARRAYS, SPEC_OF
from kwsniff.net.segments import segment_columns

FIXED = frozenset(
    ("run", "lists", "limits", "frame", "store", "facts", "bins", "word_bins", "segments", "pools")
)
TINY = {
    name: count if name in FIXED else 1
    for name, count in ROWS.items()
} | {"sides": 2, "slots": 2, "asked": 2, "text_slots": 2, "places": 2, "arena": 64}  # fmt: skip


class OutOfBounds(AssertionError):  # noqa: N818
    """A kernel used an index that its table does not have."""


def unsigned(number: int) -> int:
    """What compiled code makes a number without sign: a negative one would be huge there."""
    if number < 0:
        raise OutOfBounds(f"{number} as an unsigned number")
    return number


@contextmanager
def unsigned_numbers() -> Iterator[None]:
    """Let interpreted kernels make numbers without sign so, meanwhile."""
    modules = [
        module
        for name, module in sys.modules.items()
        if name.startswith("kwsniff.engine.") and getattr(module, "uintp", None) is int
    ]
    for module in modules:
        vars(module)["uintp"] = unsigned
    try:
        yield
    finally:
        for module in modules:
            vars(module)["uintp"] = int


def _checked(table: Any, at: Any) -> Any:
    size = len(table)
    if isinstance(at, slice):
        start, stop = at.start or 0, size if at.stop is None else at.stop
        if start < 0 or stop < 0 or (stop > start and stop > size):
            raise OutOfBounds(f"{start}:{stop} of {size}")
    elif not 0 <= at < size:
        raise OutOfBounds(f"{at} of {size}")
    return at


class Rows(list):  # type: ignore[type-arg]
    """A table, or an array of numbers."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(_checked(self, at))

    def __setitem__(self, at: Any, value: Any) -> None:
        super().__setitem__(_checked(self, at), value)


class Octets(bytearray):
    """An array of bytes."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(_checked(self, at))

    def __setitem__(self, at: Any, value: Any) -> None:
        if isinstance(at, slice) and len(value) != at.stop - (at.start or 0):
            raise OutOfBounds(f"{len(value)} bytes at {at}")
        super().__setitem__(_checked(self, at), value)


class StrictMachine(Machine):
    """Tables that check each index."""

    first = ROWS

    def __init__(self, *, compiled: bool | None = None) -> None:
        super().__init__(compiled=False)

    def _empty(self, name: str, count: int) -> Any:
        count = min(count, self.first.get(name, count))
        return self.made(name, count)

    def _call(self, what: int, how: int) -> int:
        with unsigned_numbers():
            return super()._call(what, how)

    def made(self, name: str, count: int) -> Any:
        if name in ARRAYS:
            return Octets(count) if ARRAYS[name] == "bytes" else Rows([0] * count)
        make = SPEC_OF[name].row
        return Rows(make() for _ in range(count))

    def put(self, name: str, rows: list[dict[str, int]]) -> None:
        table = self.made(name, len(rows))
        for at, row in enumerate(rows):
            for field, value in row.items():
                setattr(table[at], field, value)
        self.replace(name, table)

    def rehash(self, name: str, room: int, rehash: int) -> None:
        self.replace(name, self.made(name, 1 << max(room - 1, 1).bit_length()))
        self._call(rehash, 0)


class TinyMachine(StrictMachine):
    """Tables that begin as small as can be."""

    first = TINY

    def _began_small(self, name: str) -> bool:
        return False

    def _make_room(self, name: str, room: int) -> Iterator[bool]:
        if name == "places":
            self.replace(name, self.made(name, 1 << max(room, 2 * len(self.t.places)).bit_length()))
            return
        yield from super()._make_room(name, room)


class StrictEngine(driver.Engine):
    """An engine whose tables check each index."""

    kind = StrictMachine

    def _bytes(self, data: Any) -> Any:
        return Octets(data)


class TinyEngine(StrictEngine):
    """The same with the smallest tables."""

    kind = TinyMachine


def events_of(
    paths: Iterable[str], config: Config, engine: type[driver.Engine], *, compiled: bool | None = False
) -> pa.Table | None:
    """All events of captures in one table."""
    made = engine(config, compiled=compiled)
    batches: list[pa.RecordBatch] = []
    for batch in segments([*paths], config):
        batches += made.feed(segment_columns(batch))
    batches += made.finish()
    return pa.Table.from_batches(batches).combine_chunks() if batches else None
