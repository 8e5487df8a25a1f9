"""Capture files written by hand with struct, and the rows read from them."""

from __future__ import annotations

import struct

from kwsniff.capture.source import CaptureTotals, segments
from kwsniff.config import Config

SECOND = 1_000_000_000
START = 1_700_000_000 * SECOND
ETHERNET = bytes.fromhex("020000000001 020000000002 0800")
MICRO, NANO, MODIFIED = 0xA1B2C3D4, 0xA1B23C4D, 0xA1B2CD34


def frame(seq, payload=b""):
    """A segment from 10.0.0.1:40000 to 10.0.0.2:9092."""
    ip = struct.pack(">BBHHHBBHII", 0x45, 0, 40 + len(payload), 1, 0, 64, 6, 0, 0x0A000001, 0x0A000002)
    tcp = struct.pack(">HHIIBBHHH", 40000, 9092, seq, 9, 0x50, 0x18, 500, 0, 0)
    return ETHERNET + ip + tcp + payload


def frames(count, size=lambda index: index % 50):
    """Packets as (time, frame): a millisecond apart, with payloads of many sizes."""
    packets = []
    for index in range(count):
        payload = bytes((index + at) % 251 for at in range(size(index)))
        packets.append((START + index * 1_000_000, frame(index, payload)))
    return packets


def pcap(packets, order="<", magic=MICRO, snaplen=262144, linktype=1):
    header = struct.pack(order + "IHHiIII", magic, 2, 4, 0, 0, snaplen, linktype)
    return header + b"".join(record(packet, order, magic) for packet in packets)


def record(packet, order="<", magic=MICRO, origlen=None):
    time, data = packet
    fraction = time % SECOND // (1 if magic == NANO else 1000)
    extra = bytes(8) if magic == MODIFIED else b""
    length = len(data) if origlen is None else origlen
    return struct.pack(order + "IIII", time // SECOND, fraction, len(data), length) + extra + data


def pad(data):
    return data + bytes(-len(data) % 4)


def ng_block(kind, body, order="<"):
    size = struct.pack(order + "I", len(pad(body)) + 12)
    return struct.pack(order + "I", kind) + size + pad(body) + size


def ng_options(options, order="<"):
    body = b"".join(struct.pack(order + "HH", code, len(value)) + pad(value) for code, value in options)
    return body + bytes(4) if options else b""


def ng_section(order="<"):
    return ng_block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def ng_interface(order="<", linktype=1, snaplen=0, options=()):
    return ng_block(1, struct.pack(order + "HHI", linktype, 0, snaplen) + ng_options(options, order), order)


def ng_enhanced(packet, order="<", interface=0, ticks=None, options=(), origlen=None):
    time, data = packet
    ticks = time // 1000 if ticks is None else ticks
    length = len(data) if origlen is None else origlen
    head = struct.pack(order + "IIIII", interface, ticks >> 32, ticks & 0xFFFFFFFF, len(data), length)
    return ng_block(6, head + pad(data) + ng_options(options, order), order)


def ng_simple(data, order="<", origlen=None):
    return ng_block(3, struct.pack(order + "I", len(data) if origlen is None else origlen) + data, order)


def ng_obsolete(packet, order="<", interface=0, drops=3):
    time, data = packet
    ticks = time // 1000
    head = struct.pack(order + "HHIIII", interface, drops, ticks >> 32, ticks & 0xFFFFFFFF, *[len(data)] * 2)
    return ng_block(2, head + data, order)


def ng_secrets(secrets, order="<", kind=0x544C534B, length=None):
    """A Decryption Secrets Block, of a TLS key log unless `kind` says otherwise."""
    size = len(secrets) if length is None else length
    return ng_block(10, struct.pack(order + "II", kind, size) + secrets, order)


def pcapng(packets, order="<"):
    return ng_section(order) + ng_interface(order) + b"".join(ng_enhanced(each, order) for each in packets)


def read(path, totals=None, **limits):
    """All rows of the capture at `path`, as dicts."""
    batches = segments([path], Config(**limits), totals or CaptureTotals())
    return [row for batch in batches for row in batch.to_pylist()]


def brief(rows):
    """Packet number, time, sequence number and payload of the segments among the rows."""
    return [(row["packet"], row["time"], row["seq"], row["payload"]) for row in rows if not row["anomaly"]]


def notes(rows):
    return [row["anomaly"] for row in rows if row["anomaly"]]


def expected(packets, first=1):
    return [
        (number, time, struct.unpack_from(">I", data, 38)[0], data[54:])
        for number, (time, data) in enumerate(packets, first)
    ]
