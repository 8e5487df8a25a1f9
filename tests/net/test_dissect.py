"""Laws of dissecting: nothing raises, blocks of any size give the same, scapy sees the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netblock import ETHERNET4, ETHERNET6, SEGMENT, block, dissect, ipv4, ipv6, rows
from scapy.layers.inet import IP, TCP, IPOption
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt, IPv6ExtHdrHopByHop
from scapy.layers.l2 import Dot1Q, Ether
from scapy.packet import Raw

from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals
from kwsniff.rows.events import ANOMALIES
from tests.strength import examples

LINKTYPES = [0, 1, 9, 12, 14, 51, 101, 105, 108, 113, 127, 147, 192, 228, 229, 276]
GOOD = [
    ETHERNET4 + ipv4(SEGMENT),
    ETHERNET6 + ipv6(SEGMENT),
    ETHERNET4 + ipv4(SEGMENT, fragment=0x2001),
    ETHERNET4 + ipv4(bytes(60), protocol=47),
    ETHERNET4 + ipv4(bytes.fromhex("000012b500400000 0800000000000700") + ETHERNET4 + ipv4(SEGMENT), 17),
    ETHERNET6 + ipv6(bytes([6]) + bytes(7) + SEGMENT, protocol=0),
    ETHERNET6 + ipv6(bytes([6, 0, 0, 1, 0, 0, 0, 9]) + SEGMENT, protocol=44),
    ETHERNET4[:12] + bytes.fromhex("8847 00003140") + ipv4(SEGMENT),
]


@st.composite
def mutated(draw):
    frame = bytearray(draw(st.sampled_from(GOOD)))
    for _ in range(draw(st.integers(0, 6))):
        frame[draw(st.integers(0, min(len(frame), 80) - 1))] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(0, len(frame)))])


FRAMES = st.lists(st.tuples(st.one_of(st.binary(max_size=120), mutated()), st.integers(0, 100)), max_size=8)


@given(FRAMES, st.lists(st.sampled_from(LINKTYPES), min_size=8, max_size=8))
@settings(max_examples=examples(300))
def test_no_bytes_make_dissecting_raise_and_every_packet_is_accounted_for(frames, linktypes):
    lengths = [len(frame) + more for frame, more in frames]
    data = [frame for frame, _ in frames]
    found, notes, totals = dissect(data, linktypes[: len(data)], origlen=lengths)
    assert all(code in ANOMALIES for _, code in notes)
    for row in found:
        assert 0 <= len(row.payload) <= row.length
        assert 1 <= row.packet <= len(frames)
    accounted = (
        totals.segments
        + totals.non_ip
        + totals.non_tcp
        + totals.fragments
        + totals.malformed
        + totals.headers_cut
        + totals.unknown_link
    )
    assert accounted >= len(frames)


@given(st.lists(mutated(), max_size=30), st.integers(1, 7))
@settings(max_examples=examples(100))
def test_blocks_of_any_size_give_the_same_rows_and_notes(frames, size):
    def outcome(blocks):
        dissector = Dissector(CaptureTotals())
        found = [dissector.dissect(each) for each in blocks]
        notes = [note for each in found for note in each.notes]
        return [row for each in found for row in rows(each)], notes + dissector.end()

    parts = [block(frames[at : at + size], first=at + 1) for at in range(0, len(frames), size)]
    assert outcome(parts) == outcome([block(frames)])


PORT, WORD = st.integers(0, 65535), st.integers(0, 2**32 - 1)
NETWORK = st.one_of(
    st.builds(IP, src=st.just("10.1.2.3"), dst=st.just("10.3.2.1"), id=PORT, tos=st.integers(0, 255)),
    st.builds(IP, src=st.just("10.1.2.3"), options=st.just([IPOption(b"\x94\x04\0\0")])),
    st.builds(IPv6, src=st.just("fe80::1"), dst=st.just("ff02::1"), fl=st.integers(0, 2**20 - 1)),
    st.just(IPv6(src="fe80::1", dst="ff02::1") / IPv6ExtHdrHopByHop() / IPv6ExtHdrDestOpt()),
)
TRANSPORT = st.builds(
    TCP,
    sport=PORT,
    dport=PORT,
    seq=WORD,
    ack=WORD,
    flags=st.integers(0, 255),
    options=st.sampled_from(
        [
            [],
            [("MSS", 1460)],
            [("NOP", None), ("Timestamp", (2**31, 2))],
            [("SAckOK", b""), ("Timestamp", (7, 0)), ("WScale", 7)],
        ]
    ),
)
LINK = st.sampled_from([Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02")]).flatmap(
    lambda ether: st.sampled_from([ether, ether / Dot1Q(vlan=5), ether / Dot1Q(vlan=5) / Dot1Q(vlan=6)])
)


@given(LINK, NETWORK, TRANSPORT, st.binary(max_size=40), st.integers(0, 6))
@settings(max_examples=examples(200))
def test_scapy_sees_the_same_segment(link, network, transport, payload, padding):
    frame = bytes(link / network / transport / Raw(payload)) + bytes(padding)
    seen = Ether(frame)
    outer, inner = seen[IP if IP in seen else IPv6], seen[TCP]
    (row,), notes, _ = dissect([frame])
    assert (row.src, row.dst) == (outer.src, outer.dst)
    assert (row.src_port, row.dst_port) == (inner.sport, inner.dport)
    assert (row.seq, row.ack, row.flags) == (inner.seq, inner.ack, int(inner.flags) & 0xFF)
    assert (row.length, row.payload) == (len(payload), payload)
    assert row.tsval == dict(inner.options).get("Timestamp", (-1, 0))[0]
    assert notes == []


@pytest.mark.parametrize("linktype", LINKTYPES)
def test_an_empty_packet_and_an_empty_block_are_survived(linktype):
    assert dissect([], linktype)[:2] == ([], [])
    assert dissect([b""], linktype)[0] == []
    assert dissect([b""], linktype, origlen=[1000])[0] == []
