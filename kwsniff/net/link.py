"""Link layers: from the start of a frame to the start of its network layer, for whole columns of frames.

Facts: https://www.tcpdump.org/linktypes.html (LINKTYPE_ values and header layouts), IEEE 802.1Q (tags),
RFC 1661 and RFC 1662 (PPP).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kwsniff.net.layer import Layer
from kwsniff.net.packets import Bytes, Integers, number

IPV4, IPV6 = 0x0800, 0x86DD
ETHERNET_BRIDGED = 0x6558
VLAN_TAGS = (0x8100, 0x88A8, 0x9100, 0x9200)
MAX_TAGS = 8
CUT = -1
"""In place of an ethertype: the frame ends before it."""

Network = tuple[Layer, Integers]
"""Where the network layer starts, and its ethertype or CUT."""

_TYPE = np.dtype([("type", ">u2")])
_ETHERNET = np.dtype([("macs", "V12"), ("type", ">u2")])
_TAG = np.dtype([("tci", ">u2"), ("type", ">u2")])
_COOKED = np.dtype([("kind", ">u2"), ("arphrd", ">u2"), ("address", "V10"), ("type", ">u2")])
_COOKED2 = np.dtype([("type", ">u2"), ("rest", "V18")])
_FAMILY = np.dtype([("little", "<u4")])
_BYTE = np.dtype([("byte", "u1")])
_BYTE_PAIR = np.dtype([("first", "u1"), ("second", "u1")])

_IP_FAMILIES = {2: IPV4, 10: IPV6, 24: IPV6, 28: IPV6, 30: IPV6}
_PPP_PROTOCOLS = {0x0021: IPV4, 0x0057: IPV6}
_IP_VERSIONS = {4: IPV4, 6: IPV6}


def _translate(values: Integers, table: dict[int, int]) -> Integers:
    result = np.zeros_like(values)
    for value, ethertype in table.items():
        result[values == value] = ethertype
    return result


def _tags(data: Bytes, layer: Layer, ethertype: Integers) -> Network:
    """Skip stacked VLAN tags. `layer` starts after the ethertype."""
    for _ in range(MAX_TAGS):
        tagged = np.isin(ethertype, VLAN_TAGS)
        if not tagged.any():
            break
        cut = tagged & ~layer.holds(4)
        tagged &= ~cut
        inner = layer.pick(tagged).read(data, _TAG)["type"]
        ethertype = ethertype.copy()
        ethertype[tagged] = inner
        ethertype[cut] = CUT
        layer = layer.skip(np.where(tagged, 4, 0))
    return layer, ethertype


def _by_header(data: Bytes, layer: Layer, layout: np.dtype[np.void]) -> Network:
    """A header of fixed size with an ethertype, maybe followed by VLAN tags."""
    ethertype = np.full(len(layer), CUT, np.int64)
    held = layer.holds(layout.itemsize)
    ethertype[held] = layer.pick(held).read(data, layout)["type"]
    return _tags(data, layer.skip(layout.itemsize), ethertype)


def ethernet(data: Bytes, layer: Layer) -> Network:
    """Ethernet II; a value below 1536 in place of the ethertype is the length of an 802.3 frame."""
    return _by_header(data, layer, _ETHERNET)


def cooked(data: Bytes, layer: Layer) -> Network:
    """Linux cooked capture v1, what the interface `any` gives."""
    return _by_header(data, layer, _COOKED)


def cooked2(data: Bytes, layer: Layer) -> Network:
    """Linux cooked capture v2."""
    return _by_header(data, layer, _COOKED2)


def loopback(data: Bytes, layer: Layer) -> Network:
    """BSD null and loop: an address family in the byte order of the capturing host, or big-endian."""
    ethertype = np.full(len(layer), CUT, np.int64)
    held = layer.holds(4)
    family = number(layer.pick(held).read(data, _FAMILY)["little"])
    swapped = family > 0xFFFF
    family[swapped] = number(family[swapped].astype("<u4").byteswap())
    ethertype[held] = _translate(family, _IP_FAMILIES)
    return layer.skip(4), ethertype


def raw_ip(data: Bytes, layer: Layer) -> Network:
    """IPv4 or IPv6 without a link layer; the version field tells which."""
    ethertype = np.full(len(layer), CUT, np.int64)
    held = layer.holds(1)
    version = number(layer.pick(held).read(data, _BYTE)["byte"]) >> 4
    ethertype[held] = _translate(version, _IP_VERSIONS)
    return layer, ethertype


def ppp(data: Bytes, layer: Layer) -> Network:
    """PPP with or without address and control bytes, and with a protocol field of one or two bytes."""
    layer = _skip_where(data, layer, first=0xFF, second=0x03, size=2)
    ethertype = np.full(len(layer), CUT, np.int64)
    held = layer.holds(2)
    pair = layer.pick(held).read(data, _BYTE_PAIR)
    short = (pair["first"] & 1) == 1
    protocol = np.where(short, number(pair["first"]), number(pair["first"]) << 8 | pair["second"])
    ethertype[held] = _translate(protocol, _PPP_PROTOCOLS)
    size = np.full(len(layer), 2, np.int64)
    size[held] -= short
    return layer.skip(size), ethertype


def _skip_where(data: Bytes, layer: Layer, first: int, second: int, size: int) -> Layer:
    held = layer.holds(2)
    pair = layer.pick(held).read(data, _BYTE_PAIR)
    step = np.zeros(len(layer), np.int64)
    step[held] = np.where((pair["first"] == first) & (pair["second"] == second), size, 0)
    return layer.skip(step)


LINK_LAYERS: dict[int, Callable[[Bytes, Layer], Network]] = {
    0: loopback,
    1: ethernet,
    9: ppp,
    12: raw_ip,
    14: raw_ip,
    101: raw_ip,
    108: loopback,
    113: cooked,
    228: raw_ip,
    229: raw_ip,
    276: cooked2,
}
"""What can be dissected column-wise, by LINKTYPE_ value (12 and 14 are raw IP of some BSDs' files)."""
