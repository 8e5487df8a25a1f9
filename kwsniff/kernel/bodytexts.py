"""Bodies as JSON text, for the columns `request` and `response`.

Theory of operation. The kernels keep the bytes of each body under a number, which its call refers to. When
their table is full, or events are made, all that stand there are made into text by the decoders of
`kwsniff.spec`; a request's text waits here until its call is told. Most are told soon; the number of those
that aren't (of connections that turned out to be none of Kafka's) is small, and they are looked for when
there are twice as many as there were.

Texts that wait are compressed when they take much: bodies that say little can be long as JSON.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.binary import DecodeError
from kwsniff.config import Config
from kwsniff.kernel.machine import Machine
from kwsniff.spec.compile import decoder
from kwsniff.wire.render import render

DIRECTIONS = ("request", "response")
Problem = tuple[Any, str, str]
"""The row of `bodies`, code and detail of an anomaly."""
MUCH = 32 << 20
"""Bytes of texts that wait above which they are compressed ..."""
LONG = 256
"""... if they are longer than this."""
MANY = 4096
"""Texts that wait before those are looked for that nobody asks for any more."""


class Bodies:
    """Texts of bodies by their numbers; see the module's head."""

    def __init__(self, machine: Machine, config: Config) -> None:
        self._machine, self._config = machine, config
        self._texts: dict[int, bytes] = {}
        self._packed: dict[int, bytes] = {}
        self._size = 0
        """Bytes in `_texts`."""
        self._problems: list[Problem] = []
        self._many = MANY

    def waiting(self) -> dict[int, bytes]:
        """Compressed texts of the bodies of requests in flight, for another process to go on with."""
        self._drop()
        return self._packed | {serial: zlib.compress(text, 1) for serial, text in self._texts.items()}

    def go_on(self, waiting: dict[int, bytes]) -> None:
        """Go on with the texts that another process had waiting."""
        self._packed = waiting

    def render(self) -> None:
        """Make texts of all bodies in the table, and empty it."""
        run = self._machine.t.run[0]
        if not run.bodies:
            return
        rows = self._machine.array("bodies", int(run.bodies))
        data = self._machine.data("body_data", 0, int(run.body_bytes))
        run.bodies = run.body_bytes = 0
        names = ("key", "version", "direction", "at", "size", "serial")
        for place, row in enumerate(zip(*(rows[name].tolist() for name in names), strict=True)):
            found: list[tuple[str, str]] = []
            text = self._rendered(data, row, found)
            if text is not None:
                self._texts[row[5]] = text
                self._size += len(text)
            if found and not rows[place]["guessed"]:
                self._problems += [(rows[place].copy(), code, detail) for code, detail in found]

    def _rendered(self, data: bytes, row: tuple[int, ...], problems: list[tuple[str, str]]) -> bytes | None:
        key, version, direction, at, size, _ = row
        said = DIRECTIONS[direction]
        try:
            body, _ = decoder(key, version, said)(data, at, at + size, self._config.max_elements)
        except DecodeError as error:
            # What an event takes from it could be read: a text that nothing is taken from is none.
            where = f"{said} {error.path}".rstrip()
            problems.append((error.code, where if error.offset < 0 else f"{where}, offset {error.offset}"))
            return None
        return render(key, version, said, body, self._config, problems).encode()

    def problems(self, before: int | None) -> list[Problem]:
        """Take the anomalies found inside bodies: all, or those of packets before a place in the input."""
        if not self._problems:
            return []
        problems = self._problems
        count = len(problems)
        while before is not None and count and problems[count - 1][0]["order"] >= before:
            count -= 1
        self._problems = problems[count:]
        return problems[:count]

    def take(self, serials: NDArray[np.int64]) -> pa.Array:
        """The texts of bodies by their numbers, null for those that are not shown; each can be taken once."""
        return pa.array([self._taken(serial) for serial in serials.tolist()], pa.string())

    def _taken(self, serial: int) -> bytes | None:
        text = self._texts.pop(serial, None)
        if text is not None:
            self._size -= len(text)
            return text
        packed = self._packed.pop(serial, None)
        return None if packed is None else zlib.decompress(packed)

    def put(self, first: int, texts: dict[int, bytes]) -> None:
        """Take texts of requests that wait, which are numbered from `first` on here."""
        self._packed |= {first + serial: text for serial, text in texts.items()}

    def tidy(self) -> None:
        """After everything was told: drop texts that nobody will ask for, and compress others if need be."""
        if len(self._texts) + len(self._packed) > self._many:
            self._drop()
            self._many = max(2 * (len(self._texts) + len(self._packed)), MANY)
        if self._size > MUCH:
            self._pack()

    def _drop(self) -> None:
        requests = self._machine.array("requests", self._machine.used("requests"))
        awaited = set(requests["serial"][requests["conn"] >= 0].tolist())
        self._texts = {serial: text for serial, text in self._texts.items() if serial in awaited}
        self._packed = {serial: text for serial, text in self._packed.items() if serial in awaited}
        self._size = sum(map(len, self._texts.values()))

    def _pack(self) -> None:
        for serial in [serial for serial, text in self._texts.items() if len(text) > LONG]:
            text = self._texts.pop(serial)
            self._size -= len(text)
            self._packed[serial] = zlib.compress(text, 1)
