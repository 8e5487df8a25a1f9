"""Captures that are no files: bytes, open binary files, and packets one by one."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from typing import IO, Any

import numpy as np
import pyarrow as pa

from kwsniff.capture.batch import note_batch, segment_batch
from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import CaptureRun
from kwsniff.capture.stream import ByteStream
from kwsniff.config import Config
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals, PacketBlock

ETHERNET = 1
SECOND = 1_000_000_000
LINK_TYPES = {
    "Ether": 1,
    "IP": 101,
    "IPv6": 101,
    "CookedLinux": 113,
    "CookedLinuxV2": 276,
    "Loopback": 0,
    "PPP": 9,
}
"""LINKTYPE_ values of scapy's layers (https://www.tcpdump.org/linktypes.html)."""


def segments_of_file(
    file: IO[bytes], config: Config, totals: CaptureTotals | None = None, name: str = ""
) -> Iterator[pa.RecordBatch]:
    """SEGMENTS of what an open binary file holds from where it stands: pcap or pcapng, compressed or not. It
    is read to its end and stays open. Raises CaptureError."""
    name = name or str(getattr(file, "name", "") or "bytes")
    capture_run = CaptureRun(totals if totals is not None else CaptureTotals())
    yield from capture_run.stream(ByteStream(_Reading(file, name), name), config)
    yield from capture_run.end()


def segments_of_bytes(
    data: bytes, config: Config, totals: CaptureTotals | None = None
) -> Iterator[pa.RecordBatch]:
    """The same of the bytes of a capture file."""
    return segments_of_file(io.BytesIO(data), config, totals, "bytes")


class _Reading:
    """An open file as a stream reads one; it is not ours to close."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file, self._name = file, name

    def read(self, size: int, /) -> bytes | None:
        data = self._file.read(size)
        if isinstance(data, str):
            raise CaptureError(f"{self._name}: is open as text; open it in mode 'rb'")
        return data

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        return


def segments_of_packets(
    packets: Iterable[Any],
    config: Config,
    totals: CaptureTotals | None = None,
    *,
    linktype: int = ETHERNET,
) -> Iterator[pa.RecordBatch]:
    """SEGMENTS of packets in the order of their capture: scapy's, or pairs of seconds since 1970 and bytes.

    `linktype` is the LINKTYPE_ value of packets that don't know their own: bytes, and what scapy has no layer
    for (`Raw`). A capture's name is `packets`, the first packet is number 1.

    Raises TypeError for anything else.
    """
    totals = totals if totals is not None else CaptureTotals()
    dissector, found, count = Dissector(totals), iter(packets), 0
    config = replace(config, block_packets=min(config.block_packets, 10_000))
    while block := [_packet(each, linktype) for each in islice(found, config.block_packets)]:
        totals.packets += len(block)
        totals.bytes += sum(size for _, _, size, _ in block)
        batch = segment_batch(dissector.dissect(_block(block, count)))
        if len(batch):
            yield batch
        count += len(block)
    if notes := [*dissector.end_file(count), *dissector.end()]:
        yield note_batch("packets", notes)


Packet = tuple[int, bytes, int, int]
"""Nanoseconds since 1970, bytes, size on the wire, link type."""


def _packet(packet: Any, linktype: int) -> Packet:
    if isinstance(packet, tuple) and len(packet) == 2:
        time, data = packet
        if isinstance(data, bytes | bytearray | memoryview):
            return _nanos(time), bytes(data), len(data), linktype
    time = getattr(packet, "time", None)
    if time is None or not hasattr(packet, "__bytes__"):
        known = "scapy's packets are, and pairs of seconds since 1970 and bytes"
        raise TypeError(f"{type(packet).__name__} is no packet: {known}")
    data = bytes(packet)
    kind = LINK_TYPES.get(type(packet).__name__, linktype)
    return _nanos(time), data, int(getattr(packet, "wirelen", None) or len(data)), kind


def _nanos(seconds: Any) -> int:
    """Whole nanoseconds: float has microseconds today, scapy's decimals are exact."""
    return round(seconds * SECOND) if not isinstance(seconds, float) else round(seconds * 1e6) * 1000


def _block(packets: list[Packet], before: int) -> PacketBlock:
    data = b"".join(each for _, each, _, _ in packets) + bytes(64)
    caplen = np.array([len(each) for _, each, _, _ in packets], np.int64)
    return PacketBlock(
        "packets",
        np.frombuffer(data, np.uint8),
        np.cumsum(caplen) - caplen,
        caplen,
        np.array([size for _, _, size, _ in packets], np.int64),
        np.array([time for time, _, _, _ in packets], np.int64),
        np.arange(before + 1, before + 1 + len(packets), dtype=np.int64),
        np.array([kind for _, _, _, kind in packets], np.int64),
    )
