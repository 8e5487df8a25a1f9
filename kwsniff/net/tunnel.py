"""Tunnels that are opened in place: VXLAN, VXLAN-GPE, Geneve, GRE, ERSPAN, MPLS in UDP and IP in IP.

Facts: RFC 7348 (VXLAN; port 8472 is what Linux took before the port was assigned),
draft-ietf-nvo3-vxlan-gpe-13 (VXLAN-GPE), RFC 8926 (Geneve), RFC 2784 and RFC 2890 (GRE),
draft-foschiano-erspan-03 (ERSPAN), RFC 7510 (MPLS in UDP), RFC 2003 and RFC 2473 (IP in IP).
"""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import byte, kernel, uint16
from kwsniff.net.inout import GO_ON, NON_TCP
from kwsniff.net.link import ETHERNET_BRIDGED, IPV4, IPV6, MPLS, read_version

UDP, IPIP, IPV6_IN_IP, GRE = 17, 4, 41, 47
VXLAN_PORT, LINUX_VXLAN_PORT, VXLAN_GPE_PORT, GENEVE_PORT, MPLS_PORT = 4789, 8472, 4790, 6081, 6635
OVER_UDP = 16
"""Bytes of a UDP header and of the header behind it."""

_GPE_INSTANCE, _GPE_NEXT, _GPE_VERSION, _GPE_OAM = 0x08, 0x04, 0x30, 0x01
_GRE_CHECKSUM, _GRE_KEY, _GRE_SEQUENCE, _GRE_ROUTING, _GRE_VERSION = 0x8000, 0x2000, 0x1000, 0x4000, 7
_ERSPAN, _ERSPAN3 = 0x88BE, 0x22EB
_ERSPAN3_SUBHEADER = 0x0001
"""The O bit: 8 bytes of a platform's own follow the header."""
_ERSPAN3_FRAME, _ERSPAN3_IP = 0x7C00, 2 << 10
"""The frame type (FT), and its value where an IP packet follows instead of an Ethernet frame."""


@kernel
def open_tunnel(t: Any, p: Any) -> int:
    """Step over the header of a tunnel, and set the ethertype of what it carries."""
    code = NON_TCP
    if p.protocol == IPIP:
        p.ethertype, code = IPV4, GO_ON
    elif p.protocol == IPV6_IN_IP:
        p.ethertype, code = IPV6, GO_ON
    elif p.protocol == UDP and p.at + OVER_UDP <= p.end:
        code = over_udp(t, p)
    elif p.protocol == GRE and p.at + 4 <= p.end:
        code = open_gre(t, p)
    p.depth += 1
    return code


@kernel
def over_udp(t: Any, p: Any) -> int:
    """All are known by their port."""
    port = uint16(t.data, p.at + 2)
    if port in (VXLAN_PORT, LINUX_VXLAN_PORT):
        if byte(t.data, p.at + 8) & 8 == 0:
            return NON_TCP
        p.ethertype = ETHERNET_BRIDGED
        p.at += OVER_UDP
        return GO_ON
    if port == VXLAN_GPE_PORT:
        return open_vxlan_gpe(t, p)
    if port == GENEVE_PORT:
        return open_geneve(t, p)
    if port == MPLS_PORT:
        p.ethertype = MPLS
        p.at += OVER_UDP // 2
        return GO_ON
    return NON_TCP


@kernel
def open_vxlan_gpe(t: Any, p: Any) -> int:
    """Without the P bit, which says that a protocol is named, it is plain VXLAN. What is there for operation
    and maintenance carries nobody's data."""
    flags = byte(t.data, p.at + 8)
    if flags & (_GPE_INSTANCE | _GPE_VERSION | _GPE_OAM) != _GPE_INSTANCE:
        return NON_TCP
    named = byte(t.data, p.at + 11) if flags & _GPE_NEXT else 3
    if named < 1 or named > 3:
        return NON_TCP
    p.ethertype = IPV4 if named == 1 else IPV6 if named == 2 else ETHERNET_BRIDGED
    p.at += OVER_UDP
    return GO_ON


@kernel
def open_geneve(t: Any, p: Any) -> int:
    """Version 0, with options."""
    first = byte(t.data, p.at + 8)
    if first >> 6 != 0:
        return NON_TCP
    p.ethertype = uint16(t.data, p.at + 10)
    p.at += OVER_UDP + (first & 0x3F) * 4
    return GO_ON


@kernel
def open_gre(t: Any, p: Any) -> int:
    """Version 0 without routing, and ERSPAN I to III inside."""
    flags, kind = uint16(t.data, p.at), uint16(t.data, p.at + 2)
    if flags & (_GRE_VERSION | _GRE_ROUTING):
        return NON_TCP
    size = 4
    if flags & _GRE_CHECKSUM:
        size += 4
    if flags & _GRE_KEY:
        size += 4
    if flags & _GRE_SEQUENCE:
        size += 4
    if kind == _ERSPAN and flags & _GRE_SEQUENCE:
        size += 8
    p.at += size
    p.ethertype = ETHERNET_BRIDGED if kind == _ERSPAN else kind
    if kind == _ERSPAN3:
        skip_erspan3(t, p)
    return GO_ON


@kernel
def skip_erspan3(t: Any, p: Any) -> None:
    """Step over the header of ERSPAN III, with its subheader."""
    what = uint16(t.data, p.at + 10) if p.at + 12 <= p.end else 0
    p.at += 20 if what & _ERSPAN3_SUBHEADER else 12
    p.ethertype = ETHERNET_BRIDGED
    if what & _ERSPAN3_FRAME == _ERSPAN3_IP:
        read_version(t, p)
