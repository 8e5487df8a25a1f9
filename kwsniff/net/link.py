"""Link layers: from the start of a frame to the start of its network layer.

Facts: https://www.tcpdump.org/linktypes.html (LINKTYPE_ values and header layouts), IEEE 802.1Q (tags),
RFC 1661 and RFC 1662 (PPP), RFC 2516 (PPPoE), RFC 1042 (LLC and SNAP), RFC 3032 and RFC 4385 (MPLS labels,
and what lies below them), IEEE 802.11 (data frames), https://www.radiotap.org.
"""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import byte, kernel, uint16, uint32
from kwsniff.net.inout import BAD_LINK, CUT, GO_ON, MAX_DEPTH, NON_IP, ODD_LINK, TOO_DEEP

IPV4, IPV6 = 0x0800, 0x86DD
ETHERNET_BRIDGED = 0x6558
MPLS, MPLS_UPSTREAM, PPPOE = 0x8847, 0x8848, 0x8864
LLC = 4
"""In place of an ethertype: a header of IEEE 802.2 follows, as Linux cooked captures name it."""
LENGTHS = 1536
"""Below it what stands in place of an ethertype is a frame's length, and LLC follows."""
MAX_TAGS = 8
MAX_LABELS = 32
"""MPLS labels on one another; routers push a dozen at most."""
ETHERNET, PPP, PPP_HDLC, PPP_OVER_ETHERNET, COOKED, COOKED2, PPP_DIRECTION = 1, 9, 50, 51, 113, 276, 204
WIFI, PRISM, RADIOTAP, PREAMBLE = 105, 119, 127, 274
NO_TYPE = -1
"""In place of an ethertype: the frame ends before it."""


@kernel
def enter_link(t: Any, p: Any) -> int:
    """Find the network layer in the link layer at hand, which is of type `link`."""
    if p.depth > MAX_DEPTH:
        return TOO_DEEP
    if p.link == PREAMBLE:
        p.at += 8
    if p.link == PPP_DIRECTION:
        p.at += 1
    if p.link == ETHERNET or p.link == PREAMBLE:
        read_type(t, p, 14)
    elif p.link == COOKED:
        read_type(t, p, 16)
    elif p.link == COOKED2:
        read_first_type(t, p)
    elif p.link == 0 or p.link == 108:
        read_family(t, p)
    elif p.link == 12 or p.link == 14 or p.link == 101 or p.link == 228 or p.link == 229:
        read_version(t, p)
    elif p.link == PPP or p.link == PPP_HDLC or p.link == PPP_DIRECTION:
        read_ppp(t, p)
    elif p.link == PPP_OVER_ETHERNET:
        p.ethertype = PPPOE
    elif p.link == WIFI or p.link == PRISM or p.link == RADIOTAP:
        read_wifi(t, p)
    else:
        return ODD_LINK
    return GO_ON


@kernel
def read_type(t: Any, p: Any, size: int) -> None:
    """Ethernet II, and Linux cooked capture v1, what the interface `any` gives: a header of fixed size that
    ends with an ethertype."""
    held = p.at + size <= p.end
    p.at += size
    p.ethertype = uint16(t.data, p.at - 2) if held else NO_TYPE
    skip_tags(t, p)


@kernel
def read_first_type(t: Any, p: Any) -> None:
    """Linux cooked capture v2, which begins with the ethertype."""
    held = p.at + 20 <= p.end
    p.ethertype = uint16(t.data, p.at) if held else NO_TYPE
    p.at += 20
    skip_tags(t, p)


@kernel
def skip_tags(t: Any, p: Any) -> None:
    """Step over stacked VLAN tags."""
    for _ in range(MAX_TAGS):
        if not is_tag(p.ethertype):
            return
        if p.at + 4 > p.end:
            p.ethertype = NO_TYPE
            return
        p.ethertype = uint16(t.data, p.at + 2)
        p.at += 4


@kernel
def read_family(t: Any, p: Any) -> None:
    """BSD null and loop: an address family in the byte order of the capturing host, or big-endian."""
    p.ethertype = NO_TYPE
    if p.at + 4 <= p.end:
        family = uint32(t.data, p.at)
        if uint16(t.data, p.at + 2) == 0:
            family = byte(t.data, p.at) | byte(t.data, p.at + 1) << 8
        p.ethertype = 0
        if family == 2:
            p.ethertype = IPV4
        elif family == 10 or family == 24 or family == 28 or family == 30:
            p.ethertype = IPV6
    p.at += 4


@kernel
def read_version(t: Any, p: Any) -> None:
    """IPv4 or IPv6 without a link layer; the version field tells which."""
    p.ethertype = NO_TYPE
    if p.at + 1 <= p.end:
        version = byte(t.data, p.at) >> 4
        p.ethertype = IPV4 if version == 4 else IPV6 if version == 6 else 0


@kernel
def read_ppp(t: Any, p: Any) -> None:
    """PPP with or without address and control bytes, and with a protocol field of one or two bytes."""
    if p.at + 2 <= p.end and uint16(t.data, p.at) == 0xFF03:
        p.at += 2
    p.ethertype = NO_TYPE
    size = 2
    if p.at + 2 <= p.end:
        protocol = uint16(t.data, p.at)
        if protocol & 0x0100:
            protocol, size = protocol >> 8, 1
        p.ethertype = 0
        if protocol == 0x0021:
            p.ethertype = IPV4
        elif protocol == 0x0057:
            p.ethertype = IPV6
        elif protocol == 0x0281:
            p.ethertype = MPLS
    p.at += size


@kernel
def read_wifi(t: Any, p: Any) -> None:
    """A data frame of IEEE 802.11, behind what the receiver says of its reception. What is encrypted or holds
    several frames (A-MSDU), is not opened."""
    if p.link == RADIOTAP:
        p.at += byte(t.data, p.at + 2) | byte(t.data, p.at + 3) << 8 if p.at + 4 <= p.end else 4
    elif p.link == PRISM:
        p.at += 144
    p.ethertype = NO_TYPE
    size = 24
    if p.at + size <= p.end:
        kind, flags = byte(t.data, p.at), byte(t.data, p.at + 1)
        quality = kind & 0x80
        if flags & 3 == 3:
            size += 6  # between two access points: a fourth address
        several = quality and p.at + size < p.end and byte(t.data, p.at + size) & 0x80
        if quality:
            size += 6 if flags & 0x80 else 2
        p.ethertype = 0 if kind & 0x4C != 0x08 or flags & 0x40 or several else LLC
    p.at += size


@kernel
def enter_network(t: Any, p: Any) -> int:
    """GO_ON at an IP header, past what is bridged, labelled or encapsulated otherwise on the way to it."""
    code = GO_ON
    while code == GO_ON and p.ethertype != IPV4 and p.ethertype != IPV6:
        p.depth += 1
        code = TOO_DEEP if p.depth > MAX_DEPTH else step_inside(t, p)
    return code


@kernel
def step_inside(t: Any, p: Any) -> int:
    """Step over one header that is neither of a link layer nor of IP."""
    kind = p.ethertype
    if kind == NO_TYPE:
        return BAD_LINK if p.at > p.wire else CUT
    if kind == ETHERNET_BRIDGED:
        p.link = ETHERNET
        return enter_link(t, p)
    if kind in (MPLS, MPLS_UPSTREAM):
        return skip_labels(t, p)
    if kind == PPPOE:
        read_pppoe(t, p)
    elif 0 < kind < LENGTHS:
        read_snap(t, p)
    else:
        return NON_IP
    return GO_ON


@kernel
def skip_labels(t: Any, p: Any) -> int:
    """Step over a stack of MPLS labels. Nothing says what lies below it: by its first four bits IP, or the
    network's own maintenance (1), or else Ethernet, before which a control word may stand."""
    for _ in range(MAX_LABELS):
        bottom = p.at + 4 <= p.end and byte(t.data, p.at + 2) & 1
        p.at += 4
        if bottom or p.at > p.end:
            break
    else:
        return TOO_DEEP
    read_version(t, p)
    if p.ethertype == 0:
        first = byte(t.data, p.at) >> 4
        if first == 0 and p.at + 18 <= p.end and is_known(uint16(t.data, p.at + 16)):
            p.at += 4
        p.ethertype = 0 if first == 1 else ETHERNET_BRIDGED
    return GO_ON


@kernel
def is_known(kind: int) -> bool:
    """Whether this is the ethertype of IP or of a tag."""
    return kind in (IPV4, IPV6) or is_tag(kind)


@kernel
def is_tag(kind: int) -> bool:
    """Whether this is the ethertype of a VLAN tag."""
    return kind in (0x8100, 0x88A8, 0x9100, 0x9200)


@kernel
def read_pppoe(t: Any, p: Any) -> None:
    """A session of PPP over Ethernet; what else its header may begin belongs to finding the other end."""
    p.ethertype = NO_TYPE
    held = p.at + 6 <= p.end
    session = held and uint16(t.data, p.at) == 0x1100
    p.at += 6
    if session:
        read_ppp(t, p)
    elif held:
        p.ethertype = 0


@kernel
def read_snap(t: Any, p: Any) -> None:
    """LLC, which says where it carries no SNAP that there is no IP further in, and SNAP with an ethertype."""
    p.ethertype = NO_TYPE
    if p.at + 2 <= p.end and uint16(t.data, p.at) != 0xAAAA:
        p.ethertype = 0
    elif p.at + 8 <= p.end:
        p.ethertype = uint16(t.data, p.at + 6) if uint32(t.data, p.at + 2) == 0x03000000 else 0
    p.at += 8
    skip_tags(t, p)
