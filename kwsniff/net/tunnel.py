"""Tunnels that are opened in place: VXLAN, VXLAN-GPE, Geneve, GRE, ERSPAN and IP in IP.

Facts: RFC 7348 (VXLAN; port 8472 is what Linux took before the port was assigned),
draft-ietf-nvo3-vxlan-gpe-13 (VXLAN-GPE), RFC 8926 (Geneve), RFC 2784 and RFC 2890 (GRE),
draft-foschiano-erspan-03 (ERSPAN), RFC 2003 and RFC 2473 (IP in IP).
"""

from __future__ import annotations

import numpy as np

from kwsniff.net.ip import Datagrams
from kwsniff.net.layer import Layer
from kwsniff.net.link import ETHERNET_BRIDGED, IPV4, IPV6, Network, raw_ip
from kwsniff.net.packets import Bytes, Integers, Mask, number

UDP, IPIP, IPV6_IN_IP, GRE = 17, 4, 41, 47
VXLAN_PORTS, VXLAN_GPE_PORT, GENEVE_PORT = (4789, 8472), 4790, 6081

_UDP = np.dtype([("src", ">u2"), ("dst", ">u2"), ("length", ">u2"), ("checksum", ">u2"), ("next", "V8")])
_VXLAN = np.dtype([("udp", "V8"), ("flags", "u1"), ("rest", "V7")])
_VXLAN_GPE = np.dtype([("udp", "V8"), ("flags", "u1"), ("reserved", "V2"), ("next", "u1"), ("rest", "V4")])
_GPE_INSTANCE, _GPE_NEXT, _GPE_VERSION, _GPE_OAM = 0x08, 0x04, 0x30, 0x01
_GPE_PROTOCOLS = {1: IPV4, 2: IPV6, 3: ETHERNET_BRIDGED}
_GENEVE = np.dtype([("udp", "V8"), ("version_size", "u1"), ("flags", "u1"), ("type", ">u2"), ("vni", "V4")])
_GRE = np.dtype([("flags", ">u2"), ("type", ">u2")])

_GRE_CHECKSUM, _GRE_KEY, _GRE_SEQUENCE, _GRE_ROUTING, _GRE_VERSION = 0x8000, 0x2000, 0x1000, 0x4000, 7
_ERSPAN, _ERSPAN3 = 0x88BE, 0x22EB
_ERSPAN3_HEADER = np.dtype([("start", "V10"), ("what", ">u2")])
_ERSPAN3_SUBHEADER = 0x0001
"""The O bit: 8 bytes of a platform's own follow the header."""
_ERSPAN3_FRAME, _ERSPAN3_IP = 0x7C00, 2 << 10
"""The frame type (FT), and its value where an IP packet follows instead of an Ethernet frame."""


def opened(data: Bytes, datagrams: Datagrams) -> tuple[Mask, Layer, Integers]:
    """Which datagrams are tunnels, and for these what they carry with its ethertype.

    The layers are in another order than the datagrams: grouped by kind of tunnel.
    """
    is_tunnel = np.zeros(len(datagrams), np.bool_)
    layers: list[Layer] = []
    types: list[Integers] = []
    for open_ in (_ip_in_ip, _over_udp, _gre):
        for which, (layer, ethertype) in open_(data, datagrams):
            is_tunnel |= which
            layers.append(layer)
            types.append(ethertype)
    return is_tunnel, _joined(layers), np.concatenate([*types, np.empty(0, np.int64)])


def _joined(layers: list[Layer]) -> Layer:
    empty = [np.empty(0, np.int64)]
    return Layer(
        np.concatenate([layer.row for layer in layers] or empty),
        np.concatenate([layer.at for layer in layers] or empty),
        np.concatenate([layer.end for layer in layers] or empty),
        np.concatenate([layer.wire for layer in layers] or empty),
    )


def _ip_in_ip(data: Bytes, datagrams: Datagrams) -> list[tuple[Mask, Network]]:
    found: list[tuple[Mask, Network]] = []
    for protocol, ethertype in ((IPIP, IPV4), (IPV6_IN_IP, IPV6)):
        which = datagrams.protocol == protocol
        if which.any():
            layer = datagrams.layer.pick(which)
            found.append((which, (layer, np.full(len(layer), ethertype, np.int64))))
    return found


def _over_udp(data: Bytes, datagrams: Datagrams) -> list[tuple[Mask, Network]]:
    which = (datagrams.protocol == UDP) & datagrams.layer.holds(_UDP.itemsize)
    if not which.any():
        return []
    port = np.zeros(len(datagrams), np.int64)
    port[which] = datagrams.layer.pick(which).read(data, _UDP)["dst"]
    found = [_vxlan(data, datagrams.layer, np.isin(port, VXLAN_PORTS))]
    found.append(_vxlan_gpe(data, datagrams.layer, port == VXLAN_GPE_PORT))
    found.append(_geneve(data, datagrams.layer, port == GENEVE_PORT))
    return [each for each in found if each[0].any()]


def _vxlan(data: Bytes, layer: Layer, which: Mask) -> tuple[Mask, Network]:
    which = which.copy()
    which[which] = layer.pick(which).read(data, _VXLAN)["flags"] & 8 != 0
    inner = layer.pick(which).skip(_VXLAN.itemsize)
    return which, (inner, np.full(len(inner), ETHERNET_BRIDGED, np.int64))


def _vxlan_gpe(data: Bytes, layer: Layer, which: Mask) -> tuple[Mask, Network]:
    """Without the P bit, which says that a protocol is named, it is plain VXLAN. What is there for
    operation and maintenance carries nobody's data."""
    which = which.copy()
    header = layer.pick(which).read(data, _VXLAN_GPE)
    valid = header["flags"] & (_GPE_INSTANCE | _GPE_VERSION | _GPE_OAM) == _GPE_INSTANCE
    named = np.where(header["flags"] & _GPE_NEXT, number(header["next"]), 3)
    valid &= np.isin(named, list(_GPE_PROTOCOLS))
    which[which] = valid
    return which, (layer.pick(which).skip(_VXLAN_GPE.itemsize), _translated(named[valid]))


def _translated(protocols: Integers) -> Integers:
    ethertype = np.zeros_like(protocols)
    for protocol, meaning in _GPE_PROTOCOLS.items():
        ethertype[protocols == protocol] = meaning
    return ethertype


def _geneve(data: Bytes, layer: Layer, which: Mask) -> tuple[Mask, Network]:
    which = which.copy()
    header = layer.pick(which).read(data, _GENEVE)
    version0 = header["version_size"] >> 6 == 0
    which[which] = version0
    header = header[version0]
    size = _GENEVE.itemsize + (number(header["version_size"]) & 0x3F) * 4
    return which, (layer.pick(which).skip(size), number(header["type"]))


def _gre(data: Bytes, datagrams: Datagrams) -> list[tuple[Mask, Network]]:
    which = (datagrams.protocol == GRE) & datagrams.layer.holds(_GRE.itemsize)
    if not which.any():
        return []
    header = datagrams.layer.pick(which).read(data, _GRE)
    plain = header["flags"] & (_GRE_VERSION | _GRE_ROUTING) == 0
    which[which] = plain
    layer, header = datagrams.layer.pick(which), header[plain]
    flags, ethertype = number(header["flags"]), number(header["type"])
    size = np.full(len(layer), 4, np.int64)
    for flag in (_GRE_CHECKSUM, _GRE_KEY, _GRE_SEQUENCE):
        size += np.where(flags & flag, 4, 0)
    size[(ethertype == _ERSPAN) & (flags & _GRE_SEQUENCE != 0)] += 8
    bridged = np.isin(ethertype, (_ERSPAN, _ERSPAN3))
    third = ethertype == _ERSPAN3
    ethertype[bridged] = ETHERNET_BRIDGED
    if third.any():
        more, ethertype[third] = _erspan3(data, layer.skip(size).pick(third))
        size[third] += more
    return [(which, (layer.skip(size), ethertype))]


def _erspan3(data: Bytes, layer: Layer) -> tuple[Integers, Integers]:
    """Bytes of each header, with its subheader, and the ethertype of what follows."""
    size = np.full(len(layer), _ERSPAN3_HEADER.itemsize, np.int64)
    ip = np.zeros(len(layer), np.bool_)
    held = layer.holds(_ERSPAN3_HEADER.itemsize)
    what = number(layer.pick(held).read(data, _ERSPAN3_HEADER)["what"])
    size[held] += np.where(what & _ERSPAN3_SUBHEADER, 8, 0)
    ip[held] = what & _ERSPAN3_FRAME == _ERSPAN3_IP
    return size, np.where(ip, raw_ip(data, layer.skip(size))[1], ETHERNET_BRIDGED)
