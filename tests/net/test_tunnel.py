"""Tunnels, and rarer link layers. The packets are built by scapy."""

from __future__ import annotations

import pytest
from netblock import ETHERNET4, PAYLOAD, ROW4, SEGMENT, Row, dissect, ipv4
from scapy.contrib.erspan import ERSPAN_II, ERSPAN_III, ERSPAN_PlatformSpecific
from scapy.contrib.geneve import GENEVE
from scapy.contrib.mpls import MPLS
from scapy.layers.dot11 import Dot11, Dot11QoS, PrismHeader, RadioTap
from scapy.layers.inet import IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import GRE, LLC, SNAP, CookedLinux, Dot1Q, Dot3, Ether
from scapy.layers.ppp import HDLC, PPP, PPPoE
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from kwsniff.net.link import MAX_LABELS

MACS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
OUTER = IP(src="192.0.2.1", dst="192.0.2.2")
OUTER6 = IPv6(src="2001:db8::a", dst="2001:db8::b")
SEGMENT4 = TCP(sport=40000, dport=9092, seq=5, ack=6, flags="PA") / Raw(PAYLOAD)
INNER = IP(src="10.0.0.1", dst="10.0.0.2") / SEGMENT4
INNER6 = IPv6(src="2001:db8::1", dst="2001:db8::2") / SEGMENT4
EXPECTED = ROW4._replace(seq=5, ack=6)
EXPECTED6 = EXPECTED._replace(src="2001:db8::1", dst="2001:db8::2")
FRAME = Ether(**MACS) / INNER

TUNNELS = {
    "VXLAN": OUTER / UDP(dport=4789) / VXLAN(vni=7) / FRAME,
    "VXLAN on Linux's old port": OUTER / UDP(dport=8472) / VXLAN(vni=7) / FRAME,
    "VXLAN over IPv6": OUTER6 / UDP(dport=4789) / VXLAN(vni=7) / FRAME,
    "VXLAN with a tag inside": OUTER / UDP(dport=4789) / VXLAN(vni=7) / Ether(**MACS) / Dot1Q(vlan=3) / INNER,
    "Geneve": OUTER / UDP(dport=6081) / GENEVE(vni=7, proto=0x6558) / FRAME,
    "Geneve with options": OUTER
    / UDP(dport=6081)
    / Raw(bytes.fromhex("02006558 00000700 0102800100000000"))
    / FRAME,
    "Geneve with IP": OUTER / UDP(dport=6081) / GENEVE(vni=7, proto=0x0800) / INNER,
    "GRE": OUTER / GRE() / INNER,
    "GRE with key, checksum and sequence": OUTER
    / GRE(key_present=1, key=9, chksum_present=1, seqnum_present=1, sequence_number=3)
    / INNER,
    "GRE with Ethernet": OUTER / GRE(proto=0x6558) / FRAME,
    "ERSPAN I": OUTER / GRE(proto=0x88BE) / FRAME,
    "ERSPAN II": OUTER / GRE(proto=0x88BE, seqnum_present=1, sequence_number=3) / ERSPAN_II() / FRAME,
    "ERSPAN III": OUTER
    / GRE(proto=0x22EB, seqnum_present=1, sequence_number=3)
    / Raw(bytes.fromhex("20010000 00000000 00000000"))
    / FRAME,
    "ERSPAN III with a subheader": OUTER
    / GRE(proto=0x22EB, seqnum_present=1, sequence_number=3)
    / ERSPAN_III(o=1, hw=5, gra=2)
    / ERSPAN_PlatformSpecific(platf_id=3)
    / FRAME,
    "ERSPAN III with IP": OUTER
    / GRE(proto=0x22EB, seqnum_present=1, sequence_number=3)
    / Raw(bytes.fromhex("20010000 00000000 00000800"))
    / INNER,
    "VXLAN-GPE": OUTER / UDP(dport=4790) / VXLAN(flags=0x0C, NextProtocol=3, vni=7) / FRAME,
    "VXLAN-GPE with IP": OUTER / UDP(dport=4790) / VXLAN(flags=0x0C, NextProtocol=1, vni=7) / INNER,
    "VXLAN-GPE that names no protocol": OUTER / UDP(dport=4790) / VXLAN(flags=0x08, vni=7) / FRAME,
    "MPLS in GRE": OUTER / GRE(proto=0x8847) / MPLS(label=3, s=0) / MPLS(label=4, s=1) / INNER,
    "MPLS in UDP": OUTER / UDP(dport=6635) / MPLS(label=3, s=0) / MPLS(label=4, s=1) / INNER,
    "Ethernet over MPLS": OUTER / GRE(proto=0x8847) / MPLS(label=4, s=1) / FRAME,
    "Ethernet over MPLS with a control word": OUTER
    / GRE(proto=0x8848)
    / MPLS(label=4, s=1)
    / Raw(bytes.fromhex("00000007"))
    / FRAME,
    "IP in IP": OUTER / INNER,
    "IPv4 in IPv6": OUTER6 / INNER,
    "GRE in VXLAN": OUTER / UDP(dport=4789) / VXLAN(vni=7) / Ether(**MACS) / OUTER / GRE() / INNER,
}


@pytest.mark.parametrize("kind", TUNNELS)
def test_a_segment_is_found_in_a_tunnel(kind):
    frame = bytes(Ether(**MACS) / TUNNELS[kind])
    assert dissect([frame])[:2] == ([EXPECTED], [])


def test_ipv6_is_found_in_ipv4_and_in_gre():
    frames = [bytes(Ether(**MACS) / OUTER / INNER6), bytes(Ether(**MACS) / OUTER / GRE() / INNER6)]
    assert dissect(frames)[:2] == ([EXPECTED6, EXPECTED6._replace(packet=2)], [])


def test_tunnels_and_plain_packets_keep_packet_order():
    plain = ETHERNET4 + ipv4(SEGMENT)
    frames = [part for packet in TUNNELS.values() for part in (bytes(Ether(**MACS) / packet), plain)]
    rows = dissect(frames)[0]
    assert [row.packet for row in rows] == list(range(1, len(frames) + 1))
    assert {row._replace(packet=1) for row in rows} == {EXPECTED, ROW4}


@pytest.mark.parametrize("kind", TUNNELS)
def test_every_truncation_of_a_tunnel_is_survived(kind):
    frame = bytes(Ether(**MACS) / TUNNELS[kind])
    for size in range(len(frame)):
        rows = dissect([frame[:size]], origlen=[len(frame)])[0]
        if size < len(frame) - len(PAYLOAD) - 6:
            assert rows == []
        else:
            held = max(size - (len(frame) - len(PAYLOAD)), 0)
            assert rows == [EXPECTED._replace(payload=PAYLOAD[:held])]


def test_tunnels_nested_too_deep_are_malformed():
    packet = INNER
    for _ in range(20):
        packet = OUTER / packet
    assert dissect([bytes(Ether(**MACS) / packet)])[:2] == ([], [(1, "packet_malformed")])


def test_udp_on_a_tunnel_port_that_is_no_tunnel_is_other_traffic():
    frame = bytes(Ether(**MACS) / OUTER / UDP(dport=4789) / Raw(bytes(60)))
    rows, notes, totals = dissect([frame])
    assert (rows, notes, totals.non_tcp) == ([], [], 1)


@pytest.mark.parametrize(
    ("flags", "protocol"),
    [(0x0C, 4), (0x04, 3), (0x1C, 3), (0x0D, 3)],
    ids=["NSH", "no VNI", "version", "OAM"],
)
def test_what_vxlan_gpe_does_not_carry_for_anybody_is_other_traffic(flags, protocol):
    packet = OUTER / UDP(dport=4790) / VXLAN(flags=flags, NextProtocol=protocol, vni=7) / FRAME
    rows, notes, totals = dissect([bytes(Ether(**MACS) / packet)])
    assert (rows, notes, totals.non_tcp) == ([], [], 1)


SNAPPED = LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=0x800) / INNER
RARER = {
    "MPLS": (1, Ether(**MACS, type=0x8847) / MPLS(label=3, s=0) / MPLS(label=4, s=1) / INNER),
    "MPLS, labels of the upstream router": (1, Ether(**MACS, type=0x8848) / MPLS(label=4, s=1) / INNER),
    "MPLS, cooked": (113, CookedLinux(proto=0x8847) / MPLS(label=4, s=1) / INNER),
    "MPLS in PPP": (9, PPP(proto=0x281) / MPLS(label=4, s=1) / INNER),
    "PPPoE": (1, Ether(**MACS) / PPPoE(sessionid=1) / PPP(proto=0x21) / INNER),
    "PPPoE after a VLAN tag": (
        1,
        Ether(**MACS) / Dot1Q(vlan=3) / PPPoE(sessionid=1) / PPP(proto=0x21) / INNER,
    ),
    "PPPoE alone": (51, PPPoE(sessionid=1) / PPP(proto=0x21) / INNER),
    "PPP in HDLC": (50, HDLC() / PPP(proto=0x21) / INNER),
    "PPP with a direction": (204, Raw(b"\0") / HDLC() / PPP(proto=0x21) / INNER),
    "SNAP": (1, Dot3(**MACS) / SNAPPED),
    "SNAP, cooked": (113, CookedLinux(proto=4) / SNAPPED),
    "Ethernet with its preamble": (274, Raw(bytes.fromhex("55555555555555d5")) / Ether(**MACS) / INNER),
    "Wi-Fi": (127, RadioTap() / Dot11(type=2, subtype=0, FCfield=1) / SNAPPED),
    "Wi-Fi without what the receiver says": (105, Dot11(type=2, subtype=0, FCfield=2) / SNAPPED),
    "Wi-Fi with Prism's header": (119, PrismHeader() / Dot11(type=2, subtype=0, FCfield=2) / SNAPPED),
    "Wi-Fi with quality of service": (105, Dot11(type=2, subtype=8, FCfield=1) / Dot11QoS() / SNAPPED),
    "Wi-Fi between access points": (
        105,
        Dot11(type=2, subtype=0, FCfield=3, addr4="02:00:00:00:00:04") / SNAPPED,
    ),
}


@pytest.mark.parametrize("kind", RARER)
def test_a_segment_is_found_behind_a_rarer_link_layer(kind):
    linktype, packet = RARER[kind]
    rows, notes, _ = dissect([bytes(packet), bytes(packet)], linktype)
    assert (rows, notes) == ([EXPECTED, EXPECTED._replace(packet=2)], [])


@pytest.mark.parametrize("kind", RARER)
def test_every_truncation_of_a_rarer_link_layer_is_survived(kind):
    linktype, packet = RARER[kind]
    frame = bytes(packet)
    for size in range(len(frame)):
        rows = dissect([frame[:size]], linktype, origlen=[len(frame)])[0]
        assert rows == [] or rows[0].payload == PAYLOAD[: len(rows[0].payload)]
        assert all(isinstance(row, Row) and row.length == len(PAYLOAD) for row in rows)


@pytest.mark.parametrize(
    ("linktype", "packet"),
    [
        (105, Dot11(type=0, subtype=8) / Raw(bytes(60))),
        (105, Dot11(type=2, subtype=4, FCfield=1) / SNAPPED),
        (105, Dot11(type=2, subtype=0, FCfield=0x41) / SNAPPED),
        (105, Dot11(type=2, subtype=8, FCfield=1) / Raw(b"\x80\0") / SNAPPED),
        (1, Ether(**MACS, type=0x8863) / Raw(bytes.fromhex("1109 0000 0010") + bytes(40))),
        (1, Ether(**MACS, type=0x8864) / Raw(bytes.fromhex("1109 0000 0010") + bytes(INNER))),
        (1, Ether(**MACS, type=0x8847) / MPLS(label=4, s=1) / Raw(bytes.fromhex("10000021") + bytes(INNER))),
        (1, Dot3(**MACS) / LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0x0C, code=0x2000) / Raw(bytes(40))),
    ],
    ids=["beacon", "no data", "encrypted", "A-MSDU", "discovery", "no session", "maintenance", "CDP"],
)  # fmt: skip
def test_what_carries_no_ip_in_the_clear_is_counted_as_that(linktype, packet):
    rows, notes, totals = dissect([bytes(packet)], linktype)
    assert (rows, notes, totals.non_ip) == ([], [], 1)


@pytest.mark.parametrize("count", [1, 12, MAX_LABELS])
def test_a_stack_of_mpls_labels_is_stepped_over(count):
    labels = bytes.fromhex("00003040") * (count - 1) + bytes.fromhex("00004140")
    frame = bytes(Ether(**MACS, type=0x8847)) + labels + bytes(INNER)
    assert dissect([frame])[:2] == ([EXPECTED], [])


def test_a_stack_of_more_labels_than_any_router_makes_is_malformed():
    labels = bytes.fromhex("00003040") * MAX_LABELS + bytes.fromhex("00004140")
    frame = bytes(Ether(**MACS, type=0x8847)) + labels + bytes(INNER)
    assert dissect([frame])[:2] == ([], [(1, "packet_malformed")])


def test_labels_in_frames_in_labels_end():
    frame = b""
    for _ in range(20):
        frame += bytes.fromhex("a20000000001 020000000002 8847 00004140")
    assert dissect([frame + bytes(40)])[:2] == ([], [(1, "packet_malformed")])
