"""IPv4 and IPv6 headers (RFC 791, RFC 8200).

Addresses are two numbers that together hold the IPv6 address; IPv4 addresses are IPv4-mapped.
"""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import byte, int64_at, kernel, uint16, uint32
from kwsniff.net.inout import BAD_EXTENSION, BAD_IPV4, BAD_IPV6, CUT, FRAGMENT, GO_ON, MAX_DEPTH, TOO_DEEP
from kwsniff.net.link import IPV4

MAPPED = 0xFFFF_0000_0000
"""Lower half of an IPv4-mapped address without the IPv4 address (RFC 4291, 2.5.5.2)."""
FRAGMENT_HEADER, AUTHENTICATION = 44, 51


@kernel
def enter_ip(t: Any, p: Any) -> int:
    """Step over the IP header at hand and the extension headers behind it."""
    code = read_ipv4(t, p) if p.ethertype == IPV4 else read_ipv6(t, p)
    while code == GO_ON:
        if p.depth > MAX_DEPTH:
            return TOO_DEEP
        if p.fragment != 0:
            return FRAGMENT
        if not is_extension(p.protocol):
            return GO_ON
        code = skip_extension(t, p)
        p.depth += 1
    return code


@kernel
def lacking(p: Any, size: int, bad: int) -> int:
    """GO_ON if a header of `size` bytes was captured; else whether the capture cut it, or nobody sent it."""
    if p.at + size <= p.end:
        return GO_ON
    return bad if p.at + size > p.wire else CUT


@kernel
def ends_at(p: Any, wire: int) -> None:
    """What a length field says is where the packet ends: beyond it is padding of the link layer."""
    p.wire = wire
    p.end = min(p.end, wire)


@kernel
def read_ipv4(t: Any, p: Any) -> int:
    """A total length of 0 is what a sender's capture shows when the network card cuts the segments (TSO): the
    length of the frame counts then."""
    code = lacking(p, 20, BAD_IPV4)
    if code != GO_ON:
        return code
    at = p.at
    first = byte(t.data, at)
    size = (first & 15) * 4
    length = uint16(t.data, at + 2)
    wire = at + length if length else p.wire
    if first >> 4 != 4 or size < 20 or at + size > wire:
        return BAD_IPV4
    fragment = uint16(t.data, at + 6)
    p.fragment = (fragment & 0x1FFF) * 8 + (fragment >> 13 & 1)
    p.ident = uint16(t.data, at + 4)
    p.protocol = byte(t.data, at + 9)
    p.src_hi = p.dst_hi = 0
    p.src_lo = uint32(t.data, at + 12) | MAPPED
    p.dst_lo = uint32(t.data, at + 16) | MAPPED
    ends_at(p, wire)
    p.at += size
    return GO_ON


@kernel
def read_ipv6(t: Any, p: Any) -> int:
    """A payload length of 0 is a jumbogram, or as in `read_ipv4`."""
    code = lacking(p, 40, BAD_IPV6)
    if code != GO_ON:
        return code
    at = p.at
    if byte(t.data, at) >> 4 != 6:
        return BAD_IPV6
    length = uint16(t.data, at + 4)
    p.protocol = byte(t.data, at + 6)
    p.src_hi, p.src_lo = int64_at(t.data, at + 8), int64_at(t.data, at + 16)
    p.dst_hi, p.dst_lo = int64_at(t.data, at + 24), int64_at(t.data, at + 32)
    p.fragment = p.ident = 0
    ends_at(p, at + 40 + length if length else p.wire)
    p.at += 40
    return GO_ON


@kernel
def is_extension(protocol: int) -> bool:
    """Whether this is an extension header of IPv6, or the authentication header that IPv4 can have, too."""
    return protocol in (0, 43, FRAGMENT_HEADER, AUTHENTICATION, 60, 135, 139, 140)


@kernel
def skip_extension(t: Any, p: Any) -> int:
    """Step over one extension header.

    All begin with the next protocol and their size in units of 8 bytes after the first 8, but for the
    authentication header (units of 4 after the first 8, RFC 4302) and the fragment header (always 8).
    """
    code = lacking(p, 8, BAD_EXTENSION)
    if code != GO_ON:
        return code
    units = byte(t.data, p.at + 1)
    size = (units + 1) * 8
    p.ident = 0
    if p.protocol == AUTHENTICATION:
        size = (units + 2) * 4
    elif p.protocol == FRAGMENT_HEADER:
        size = 8
        field = uint16(t.data, p.at + 2)
        p.fragment = (field & 0xFFF8) | (field & 1)
        p.ident = uint32(t.data, p.at + 4)
    p.protocol = byte(t.data, p.at)
    p.at += size
    return GO_ON
