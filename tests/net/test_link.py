"""Link layers. The headers are written by hand from https://www.tcpdump.org/linktypes.html."""

from __future__ import annotations

import pytest
from netblock import ETHERNET4, ETHERNET6, ROW4, ROW6, SEGMENT, dissect, ipv4, ipv6

MACS = bytes.fromhex("020000000001 020000000002")

V4 = {
    "Ethernet": (1, ETHERNET4),
    "one VLAN tag": (1, MACS + bytes.fromhex("8100 0064 0800")),
    "QinQ": (1, MACS + bytes.fromhex("88a8 0064 8100 00c8 0800")),
    "old QinQ": (1, MACS + bytes.fromhex("9100 0064 8100 00c8 0800")),
    "three tags": (1, MACS + bytes.fromhex("8100 0001 8100 0002 8100 0003 0800")),
    "cooked": (113, bytes.fromhex("0000 0001 0006 020000000001 0000 0800")),
    "cooked with a VLAN tag": (113, bytes.fromhex("0000 0001 0006 020000000001 0000 8100 0064 0800")),
    "cooked v2": (276, bytes.fromhex("0800 0000 00000003 0001 00 06 020000000001 0000")),
    "null, little-endian host": (0, bytes.fromhex("02000000")),
    "null, big-endian host": (0, bytes.fromhex("00000002")),
    "loop": (108, bytes.fromhex("00000002")),
    "raw 12": (12, b""),
    "raw 14": (14, b""),
    "raw 101": (101, b""),
    "raw IPv4": (228, b""),
    "PPP": (9, bytes.fromhex("ff03 0021")),
    "PPP without address and control": (9, bytes.fromhex("0021")),
    "PPP with a compressed protocol field": (9, bytes.fromhex("21")),
}
V6 = {
    "Ethernet": (1, ETHERNET6),
    "VLAN": (1, MACS + bytes.fromhex("8100 0064 86dd")),
    "cooked": (113, bytes.fromhex("0000 0001 0006 020000000001 0000 86dd")),
    "cooked v2": (276, bytes.fromhex("86dd 0000 00000003 0001 00 06 020000000001 0000")),
    "null, Linux": (0, bytes.fromhex("0a000000")),
    "null, NetBSD": (0, bytes.fromhex("18000000")),
    "null, FreeBSD": (0, bytes.fromhex("1c000000")),
    "null, macOS": (0, bytes.fromhex("1e000000")),
    "loop, macOS": (108, bytes.fromhex("0000001e")),
    "raw": (101, b""),
    "raw IPv6": (229, b""),
    "PPP": (9, bytes.fromhex("ff03 0057")),
}


@pytest.mark.parametrize("kind", V4)
def test_ipv4_is_found_behind_a_link_layer(kind):
    linktype, header = V4[kind]
    assert dissect([header + ipv4(SEGMENT)], linktype)[:2] == ([ROW4], [])


@pytest.mark.parametrize("kind", V6)
def test_ipv6_is_found_behind_a_link_layer(kind):
    linktype, header = V6[kind]
    assert dissect([header + ipv6(SEGMENT)], linktype)[:2] == ([ROW6], [])


@pytest.mark.parametrize("family", ["02000100", "01000002", "00020000", "00000000"])
def test_an_address_family_is_read_whole(family):
    rows, notes, totals = dissect([bytes.fromhex(family) + ipv4(SEGMENT)], 0)
    assert (rows, notes, totals.non_ip) == ([], [], 1)


def test_link_types_and_ip_versions_mix_in_one_block_and_rows_keep_packet_order():
    kinds = [*V6.values(), *V4.values(), *V6.values()]
    frames = [
        header + (ipv6 if index < len(V6) or index >= len(V6) + len(V4) else ipv4)(SEGMENT)
        for index, (_, header) in enumerate(kinds)
    ]
    rows, notes, _ = dissect(frames, [linktype for linktype, _ in kinds])
    assert [row.packet for row in rows] == list(range(1, len(kinds) + 1))
    assert {row._replace(packet=1) for row in rows} == {ROW4, ROW6}
    assert notes == []


def test_what_is_no_ip_is_counted_and_gives_no_row():
    arp = MACS + bytes.fromhex("0806") + bytes(28)
    rows, notes, totals = dissect([arp, ETHERNET4 + ipv4(SEGMENT), arp])
    assert [row.packet for row in rows] == [2]
    assert notes == []
    assert (totals.packets, totals.non_ip, totals.segments) == (3, 2, 1)


def test_a_frame_of_8023_with_a_length_is_no_ip():
    spanning_tree = MACS + bytes.fromhex("0026 424203") + bytes(35)
    assert dissect([spanning_tree])[2].non_ip == 1


@pytest.mark.parametrize("linktype", sorted({linktype for linktype, _ in V4.values()}))
def test_every_truncation_of_a_frame_gives_the_row_or_is_counted_but_never_raises(linktype):
    header = next(header for each, header in V4.values() if each == linktype)
    frame = header + ipv4(SEGMENT)
    for size in range(len(frame)):
        rows, notes, totals = dissect([frame[:size]], linktype, origlen=[len(frame)])
        if size < len(header) + 34:
            assert (rows, notes, totals.headers_cut) == ([], [], 1), size
        else:
            captured = frame[len(header) + 40 : size]
            assert rows == [ROW4._replace(payload=captured)]
            assert totals.payloads_cut == 1


def test_a_frame_that_was_short_on_the_wire_is_malformed():
    for size in (3, 13, 20, 40, 47):
        rows, _, totals = dissect([(ETHERNET4 + ipv4(SEGMENT))[:size]])
        assert rows == []
        assert totals.malformed + totals.headers_cut == 1
    assert dissect([b"\x02\x00\x00"])[1] == [(1, "packet_malformed")]


def test_an_unknown_link_type_is_noted_once():
    rows, notes, totals = dissect([ETHERNET4] * 3, 147)
    assert (rows, notes, totals.unknown_link) == ([], [(1, "link_type_unknown")], 3)
