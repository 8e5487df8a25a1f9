"""Parts of the input put together: the state of all connections, and what each part makes of it.

Theory of operation. A `Joiner` is a run that holds the true state at a cut. `join` feeds it the heads of
the part behind the cut (`kwsniff.kernel.left`), names the connections that the part knew only from there
on, and takes over the part's tail. A connection that was not what the part took it for is fed with all its
segments of the part, which `again` has to find: it is decoded again. If the part as a whole cannot be
believed (a limit over all connections could have been reached, or the clock went astray at the cut),
`whole` takes all its segments.

Law. State after parts A and B is that of one run over both, and the rows of A, of B with the names given
here, and of the joiner, sorted by key and rank, are its rows in its order. So parts may be cut anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kwsniff.columns import in_order as columns_in_order
from kwsniff.columns import record_batch
from kwsniff.config import Config
from kwsniff.events import CALL
from kwsniff.kernel import actions as entry
from kwsniff.kernel.engine import Engine
from kwsniff.kernel.follow import DAY
from kwsniff.kernel.identity import connection_id
from kwsniff.kernel.keeping import SHARE
from kwsniff.kernel.limits import in_use, outstanding
from kwsniff.kernel.tables import BEGINS, FITS, KAFKA, QUIET, SWEEP, UNTIL
from kwsniff.kernel.told import KINDS
from kwsniff.net.columns import SegmentColumns
from kwsniff.parts.part import COPIED, EDGE, EXTRA, Summary, Told, endpoints_of
from kwsniff.parts.tail import link, put, walked
from kwsniff.table import EVENTS

Ints = NDArray[np.int64]
Rows = NDArray[Any]
SECOND = 1_000_000_000
ASTRAY = 50 * SECOND
"""How far the time at a cut may lie before that of the part before: less than any silence that ends a
connection."""
SIDE_COUNTS = {
    "packets": "packets", "bytes": "bytes", "missing": "missing", "retransmitted": "retransmitted",
    "again": "again", "shut": "zero_windows",
}  # fmt: skip
"""Counters of `ends`, for each end, and those of `sides`."""
Again = Callable[[set[bytes], int], Iterable[tuple[SegmentColumns, Ints]]]
"""Finds the segments of some endpoints behind a place in the input, and their places."""


@dataclass(frozen=True, slots=True)
class Name:
    """What a part could not know of a connection that began before it."""

    connection: str
    software_name: str | None
    software_version: str | None
    user: str | None
    rtt_us: float | None
    in_flight: tuple[Ints, Ints] | None = None
    """Of the requests that waited when it was known: which they are (see `asked`), and how many requests were
    in flight when they were sent."""
    more: int = 0
    """Requests that waited before the part and through it, of a quiet connection."""


@dataclass(slots=True)
class Joined:
    """What joining a part told."""

    rows: list[Told] = field(default_factory=list)
    """Rows that the part could not tell."""
    names: dict[int, Name] = field(default_factory=dict)
    """By the part's number of the connection."""
    wrong: set[int] = field(default_factory=set)
    """Connections of the part whose rows are not to be believed."""
    again: int = 0
    """Pairs of endpoints decoded again."""


class Joiner:
    """Puts parts together, in their order."""

    def __init__(self, config: Config, seed: int, *, compiled: bool | None = None) -> None:
        """`seed` is that of all parts of the run."""
        self._engine = Engine(config, compiled=compiled)
        self._machine = self._engine._machine
        self._machine.t.limits[0].seed = seed
        self._told = self._engine._told
        self._limits = (
            config.max_buffered_bytes, config.max_outstanding_total, config.max_connections,
            config.max_buffered_bytes // SHARE,
        )  # fmt: skip

    # The parts

    def fits(self, summary: Summary) -> bool:
        """Whether a part can be joined, or has to be taken whole."""
        run = self._machine.t.run[0]
        waiting = outstanding(self._machine.t)
        held = int(in_use(self._machine.t)), int(waiting), int(run.followed), int(run.bodies_waiting)
        if summary.limited or run.limited or any(
            own + most > limit for own, most, limit in zip(held, summary.most, self._limits, strict=True)
        ):  # fmt: skip
            return False
        clock = int(run.clock)
        if clock < 0 or summary.began < 0:
            return True
        steady = clock - ASTRAY <= summary.began <= clock + DAY and run.jump < 0
        return steady and int(run.moment) >= clock - ASTRAY

    def whole(self, segments: Iterable[SegmentColumns], order: int) -> Iterator[Told]:
        """Take a part whose segments begin at `order`."""
        self._machine.t.run[0].order = order
        self._machine.t.run[0].limited = 0
        for each in segments:
            for batch in self._engine.feed(each):
                yield self._rows(batch)

    def first(self, summary: Summary) -> None:
        """Take over the state behind the first part."""
        self._take_tail(summary, [])
        self._take_clock(summary)

    def join(self, summary: Summary, again: Again) -> Joined:
        """Take the next part, which `fits`."""
        done = Joined()
        self._machine.t.run[0].most_bytes = 0
        self._feed(summary, again, done)
        fits = self._machine.array("lefts", len(summary.lefts))["verdict"] == FITS
        self._name(summary, fits, done)
        self._end(summary, fits, done)
        self._take_tail(summary, sorted(done.wrong))
        self._take_clock(summary)
        self._machine.t.run[0].lefts = 0
        return done

    def finish(self) -> list[Told]:
        """The input is over."""
        return [self._rows(batch) for batch in self._engine.finish()]

    def _rows(self, batch: pa.RecordBatch) -> Told:
        told = self._told
        return Told(batch, told.keys, told.ranks, told.numbers)

    # Heads

    def _feed(self, summary: Summary, again: Again, done: Joined) -> None:
        machine = self._machine
        files = np.array([self._told.capture(name) for name in summary.captures] or [0], np.int64)
        edges = summary.edges.copy()
        edges["file"] = files[edges["file"]]
        payload = summary.payload
        lefts = len(summary.lefts)
        if lefts > len(machine.t.lefts):
            machine.grow("lefts", lefts)
        machine.write("lefts", slice(0, lefts), summary.lefts)
        run = machine.t.run[0]
        run.sparse, run.lefts = 1, lefts
        for name in ("inline", "block"):
            self._set_bytes(name, b"")
        while True:
            self._set_bytes("extra", payload)
            self._write(edges)
            done.rows += [self._rows(batch) for batch in self._engine._act(entry.FOLLOW, len(edges))]
            if not machine.refused:
                break
            machine.refused = False
            edges, payload = self._refused(edges, payload, files, summary, again, done)
        done.rows += [self._rows(batch) for batch in self._engine._drain(everything=True)]
        machine.t.run[0].sparse = 0

    def _set_bytes(self, name: str, data: bytes) -> None:
        self._machine.replace(name, self._engine._bytes(data))

    def _write(self, edges: Rows) -> None:
        machine = self._machine
        if len(machine.t.segments) < len(edges):
            machine.grow("segments", len(edges))
        machine.write("segments", slice(0, len(edges)), edges)
        machine.t.run[0].row, machine.t.run[0].phase = 0, 0

    def _refused(
        self, edges: Rows, payload: bytes, files: Ints, summary: Summary, again: Again, done: Joined
    ) -> tuple[Rows, bytes]:
        """The edges that are left, with all segments of the endpoints of the one that was refused."""
        run = self._machine.t.run[0]
        at = int(run.row)
        row, left = edges[at - 1 : at], edges[at:]
        name = endpoints_of(row)[0]
        order = int(row["order"][0])
        own = endpoints_of(left) == name
        left = left[~own | ((left["stop"] != UNTIL) & (left["stop"] != BEGINS) & (left["stop"] != 0))]
        births = summary.births[summary.births["endpoints"] == name]
        since = births["order"] >= order if row["stop"][0] == BEGINS else births["order"] > order
        done.wrong.update(births["number"][since].tolist())
        if row["stop"][0] == UNTIL:
            done.wrong.add(int(summary.lefts["number"][int(row["left"][0])]))
        parts, data = [left], bytearray(payload)
        spare = summary.spare[summary.spare["left"] == row["left"][0]]
        if row["stop"][0] == UNTIL and len(spare) and not since.any():
            spare = spare.copy()
            spare["start"] += len(data)
            spare["left"], spare["file"] = -1, files[spare["file"]]
            return _in_order([left, spare]), bytes(data) + summary.spare_payload
        done.again += 1
        for segments, orders in again({bytes(name)}, order):
            parts.append(edges_of(segments, orders, self._told.capture(segments.capture), data))
        return _in_order(parts), bytes(data)

    # Names and ends

    def _name(self, summary: Summary, fits: NDArray[np.bool_], done: Joined) -> None:
        machine = self._machine
        lefts = machine.array("lefts", len(fits))[fits]
        conns = machine.array("conns", machine.used("conns"))[lefts["before"]]
        texts = [self._told.names(conns[name]) for name in ("software", "software_version", "user")]
        rtts = [None if each < 0 else each / 1000.0 for each in conns["handshake"].tolist()]
        flights = self._in_flight(lefts["before"], conns)
        about = lefts["number"].tolist(), lefts["quiet"].tolist()
        for number, quiet, conn, *facts in zip(*about, conns, *texts, rtts, flights, strict=True):
            a, b = (
                (int(conn[f"{end}_hi"]), int(conn[f"{end}_lo"]), int(conn[f"{end}_port"])) for end in "ab"
            )
            name = Name(connection_id(a, b, int(conn["first_time"])), *facts)
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

    def _end(self, summary: Summary, fits: NDArray[np.bool_], done: Joined) -> None:
        """Tell the connections that ended in the part, counted from their true beginning."""
        own = fits[summary.ends["left_row"]] if len(summary.ends) else np.zeros(0, np.bool_)
        ends = summary.ends[own].copy()
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
        files = np.array([self._told.capture(name) for name in summary.captures] or [0], np.int64)
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
        batch = self._told.ended(ends[shown])
        said = [text for text, is_own in zip(summary.end_texts, own.tolist(), strict=True) if is_own]
        said = [text for text, is_shown in zip(said, shown.tolist(), strict=True) if is_shown]
        for at, name in enumerate(("user", "sasl_mechanism", "client_id")):
            batch = _filled(batch, name, pa.array([text[at] for text in said], pa.string()))
        ends = ends[shown]
        done.rows.append(Told(batch, ends["order"] * KINDS + 3, ends["rank"], ends["number"]))

    def _add_counts(self, ends: Rows, lefts: Rows, conns: Rows, sides: Rows) -> None:
        client = np.maximum(ends["client"], 0)
        for who, side in (("client", client), ("broker", 1 - client)):
            was = sides[2 * lefts["before"] + side]
            for name, field_ in SIDE_COUNTS.items():
                then = np.where(side == 0, lefts[f"a_{field_}"], lefts[f"b_{field_}"])
                ends[f"{who}_{name}"] += was[field_] - then
            for name in ("resynchronised", "skipped", "frames"):
                then = np.where(side == 0, lefts[f"a_{name}"], lefts[f"b_{name}"])
                counted = (name != "skipped") | (ends["state"] == KAFKA)
                ends[name] += np.where(counted, was[name] - then, 0)
        ends["undecoded"] += conns["undecoded"] - lefts["undecoded"]
        ends["copies"] += conns["copies"] - lefts["copies"]

    # Tails

    def _take_tail(self, summary: Summary, wrong: list[int]) -> None:
        machine = self._machine
        tail = summary.tail.without(wrong)
        files = np.array([self._told.capture(name) for name in summary.captures] or [0], np.int64)
        tail.conns["capture"] = files[tail.conns["capture"]]
        if self._told.bodies is not None:
            self._told.bodies.put(int(machine.t.run[0].serial), tail.shown)
        rows = put(machine, tail)
        place = dict(zip(tail.conns["number"].tolist(), rows.tolist(), strict=True))
        lefts = machine.array("lefts", int(machine.t.run[0].lefts)).copy()
        lefts["conn"] = [place.get(number, -1) for number in lefts["number"].tolist()]
        machine.write("lefts", slice(0, len(lefts)), lefts)
        list(machine.act(entry.MERGE))
        link(machine)

    def _take_clock(self, summary: Summary) -> None:
        run = self._machine.t.run[0]
        run.clock = max(int(run.clock), summary.clock)
        run.swept = max(int(run.swept), summary.clock)
        run.moment, run.moment_row, run.jump = run.clock, -1, summary.jump
        run.order = summary.order
        self._told.forget_texts()
        if self._engine._texts_are_many():
            self._engine._compact()


def _in_order(parts: list[Rows]) -> Rows:
    """Edges in their order; times at which silent connections were looked for come before segments."""
    every = np.concatenate(parts)
    return every[np.lexsort((every["stop"] != SWEEP, every["order"]))]


def edges_of(segments: SegmentColumns, orders: Ints, file: int, payload: bytearray) -> Rows:
    """Segments as edges; their bytes are added to `payload`."""
    made = np.zeros(len(segments), EDGE)
    for name in COPIED:
        made[name] = getattr(segments, name)
    made["order"], made["left"], made["file"], made["buffer"] = orders, -1, file, EXTRA
    for at in range(len(segments)):
        start, size = int(segments.start[at]), int(segments.captured[at])
        made["start"][at] = len(payload)
        if size:
            payload += segments.buffers[int(segments.buffer[at])][start : start + size]
    return made


def _filled(batch: pa.RecordBatch, name: str, values: pa.Array) -> pa.RecordBatch:
    """A batch with these values where it has none."""
    place = batch.schema.get_field_index(name)
    return batch.set_column(place, batch.schema.field(name), pc.coalesce(batch[name], values))


def settled(told: Told, joined: Joined) -> Told:
    """Rows of a part as they are true."""
    numbers, index = np.unique(told.numbers, return_inverse=True)
    known = [joined.names.get(number) for number in numbers.tolist()]
    wrong = np.isin(numbers, np.array(sorted(joined.wrong), np.int64)) & (numbers > 0)
    if any(known):
        told = Told(_named(told.batch, known, index), told.keys, told.ranks, told.numbers)
    if wrong.any():
        keep = ~wrong[index]
        told = Told(told.batch.filter(pa.array(keep)), told.keys[keep], told.ranks[keep], told.numbers[keep])
    return told


def asked(packets: Ints, correlation_ids: Ints) -> Ints:
    """Requests of a connection, each as a number."""
    return (packets << 32) + (correlation_ids & 0xFFFFFFFF)


def _flown(batch: pa.RecordBatch, known: list[Name | None], index: Ints) -> pa.RecordBatch:
    """With the numbers of requests in flight as they are true."""
    place = batch.schema.get_field_index("in_flight")
    if place < 0 or not any(name.in_flight or name.more for name in known if name is not None):
        return batch
    kind = batch.schema.field(place)
    packets, ids, counts = (
        pc.fill_null(batch[name], -1).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("request_packet", "correlation_id", "in_flight")
    )
    keys, made = asked(packets, ids), counts.copy()
    for number, name in enumerate(known):
        if name is None or not (name.in_flight or name.more):
            continue
        own = np.flatnonzero((index == number) & (counts >= 0))
        made[own] += name.more
        if name.in_flight is None:
            continue
        keys_of, counts_of = name.in_flight
        at = np.minimum(np.searchsorted(keys_of, keys[own]), len(keys_of) - 1)
        found = keys_of[at] == keys[own]
        made[own[found]] = counts_of[at[found]]
    return batch.set_column(place, kind, pa.array(made, pa.int64(), mask=counts < 0).cast(kind.type))


def _named(batch: pa.RecordBatch, known: list[Name | None], index: Ints) -> pa.RecordBatch:
    place = pa.array(index)
    batch = _flown(batch, known, index)
    for name in ("connection", "software_name", "software_version", "user", "rtt_us"):
        at = batch.schema.get_field_index(name)
        if at < 0:  # not asked for
            continue
        kind = batch.schema.field(name)
        values = pa.array([getattr(each, name, None) for each in known], kind.type).take(place)
        if name == "connection":
            column = pc.coalesce(values, batch[name])
        else:
            column = pc.if_else(pc.equal(batch["event"], CALL), pc.coalesce(batch[name], values), batch[name])
            if name == "user":
                column = pc.if_else(pc.equal(batch["event"], CALL), pc.coalesce(values, column), column)
        batch = batch.set_column(at, kind, column)
    return batch


def woven(rows: Iterable[Told], joined: Joined) -> Iterator[Told]:
    """The rows of a part and those of joining it, as one run has them."""
    other = in_order(joined.rows)
    for told in rows:
        own = settled(told, joined)
        if other is None or not len(own.keys):
            yield own
            continue
        count = int(np.searchsorted(other.keys, own.keys[-1], "right"))
        before, other = _cut(other, count)
        if count:
            # What lies behind them stays as it is: moving rows costs as much as making them.
            touched, rest = _cut(own, int(np.searchsorted(own.keys, before.keys[-1], "right")))
            merged = in_order([touched, before])
            yield from [merged] if merged is not None else []
            own = rest
        if len(own.keys):
            yield own
    if other is not None and len(other.keys):
        yield other


def _cut(told: Told, count: int) -> tuple[Told, Told]:
    return (
        Told(told.batch.slice(0, count), told.keys[:count], told.ranks[:count], told.numbers[:count]),
        Told(told.batch.slice(count), told.keys[count:], told.ranks[count:], told.numbers[count:]),
    )


def in_order(parts: list[Told]) -> Told | None:
    """Rows of a part and of joining it, as one run has them."""
    parts = [each for each in parts if len(each.keys)]
    if len(parts) < 2:
        return parts[0] if parts else None
    keys, ranks, numbers = (
        np.concatenate([getattr(each, name) for each in parts]) for name in ("keys", "ranks", "numbers")
    )
    places = np.lexsort((numbers, ranks, keys))
    # Most columns of most rows are null, and moving those costs as much as others.
    columns = [(_filled_columns(each.batch), len(each.batch)) for each in parts]
    batch = record_batch(columns_in_order(columns, places, EVENTS), len(places), EVENTS)
    return Told(batch, keys[places], ranks[places], numbers[places])


def _filled_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return {name: column for name, column in columns if column.null_count < len(column)}
