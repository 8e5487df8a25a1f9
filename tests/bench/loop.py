"""Replays a capture in a loop, each round later in time, and watches memory.

`python -m tests.bench.loop CAPTURE SECONDS [PACKETS_PER_SECOND]`: a pcap file is written to the standard
input of `kwsniff decode - -f jsonl` again and again, shifted by its own length, as one endless capture would
come; as fast as it is read if no rate is given. Prints the resident memory every minute.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from pathlib import Path

from kwsniff.config import Config
from tests.bench import pcapfile

EVERY = 60
"""Seconds between two readings of memory."""
PAUSE = int(Config().idle_timeout) + 60
"""Seconds of packet time between two rounds: connections that were not closed shall not go on in the next,
where all their segments would be retransmissions."""
SECONDS = struct.Struct("<I")


def main() -> None:
    path, seconds, *rate = Path(sys.argv[1]), *map(float, sys.argv[2:])
    packets = [(SECONDS.unpack_from(stamp)[0], stamp[4:] + rest) for stamp, rest in pcapfile.packets(path)]
    span = packets[-1][0] - packets[0][0] + PAUSE
    command = [sys.executable, "-m", "kwsniff", "decode", "-", "-q", "-f", "jsonl", "-o", "/dev/null"]
    reader = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert reader.stdin is not None
    reader.stdin.write(pcapfile.header(path).raw)
    began, said, written = time.monotonic(), 0, 0
    while (gone := time.monotonic() - began) < seconds:
        if gone >= said * EVERY:
            said += 1
            lines = Path(f"/proc/{reader.pid}/status").read_text().splitlines()
            resident = next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
            turns = written / len(packets)
            print(f"{gone:6.0f} s, round {turns:.1f}, {resident * 1024 / 1e6:.0f} MB", flush=True)
        for _ in range(1000):
            turn, number = divmod(written, len(packets))
            second, rest = packets[number]
            reader.stdin.write(SECONDS.pack(second + turn * span) + rest)
            written += 1
        if rate:
            time.sleep(max(written / rate[0] - (time.monotonic() - began), 0))
    reader.stdin.close()
    reader.wait()


if __name__ == "__main__":
    main()
