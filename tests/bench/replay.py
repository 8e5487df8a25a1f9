"""Replays a capture in a loop, each round later in time, and watches memory.

`python -m tests.bench.replay CAPTURE SECONDS`: a pcap file (microseconds or nanoseconds) is written to the
standard input of `kwsniff decode - -f jsonl` again and again, shifted by its own length, as one endless
capture would come. Prints the resident memory every tenth of the time, and the rows that came out.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np

from tests.bench.pcapfile import HEADER, header


def rounds(path: Path) -> tuple[bytes, np.ndarray, bytearray, int]:
    """The file's header; where its packets' seconds stand; its records; the seconds it covers."""
    raw = bytearray(path.read_bytes()[HEADER:])
    places, at = [], 0
    while at + 16 <= len(raw):
        places.append(at)
        at += 16 + struct.unpack_from("<I", raw, at + 8)[0]
    first, last = (struct.unpack_from("<I", raw, place)[0] for place in (places[0], places[-1]))
    return header(path).raw, np.array(places), raw, last - first + 60


def resident_mb(pid: int) -> float:
    """Of a process, in 10⁶ bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096 / 1e6


def main() -> None:
    path, seconds = Path(sys.argv[1]), float(sys.argv[2])
    head, places, raw, span = rounds(path)
    bytes_of = np.frombuffer(raw, np.uint8)
    reader = subprocess.Popen(
        [sys.executable, "-m", "kwsniff", "decode", "-", "-q", "-f", "jsonl", "--columns", "event,status"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert reader.stdin is not None
    assert reader.stdout is not None
    lines = 0

    def drain() -> None:
        nonlocal lines
        assert reader.stdout is not None
        while data := reader.stdout.read(1 << 20):
            lines += data.count(b"\n")

    taker = threading.Thread(target=drain)
    taker.start()
    reader.stdin.write(head)
    began, told, turns, seconds_at = time.monotonic(), 0, 0, places[:, None] + np.arange(4)
    shifted = bytes_of.copy()
    stamps = bytes_of[seconds_at].copy().view("<u4").ravel()
    while (gone := time.monotonic() - began) < seconds:
        now = (stamps + np.uint32(turns * span)).astype("<u4")
        shifted[seconds_at] = now.view(np.uint8).reshape(-1, 4)
        reader.stdin.write(shifted.tobytes())
        turns += 1
        if gone >= told * seconds / 10:
            told += 1
            print(f"{gone:7.0f} s, round {turns}, {resident_mb(reader.pid):.0f} MB, {lines} rows", flush=True)
    reader.stdin.close()
    reader.wait()
    taker.join()
    print(
        f"{turns} rounds of {len(places)} packets, {turns * span / 3600:.1f} h of packet time, {lines} rows"
    )


if __name__ == "__main__":
    main()
