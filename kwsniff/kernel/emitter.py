"""What the kernels told, as EVENTS: calls, anomalies and connections that are over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.columns import (
    Columns,
    in_order,
    places,
    record_batch,
)
from kwsniff.config import Config
from kwsniff.kernel import tables as k
from kwsniff.kernel.callcolumns import LISTS, CallColumns
from kwsniff.kernel.endcolumns import end_columns
from kwsniff.kernel.identity import connection_id
from kwsniff.kernel.machine import Machine
from kwsniff.kernel.notecolumns import PacketNote, note_columns, packet_note_columns, problem_columns
from kwsniff.kernel.strings import Texts
from kwsniff.net.address import text
from kwsniff.table import EVENTS

Ints = NDArray[np.int64]
Rows = NDArray[Any]
State = tuple[dict[int, str | None], dict[int, bytes]]
"""Names of capture files by their numbers, and texts of bodies by theirs."""
KINDS = 4
"""Anomalies of packets before it, then its calls, anomalies, connections: the order of events of a packet."""
if TYPE_CHECKING:
    from kwsniff.kernel.bodytexts import Bodies


class Emitter:
    """Makes EVENTS of what stands in the tables of a machine."""

    def __init__(self, machine: Machine, config: Config) -> None:
        self._machine, self._config = machine, config
        self._texts = Texts(machine)
        self._known: dict[int, tuple[Any, ...]] = {}
        """Of connections by number: id, client, broker, capture."""
        self.captures: list[str | None] = []
        self.keys = self.ranks = self.numbers = np.zeros(0, np.int64)
        """Of the rows of the latest batch: places in the input (see `KINDS`) that ascend, places among those
        of the same key, and numbers of connections, 0 for none."""
        self._packet_notes: list[PacketNote] = []
        self.bodies = _bodies(machine, config) if config.full else None
        self._calls = CallColumns(machine, config, self._texts, self.bodies)

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

    def take(self, everything: bool) -> pa.RecordBatch | None:
        """An EVENTS batch of all that was told, or of what packets before the one at hand settled."""
        machine = self._machine
        run = machine.t.run[0]
        self.show()
        calls = machine.array("calls", int(run.calls))
        notes = machine.array("notes", int(run.notes))
        ends = machine.array("ends", int(run.ends))
        counts = [len(calls), len(notes), len(ends)]
        if not everything:
            now = int(run.order)
            before = [int(np.searchsorted(rows["order"], now)) for rows in (calls, notes, ends)]
            counts = before
        calls, notes, ends = calls[: counts[0]], notes[: counts[1]], ends[: counts[2]]
        batch = self._batch(*self._believed(calls, notes), ends, everything)
        self._forget(calls, counts)
        if everything:
            run.packet_bytes = 0
            if self.bodies is not None:
                self.bodies.tidy()
        run.emitted_bytes = run.packet_bytes
        self._forget_kept(int(run.notes))
        return batch

    def _believed(self, calls: Rows, notes: Rows) -> tuple[Rows, Rows]:
        """Without what belongs to connections whose state is not known, see `kwsniff.kernel.leaving`."""
        known = calls["left"] != k.HEAD
        self._calls.lists_of = None if known.all() else known
        return (calls if known.all() else calls[known]), notes[notes["left"] != k.HEAD]

    def shown(self, ends: Rows) -> Rows:
        """The connections that have rows of their own: not those that go on from before a part."""
        return ends[(ends["known"] != 0) & (ends["left"] == 0)]

    def names(self, texts: Ints) -> list[str | None]:
        """Texts by their numbers."""
        return self._texts.chosen(texts).to_pylist()  # type: ignore[no-any-return]

    def ended(self, ends: Rows) -> pa.RecordBatch:
        """EVENTS of connections that are over, given as rows of `ends`."""
        columns = end_columns(ends, self._texts) | self._identity(ends, ends)
        for number in ends["number"].tolist():
            self._known.pop(number, None)
        return record_batch(columns, len(ends), EVENTS)

    def forget_texts(self) -> None:
        """The numbers of texts have changed."""
        self._texts.forget()

    def show(self) -> None:
        """Make the bodies that were kept into texts, and empty their tables."""
        if self.bodies is not None:
            self.bodies.render()

    def _batch(self, calls: Rows, notes: Rows, ends: Rows, everything: bool) -> pa.RecordBatch | None:
        now = int(self._machine.t.run[0].order)
        packet_notes = [each for each in self._packet_notes if each[0] <= now]
        self._packet_notes = self._packet_notes[len(packet_notes) :]
        parts: list[tuple[Columns, int]] = []
        keys: list[Ints] = []
        own: list[Rows] = []
        if len(calls):
            parts.append((self._calls.of(calls) | self._identity(calls, ends), len(calls)))
            keys.append(calls["order"] * KINDS + 1)
            own.append(calls)
        if len(packet_notes):
            parts.append((self._packet_columns(packet_notes), len(packet_notes)))
            keys.append(np.array([each[0] for each in packet_notes], np.int64) * KINDS)
            own.append(np.full(len(packet_notes), np.array((k.OWN, 0), _OWNED)))
        if len(notes):
            parts.append(
                (note_columns(notes, self._config, self._machine) | self._identity(notes, ends), len(notes))
            )
            keys.append(notes["order"] * KINDS + 2)
            own.append(notes)
        problems = [] if self.bodies is None else self.bodies.problems(None if everything else now)
        problems = [each for each in problems if each[0]["left"] != k.HEAD]
        if problems:
            whose = np.array([each[0] for each in problems], self._machine.dtype("bodies"))
            parts.append((problem_columns(whose, problems) | self._identity(whose, ends), len(problems)))
            keys.append(whose["order"] * KINDS + 2)
            own.append(whose)
        shown = self.shown(ends)
        if len(shown):
            parts.append((end_columns(shown, self._texts) | self._identity(shown, ends), len(shown)))
            keys.append(shown["order"] * KINDS + 3)
            own.append(shown)
        for number in ends["number"].tolist():
            self._known.pop(number, None)
        if not parts:
            return None
        self.keys = np.concatenate(keys)
        self.ranks = np.concatenate([each["rank"] for each in own])
        self.numbers = np.concatenate([each["number"] for each in own])
        own_rows = bool((self.ranks >= k.OWN).all())
        if len(parts) == 1 and own_rows and not _of_several(self.keys, self.numbers):
            return record_batch(*parts[0], EVENTS)
        order = np.argsort(self.keys, kind="stable")
        if not own_rows or _of_several(self.keys[order], self.numbers[order]):
            # Of connections that came to their places at the same time, the older one is first.
            order = np.lexsort((self.numbers, self.ranks, self.keys))
        self.keys, self.ranks, self.numbers = self.keys[order], self.ranks[order], self.numbers[order]
        return record_batch(in_order(parts, order, EVENTS), len(order), EVENTS)

    def _forget(self, calls: Rows, counts: list[int]) -> None:
        """Take rows out of the tables, those of the packet at hand stay."""
        machine = self._machine
        run, store = machine.t.run[0], machine.t.store[0]
        gone = {
            name: sum(int(np.maximum(calls[field], 0).sum()) for field in fields)
            for name, fields in LISTS.items()
        }
        for name, count in [*zip(("calls", "notes", "ends"), counts, strict=True), *gone.items()]:
            owner = store if name in LISTS else run
            left = int(getattr(owner, name)) - count
            if count and left:
                table = getattr(machine.t, name)
                if machine.compiled:
                    table[:left] = table[count : count + left].copy()
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

    def _identity(self, rows: Rows, ends: Rows) -> Columns:
        numbers, first, index = np.unique(rows["number"], return_index=True, return_inverse=True)
        ended = {int(row["number"]): row for row in ends}
        conns = dict(zip(numbers.tolist(), rows["conn"][first].tolist(), strict=True))
        found = [self._whose(number, conn, ended) for number, conn in conns.items()]
        names = ["connection", "client_ip", "client_port", "broker_ip", "broker_port"]
        taken = places(index)
        columns = {
            name: pa.array(values, EVENTS.field(name).type).take(taken)
            for name, values in zip(names, zip(*found, strict=True), strict=True)
        }
        if "capture" in (rows.dtype.names or ()):
            columns["capture"] = self._capture_names(rows["capture"])
        else:
            captures = [self._capture_of(number, conns[number], ended) for number in numbers.tolist()]
            columns["capture"] = self._capture_names(np.array(captures, np.int64)).take(taken)
        return columns

    def _packet_columns(self, notes: list[PacketNote]) -> Columns:
        captures = np.array([each[-1] for each in notes], np.int64)
        return packet_note_columns(notes) | {"capture": self._capture_names(captures)}

    def _capture_names(self, numbers: Ints) -> pa.Array:
        return pa.array(self.captures, pa.string()).take(places(numbers))

    def _capture_of(self, number: int, conn: int, ended: dict[int, Any]) -> int:
        row = ended.get(number)
        return int(self._machine.t.conns[conn].capture if row is None else row["capture"])

    def _whose(self, number: int, conn: int, ended: dict[int, Any]) -> tuple[Any, ...]:
        over = ended.get(number)
        known = self._known.get(number)
        client = int(self._machine.t.conns[conn].client if over is None else over["client"])
        if known is not None and known[0] == client:
            return known[1]  # type: ignore[no-any-return]
        row = self._machine.array("conns", conn + 1, conn)[0] if over is None else over
        values = {name: int(row[name]) for name in _WHOSE}
        ends = (
            values["a_hi"],
            values["a_lo"],
            values["a_port"],
            values["b_hi"],
            values["b_lo"],
            values["b_port"],
        )
        said = connection_id(ends[:3], ends[3:], values["first_time"])
        a, b = (text(ends[0], ends[1]), ends[2]), (text(ends[3], ends[4]), ends[5])
        made = (said, *b, *a) if client == 1 else (said, *a, *b)
        self._known[number] = (client, made)
        return made


def _bodies(machine: Machine, config: Config) -> Bodies:
    # What decodes bodies to show them is loaded when they are asked for.
    from kwsniff.kernel.bodytexts import Bodies

    return Bodies(machine, config)


def _of_several(keys: Ints, numbers: Ints) -> bool:
    """Whether at one of these places, which ascend, there are rows of several connections: where a limit over
    all of them was reached."""
    return bool(((keys[1:] == keys[:-1]) & (numbers[1:] != numbers[:-1])).any())


_OWNED = [("rank", np.int64), ("number", np.int64)]
_WHOSE = ("a_hi", "a_lo", "b_hi", "b_lo", "a_port", "b_port", "first_time", "client")
