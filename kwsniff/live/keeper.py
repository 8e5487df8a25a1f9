"""Writes packets before they are decoded, in a thread of its own: neither a decoder that does not keep up nor
whoever reads what is told keeps a packet from its file.

Which connections are not Kafka is known when they have been decoded; until then their packets are written,
and from then on left out. A SYN begins another connection, of which nothing is known yet, although what is
decoded meanwhile may still be of the one before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import pyarrow as pa

from kwsniff.capture.batch import segment_batch
from kwsniff.capture.savefile import PcapngFiles
from kwsniff.live.collector import Lane
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals, Integers, Mask, PacketBlock
from kwsniff.net.segments import SYN, SegmentColumns, segment_columns

T = TypeVar("T")
MOST_OTHERS = 100_000
"""Connections that are known not to be Kafka; packets of those that were so long ago are written again."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """Packets to write."""

    files: PcapngFiles
    all_packets: bool
    """False: only those of connections that are Kafka, or may turn out to be."""


class Others:
    """Connections that are not Kafka, as far as has been decoded. Both threads call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[bytes, None] = {}
        self._begun: dict[bytes, int] = {}
        """The last SYN of connections, by packet number, where that has not been decoded yet."""

    def wanted(self, segments: SegmentColumns) -> Mask:
        """Which of some segments may be of Kafka connections."""
        begins = np.flatnonzero(segments.flags & SYN)
        with self._lock:
            for key, packet in zip(_keys(segments, begins), segments.packet[begins].tolist(), strict=True):
                self._known.pop(key, None)
                self._begun.pop(key, None)
                self._begun[key] = packet
            everything = np.arange(len(segments) if self._known else 0)
            found = np.ones(len(segments), np.bool_)
            found[everything] = [key not in self._known for key in _keys(segments, everything)]
            return found

    def judge(self, segments: SegmentColumns, may_be: Mask) -> None:
        """Note what decoding these segments showed of their connections."""
        last = int(segments.packet[-1])
        with self._lock:
            rows = np.flatnonzero(~may_be | bool(self._known))
            for key, good in dict(zip(_keys(segments, rows), may_be[rows].tolist(), strict=True)).items():
                if good:
                    self._known.pop(key, None)
                elif self._begun.get(key, 0) <= last:
                    self._known[key] = None
            while self._begun and self._begun[first := next(iter(self._begun))] <= last:
                del self._begun[first]
            while len(self._known) > MOST_OTHERS:
                del self._known[next(iter(self._known))]


class Keeper:
    """Takes what the listeners hand over, writes it, and hands it on."""

    def __init__(
        self, keeping: Keeping, came: Lane, onward: Lane, names: tuple[str, ...], said: Callable[[str], None]
    ) -> None:
        """`names` are those of the interfaces; `said` is told in one line why nothing more is written."""
        self._files, self._all = keeping.files, keeping.all_packets
        self._came, self._onward, self._said = came, onward, said
        self._open = len(names)
        self._others = {name: Others() for name in names}
        self._dissector = Dissector(CaptureTotals())
        self._writing = True
        self._thread = threading.Thread(target=self._run, name="write packets", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def join(self) -> None:
        """Wait until all is written."""
        self._thread.join()

    def judge(self, batch: pa.RecordBatch, may_be: Callable[[SegmentColumns], Mask]) -> None:
        """Learn from segments that have been decoded."""
        if self._all or not self._writing or not len(batch):
            return
        segments = segment_columns(batch)
        if len(segments) and segments.capture is not None:
            self._others[segments.capture].judge(segments, may_be(segments))

    def close(self, received: list[tuple[str, int, int, int]]) -> None:
        """Close the file. Of each interface: packets taken, dropped by the kernel, and not written."""
        for each in received:
            self._files.count(*each)
        self._try(self._files.close)

    def _run(self) -> None:
        while self._open:
            handed = self._came.get(1.0)
            if handed is None:
                continue
            if (block := handed.block) is not None:
                handed = handed._replace(written=self._try(lambda: self._write(block)) or 0)
            self._onward.put(handed)
            self._came.done(handed)
            self._open -= handed.ended is not None

    def _write(self, block: PacketBlock) -> int:
        chosen = None if self._all else self._chosen(block)
        self._files.write(block, chosen)
        return len(block) if chosen is None else int(chosen.sum())

    def _chosen(self, block: PacketBlock) -> Mask:
        segments = segment_columns(segment_batch(self._dissector.dissect(block)))
        wanted = self._others[block.capture].wanted(segments)
        return np.isin(block.number, segments.packet[wanted])

    def _try(self, act: Callable[[], T]) -> T | None:
        """Do this unless that failed before. Whatever fails, packets have to go on to be decoded."""
        if not self._writing:
            return None
        try:
            return act()
        except Exception as error:
            self._writing = False
            why = str(error) or repr(error)
            if isinstance(error, OSError) and error.filename is not None:
                why = f"{error.filename}: {error.strerror}"
            self._said(f"{why}; no more packets are written, the session goes on without")
            return None


def _keys(segments: SegmentColumns, rows: Integers) -> list[bytes]:
    """The connections of some rows, each the same for both directions."""
    source = np.stack([segments.src_hi[rows], segments.src_lo[rows], segments.src_port[rows]], 1)
    target = np.stack([segments.dst_hi[rows], segments.dst_lo[rows], segments.dst_port[rows]], 1)
    differs = (source != target).argmax(1)[:, None]
    turned = np.take_along_axis(source, differs, 1) > np.take_along_axis(target, differs, 1)
    ends = np.hstack([np.where(turned, target, source), np.where(turned, source, target)])
    found: list[bytes] = ends.view("V48")[:, 0].tolist()
    return found
