"""A part of the input decoded on its own, and the summary of what it leaves open.

Theory of operation. What a part tells of connections that it saw begin is final. Of the others it keeps the
*head*: their segments up to where their state is known (`kwsniff.engine.leaving`); what they tell from
there on is final but for what lies before the part (their ids, what the client said of itself, the round
trip of the handshake). At its end the part keeps the state of all connections, its *tail*.
`kwsniff.run.join` puts parts together.

Orders of a part begin with `order`, which has to be higher than those of the part before it, so that places
in the input can be compared.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kwsniff.capture import source
from kwsniff.capture.batch import note_batch, segment_batch
from kwsniff.capture.pcap import PcapReader
from kwsniff.capture.pcapng import PcapngReader
from kwsniff.capture.place import is_remote
from kwsniff.config import Config
from kwsniff.engine import tables as entry
from kwsniff.engine.analyze import Engine
from kwsniff.engine.checkpoint import Tail, taken
from kwsniff.engine.drained import Drained
from kwsniff.engine.intake import AT_ONCE
from kwsniff.engine.machine import RECORDS
from kwsniff.engine.tables import BEGINS, HEAD_, KNOWN, OPENED, SPARE_, SPOILT, SWEEP, SWEPT, UNTIL
from kwsniff.native.rowcopies import copied, joined, picked
from kwsniff.net.dissect import NOTES_PER_CODE, Dissector
from kwsniff.net.packets import CaptureTotals, PacketBlock
from kwsniff.net.segments import ACK, SYN, SegmentColumns, segment_columns, with_secrets
from kwsniff.run.plan import Split, can_be_cut, split_reader

if TYPE_CHECKING:
    from kwsniff.engine.decrypting import Decryption

Ints = NDArray[np.int64]
Rows = NDArray[Any]
ORDER_BITS = 34
"""An order is the number of its part above so many bits."""
BLOCK = 1
"""The buffer that is a piece of the file."""
EXTRA = 2
"""The buffer in which heads lie ..."""
STORED = 3
"""... unless their payload is in the file still: `start` says where (`kwsniff.run.heads`)."""
MAX_HEAD = 4 << 20
"""Bytes of the head of one connection; a longer one is decoded by whoever knows what came before."""
END_TEXTS = ("user", "mechanism", "client_id")
MOST = ("most_bytes", "most_waiting", "most_followed", "most_shown")
ENDS = ("src_hi", "src_lo", "dst_hi", "dst_lo", "src_port", "dst_port")
COPIED = ("packet", "time", *ENDS, "seq", "ack", "flags", "tsval", "length", "captured")
EDGE = RECORDS["segments"]
LEFT = RECORDS["lefts"]
BIRTH = np.dtype([("number", np.int64), ("order", np.int64), ("endpoints", "S52")])
"""A connection that began to be followed in a part."""


@dataclass(slots=True)
class Emitted:
    """Rows of EVENTS, and where they belong."""

    batch: pa.RecordBatch
    keys: Ints
    """Place in the input and kind, which order rows ..."""
    ranks: Ints
    """... and where both are the same, this does."""
    numbers: Ints
    """Numbers of connections, as of the run that drained them."""

    @classmethod
    def of(cls, engine: Engine, batch: pa.RecordBatch) -> Emitted:
        """A batch that an engine just made."""
        made = engine.emitter
        return cls(batch, made.keys, made.ranks, made.numbers)

    def where(self, mask: NDArray[np.bool_]) -> Emitted:
        """Some of the rows."""
        batch = self.batch.filter(pa.array(mask))
        return Emitted(batch, self.keys[mask], self.ranks[mask], self.numbers[mask])

    def cut(self, count: int) -> tuple[Emitted, Emitted]:
        """So many rows, and those behind them."""
        columns = (self.keys, self.ranks, self.numbers)
        return (
            Emitted(self.batch.slice(0, count), *(each[:count] for each in columns)),
            Emitted(self.batch.slice(count), *(each[count:] for each in columns)),
        )


@dataclass(slots=True)
class PartSummary:
    """What a part leaves open."""

    edges: Rows
    """Segments of heads, in order, and times at which silent connections were looked for."""
    payload: bytes
    """Of the heads, as far as it is not `STORED` ..."""
    spare: Rows
    """Segments of connections that were taken to be quiet and were not, from where they were known on ..."""
    spare_payload: bytes
    """... and their payload, as far as it is not."""
    captures: list[str | None]
    """What `edges.file` and `capture` of other rows count."""
    lefts: Rows
    """See `kwsniff.engine.tables`."""
    ends: Rows
    """Known connections that did not begin in the part, but ended there ..."""
    end_texts: list[tuple[str | None, ...]]
    """... with their `END_TEXTS`."""
    births: Rows
    """Connections by number, to find whose rows are not to be believed."""
    tail: Tail
    clock: int
    """Latest time, -1 without segments ..."""
    began: int
    """... and that of the first segment."""
    jump: int
    order: int
    """Behind the last segment."""
    limited: bool
    """A limit over all connections was reached."""
    most: tuple[int, ...]
    """Most bytes held, requests in flight, connections followed, and bytes of bodies to be shown."""
    floor: int
    """See `kwsniff.engine.tables`: how much nobody could give up, for the part that nothing came before."""
    tls: Decryption | None = None
    """What is known of TLS connections, where there are keys: then there is no other part."""


class PartEngine(Engine):
    """Follows the connections of one part; with `first` nothing came before it."""

    def __init__(
        self, config: Config, seed: int, order: int, *, first: bool, compiled: bool | None = None
    ) -> None:
        """`seed` is that of all parts of a run; `order` the place of the first segment."""
        super().__init__(config, compiled=compiled)
        limits, run = self.machine.t.limits[0], self.machine.t.run[0]
        limits.part, limits.seed, limits.max_head_bytes = int(not first), seed, MAX_HEAD
        run.order = order
        self._first, self._began = first, -1
        self._edges: list[Rows] = []
        self._payload = bytearray()
        self._spare: list[Rows] = []
        self._spare_payload = bytearray()
        self._births: list[Rows] = []
        self._begun: set[bytes] = set()
        self._ends: list[Rows] = []
        self._end_texts: list[tuple[str | None, ...]] = []

    def part(self, segments: Iterable[SegmentColumns]) -> Iterator[Emitted]:
        """Take all segments of the part; yield what they settle."""
        for each in segments:
            if len(each) and self._began < 0:
                self._began = int(each.time[0])
            for batch in self.feed(each):
                yield Emitted.of(self, batch)
        if self.tls is not None:  # then nothing follows
            for batch in self.freed(self.tls.finish()):
                yield Emitted.of(self, batch)

    def summary(self) -> PartSummary:
        """The part is over."""
        machine = self.machine
        if not self._first:
            list(machine.act(entry.LEAVE))
        run = machine.t.run[0]
        lefts = copied(machine.array("lefts", int(run.lefts)))
        tail = taken(machine)
        place = {int(number): row for row, number in enumerate(tail.conns["number"])}
        lefts["conn"] = [place.get(number, -1) for number in lefts["number"].tolist()]
        most, limited = self.most()
        if self.emitter.bodies is not None:
            tail.serial, tail.shown = int(run.serial), self.emitter.bodies.waiting()
        spare, spare_payload = self._spoilt(lefts)
        return PartSummary(
            edges=joined(self._edges, EDGE), payload=bytes(self._payload),
            spare=spare, spare_payload=spare_payload, captures=list(self.emitter.captures), lefts=lefts,
            ends=joined(self._ends, RECORDS["ends"]), end_texts=self._end_texts,
            births=joined(self._births, BIRTH), tail=tail, clock=int(run.clock), began=self._began,
            jump=int(run.jump), order=int(run.order), limited=limited, most=most, floor=int(run.floor),
            tls=self.tls,
        )  # fmt: skip

    def _spoilt(self, lefts: Rows) -> tuple[Rows, bytes]:
        """Of what was kept of quiet connections, that of those which were not."""
        spare = joined(self._spare, EDGE)
        of = lefts[spare["left"]]
        spare = spare[(of["quiet"] == SPOILT) & (of["spare"] != 0)]
        data = bytearray()
        view = memoryview(self._spare_payload)
        for at in np.flatnonzero(spare["buffer"] == EXTRA).tolist():
            start, size = int(spare["start"][at]), int(spare["captured"][at])
            spare["start"][at] = len(data)
            data += view[start : start + size]
        return spare, bytes(data)

    def most(self) -> tuple[tuple[int, ...], bool]:
        """Most that was held, see `Summary.most`, and whether a limit over all connections was reached."""
        run = self.machine.t.run[0]
        return tuple(int(getattr(run, name)) for name in MOST), bool(run.limited)

    def drain(self, everything: bool) -> Iterator[Drained]:
        ends = self.machine.array("ends", int(self.machine.t.run[0].ends))
        if not everything:
            ends = ends[: np.searchsorted(ends["order"], int(self.machine.t.run[0].order))]
        known = np.flatnonzero(ends["left"] == KNOWN)
        if len(known):
            own = picked(ends, known)
            texts = [self.emitter.names(own[name]) for name in END_TEXTS]
            self._end_texts += zip(*texts, strict=True)
            self._ends.append(own)
        yield from super().drain(everything)

    # Heads

    def _before(self, count: int) -> None:
        if self._first:
            return
        machine = self.machine
        run = machine.t.run[0]
        run.marks = 0
        for name, room in (("marks", 3 * AT_ONCE), ("lefts", int(run.lefts) + count)):
            if len(getattr(machine.t, name)) < room:
                machine.grow(name, room)
        self._lefts_before = int(run.lefts)

    def _after(self, segments: SegmentColumns, first: int, stop: int) -> None:
        if self._first:
            return
        machine = self.machine
        run = machine.t.run[0]
        marks = copied(machine.array("marks", int(run.marks)))
        if not len(marks):
            return
        table = machine.array("segments", stop - first)
        births = marks[marks["kind"] == OPENED]
        begun = self._note_births(births, table)
        heads = marks[marks["kind"] == HEAD_]
        self._keep_spare(marks[marks["kind"] == SPARE_], table, segments.place)
        swept = marks[marks["kind"] == SWEPT]
        edges = np.zeros(len(heads) + len(begun) + len(swept), EDGE)
        kept, sweeps = edges[: len(heads) + len(begun)], edges[len(heads) + len(begun) :]
        marked = np.concatenate([heads, begun])
        kept[:] = table[marked["row"]]
        kept["order"], kept["left"], kept["file"] = marked["order"], -1, int(run.capture)
        kept["stop"][len(heads) :] = BEGINS
        self._mark_known(kept, int(run.lefts))
        self._keep_payload(kept, self._payload, segments.place)
        sweeps["order"], sweeps["time"], sweeps["stop"] = swept["order"], swept["time"], SWEEP
        # A sweep comes before the segment that made it.
        places = np.lexsort((edges["stop"] != SWEEP, edges["order"]))
        self._edges.append(picked(edges, places))

    def _note_births(self, births: Rows, table: Rows) -> Rows:
        """Note connections that began to be followed; those to be joined although they begin with a SYN."""
        names = endpoints_of(table[births["row"]])
        made = np.zeros(len(births), BIRTH)
        made["number"], made["order"], made["endpoints"] = births["number"], births["order"], names
        self._births.append(made)
        flags = table["flags"][births["row"]]
        begin = (flags & SYN != 0) & (flags & ACK == 0)
        new = []
        for at, name in enumerate(names.tolist()):
            if begin[at] and name not in self._begun:
                self._begun.add(name)
                new.append(at)
        return births[new]

    def _mark_known(self, kept: Rows, lefts: int) -> None:
        """Say behind which segments connections are known."""
        known = self.machine.array("lefts", lefts)[self._lefts_before :]
        heads = kept["stop"] != BEGINS
        own = np.flatnonzero(heads)
        place = own[np.searchsorted(kept["order"][own], known["order"])]
        kept["stop"][place] = UNTIL
        kept["left"][place] = self._lefts_before + np.arange(len(known))

    def _keep_spare(self, marks: Rows, table: Rows, place: int | None) -> None:
        """Keep segments of quiet connections."""
        if not len(marks):
            return
        kept = table[marks["row"]]
        kept["order"], kept["left"] = marks["order"], marks["time"]
        kept["file"] = int(self.machine.t.run[0].capture)
        self._keep_payload(kept, self._spare_payload, place)
        self._spare.append(kept)

    def _keep_payload(self, kept: Rows, payload: bytearray, place: int | None) -> None:
        """Keep payload, or say where it lies in the file whose block begins at `place`."""
        machine = self.machine
        if place is not None:
            stored = (kept["buffer"] == BLOCK) & (kept["captured"] > 0)
            kept["start"] += np.where(stored, place, 0)
            kept["buffer"][stored] = STORED
        buffers = [memoryview(machine.t.inline), memoryview(machine.t.block), memoryview(machine.t.extra)]
        for at in np.flatnonzero(kept["buffer"] != STORED).tolist():
            which, start, size = (int(kept[name][at]) for name in ("buffer", "start", "captured"))
            kept["start"][at] = len(payload)
            if size:
                payload += buffers[which][start : start + size]
            kept["buffer"][at] = EXTRA


def endpoints_of(segments: Rows) -> NDArray[Any]:
    """The ends of the connections of segments as bytes, whichever way the segments went."""
    one = [segments[f"src_{name}"] for name in ("hi", "lo", "port")]
    other = [segments[f"dst_{name}"] for name in ("hi", "lo", "port")]
    forward = np.zeros(len(segments), np.bool_)
    decided = np.zeros(len(segments), np.bool_)
    for a, b in zip(one, other, strict=True):
        forward |= ~decided & (a < b)
        decided |= a != b
    forward |= ~decided
    words = [np.where(forward, a, b) for a, b in zip(one, other, strict=True)]
    words += [np.where(forward, b, a) for a, b in zip(one, other, strict=True)]
    # The byte behind them is no NUL, which NumPy would cut off.
    made = np.zeros((len(segments), 52), np.uint8)
    made[:, :48] = np.stack(words, axis=1).astype(np.int64).view(np.uint8).reshape(len(segments), 48)
    made[:, 51] = 1
    return made.view("S52").reshape(len(segments))


# Reading a part: its packets, as the reader of the whole file would number and time them.


@dataclass(slots=True)
class SplitNotes:
    """What a split has to tell of its packets, for all splits together to be judged."""

    split: int
    totals: CaptureTotals = field(default_factory=CaptureTotals)
    waiting: int = 0
    """Datagrams whose fragments may go on in the next split."""
    noted: dict[str, int] = field(default_factory=dict)
    """How many notes on packets there were, by code."""
    secrets: bool = False
    """There are secrets of TLS connections, whose state is not put together where splits meet."""


def independent(splits: Sequence[Split], emitted: Iterable[SplitNotes]) -> bool:
    """Whether splits could be read apart: no IP datagram crosses two, no file has more notes than are shown,
    and there are no secrets of TLS connections, unless all is one split."""
    notes: dict[tuple[str, str], int] = {}
    for each in emitted:
        if each.waiting or (each.secrets and len(splits) > 1):
            return False
        for code, count in each.noted.items():
            key = splits[each.split].path, code
            limit = 1 if code == "link_type_unknown" else NOTES_PER_CODE
            if key in notes and notes[key] + count > limit:
                return False
            notes[key] = notes.get(key, 0) + count
    return True


class SplitReader:
    """Reads split `number` of `splits`."""

    def __init__(self, splits: Sequence[Split], number: int, config: Config) -> None:
        self.emitted = SplitNotes(number)
        self._split, self._config = splits[number], config
        self._at_end = number + 1 == len(splits)

    def segments(self) -> Iterator[pa.RecordBatch]:
        """TCP segments and notes, as batches of SEGMENTS. Raises CaptureError."""
        return (batch for batch, _ in self._batches())

    def columns(self) -> Generator[SegmentColumns]:
        """The same as columns, which know where in the file their payload lies. Raises CaptureError."""
        for batch, place in self._batches():
            yield replace(segment_columns(batch), place=place)

    def _batches(self) -> Iterator[tuple[pa.RecordBatch, int | None]]:
        """Batches, and where their block begins in its file."""
        split, emitted = self._split, self.emitted
        dissector = Dissector(emitted.totals)
        files = [split.path, *split.more]
        for path in files:
            packets, stored = split.packet - 1, self._is_stored(path)
            for block in self._blocks(path):
                packets = int(block.number[-1]) if len(block) else packets
                if block.secrets:
                    emitted.secrets = True
                    yield with_secrets(block.secrets), None
                batch = segment_batch(dissector.dissect(block))
                if len(batch):
                    yield batch, block.place if stored else None
            if split.end is not None:
                emitted.noted = dissector.noted
            notes = dissector.end_file(packets) if split.last else []
            if self._at_end and path == files[-1]:
                notes += dissector.end()
            if notes:
                yield note_batch(path, notes), None
        emitted.waiting = dissector.waiting

    def _is_stored(self, path: str) -> bool:
        """Whether packets lie as they are in a file that can be read at any place for nothing: each request
        to other storage costs as much as a megabyte. The name of it has to be told whole, too."""
        if is_remote(path):
            return False
        try:
            path.encode()
        except UnicodeEncodeError:
            return False
        if self._split.end is not None:
            return True
        return can_be_cut(path)

    def _blocks(self, path: str) -> Iterator[PacketBlock]:
        split, totals = self._split, self.emitted.totals
        if split.end is None:
            yield from source.blocks(path, self._config, totals)
            return
        with split_reader(split, self._config, totals, PcapReader, PcapngReader) as reader:
            if split.start:
                reader.go_on(split.packet - 1, split.before_ns)
            yield from reader.blocks()
        totals.files, totals.dropped = int(split.start == 0), split.dropped
