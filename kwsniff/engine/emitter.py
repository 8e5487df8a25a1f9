"""What the kernels drained, as EVENTS: calls, anomalies and connections that are over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine import tables as k
from kwsniff.engine.callcolumns import BODIES, CallColumns
from kwsniff.engine.details import details_of
from kwsniff.engine.drained import LISTS, Drained, PacketNote, Texts, listed, owners_of
from kwsniff.engine.eventcolumns import KINDS, Arranged, Owners, anomaly_columns, arranged, end_columns
from kwsniff.engine.machine import Machine
from kwsniff.native.rowcopies import copied, picked, put
from kwsniff.rows.arrays import Columns, places, record_batch, repeated
from kwsniff.rows.schema import EVENTS

__all__ = ["KINDS", "Emitter"]

Ints = NDArray[np.int64]
Rows = NDArray[Any]
State = tuple[dict[int, str | None], dict[int, bytes]]
"""Names of capture files by their numbers, and texts of bodies by theirs."""
if TYPE_CHECKING:
    from kwsniff.engine.details import Bodies, Problem


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
        self.bodies = _bodies(machine, config) if config.full else None
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
        problem_rows = np.array([each[0] for each in problems], machine.dtype("bodies"))
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
        return self._texts.chosen(texts).to_pylist()  # type: ignore[no-any-return]

    def ended(self, ends: Rows) -> pa.RecordBatch:
        """EVENTS of connections that are over, given as rows of `ends`."""
        owners, whose = owners_of(self._machine, [ends], ends)
        calls, notes = (np.zeros(0, self._machine.dtype(name)) for name in ("calls", "notes"))
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
        rows = arranged(drained, self._machine.dtype("bodies"))
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


def _bodies(machine: Machine, config: Config) -> Bodies:
    # What decodes bodies to show them is loaded when they are asked for.
    from kwsniff.engine.details import Bodies

    return Bodies(machine, config)
