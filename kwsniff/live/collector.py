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
from queue import Empty, SimpleQueue
from typing import NamedTuple

import numpy as np

from kwsniff.capture.stop import Stop
from kwsniff.live.listener import GoneError, Listener, ReadPackets
from kwsniff.net.packets import PacketBlock

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
        """Carry this."""
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


class Collector:
    """One listener's thread."""

    def __init__(self, index: int, listener: Listener, lane: Lane, stop: Stop) -> None:
        """When `stop` is set, it takes what is ready, hands it over, and ends."""
        self.index, self.listener = index, listener
        self._lane, self._stop = lane, stop
        self._pending: list[ReadPackets] = []
        self._size = 0
        self._since = 0.0
        self.received = 0
        """Packets taken, those dropped afterwards too."""
        self.came = 0
        """Packets that came to the interface and passed the filter, dropped or not."""
        self.kernel_dropped = 0
        """Packets that found the kernel's buffer full."""
        self._thread = threading.Thread(target=self._run, name=f"take {listener.interface}", daemon=True)

    def start(self) -> None:
        """Begin to take packets."""
        self._thread.start()

    def join(self) -> None:
        """Wait until the thread has ended."""
        self._thread.join()

    def _run(self) -> None:
        ended = ""
        try:
            self._loop()
        except GoneError:
            ended = f"{self.listener.interface}: the interface is gone"
        except OSError as error:
            ended = f"{self.listener.interface}: {error.strerror or error}"
        finally:
            self._flush(time.time_ns())
            self._ask()
            self.listener.close()
            self._lane.put(Handed(self.index, None, time.time_ns(), ended))

    def _loop(self) -> None:
        poller = select.poll()
        poller.register(self.listener.fileno(), select.POLLIN)
        said = time.monotonic()
        while True:
            last = self._stop.is_set()
            asked = time.time_ns()
            found = self._drain(asked)
            self._ask()
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

    def _ask(self) -> None:
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
