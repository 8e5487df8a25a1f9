"""IP fragments. They are cut by scapy, independently of the code that joins them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from netblock import SECOND, START, block, dissect, rows
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, fragment6
from scapy.layers.l2 import Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from kwsniff.net import fragments
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals
from tests.strength import examples

MACS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
PAYLOAD = random.Random(5).randbytes(4000)


def v4(ident=7, payload=PAYLOAD, size=1000):
    packet = IP(src="10.0.0.1", dst="10.0.0.2", id=ident) / TCP(sport=1, dport=9092, seq=5) / Raw(payload)
    return [bytes(Ether(**MACS) / piece) for piece in fragment(packet, fragsize=size)]


def v6(ident=7, payload=PAYLOAD):
    packet = (
        IPv6(src="2001:db8::1", dst="2001:db8::2")
        / IPv6ExtHdrFragment(id=ident)
        / TCP(sport=1, dport=9092, seq=5)
        / Raw(payload)
    )
    return [bytes(Ether(**MACS) / piece) for piece in fragment6(packet, 1000)]


def run(blocks):
    """Rows and notes of several blocks of one dissector, to the end of the capture."""
    totals = CaptureTotals()
    dissector = Dissector(totals)
    found = [dissector.dissect(each) for each in blocks]
    notes = [note for each in found for note in each.notes] + dissector.end()
    return [row for each in found for row in rows(each)], notes, totals


@pytest.mark.parametrize("cut", [v4, v6])
def test_fragments_become_a_segment_at_the_last_of_them(cut):
    frames = cut()
    found, notes, totals = run([block(frames)])
    assert [(row.packet, row.seq, row.length, row.payload) for row in found] == [
        (len(frames), 5, len(PAYLOAD), PAYLOAD)
    ]
    assert (notes, totals.fragments) == ([], len(frames))


@pytest.mark.parametrize("cut", [v4, v6])
@given(data=st.data())
@settings(max_examples=examples(30))
def test_order_duplicates_and_block_boundaries_of_fragments_do_not_matter(cut, data):
    frames = cut()
    pieces = data.draw(st.permutations(frames + frames[:2]))
    blocks = [block([piece], first=number) for number, piece in enumerate(pieces, 1)]
    found = run(blocks)[0]
    assert [row.payload for row in found][:1] == [PAYLOAD]
    assert run([block(pieces)])[0] == found


def test_fragments_of_several_datagrams_may_alternate():
    first, second = v4(7), v4(8, payload=PAYLOAD[::-1])
    frames = [piece for pair in zip(first, second, strict=True) for piece in pair]
    assert [row.payload for row in run([block(frames)])[0]] == [PAYLOAD, PAYLOAD[::-1]]


def test_a_missing_fragment_is_noted_at_the_end():
    frames = v4()
    found, notes, totals = run([block(frames[:2] + frames[3:])])
    assert found == []
    assert [(note.packet, note.code) for note in notes] == [(len(frames) - 1, "fragment_lost")]
    expected = f"datagram 7 from 10.0.0.1 to 10.0.0.2: {len(frames) - 1} fragments since packet 1"
    assert notes[0].detail == f"{expected}, the capture ended first"
    assert totals.fragments_lost == 1


def test_an_incomplete_datagram_is_given_up_after_30_seconds_of_packet_time():
    frames = v4()
    times = [START, START, START, START + 31 * SECOND, START + 31 * SECOND]
    found, notes, _ = run([block(frames, time_ns=times)])
    assert found == []
    assert [note.code for note in notes] == ["fragment_lost"] * 2
    assert run([block(frames, time_ns=[START] * 4 + [START + 29 * SECOND])])[1] == []


def test_waiting_datagrams_are_bounded_in_number_and_bytes(monkeypatch):
    monkeypatch.setattr(fragments, "MAX_DATAGRAMS", 10)
    frames = [v4(ident)[0] for ident in range(100)]
    notes = run([block(frames)])[1]
    assert len(notes) == 100
    assert "too many" in notes[0].detail
    monkeypatch.setattr(fragments, "MAX_DATAGRAMS", 1000)
    monkeypatch.setattr(fragments, "MAX_BYTES", 20_000)
    dissector = Dissector(CaptureTotals())
    assert 80 < len(dissector.dissect(block(frames)).notes) < 100


def test_a_fragment_that_reaches_beyond_64_kib_gives_its_datagram_up():
    packet = IP(src="10.0.0.1", dst="10.0.0.2", id=7, frag=8190, proto=6) / Raw(bytes(100))
    found, notes, _ = run([block([bytes(Ether(**MACS) / packet)])])
    assert found == []
    assert [note.code for note in notes] == ["fragment_lost"]


def test_a_fragment_cut_by_the_snaplen_ends_what_is_captured_of_the_segment():
    frames = v4()
    lengths = [len(frame) for frame in frames]
    frames[1] = frames[1][:500]
    (row,), notes, totals = run([block(frames, origlen=lengths)])
    assert row.length == len(PAYLOAD)
    captured = 1000 - 20 + 500 - 34
    assert row.payload[: captured - 20] == PAYLOAD[: captured - 20]
    assert len(row.payload) <= captured
    assert (notes, totals.payloads_cut) == ([], 1)


def test_where_fragments_overlap_the_first_copy_wins():
    header = bytes(TCP(sport=1, dport=9092, seq=5))

    def piece(offset, data, more):
        ip = IP(src="10.0.0.1", dst="10.0.0.2", id=7, frag=offset // 8, flags="MF" if more else 0, proto=6)
        return bytes(Ether(**MACS) / ip / Raw(data))

    frames = [
        piece(0, header + b"a" * 20, True),
        piece(32, b"b" * 16, True),
        piece(40, b"c" * 8, False),
    ]
    (row,) = run([block(frames)])[0]
    assert row.payload == b"a" * 20 + b"b" * 8


def test_a_segment_is_found_in_a_fragmented_tunnel_and_in_fragments_inside_a_tunnel():
    outer = IP(src="192.0.2.1", dst="192.0.2.2", id=1) / UDP(dport=4789) / VXLAN(vni=7)
    inner = IP(src="10.0.0.1", dst="10.0.0.2", id=7) / TCP(sport=1, dport=9092, seq=5) / Raw(PAYLOAD)
    cut_outside = fragment(outer / Ether(**MACS) / inner, fragsize=1400)
    cut_inside = [outer / Ether(**MACS) / piece for piece in fragment(inner, fragsize=1000)]
    twice = [piece for packet in cut_inside for piece in fragment(packet.copy(), fragsize=600)]
    for ident, piece in enumerate(twice):
        piece[IP].id = 100 + ident // 2
    for frames in (cut_outside, cut_inside, twice):
        found = dissect([bytes(Ether(**MACS) / piece) for piece in frames])[0]
        assert [row.payload for row in found] == [PAYLOAD]
