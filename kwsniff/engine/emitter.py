"""What the kernels drained, as EVENTS: calls, anomalies and connections that are over."""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine import tables as k
from kwsniff.engine.callcolumns import BODIES, CallColumns
from kwsniff.engine.details import details_of
from kwsniff.engine.drained import LISTS, Drained, PacketNote, Problem, Texts, listed, owners_of
from kwsniff.engine.eventcolumns import KINDS, Arranged, Owners, anomaly_columns, arranged, end_columns
from kwsniff.engine.machine import RECORDS, Machine
from kwsniff.native.rowcopies import copied, picked, put
from kwsniff.rows.arrays import Columns, places, record_batch, repeated
from kwsniff.rows.schema import EVENTS
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.compile import decoder
from kwsniff.spec.render import render

__all__ = ["KINDS", "Emitter"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]
State = tuple[dict[int, str | None], dict[int, bytes]]
"""Names of capture files by their numbers, and texts of bodies by theirs."""


class Emitter:
    """Makes EVENTS of what stands in the tables of a machine."""

    def __init__(self, machine: Machine, config: Config) -> None:
        self._machine, self._config = machine, config
        self._texts = Texts(machine)
        self._owners = Owners()
        self.captures: list[str | None] = []
        self.keys = self.ranks = self.numbers = np.zeros(0, np.int64)
        """Of the rows of the latest batch: places in the input (see `KINDS`) that ascend, places among those
        of the same key, and numbers of connections, 0 for none."""
        self._packet_notes: list[PacketNote] = []
        self.bodies = Bodies(machine, config) if config.full else None
        self._calls = CallColumns(config)

    def state(self) -> State:
        """What the tables do not hold, for another process to go on with."""
        return self._captures_at_hand(), {} if self.bodies is None else self.bodies.waiting()

    def go_on(self, state: State) -> None:
        """Go on with the tables, which have been restored, and the state of another process."""
        captures, bodies = state
        self.captures = [*captures.values()]
        moved = {old: new for new, old in enumerate(captures)}
        for conn in self._machine.t.conns[: self._machine.used("conns")]:
            if conn.number:
                conn.capture = moved[int(conn.capture)]
        if self.bodies is not None:
            self.bodies.go_on(bodies)

    def _captures_at_hand(self) -> dict[int, str | None]:
        """Names of the capture files that connections were last seen in, by number."""
        machine = self._machine
        conns = machine.array("conns", machine.used("conns"))
        wanted = {*conns["capture"][conns["number"] != 0].tolist(), len(self.captures) - 1}
        return {number: self.captures[number] for number in sorted(wanted) if number >= 0}

    def capture(self, name: str | None) -> int:
        """The number of a capture file."""
        if not self.captures or self.captures[-1] != name:
            self.captures.append(name)
        return len(self.captures) - 1

    def note_packets(self, notes: list[tuple[int, str, str, int, int]], first: int, capture: int) -> None:
        """Add anomalies of packets that belong to no connection."""
        self._packet_notes += [
            (first + order, code, detail, packet, time, capture)
            for order, code, detail, packet, time in notes
        ]

    def take(self, everything: bool) -> Drained | None:
        """All that is to be told, or what packets before the one at hand settled: taken out of the tables,
        which may be filled again."""
        machine = self._machine
        run = machine.t.run[0]
        self.show()
        calls = machine.array("calls", int(run.calls))
        notes = machine.array("notes", int(run.notes))
        ends = machine.array("ends", int(run.ends))
        now = int(run.order)
        if not everything:
            calls, notes, ends = (
                rows[: int(np.searchsorted(rows["order"], now))] for rows in (calls, notes, ends)
            )
        counts = self._listed(None if everything else calls)
        drained = self._drained(calls, notes, ends, counts, self._due(None if everything else now))
        self._forget({"calls": len(calls), "notes": len(notes), "ends": len(ends)} | counts)
        if everything:
            run.packet_bytes = 0
            if self.bodies is not None:
                self.bodies.tidy()
        run.emitted_bytes = run.packet_bytes
        self._forget_kept(int(run.notes))
        return drained

    def _listed(self, calls: Rows | None) -> dict[str, int]:
        """How many rows of each table these calls list; all calls: None."""
        store = self._machine.t.store[0]
        if calls is None:
            return {name: int(getattr(store, name)) for name in LISTS}
        return {
            name: sum(int(np.maximum(calls[field], 0).sum()) for field in fields)
            for name, fields in LISTS.items()
        }

    def _drained(
        self,
        calls: Rows,
        notes: Rows,
        ends: Rows,
        counts: dict[str, int],
        due: tuple[list[PacketNote], list[Problem]],
    ) -> Drained | None:
        machine = self._machine
        known = calls["left"] != k.HEAD
        lists = listed(machine, calls, counts, None if known.all() else known)
        calls = copied(calls) if known.all() else picked(calls, known)
        notes = picked(notes, notes["left"] != k.HEAD)
        shown = self.shown(ends)
        packet_notes, problems = due
        if not (len(calls) or len(notes) or len(shown) or packet_notes or problems):
            return None
        problem_rows = np.array([each[0] for each in problems], RECORDS["bodies"])
        bodies = {}
        if self.bodies is not None:
            bodies = {name: self.bodies.take(calls[f"{name}_body"]) for name in BODIES}
        owners, whose = owners_of(machine, [calls, notes, problem_rows, shown], ends)
        details = details_of(notes, self._config, machine)
        return Drained(
            calls=calls, lists=lists, notes=notes, packet_notes=packet_notes, problems=problems, ends=shown,
            bodies=bodies, texts=self._texts.now(), details=details, owners=owners, whose=whose,
        )  # fmt: skip

    def _due(self, before: int | None) -> tuple[list[PacketNote], list[Problem]]:
        """Anomalies that no table holds: all, or those of packets before a place in the input."""
        now = int(self._machine.t.run[0].order)
        packet_notes = [each for each in self._packet_notes if each[0] <= now]
        self._packet_notes = self._packet_notes[len(packet_notes) :]
        problems = [] if self.bodies is None else self.bodies.problems(before)
        return packet_notes, [each for each in problems if each[0]["left"] != k.HEAD]

    def shown(self, ends: Rows) -> Rows:
        """The connections that have rows of their own: not those that go on from before a part."""
        return picked(ends, (ends["known"] != 0) & (ends["left"] == 0))

    def names(self, texts: Ints) -> list[str | None]:
        """Texts by their numbers."""
        return self._texts.now().chosen(texts).to_pylist()  # type: ignore[no-any-return]

    def ended(self, ends: Rows) -> pa.RecordBatch:
        """EVENTS of connections that are over, given as rows of `ends`."""
        owners, whose = owners_of(self._machine, [ends], ends)
        calls, notes = (np.zeros(0, RECORDS[name]) for name in ("calls", "notes"))
        drained = Drained(
            calls=calls, lists={}, notes=notes, packet_notes=[], problems=[], ends=ends, bodies={},
            texts=self._texts.now(), details=[], owners=owners, whose=whose,
        )  # fmt: skip
        return self.batch(drained)

    def forget_texts(self) -> None:
        """The numbers of texts have changed."""
        self._texts.forget()

    def show(self) -> None:
        """Make the bodies that were kept into texts, and empty their tables."""
        if self.bodies is not None:
            self.bodies.render()

    def batch(self, drained: Drained) -> pa.RecordBatch:
        """An EVENTS batch of what was drained. A thread may make one after the other while kernels go on."""
        rows = arranged(drained, RECORDS["bodies"])
        self.keys, self.ranks, self.numbers = rows.keys, rows.ranks, rows.numbers
        columns = self._calls.of(drained, rows) | anomaly_columns(drained, rows)
        columns |= end_columns(drained, rows) | self._identity(drained, rows)
        return record_batch(columns, len(rows), EVENTS)

    def _forget(self, counts: dict[str, int]) -> None:
        """Take so many rows out of the tables, those of the packet at hand stay."""
        machine = self._machine
        run, store = machine.t.run[0], machine.t.store[0]
        for name, count in counts.items():
            owner = store if name in LISTS else run
            left = int(getattr(owner, name)) - count
            if count and left:
                table = getattr(machine.t, name)
                if machine.compiled:
                    put(table, slice(left), copied(table[count : count + left]))
                else:
                    table[: count + left] = [*table[count : count + left], *table[:count]]
            setattr(owner, name, left)

    def _forget_kept(self, left: int) -> None:
        """Move the bytes that the notes which are left are about to the front."""
        machine = self._machine
        run = machine.t.run[0]
        rows = machine.array("notes", left)
        used = np.flatnonzero(rows["size"])
        if not len(used):
            run.kept = 0
            return
        first = int(rows["at"][used].min())
        kept = int(run.kept) - first
        data = machine.data("keep", first, first + kept)
        machine.t.keep[:kept] = np.frombuffer(data, np.uint8) if machine.compiled else data
        for row in used.tolist():
            machine.t.notes[row].at -= first
        run.kept = kept

    # Whose

    def _identity(self, drained: Drained, rows: Arranged) -> Columns:
        columns = self._owners.columns(drained.owners, rows.owner)
        return columns | {"capture": self._capture_names(rows.capture)}

    def _capture_names(self, numbers: Ints) -> pa.Array:
        first, last = int(numbers.min()), int(numbers.max())
        if first == last and (name := self.captures[first]) is not None:
            return repeated(name, len(numbers))
        return pa.array(self.captures[first : last + 1], pa.string()).take(places(numbers - first))


# Bodies as JSON text, for the columns `request` and `response`.
#
# Theory of operation. The kernels keep the bytes of each body under a number, which its call refers to. When
# their table is full, or events are made, all that stand there are made into text by the decoders of
# `kwsniff.spec`; a request's text waits here until its call is told. Most are told soon; the number of those
# that aren't (of connections that turned out to be none of Kafka's) is small, and they are looked for when
# there are twice as many as there were.
#
# Texts that wait are compressed when they take much: bodies that say little can be long as JSON.

DIRECTIONS = ("request", "response")
MUCH = 32 << 20
"""Bytes of texts that wait above which they are compressed ..."""
LONG = 256
"""... if they are longer than this."""
MANY = 4096
"""Texts that wait before those are looked for that nobody asks for any more."""


Body = tuple[int, int, int, int, int]
"""API, version, direction, and where it begins in the bytes at hand, and its size."""
Rendered = tuple[bytes | None, list[tuple[str, str]]]
"""The text of a body, if it has one, and codes and details of what is wrong inside it."""
Renderer = Callable[[bytes, list[Body]], Iterable[Rendered]]


def rendered(config: Config, data: bytes, bodies: Iterable[Body]) -> Iterator[Rendered]:
    """Bodies as texts."""
    for key, version, direction, at, size in bodies:
        said = DIRECTIONS[direction]
        try:
            body, _ = decoder(key, version, said)(data, at, at + size, config.max_elements)
        except DecodeError as error:
            # What an event takes from it could be read: a text that nothing is taken from is none.
            where = f"{said} {error.path}".rstrip()
            yield None, [(error.code, where if error.offset < 0 else f"{where}, offset {error.offset}")]
            continue
        problems: list[tuple[str, str]] = []
        yield render(key, version, said, body, config, problems).encode(), problems


class Bodies:
    """Texts of bodies by their numbers; see the module's head."""

    def __init__(self, machine: Machine, config: Config) -> None:
        self._machine = machine
        self.renderer: Renderer = functools.partial(rendered, config)
        """What makes texts of bodies: other processes, if there are some."""
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
        names = ("key", "version", "direction", "at", "size")
        given = list(zip(*(rows[name].tolist() for name in names), strict=True))
        serials = rows["serial"].tolist()
        for place, (text, found) in enumerate(self.renderer(data, given)):
            if text is not None:
                self._texts[serials[place]] = text
                self._size += len(text)
            if found and not rows[place]["guessed"]:
                self._problems += [(rows[place].copy(), code, detail) for code, detail in found]

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
