"""Link layers: from the start of a frame to the start of its network layer.

Facts: https://www.tcpdump.org/linktypes.html (LINKTYPE_ values and header layouts), IEEE 802.1Q (tags),
RFC 1661 and RFC 1662 (PPP).
"""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import kernel
from kwsniff.native.numbers import byte, uint16, uint32
from kwsniff.net.tables import BAD_LINK, CUT, GO_ON, MAX_DEPTH, NON_IP, ODD_LINK, PEEL, TOO_DEEP

IPV4, IPV6 = 0x0800, 0x86DD
ETHERNET_BRIDGED = 0x6558
MAX_TAGS = 8
ETHERNET, PPP, COOKED, COOKED2 = 1, 9, 113, 276
NO_TYPE = -1
"""In place of an ethertype: the frame ends before it."""


@kernel
def enter_link(t: Any, p: Any) -> int:
    """Find the network layer in the link layer at hand, which is of type `link`."""
    if p.depth > MAX_DEPTH:
        return TOO_DEEP
    p.frame = p.at
    if p.link == ETHERNET:
        read_type(t, p, 14)
    elif p.link == COOKED:
        read_type(t, p, 16)
    elif p.link == COOKED2:
        read_first_type(t, p)
    elif p.link == 0 or p.link == 108:
        read_family(t, p)
    elif p.link == 12 or p.link == 14 or p.link == 101 or p.link == 228 or p.link == 229:
        read_version(t, p)
    elif p.link == PPP:
        read_ppp(t, p)
    else:
        return ODD_LINK
    if p.ethertype == NO_TYPE:
        return BAD_LINK if p.at > p.wire else CUT
    if is_peeled(p.ethertype):
        return PEEL
    return GO_ON


@kernel
def is_peeled(ethertype: int) -> bool:
    """Whether there is an IP packet further in: MPLS, PPPoE sessions, 802.3 frames (their length stands in
    place of the ethertype)."""
    return ethertype == 0x8847 or ethertype == 0x8848 or ethertype == 0x8864 or 0 < ethertype < 1536


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
        kind = p.ethertype
        if kind != 0x8100 and kind != 0x88A8 and kind != 0x9100 and kind != 0x9200:
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
        p.ethertype = IPV4 if protocol == 0x0021 else IPV6 if protocol == 0x0057 else 0
    p.at += size


@kernel
def enter_network(t: Any, p: Any) -> int:
    """GO_ON if the network layer is IP, after a look into what is bridged."""
    if p.ethertype == ETHERNET_BRIDGED:
        p.depth += 1
        p.link = ETHERNET
        code = enter_link(t, p)
        if code != GO_ON:
            return code
    if p.ethertype == NO_TYPE:
        return BAD_LINK if p.at > p.wire else CUT
    return GO_ON if p.ethertype == IPV4 or p.ethertype == IPV6 else NON_IP
