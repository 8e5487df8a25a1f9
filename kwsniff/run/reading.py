"""Reading one split: its packets, as the reader of the whole file would number and time them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NamedTuple

import pyarrow as pa

from kwsniff.capture import source
from kwsniff.capture.batch import note_batch, segment_batch
from kwsniff.capture.error import CaptureError
from kwsniff.capture.pcap import MAGICS, PcapReader
from kwsniff.capture.pcapng import MAGIC, PcapngReader
from kwsniff.capture.place import is_remote, opened
from kwsniff.capture.reader import Reader, Window
from kwsniff.capture.source import segments
from kwsniff.capture.stream import ByteStream
from kwsniff.config import Config
from kwsniff.net.dissect import NOTES_PER_CODE, Dissector
from kwsniff.net.packets import CaptureTotals, PacketBlock
from kwsniff.net.segments import SegmentColumns, segment_columns
from kwsniff.run.plan import Split


@dataclass(slots=True)
class SplitNotes:
    """What a split has to tell of its packets, for all splits together to be judged."""

    split: int
    totals: CaptureTotals = field(default_factory=CaptureTotals)
    waiting: int = 0
    """Datagrams whose fragments may go on in the next split."""
    noted: dict[str, int] = field(default_factory=dict)
    """How many notes on packets there were, by code."""

    def plain(self) -> dict[str, Any]:
        """As JSON takes it."""
        return asdict(self)

    @staticmethod
    def of(plain: dict[str, Any]) -> SplitNotes:
        """From what `plain` gave."""
        return SplitNotes(**{**plain, "totals": CaptureTotals(**plain["totals"])})


def independent(splits: Sequence[Split], emitted: Iterable[SplitNotes]) -> bool:
    """Whether packets could be dissected in splits: no IP datagram crosses two, and no file has more notes
    than are shown."""
    notes: dict[tuple[str, str], int] = {}
    for each in emitted:
        if each.waiting:
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
        with opened(path) as file:
            magic = file.read(4)
        return magic in MAGICS or magic == MAGIC

    def _blocks(self, path: str) -> Iterator[PacketBlock]:
        split, totals = self._split, self.emitted.totals
        if split.end is None:
            yield from source.blocks(path, self._config, totals)
            return
        bytes_of = Range(split)
        try:
            yield from _reader(split, bytes_of, self._config, totals).blocks()
        finally:
            bytes_of.close()
        totals.files, totals.dropped = int(split.start == 0), split.dropped


def _reader(split: Split, bytes_of: Range, config: Config, totals: CaptureTotals) -> Reader:
    window = Window(ByteStream(bytes_of, split.path), config.block_bytes)  # type: ignore[arg-type]
    window.move(0)
    window.start = split.start - len(split.prelude)
    make = PcapReader if window.data[:4].tobytes() in MAGICS else PcapngReader
    reader = make(window, split.path, config, totals)
    if split.start:
        reader.go_on(split.packet - 1, split.before_ns)
    return reader


class Range:
    """Bytes of a file, behind a prelude."""

    def __init__(self, split: Split) -> None:
        assert split.end is not None
        self._file = opened(split.path, split.start, split.end)
        self._left = split.end - split.start
        self._prelude = split.prelude

    def read(self, size: int) -> bytes:
        """The next bytes, at most so many."""
        if self._prelude:
            data, self._prelude = self._prelude, b""
            return data
        data = self._file.read(min(size, self._left)) or b""
        self._left -= len(data)
        return data

    def close(self) -> None:
        """Close the file."""
        self._file.close()


# How far reading has come: what a process that reads tells the one that shows it.

Progress = Callable[[int, int | None], None]
"""Is told the bytes that were read, and of how many; None where that is not known."""


class Stand(NamedTuple):
    """How far reading has come."""

    totals: CaptureTotals
    progress: tuple[int, int | None] | None = None
    error: CaptureError | None = None
    """Why it ended early."""

    def show(self, totals: CaptureTotals, progress: Progress | None) -> None:
        """Say so here. Raises the error."""
        totals.become(self.totals)
        if progress is not None and self.progress is not None:
            progress(*self.progress)
        if self.error is not None:
            raise self.error


def read(paths: Sequence[str], config: Config) -> Iterator[tuple[Stand, SegmentColumns | None]]:
    """The segments of the captures at `paths`; None at the end, also if an input became unreadable."""
    totals, error = CaptureTotals(), None
    now: list[tuple[int, int | None]] = []
    try:
        for batch in segments(paths, config, totals, lambda *said: now.append(said), prefetch=True):
            yield Stand(replace(totals), now[-1] if now else None), segment_columns(batch)
            now.clear()
            del batch
    except CaptureError as raised:
        error = raised
    yield Stand(totals, error=error), None
