"""Blocks of packets for tests, and the rows found in them as tuples."""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from kwsniff.net.address import text
from kwsniff.net.dissect import Dissected, Dissector
from kwsniff.net.packets import CaptureTotals, PacketBlock

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND


class Row(NamedTuple):
    packet: int
    src: str
    src_port: int
    dst: str
    dst_port: int
    seq: int
    ack: int
    flags: int
    length: int
    payload: bytes
    tsval: int = -1


def block(frames, linktype=1, origlen=None, first=1, time_ns=None):
    """`linktype`, `origlen` and `time_ns` may be one for all, or a list."""
    size = len(frames)
    caplen = np.array([len(frame) for frame in frames], np.int64)
    times = [START + number * SECOND // 1000 for number in range(first, first + size)]
    return PacketBlock(
        "test",
        np.frombuffer(b"".join(frames), np.uint8),
        np.cumsum(caplen) - caplen,
        caplen,
        np.array(caplen if origlen is None else origlen, np.int64),
        np.array(times if time_ns is None else time_ns, np.int64),
        np.arange(first, first + size, dtype=np.int64),
        np.full(size, linktype, np.int64) if isinstance(linktype, int) else np.array(linktype, np.int64),
    )


def rows(dissected: Dissected) -> list[Row]:
    found = dissected.segments
    result = []
    for index in range(len(found)):
        data = dissected.buffers[dissected.buffer[index]]
        start = found.start[index]
        size = min(found.captured[index], found.length[index])
        assert 0 <= start <= start + size <= len(data) or size == 0
        result.append(
            Row(
                int(dissected.block.number[found.row[index]]),
                text(int(found.src_hi[index]), int(found.src_lo[index])),
                int(found.src_port[index]),
                text(int(found.dst_hi[index]), int(found.dst_lo[index])),
                int(found.dst_port[index]),
                int(found.seq[index]),
                int(found.ack[index]),
                int(found.flags[index]) & 0xFF,  # without what is noted beside them
                int(found.length[index]),
                data[start : start + size].tobytes(),
                int(found.tsval[index]),
            )
        )
    return result


def dissect(frames, linktype=1, **kwargs):
    """Rows, notes as (packet, code), and totals of one block."""
    totals = CaptureTotals()
    found = Dissector(totals).dissect(block(frames, linktype, **kwargs))
    return rows(found), [(note.packet, note.code) for note in found.notes], totals


TCP_HEADER = struct.pack(">HHIIBBHHH", 40000, 9092, 0xFFFFFFF0, 7, 0x50, 0x18, 500, 0, 0)
PAYLOAD = b"a kafka request"
SEGMENT = TCP_HEADER + PAYLOAD


def ipv4(payload, protocol=6, options=b"", length=None, ident=1, fragment=0, src="0a000001", dst="0a000002"):
    size = 20 + len(options)
    return (
        struct.pack(
            ">BBHHHBBH",
            0x40 | size // 4,
            0,
            size + len(payload) if length is None else length,
            ident,
            fragment,
            64,
            protocol,
            0,
        )
        + bytes.fromhex(src + dst)
        + options
        + payload
    )


def ipv6(payload, protocol=6, length=None):
    size = len(payload) if length is None else length
    addresses = bytes.fromhex("20010db8000000000000000000000001 20010db8000000000000000000000002")
    return struct.pack(">IHBB", 0x60000000, size, protocol, 64) + addresses + payload


ETHERNET4 = bytes.fromhex("020000000001 020000000002 0800")
ETHERNET6 = bytes.fromhex("020000000001 020000000002 86dd")
ROW4 = Row(1, "10.0.0.1", 40000, "10.0.0.2", 9092, 0xFFFFFFF0, 7, 0x18, len(PAYLOAD), PAYLOAD)
ROW6 = ROW4._replace(src="2001:db8::1", dst="2001:db8::2")
