"""The way of a packet through the headers of all layers, and the one function that is called from outside."""

from __future__ import annotations

from typing import Any

from kwsniff.native.mode import byte, kernel, uintp
from kwsniff.net.copies import find_copies
from kwsniff.net.inout import FRAGMENT, GO_ON, SEGMENT, write_views
from kwsniff.net.ip import enter_ip
from kwsniff.net.link import enter_link, enter_network
from kwsniff.net.tcp import PROTOCOL, write_segment
from kwsniff.net.tunnel import open_tunnel

DISSECT, FOLLOW_RECORDS, FIND_COPIES = range(3)
VIEW = 8
"""What to do. VIEW: and the index of the buffer above it."""


@kernel
def read(t: Any, what: int, how: int) -> int:
    """Do something with the tables of `kwsniff.net.inout`."""
    if what == DISSECT:
        return dissect(t, how)
    if what == FOLLOW_RECORDS:
        return follow_records(t)
    if what == FIND_COPIES:
        return find_copies(t, how, t.chain[0].count)
    return write_views(t, how, what - VIEW)


@kernel
def dissect(t: Any, count: int) -> int:
    """Find the segments of the first `count` packets; returns how many there are."""
    p = t.packet[0]
    found = slow = 0
    for row in range(count):
        at = uintp(row)
        p.row = row
        p.at, p.end, p.wire, p.link = t.first[at], t.last[at], t.last_on_wire[at], t.linktype[at]
        p.depth = p.fragment = 0
        verdict = through(t, p, found)
        t.verdict[at] = verdict
        if verdict == SEGMENT:
            found += 1
        elif verdict == FRAGMENT:
            put_fragment(t, p, slow)
            slow += 1
    return found


@kernel
def through(t: Any, p: Any, found: int) -> int:
    """The verdict on the packet at hand."""
    code = enter_link(t, p)
    while code == GO_ON:
        code = enter_network(t, p)
        if code == GO_ON:
            code = enter_ip(t, p)
        if code == GO_ON:
            code = write_segment(t, p, found) if p.protocol == PROTOCOL else open_tunnel(t, p)
    return code


@kernel
def put_fragment(t: Any, p: Any, number: int) -> None:
    """Keep what is known of a fragment."""
    row = t.slow[uintp(number)]
    row.row, row.at, row.end, row.wire = p.row, p.at, p.end, p.wire
    row.protocol, row.fragment, row.ident = p.protocol, p.fragment, p.ident
    row.src_hi, row.src_lo, row.dst_hi, row.dst_lo = p.src_hi, p.src_lo, p.dst_hi, p.dst_lo


@kernel
def follow_records(t: Any) -> int:
    """Follow the chain of pcap records: write where complete ones begin, and leave `chain` where it goes on.

    The captured length is the third field of a record's header, of whichever byte order.
    """
    chain = t.chain[0]
    at, end, header = chain.at, chain.end, chain.header
    count = before = 0
    while at + header <= end:
        t.starts[uintp(count)] = before = at
        count += 1
        length = 0
        for index in range(4):
            length = length << 8 | byte(t.data, at + 8 + (index if chain.big else 3 - index))
        at += length + header
    if count and at > end:
        count, at = count - 1, before
    chain.at, chain.count = at, count
    return count
