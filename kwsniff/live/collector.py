"""Takes packets from a listener in a thread of its own and hands them over as blocks.

Theory of operation. Decoding must never make the kernel wait, so nothing but copying happens here, and what
is handed over waits in a queue of bounded size (`Lane`). The thread sleeps a little after each
wake-up: the kernel's buffer holds what comes meanwhile, and at tens of thousands of packets a second one
wake-up a packet would cost more than the packets.

With each block goes a time until which, as far as this listener is concerned, everything has been handed
over; while the interface is quiet such times go without packets.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from kwsniff.capture.batch import segment_batch
from kwsniff.capture.error import Stop
from kwsniff.capture.savefile import PcapngFiles
from kwsniff.live.listener import GoneError, Listener, ReadPackets
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals, Integers, Mask, PacketBlock
from kwsniff.net.segments import SYN, SegmentColumns, segment_columns

# Blocks of packets on their way from one thread to the next, in a queue of bounded size.
#
# Who puts a block never waits: one that finds the queue full is not carried but counted. The time that goes
# with it is, so what it held is missing as what the kernel dropped is: later packets show the hole.


class Handed(NamedTuple):
    """What a listener's thread hands over."""

    collector: int
    block: PacketBlock | None
    until: int
    """Nanoseconds since 1970 until when nothing is missing."""
    ended: str | None = None
    """Why there will be nothing more; empty if that was asked for."""
    written: int = 0
    """Packets of the block that were written to a file."""


class Lane:
    """One such queue."""

    def __init__(self, size: int, listeners: int) -> None:
        """`size` is in bytes of packets; one block more may be in the hands of who takes it."""
        self._queue: SimpleQueue[Handed] = SimpleQueue()
        self._lock = threading.Lock()
        self._size = size
        self.used = 0
        """Bytes in it, or in the hands of who takes them."""
        self.dropped = [0] * listeners
        """Packets of each listener that were not carried."""
        self.written = 0
        """Of all those, packets that were written to a file."""

    def put(self, handed: Handed) -> None:
        if handed.block is not None and not self._reserve(len(handed.block.data)):
            handed = self.drop(handed)
        self._queue.put(handed)

    def get(self, seconds: float) -> Handed | None:
        """The next one; None if none came for so long. `done` is to be called when it has been dealt with."""
        try:
            return self._queue.get(timeout=seconds)
        except Empty:
            return None

    def done(self, handed: Handed) -> None:
        """Give back the room of what was taken."""
        if handed.block is not None:
            with self._lock:
                self.used -= len(handed.block.data)

    def drop(self, handed: Handed) -> Handed:
        """Count a block that is given up; what stays of it."""
        if handed.block is None:
            return handed
        with self._lock:
            self.dropped[handed.collector] += len(handed.block)
            self.written += handed.written
        return handed._replace(block=None)

    def _reserve(self, size: int) -> bool:
        with self._lock:
            if self.used and self.used + size > self._size:
                return False
            self.used += size
            return True


NAP = 0.01
"""Seconds of sleep between wake-ups."""
QUIET = 0.25
"""Seconds after which a quiet interface says that it is quiet."""
GATHER = 0.1
"""Seconds for which packets are gathered to a block ..."""
BLOCK_BYTES = 2 << 20
"""... unless they are as many bytes before that."""


class Collector(threading.Thread):
    """One listener's thread."""

    def __init__(self, index: int, listener: Listener, lane: Lane, stop: Stop) -> None:
        """When `stop` is set, it takes what is ready, hands it over, and ends."""
        super().__init__(name=f"take {listener.interface}", daemon=True)
        self.index, self.listener = index, listener
        self._lane, self._asked = lane, stop
        self._pending: list[ReadPackets] = []
        self._size = 0
        self._since = 0.0
        self.received = 0
        """Packets taken, those dropped afterwards too."""
        self.came = 0
        """Packets that came to the interface and passed the filter, dropped or not."""
        self.kernel_dropped = 0
        """Packets that found the kernel's buffer full."""

    def run(self) -> None:
        """Take packets until asked to stop, or the interface is gone."""
        ended = ""
        try:
            self._loop()
        except GoneError:
            ended = f"{self.listener.interface}: the interface is gone"
        except OSError as error:
            ended = f"{self.listener.interface}: {error.strerror or error}"
        finally:
            self._flush(time.time_ns())
            self._count()
            self.listener.close()
            self._lane.put(Handed(self.index, None, time.time_ns(), ended))

    def _loop(self) -> None:
        poller = select.poll()
        poller.register(self.listener.fileno(), select.POLLIN)
        said = time.monotonic()
        while True:
            last = self._asked.is_set()
            asked = time.time_ns()
            found = self._drain(asked)
            self._count()
            now = time.monotonic()
            if self._pending and (last or now - self._since >= GATHER):
                self._flush(asked)
                said = now
            elif not self._pending and now - said >= QUIET:
                self._lane.put(Handed(self.index, None, asked))
                said = now
            if last:
                return
            if found:
                time.sleep(NAP)
            else:
                poller.poll(1000 * (GATHER if self._pending else QUIET))

    def _count(self) -> None:
        self.kernel_dropped = self.listener.dropped()
        self.came = self.listener.came()

    def _drain(self, asked: int) -> bool:
        """Take what came until then; more may come for ever."""
        found = False
        while (packets := self.listener.take()) is not None:
            found = True
            if not len(packets):
                continue
            if not self._pending:
                self._since = time.monotonic()
            self._pending.append(packets)
            self._size += len(packets.data)
            if self._size >= BLOCK_BYTES:
                self._flush(int(packets.time_ns[-1]))
            if packets.time_ns[-1] > asked:
                break
        return found

    def _flush(self, until: int) -> None:
        if not self._pending:
            return
        pending = self._pending
        self._pending, self._size = [], 0
        caplen = np.concatenate([packets.caplen for packets in pending])
        numbers = np.arange(self.received + 1, self.received + len(caplen) + 1)
        self.received += len(caplen)
        block = PacketBlock(
            capture=self.listener.interface,
            data=np.frombuffer(b"".join([packets.data for packets in pending]), np.uint8),
            offset=np.cumsum(caplen) - caplen,
            caplen=caplen,
            origlen=np.concatenate([packets.origlen for packets in pending]),
            time_ns=np.concatenate([packets.time_ns for packets in pending]),
            number=numbers,
            linktype=np.full(len(caplen), self.listener.linktype, np.int64),
        )
        self._lane.put(Handed(self.index, block, until))


# Writes packets before they are decoded, in a thread of its own: neither a decoder that does not keep up nor
# whoever reads what is told keeps a packet from its file.
#
# Which connections are not Kafka is known when they have been decoded; until then their packets are written,
# and from then on left out. A SYN begins another connection, of which nothing is known yet, although what is
# decoded meanwhile may still be of the one before.

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


class Keeper(threading.Thread):
    """Takes what the listeners hand over, writes it, and hands it on."""

    def __init__(
        self, keeping: Keeping, came: Lane, onward: Lane, names: tuple[str, ...], said: Callable[[str], None]
    ) -> None:
        """`names` are those of the interfaces; `said` is told in one line why nothing more is written."""
        super().__init__(name="write packets", daemon=True)
        self._files, self._all = keeping.files, keeping.all_packets
        self._came, self._onward, self._said = came, onward, said
        self._open = len(names)
        self._others = {name: Others() for name in names}
        self._dissector = Dissector(CaptureTotals())
        self._writing = True

    def run(self) -> None:
        """Write until all interfaces have ended."""
        while self._open:
            handed = self._came.get(1.0)
            if handed is None:
                continue
            if (block := handed.block) is not None:
                handed = handed._replace(written=self._try(lambda: self._write(block)) or 0)
            self._onward.put(handed)
            self._came.done(handed)
            self._open -= handed.ended is not None

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
