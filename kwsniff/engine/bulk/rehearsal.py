"""A little traffic that makes numba compile the kernels: `python -m kwsniff.engine.bulk.rehearsal`.

Compiling takes some hundreds of megabytes, which the process that decodes should not need, and does not give
back. So it is done in a process of its own, and the kernels are found in numba's cache afterwards.
"""

from __future__ import annotations

import subprocess
import sys
from struct import pack

import numpy as np
from numpy.typing import NDArray

from kwsniff.config import Config
from kwsniff.net.columns import ACK, SYN, SegmentColumns

CALLS = 50


def compile_apart() -> bool:
    """Compile in another process; whether that worked."""
    command = [sys.executable, "-m", __name__]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return False
    return done.returncode == 0


def rehearse() -> None:
    """Decode the traffic with kernels."""
    from kwsniff.engine import Engine  # which imports this package

    engine = Engine(Config(kernels="always"))
    traffic = _conversation()
    for first in range(0, len(traffic), len(traffic) // 2):
        engine.feed(_columns(traffic, first, first + len(traffic) // 2))
    engine.finish()


Packet = tuple[int, int, bytes]
"""Side, flags and payload."""


def _conversation() -> list[Packet]:
    """A handshake, and ApiVersions v0 asked for and answered (protocol guide) again and again."""
    packets: list[Packet] = [(0, SYN, b""), (1, SYN | ACK, b""), (0, ACK, b"")]
    for number in range(CALLS):
        packets.append((0, ACK, pack(">ihhih", 10, 18, 0, number, -1)))
        packets.append((1, ACK, pack(">iihi", 10, number, 0, 0)))
    return packets


def _columns(traffic: list[Packet], first: int, end: int) -> SegmentColumns:
    """Packets of the traffic as a block of segments."""
    part = traffic[first:end]
    side = np.array([packet[0] for packet in part], np.int64)
    flags = np.array([packet[1] for packet in part], np.int64)
    length = np.array([len(packet[2]) for packet in part], np.int64)
    sent = [_sequence(traffic, k) for k in (0, 1)]
    ports, lows = np.array([50_000, 9092]), np.array([0xFFFF0A000001, 0xFFFF0A000002])
    number = np.arange(first, first + len(part), dtype=np.int64)
    none = np.zeros(len(part), np.int64)
    return SegmentColumns(
        capture="rehearsal", packet=number + 1, time=number * 1_000_000,
        src_hi=none, src_lo=lows[side], dst_hi=none, dst_lo=lows[1 - side],
        src_port=ports[side], dst_port=ports[1 - side],
        seq=np.where(side == 0, sent[0][number], sent[1][number]),
        ack=np.where(side == 0, sent[1][number], sent[0][number]),
        flags=flags, length=length, captured=length, buffer=none, start=np.cumsum(length) - length,
        buffers=[memoryview(b"".join(packet[2] for packet in part))], notes=[],
    )  # fmt: skip


def _sequence(traffic: list[Packet], side: int) -> NDArray[np.int64]:
    """Where the stream of a side stands before each packet."""
    taken = [_taken(packet) if packet[0] == side else 0 for packet in traffic]
    return np.cumsum([1000, *taken])


def _taken(packet: Packet) -> int:
    """Sequence numbers that a packet takes."""
    return len(packet[2]) + (1 if packet[1] & SYN else 0)


if __name__ == "__main__":
    rehearse()
