"""Replays a capture in a loop, each round later in time, and watches memory.

`python -m tests.bench.loop CAPTURE SECONDS [PACKETS_PER_SECOND] [-- ARGUMENT...]`: a pcap file is
written to the standard input of `kwsniff decode - -f jsonl ARGUMENT...` again and again, shifted by its own
length, as one endless capture would come; as fast as it is read if no rate is given.
Prints the resident memory every minute, the rows that came out, and the peak at the end.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from tests.bench.pcapfile import HEADER, header

EVERY = 60
"""Seconds between two readings of memory."""
PIECES_PER_SECOND = 10
PAUSE = int(Config().idle_timeout) + 60
"""Seconds of packet time between two rounds: connections that were not closed shall not go on in the next,
where all their segments would be retransmissions."""


@dataclass
class Recording:
    """A pcap file that can be told again, later."""

    head: bytes
    data: NDArray[np.uint8]
    places: NDArray[np.int64]
    """Where packets begin in `data`, and where the last one ends."""
    span: int
    """Seconds from one round to the next."""

    def rounds(self, packets: int) -> Iterator[tuple[int, bytes]]:
        """For ever: pieces of at most so many packets, and how many."""
        seconds_at = self.places[:-1, None] + np.arange(4)
        stamps = self.data[seconds_at].copy().view("<u4").ravel()
        shifted, turn = self.data.copy(), 0
        while True:
            now = (stamps + np.uint32(turn * self.span)).astype("<u4")
            shifted[seconds_at] = now.view(np.uint8).reshape(-1, 4)
            for first in range(0, len(stamps), packets):
                last = min(first + packets, len(stamps))
                yield last - first, shifted[self.places[first] : self.places[last]].tobytes()
            turn += 1


def recording(path: Path) -> Recording:
    raw = path.read_bytes()[HEADER:]
    places, at = [0], 0
    while at + 16 <= len(raw):
        at += 16 + int(struct.unpack_from("<I", raw, at + 8)[0])
        places.append(at)
    first, last = (struct.unpack_from("<I", raw, place)[0] for place in (places[0], places[-2]))
    data = np.frombuffer(raw, np.uint8)
    return Recording(header(path).raw, data, np.array(places, np.int64), last - first + PAUSE)


def status_mb(pid: int, name: str) -> float:
    """`VmRSS` or `VmHWM` (the most there was) of a process, in 10⁶ bytes."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) * 1024 / 1e6


class Counter(threading.Thread):
    """Counts the lines of a stream."""

    def __init__(self, stream: IO[bytes]) -> None:
        super().__init__()
        self.stream, self.lines = stream, 0

    def run(self) -> None:
        while data := self.stream.read(1 << 20):
            self.lines += data.count(b"\n")


def main() -> None:
    own, _, arguments = " ".join(sys.argv[1:]).partition(" -- ")
    path, seconds, *rate = own.split()
    emitted_again = recording(Path(path))
    packets = len(emitted_again.places) - 1
    piece = max(int(rate[0]) // PIECES_PER_SECOND, 1) if rate else packets
    reader = subprocess.Popen(
        [sys.executable, "-m", "kwsniff", "decode", "-", "-q", "-f", "jsonl", *arguments.split()],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert reader.stdin is not None
    assert reader.stdout is not None
    rows = Counter(reader.stdout)
    rows.start()
    reader.stdin.write(emitted_again.head)
    began, told, written = time.monotonic(), 0, 0
    for pieces, (count, data) in enumerate(emitted_again.rounds(piece), 1):
        gone = time.monotonic() - began
        if gone >= told * EVERY or gone >= float(seconds):
            told += 1
            memory, rounds = status_mb(reader.pid, "VmRSS"), written / packets
            print(f"{gone:6.0f} s, round {rounds:.1f}, {memory:.0f} MB, {rows.lines} rows", flush=True)
        if gone >= float(seconds):
            break
        reader.stdin.write(data)
        written += count
        if rate:
            time.sleep(max(pieces / PIECES_PER_SECOND - (time.monotonic() - began), 0))
    peak = status_mb(reader.pid, "VmHWM")
    reader.stdin.close()
    reader.wait()
    rows.join()
    hours = written / packets * emitted_again.span / 3600
    print(
        f"{written} packets, {hours:.1f} h of packet time, {rows.lines} rows, at most {peak:.0f} MB, "
        f"exit code {reader.returncode}"
    )


if __name__ == "__main__":
    main()
