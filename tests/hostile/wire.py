"""Captures of a million packets in a moment: Ethernet, IPv4 and TCP headers written as NumPy columns."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16
BROKER_PORT = 9092
START = 1_700_000_000
GLOBAL = struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1)
MSS = 60_000

HEADER = np.dtype(
    [
        ("seconds", "<u4"), ("nanos", "<u4"), ("caplen", "<u4"), ("origlen", "<u4"),
        ("macs", "S12"), ("ethertype", ">u2"),
        ("version", "u1"), ("tos", "u1"), ("total", ">u2"), ("ident", ">u2"), ("fragment", ">u2"),
        ("ttl", "u1"), ("protocol", "u1"), ("sum", ">u2"), ("src", ">u4"), ("dst", ">u4"),
        ("sport", ">u2"), ("dport", ">u2"), ("seq", ">u4"), ("ack", ">u4"), ("offset", "u1"), ("flags", "u1"),
        ("window", ">u2"), ("check", ">u2"), ("urgent", ">u2"),
    ]
)  # fmt: skip
CLIENTS, BROKER = 0x0A000000, 0x0B000001
Ints = NDArray[np.int64]


@dataclass
class Flow:
    """One connection being written packet by packet."""

    number: int = 1
    port: int = BROKER_PORT
    time_ns: int = START * 10**9

    opened: bool = False
    """Whether the handshake was written, or is left out."""

    def __post_init__(self) -> None:
        self.sent = [1, 1]

    def send(self, side: int, data: bytes, flags: int = ACK, *, seq: int | None = None) -> bytes:
        """One record of a pcap file; without `seq` the segment continues its stream."""
        at = self.sent[side] if seq is None else seq
        record = packets(
            1, len(data), clients=self.number, from_broker=bool(side), seq=at, ack=self.sent[1 - side],
            flags=flags, port=self.port, time_ns=self.time_ns,
        )  # fmt: skip
        record["payload"] = np.void(data) if data else record["payload"]
        if seq is None:
            self.sent[side] += len(data) + (1 if flags & (SYN | FIN) else 0)
        self.time_ns += 1000
        return record.tobytes()

    def stream(self, side: int, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """All bytes of `pieces` in segments as large as they go, behind the handshake."""
        yield from self.open()
        held: list[bytes] = []
        size = 0
        for piece in pieces:
            held.append(piece)
            size += len(piece)
            if size >= MSS:
                whole = b"".join(held)
                full = size - size % MSS
                for at in range(0, full, MSS):
                    yield self.send(side, whole[at : at + MSS])
                held, size = [whole[full:]], size - full
        if size:
            yield self.send(side, b"".join(held))

    def open(self) -> Iterator[bytes]:
        """The handshake, once."""
        if self.opened:
            return
        self.opened = True
        yield self.send(0, b"", SYN)
        yield self.send(1, b"", SYN | ACK)
        yield self.send(0, b"")


def packets(
    count: int,
    size: int,
    *,
    clients: Any,
    seq: Any = 1,
    ack: Any = 1,
    from_broker: bool = False,
    flags: int = ACK,
    port: Any = BROKER_PORT,
    time_ns: Any = START * 10**9,
) -> NDArray[Any]:
    """`count` pcap records with `size` payload bytes each (field `payload`); the other arguments are one for
    all or one each. A client's number gives its address and port."""
    rows = np.zeros(count, np.dtype([("head", HEADER), ("payload", f"V{size}")]))
    head = rows["head"]
    number = np.broadcast_to(np.asarray(clients, np.int64), count)
    address, client_port = CLIENTS + (number >> 15), 20_000 + (number & 0x7FFF)
    time = np.broadcast_to(np.asarray(time_ns, np.int64), count)
    head["seconds"], head["nanos"] = time // 10**9 % 2**32, time % 10**9
    head["caplen"] = head["origlen"] = 54 + size
    head["macs"], head["ethertype"] = b"\2\0\0\0\0\1\2\0\0\0\0\2", 0x0800
    head["version"], head["total"], head["ttl"], head["protocol"] = 0x45, 40 + size, 64, 6
    ends = (("src", address), ("dst", BROKER), ("sport", client_port), ("dport", port))
    swap = {"src": "dst", "dst": "src", "sport": "dport", "dport": "sport"}
    for name, value in ends:
        head[swap[name] if from_broker else name] = value
    head["seq"], head["ack"] = np.asarray(seq) % 2**32, np.asarray(ack) % 2**32
    head["offset"], head["flags"], head["window"] = 0x50, flags, 65_000
    return rows


def write(path: Path, records: Iterable[bytes | NDArray[Any]]) -> Path:
    """A pcap file of these records."""
    with path.open("wb", buffering=1 << 20) as file:
        file.write(GLOBAL)
        for record in records:
            file.write(record if isinstance(record, bytes) else record.tobytes())
    return path
