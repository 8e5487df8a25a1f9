"""TCP packets of capture files, read by hand: pcap and pcapng, plain, gzip or Zstandard.

Nothing of kwsniff is imported, so that its mistakes are not shared. Known are Ethernet (with VLAN tags),
raw IP, BSD loopback and both Linux cooked headers, IPv4 and IPv6 without tunnels. Fragments are not put
together; their ends are named, so that nobody calls a connection whole of which a part came in fragments.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import zstandard

FIN, SYN, RST, PSH, ACK, URG = 1, 2, 4, 8, 16, 32
IPV4, IPV6 = 0x0800, 0x86DD
TAGS = (0x8100, 0x88A8, 0x9100)
TCP = 6
BEFORE_TCP = (0, 43, 60)
"""IPv6 extension headers that may stand before TCP: hop-by-hop, routing, destination options (RFC 8200)."""

End = tuple[bytes, int]
"""Address and port."""


class Packet(NamedTuple):
    """One TCP segment as it was captured."""

    number: int
    """In its file, from 1."""
    time: int
    """Nanoseconds since 1970."""
    source: End
    target: End
    seq: int
    ack: int
    flags: int
    data: bytes
    length: int
    """Payload bytes on the wire; `data` has fewer if the capture cut the packet."""


class Fragment(NamedTuple):
    """A piece of an IP packet, which is not put together here."""

    source: bytes
    target: bytes


def opened(path: str | Path) -> bytes:
    """The capture in a file, unpacked. Truncated compression yields what can be had."""
    content = Path(path).read_bytes()
    if content[:2] == b"\x1f\x8b":
        return gzip.decompress(content)
    if content[:4] == b"\x28\xb5\x2f\xfd":
        return zstandard.ZstdDecompressor().decompressobj().decompress(content)
    return content


def records(content: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    """Link type, time, captured bytes and wire length of each packet."""
    if content[:4] == b"\x0a\x0d\x0d\x0a":
        return _pcapng(content)
    return _pcap(content)


def _pcap(content: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    magic = content[:4]
    order = "<" if magic in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    unit = 1 if b"\x3c" in magic else 1000
    link = struct.unpack_from(order + "I", content, 20)[0] & 0xFFFF
    header = struct.Struct(order + "IIII")
    at = 24
    while at + 16 <= len(content):
        seconds, parts, size, length = header.unpack_from(content, at)
        if at + 16 + size > len(content):
            return
        yield link, seconds * 10**9 + parts * unit, content[at + 16 : at + 16 + size], length
        at += 16 + size


def _pcapng(content: bytes) -> Iterator[tuple[int, int, bytes, int]]:
    order, interfaces, at = "<", [], 0
    while at + 12 <= len(content):
        if content[at : at + 4] == b"\x0a\x0d\x0d\x0a":
            order = "<" if content[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            interfaces = []
        kind, size = struct.unpack_from(order + "II", content, at)
        if size < 12 or at + size > len(content):
            return
        if kind == 1:
            interfaces.append(_interface(content[at + 8 : at + size - 4], order))
        elif kind == 6:
            which, high, low, kept, length = struct.unpack_from(order + "IIIII", content, at + 8)
            link, units = interfaces[which]
            ticks = high << 32 | low
            yield link, ticks * 10**9 // units, content[at + 28 : at + 28 + kept], length
        elif kind == 3:
            length = struct.unpack_from(order + "I", content, at + 8)[0]
            yield interfaces[0][0], 0, content[at + 12 : at + 12 + min(length, size - 16)], length
        at += size


def _interface(body: bytes, order: str) -> tuple[int, int]:
    """Link type and ticks a second of an interface description."""
    link, units, at = struct.unpack_from(order + "H", body)[0], 10**6, 8
    while at + 4 <= len(body):
        code, size = struct.unpack_from(order + "HH", body, at)
        if code == 0:
            break
        if code == 9:
            shift = body[at + 4]
            units = 2 ** (shift & 127) if shift & 128 else 10**shift
        at += 4 + (size + 3) // 4 * 4
    return link, units


def packets(path: str | Path) -> Iterator[Packet | Fragment]:
    """The TCP packets of a file, in its order."""
    for number, (link, time, raw, length) in enumerate(records(opened(path)), 1):
        at, kind = _network(link, raw)
        if kind == IPV4:
            found = _ipv4(number, time, raw, at, length)
        elif kind == IPV6:
            found = _ipv6(number, time, raw, at, length)
        else:
            found = None
        if found is not None:
            yield found


def _network(link: int, raw: bytes) -> tuple[int, int]:
    """Where the IP header begins, and which it is; 0 if there is none."""
    try:
        if link == 1:
            at, kind = 14, int.from_bytes(raw[12:14])
            while kind in TAGS:
                at, kind = at + 4, int.from_bytes(raw[at + 2 : at + 4])
            return at, kind
        if link == 113:
            return 16, int.from_bytes(raw[14:16])
        if link == 276:
            return 20, int.from_bytes(raw[:2])
        at = 4 if link in (0, 108) else 0 if link in (12, 101, 228, 229) else -1
        return at, {4: IPV4, 6: IPV6}.get(raw[at] >> 4, 0) if at >= 0 else 0
    except IndexError:
        return 0, 0


def _ipv4(number: int, time: int, raw: bytes, at: int, length: int) -> Packet | Fragment | None:
    if len(raw) < at + 20 or raw[at + 9] != TCP:
        return None
    total, fragment = int.from_bytes(raw[at + 2 : at + 4]), int.from_bytes(raw[at + 6 : at + 8])
    source, target = raw[at + 12 : at + 16], raw[at + 16 : at + 20]
    if fragment & 0x3FFF:
        return Fragment(source, target)
    behind = at + (total or length - at)  # 0: the card cut it into packets later
    return _tcp(number, time, raw, at + (raw[at] & 15) * 4, behind, source, target)


def _ipv6(number: int, time: int, raw: bytes, at: int, length: int) -> Packet | Fragment | None:
    if len(raw) < at + 40:
        return None
    size, following = int.from_bytes(raw[at + 4 : at + 6]), raw[at + 6]
    source, target = raw[at + 8 : at + 24], raw[at + 24 : at + 40]
    behind = at + 40 + size if size else length
    at += 40
    while following in BEFORE_TCP and at + 2 <= len(raw):
        following, at = raw[at], at + 8 + raw[at + 1] * 8
    if following == 44:
        return Fragment(source, target)
    return _tcp(number, time, raw, at, behind, source, target) if following == TCP else None


def _tcp(
    number: int, time: int, raw: bytes, at: int, behind: int, source: bytes, target: bytes
) -> Packet | None:
    if len(raw) < at + 20:
        return None
    sport, dport, seq, ack, offset, flags = struct.unpack_from(">HHIIBB", raw, at)
    start = at + (offset >> 4) * 4
    return Packet(
        number, time, (source, sport), (target, dport), seq, ack, flags,
        raw[start:behind], max(behind - start, 0),
    )  # fmt: skip
