"""Reading one split: its packets, as the reader of the whole file would number and time them."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa

from kwsniff.capture import source
from kwsniff.capture.batch import note_batch, segment_batch
from kwsniff.capture.pcap import PcapReader
from kwsniff.capture.pcapng import PcapngReader
from kwsniff.capture.place import is_remote
from kwsniff.config import Config
from kwsniff.net.dissect import NOTES_PER_CODE, Dissector
from kwsniff.net.packets import CaptureTotals, PacketBlock
from kwsniff.net.segments import SegmentColumns, segment_columns
from kwsniff.run.plan import Split, can_be_cut, split_reader


@dataclass(slots=True)
class SplitNotes:
    """What a split has to tell of its packets, for all splits together to be judged."""

    split: int
    totals: CaptureTotals = field(default_factory=CaptureTotals)
    waiting: int = 0
    """Datagrams whose fragments may go on in the next split."""
    noted: dict[str, int] = field(default_factory=dict)
    """How many notes on packets there were, by code."""


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
