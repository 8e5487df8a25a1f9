"""IPv4 and IPv6 headers for whole columns of packets (RFC 791, RFC 8200).

Addresses are two int64 columns that together hold the IPv6 address; IPv4 addresses are IPv4-mapped.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kwsniff.net.layer import Layer
from kwsniff.net.packets import Bytes, Integers, Mask, number

MAPPED = 0xFFFF_0000_0000
"""Lower half of an IPv4-mapped address without the IPv4 address (RFC 4291, 2.5.5.2)."""

FRAGMENT, AUTHENTICATION = 44, 51
_EXTENSIONS = (0, 43, 60, 135, 139, 140, AUTHENTICATION, FRAGMENT)
MAX_EXTENSIONS = 16

_IPV4 = np.dtype(
    [
        ("version_ihl", "u1"),
        ("tos", "u1"),
        ("length", ">u2"),
        ("id", ">u2"),
        ("fragment", ">u2"),
        ("ttl", "u1"),
        ("protocol", "u1"),
        ("checksum", ">u2"),
        ("src", ">u4"),
        ("dst", ">u4"),
    ]
)
_IPV6 = np.dtype(
    [
        ("version_class_flow", ">u4"),
        ("length", ">u2"),
        ("protocol", "u1"),
        ("hops", "u1"),
        ("src_hi", ">i8"),
        ("src_lo", ">i8"),
        ("dst_hi", ">i8"),
        ("dst_lo", ">i8"),
    ]
)
_EXTENSION = np.dtype([("next", "u1"), ("size", "u1"), ("fragment", ">u2"), ("id", ">u4")])


@dataclass(slots=True)
class Datagrams:
    """IP packets, with `layer` at what follows the IP headers."""

    layer: Layer
    protocol: Integers
    """IANA protocol number."""
    src_hi: Integers
    src_lo: Integers
    dst_hi: Integers
    dst_lo: Integers
    fragment: Integers
    """Offset of a fragment in bytes, plus 1 if more follow; 0 for what is whole."""
    ident: Integers
    """Identification that the fragments of one datagram share."""

    def __len__(self) -> int:
        return len(self.layer)

    def pick(self, which: Mask) -> Datagrams:
        """The datagrams for which `which` is true."""
        if which.all():
            return self
        return Datagrams(
            self.layer.pick(which),
            self.protocol[which],
            self.src_hi[which],
            self.src_lo[which],
            self.dst_hi[which],
            self.dst_lo[which],
            self.fragment[which],
            self.ident[which],
        )


@dataclass(slots=True)
class Refused:
    """Rows of packets that go no further."""

    cut: Integers
    """Their headers were not captured whole."""
    malformed: Integers
    """Their headers contradict their length."""


def refuse(layer: Layer, size: int) -> tuple[Layer, Refused]:
    """Keep the packets that hold a header of `size` bytes."""
    held = layer.holds(size)
    if held.all():
        return layer, Refused(layer.row[:0], layer.row[:0])
    short = layer.lacks(size)
    return layer.pick(held), Refused(layer.row[~held & ~short], layer.row[~held & short])


def _bounded(layer: Layer, wire: Integers) -> Layer:
    """What a length field says is where the packet ends: beyond it is padding of the link layer."""
    return Layer(layer.row, layer.at, np.minimum(layer.end, wire), wire)


def ipv4(data: Bytes, layer: Layer) -> tuple[Datagrams, Refused]:
    """Dissect IPv4 headers.

    A total length of 0 is what a sender's capture shows when the network card cuts the segments (TSO): the
    length of the frame counts then.
    """
    layer, refused = refuse(layer, _IPV4.itemsize)
    header = layer.read(data, _IPV4)
    size = (number(header["version_ihl"]) & 15) * 4
    length = number(header["length"])
    wire = np.where(length == 0, layer.wire, layer.at + length)
    bad = (header["version_ihl"] >> 4 != 4) | (size < 20) | (layer.at + size > wire)
    if bad.any():
        refused.malformed = np.concatenate([refused.malformed, layer.row[bad]])
        layer, header, size, wire = layer.pick(~bad), header[~bad], size[~bad], wire[~bad]
    fragment = number(header["fragment"])
    datagrams = Datagrams(
        _bounded(layer, wire).skip(size),
        number(header["protocol"]),
        np.zeros(len(layer), np.int64),
        number(header["src"]) | MAPPED,
        np.zeros(len(layer), np.int64),
        number(header["dst"]) | MAPPED,
        (fragment & 0x1FFF) * 8 + (fragment >> 13 & 1),
        number(header["id"]),
    )
    return datagrams, refused


def ipv6(data: Bytes, layer: Layer) -> tuple[Datagrams, Refused]:
    """Dissect IPv6 headers. A payload length of 0 is a jumbogram or as in `ipv4`."""
    layer, refused = refuse(layer, _IPV6.itemsize)
    header = layer.read(data, _IPV6)
    length = number(header["length"])
    wire = np.where(length == 0, layer.wire, layer.at + _IPV6.itemsize + length)
    bad = header["version_class_flow"] >> 28 != 6
    if bad.any():
        refused.malformed = np.concatenate([refused.malformed, layer.row[bad]])
        layer, header, wire = layer.pick(~bad), header[~bad], wire[~bad]
    datagrams = Datagrams(
        _bounded(layer, wire).skip(_IPV6.itemsize),
        number(header["protocol"]),
        number(header["src_hi"]),
        number(header["src_lo"]),
        number(header["dst_hi"]),
        number(header["dst_lo"]),
        np.zeros(len(layer), np.int64),
        np.zeros(len(layer), np.int64),
    )
    return datagrams, refused


def extended(datagrams: Datagrams) -> Mask:
    """Which datagrams have an extension header next (and are no fragment, whose rest is elsewhere)."""
    whole: Mask = datagrams.fragment == 0
    return whole & np.isin(datagrams.protocol, _EXTENSIONS)


def skip_extensions(data: Bytes, datagrams: Datagrams) -> tuple[Datagrams, Refused]:
    """Step over one IPv6 extension header (or IPv4 authentication header) of each of `datagrams`.

    All begin with the next protocol and their size in units of 8 bytes after the first 8, but for the
    authentication header (units of 4 after the first 8, RFC 4302) and the fragment header (always 8).
    """
    layer, refused = refuse(datagrams.layer, _EXTENSION.itemsize)
    if len(layer) < len(datagrams):
        datagrams = datagrams.pick(datagrams.layer.holds(_EXTENSION.itemsize))
    header = layer.read(data, _EXTENSION)
    units = number(header["size"])
    size = np.where(datagrams.protocol == AUTHENTICATION, (units + 2) * 4, (units + 1) * 8)
    fragmented = datagrams.protocol == FRAGMENT
    size[fragmented] = 8
    field = number(header["fragment"])
    fragment = np.where(fragmented, (field & 0xFFF8) | (field & 1), 0)
    stepped = Datagrams(
        layer.skip(size),
        number(header["next"]),
        datagrams.src_hi,
        datagrams.src_lo,
        datagrams.dst_hi,
        datagrams.dst_lo,
        fragment,
        np.where(fragmented, number(header["id"]), 0),
    )
    return stepped, refused
