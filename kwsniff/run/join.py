"""Parts of the input put together: the state of all connections, and what each part makes of it.

Theory of operation. A `Joiner` is a run that holds the true state at a cut. `join` feeds it the heads of
the part behind the cut (`kwsniff.engine.resumed`), names the connections that the part knew only from there
on, and takes over the part's tail. A connection that was not what the part took it for is fed with all its
segments of the part, which `again` has to find: it is decoded again. If the part as a whole cannot be
believed (a limit over all connections could have been reached, or the clock jumped at the cut),
`whole` takes all its segments.

Law. State after parts A and B is that of one run over both, and the rows of A, of B with the names given
here, and of the joiner, sorted by key and rank, are its rows in its order. So parts may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.engine import tables as entry
from kwsniff.engine.analyze import Engine
from kwsniff.engine.checkpoint import link, put, walked
from kwsniff.engine.drained import Drained
from kwsniff.engine.emitter import KINDS
from kwsniff.engine.eventcolumns import connection_id
from kwsniff.engine.follow import DAY
from kwsniff.engine.limits import in_use, outstanding
from kwsniff.engine.outcomes import SHARE
from kwsniff.engine.tables import BEGINS, COUNTED_OF_ENDS, FITS, KAFKA, QUIET, UNTIL
from kwsniff.native.rowcopies import picked
from kwsniff.net.segments import SegmentColumns
from kwsniff.run.heads import Heads, edges_of, with_payload
from kwsniff.run.part import Emitted, PartSummary, endpoints_of
from kwsniff.run.weave import Identity, Joined, asked

Ints = NDArray[np.int64]
Rows = NDArray[Any]
SECOND = 1_000_000_000
STEADY = 50 * SECOND
"""How far the time at a cut may lie before that of the part before: less than any silence that ends a
connection."""
Again = Callable[[set[bytes], int], Iterable[tuple[SegmentColumns, Ints]]]
"""Finds the segments of some endpoints behind a place in the input, and their places."""


def limits_of(config: Config) -> tuple[int, ...]:
    """Limits over all connections, as `PartSummary.most` counts."""
    return (
        config.max_buffered_bytes, config.max_outstanding_total, config.max_connections,
        config.max_buffered_bytes // SHARE,
    )  # fmt: skip


def within(held: Iterable[int], most: Iterable[int], limits: Iterable[int]) -> bool:
    """Whether what is held at a cut and what the part behind it holds at most are within the limits."""
    return all(own + more <= limit for own, more, limit in zip(held, most, limits, strict=True))


class Joiner:
    """Puts parts together, in their order."""

    def __init__(self, config: Config, seed: int, *, compiled: bool | None = None) -> None:
        """`seed` is that of all parts of the run."""
        self._engine = Engine(config, compiled=compiled)
        self._machine = self._engine.machine
        self._machine.t.limits[0].seed = seed
        self._emitter = self._engine.emitter
        self._limits = limits_of(config)

    # The parts

    def fits(self, summary: PartSummary) -> bool:
        """Whether a part can be joined, or has to be taken whole."""
        run = self._machine.t.run[0]
        if summary.limited or self.limited or not within(self.held(), summary.most, self._limits):
            return False
        clock = int(run.clock)
        if clock < 0 or summary.began < 0:
            return True
        steady = clock - STEADY <= summary.began <= clock + DAY and run.jump < 0
        return steady and int(run.moment) >= clock - STEADY

    def held(self) -> tuple[int, ...]:
        """What is held of that for which there are limits over all connections, see `PartSummary.most`."""
        t, run = self._machine.t, self._machine.t.run[0]
        return int(in_use(t)), int(outstanding(t)), int(run.followed), int(run.bodies_waiting)

    @property
    def limited(self) -> bool:
        """Whether a limit over all connections was reached."""
        return bool(self._machine.t.run[0].limited)

    def whole(self, segments: Iterable[SegmentColumns], order: int) -> Iterator[Emitted]:
        """Take a part whose segments begin at `order`."""
        self._machine.t.run[0].order = order
        self._machine.t.run[0].limited = 0
        for each in segments:
            for batch in self._engine.feed(each):
                yield Emitted.of(self._engine, batch)

    def first(self, summary: PartSummary) -> None:
        """Take over the state behind the first part."""
        self._take_tail(summary, [])
        self._take_clock(summary)
        self._machine.t.run[0].floor = summary.floor
        self._engine.tls = summary.tls

    def join(self, summary: PartSummary, again: Again) -> Joined:
        """Take the next part, which `fits`. Raises CaptureError."""
        done = Joined()
        summary = with_payload(summary)
        self._machine.t.run[0].most_bytes = 0
        self._feed(summary, again, done)
        fits = self._machine.array("lefts", len(summary.lefts))["verdict"] == FITS
        self._name(fits, done)
        self._end(summary, fits, done)
        self._take_tail(summary, sorted(done.wrong))
        self._take_clock(summary)
        self._machine.t.run[0].lefts = 0
        return done

    def finish(self) -> list[Emitted]:
        """The input is over."""
        return [Emitted.of(self._engine, batch) for batch in self._engine.finish()]

    def _emitted(self, drained: Iterable[Drained]) -> Iterator[Emitted]:
        return (Emitted.of(self._engine, self._engine.events(each)) for each in drained)

    def _captures(self, summary: PartSummary) -> Ints:
        """What the joiner's own rows count for the captures of a part."""
        return np.array([self._emitter.capture(name) for name in summary.captures] or [0], np.int64)

    # Heads

    def _feed(self, summary: PartSummary, again: Again, done: Joined) -> None:
        machine = self._machine
        files = self._captures(summary)
        edges = summary.edges.copy()
        edges["file"] = files[edges["file"]]
        spare = summary.spare.copy()
        spare["start"] += len(summary.payload)
        spare["file"] = files[spare["file"]]
        payload = bytearray(summary.payload + summary.spare_payload)
        lefts = len(summary.lefts)
        if lefts > len(machine.t.lefts):
            machine.grow("lefts", lefts)
        machine.write("lefts", slice(0, lefts), summary.lefts)
        run = machine.t.run[0]
        run.sparse, run.lefts = 1, lefts
        for name in ("inline", "block"):
            self._set_bytes(name, b"")
        self._set_bytes("extra", payload)
        heads = Heads(edges)
        while len(rows := heads.next()):
            self._write(rows)
            done.rows += self._emitted(self._engine.act(entry.FOLLOW, len(rows)))
            if machine.refused:
                machine.refused = False
                self._refused(heads, rows, payload, spare, summary, again, done)
        done.rows += self._emitted(self._engine.drain(everything=True))
        machine.t.run[0].sparse = 0

    def _set_bytes(self, name: str, data: bytes | bytearray) -> None:
        self._machine.replace(name, self._engine.bytes_of(data))

    def _write(self, edges: Rows) -> None:
        machine = self._machine
        if len(machine.t.segments) < len(edges):
            machine.grow("segments", len(edges))
        machine.write("segments", slice(0, len(edges)), edges)
        machine.t.run[0].row, machine.t.run[0].phase = 0, 0

    def _refused(
        self, heads: Heads, rows: Rows, payload: bytearray, spare: Rows, summary: PartSummary, again: Again,
        done: Joined,
    ) -> None:  # fmt: skip
        """Have all segments of the endpoints of an edge that was refused taken, instead of their edges: those
        of `spare`, whose payload is there already, or read once more, which `payload` takes theirs of."""
        at = int(self._machine.t.run[0].row)
        row = rows[at - 1 : at]
        name = endpoints_of(row)[0]
        order = int(row["order"][0])
        heads.give_back(rows[at:])
        heads.drop(name)
        births = summary.births[summary.births["endpoints"] == name]
        since = births["order"] >= order if row["stop"][0] == BEGINS else births["order"] > order
        done.wrong.update(births["number"][since].tolist())
        if row["stop"][0] == UNTIL:
            done.wrong.add(int(summary.lefts["number"][int(row["left"][0])]))
        kept = spare[spare["left"] == row["left"][0]]
        if row["stop"][0] == UNTIL and len(kept) and not since.any():
            kept["left"] = -1
            heads.give_back(kept)
            return
        done.again += 1
        self._set_bytes("extra", b"")  # what the kernels see doesn't grow
        for segments, orders in again({bytes(name)}, order):
            heads.give_back(edges_of(segments, orders, self._emitter.capture(segments.capture), payload))
        self._set_bytes("extra", payload)

    # Names and ends

    def _name(self, fits: NDArray[np.bool_], done: Joined) -> None:
        machine = self._machine
        lefts = machine.array("lefts", len(fits))[fits]
        conns = machine.array("conns", machine.used("conns"))[lefts["before"]]
        texts = [self._emitter.names(conns[name]) for name in ("software", "software_version", "user")]
        rtts = [None if each < 0 else each / 1000.0 for each in conns["handshake"].tolist()]
        flights = self._in_flight(lefts["before"], conns)
        about = lefts["number"].tolist(), lefts["quiet"].tolist()
        for number, quiet, conn, *facts in zip(*about, conns, *texts, rtts, flights, strict=True):
            a, b = (
                (int(conn[f"{end}_hi"]), int(conn[f"{end}_lo"]), int(conn[f"{end}_port"])) for end in "ab"
            )
            name = Identity(connection_id(a, b, int(conn["first_time"])), *facts)
            if quiet == QUIET:
                name = replace(name, in_flight=None, more=int(conn["in_flight"]))
            done.names[number] = name

    def _in_flight(self, before: Ints, conns: Rows) -> list[tuple[Ints, Ints] | None]:
        """Of each connection that was known from some place on, the requests that waited there."""
        machine = self._machine
        every = machine.array("requests", machine.used("requests"))
        waiting = every[walked(every["after"], conns["first_request"])]
        waiting = waiting[np.argsort(waiting["conn"], kind="stable")]
        ends = np.searchsorted(waiting["conn"], before), np.searchsorted(waiting["conn"], before, "right")
        keys, counts = asked(waiting["packet"], waiting["correlation_id"]), waiting["in_flight"]
        made: list[tuple[Ints, Ints] | None] = []
        for first, end in zip(*(each.tolist() for each in ends), strict=True):
            order = first + np.argsort(keys[first:end], kind="stable")
            made.append((keys[order], counts[order]) if end > first else None)
        return made

    def _end(self, summary: PartSummary, fits: NDArray[np.bool_], done: Joined) -> None:
        """Tell the connections that ended in the part, counted from their true beginning."""
        own = fits[summary.ends["left_row"]] if len(summary.ends) else np.zeros(0, np.bool_)
        ends = picked(summary.ends, own)
        if not len(ends):
            return
        machine, used = self._machine, self._machine.used("conns")
        lefts = machine.array("lefts", len(fits))[ends["left_row"]]
        before = lefts["before"]
        conns, sides = machine.array("conns", used)[before], machine.array("sides", 2 * used)
        self._add_counts(ends, lefts, conns, sides)
        ends["number"], ends["conn"], ends["left"] = -conns["number"], before, 0
        ends["first_time"], ends["handshake"] = conns["first_time"], conns["handshake"]
        ends["syn"] |= conns["syn"]
        files = self._captures(summary)
        ends["capture"] = files[ends["capture"]]
        ends["mechanism"], ends["user"], ends["client_id"] = conns["mechanism"], conns["user"], -1
        ends["first_packet"] = conns["first_packet"]
        alerted = conns["alert"] >= 0
        ends["alert"] = np.where(alerted, conns["alert"], ends["alert"])
        by = np.where(conns["alert_side"] == np.maximum(ends["client"], 0), 0, 1)
        ends["alert_side"] = np.where(alerted, by, ends["alert_side"])
        shown = ends["known"] != 0
        if not shown.any():
            return
        batch = self._emitter.ended(ends[shown])
        said = [text for text, is_own in zip(summary.end_texts, own.tolist(), strict=True) if is_own]
        said = [text for text, is_shown in zip(said, shown.tolist(), strict=True) if is_shown]
        for at, name in enumerate(("user", "sasl_mechanism", "client_id")):
            batch = _filled(batch, name, pa.array([text[at] for text in said], pa.string()))
        ends = ends[shown]
        done.rows.append(Emitted(batch, ends["order"] * KINDS + 3, ends["rank"], ends["number"]))

    def _add_counts(self, ends: Rows, lefts: Rows, conns: Rows, sides: Rows) -> None:
        client = np.maximum(ends["client"], 0)
        for who, side in (("client", client), ("broker", 1 - client)):
            was = sides[2 * lefts["before"] + side]
            for name in COUNTED_OF_ENDS:
                then = np.where(side == 0, lefts[f"a_{name}"], lefts[f"b_{name}"])
                ends[f"{who}_{name}"] += was[name] - then
            for name in ("resynchronised", "skipped", "frames"):
                then = np.where(side == 0, lefts[f"a_{name}"], lefts[f"b_{name}"])
                counted = (name != "skipped") | (ends["state"] == KAFKA)
                ends[name] += np.where(counted, was[name] - then, 0)
        ends["undecoded"] += conns["undecoded"] - lefts["undecoded"]
        ends["copies"] += conns["copies"] - lefts["copies"]

    # Tails

    def _take_tail(self, summary: PartSummary, wrong: list[int]) -> None:
        machine = self._machine
        tail = summary.tail.without(wrong)
        files = self._captures(summary)
        tail.conns["capture"] = files[tail.conns["capture"]]
        if self._emitter.bodies is not None:
            self._emitter.bodies.put(int(machine.t.run[0].serial), tail.shown)
        rows = put(machine, tail)
        place = dict(zip(tail.conns["number"].tolist(), rows.tolist(), strict=True))
        lefts = machine.array("lefts", int(machine.t.run[0].lefts)).copy()
        lefts["conn"] = [place.get(number, -1) for number in lefts["number"].tolist()]
        machine.write("lefts", slice(0, len(lefts)), lefts)
        list(machine.act(entry.MERGE))
        link(machine)

    def _take_clock(self, summary: PartSummary) -> None:
        run = self._machine.t.run[0]
        run.clock = max(int(run.clock), summary.clock)
        run.swept = max(int(run.swept), summary.clock)
        run.moment, run.moment_row, run.jump = run.clock, -1, summary.jump
        run.order = summary.order
        self._emitter.forget_texts()
        if self._engine.texts_are_many():
            self._engine.compact()


def _filled(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """A batch with these values where it has none."""
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(name), pc.coalesce(batch[name], values))
