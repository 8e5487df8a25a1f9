"""Packets that a capture holds twice. They are built by scapy."""

from __future__ import annotations

import pickle

import pytest
from netblock import SECOND, START, block
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals
from tests.kernel.kinds import kernels

MS = SECOND // 1000
STATIONS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
"""Given, so that scapy asks no network for them."""


def v4(seq, ident, payload=b"x" * 50, ttl=64):
    segment = TCP(sport=40000, dport=9092, seq=seq, ack=1, flags="A") / Raw(payload)
    return bytes(Ether(**STATIONS) / IP(src="10.0.0.1", dst="10.0.0.2", id=ident, ttl=ttl) / segment)


def v6(seq, payload=b"x" * 50):
    segment = TCP(sport=40000, dport=9092, seq=seq, ack=1, flags="A") / Raw(payload)
    return bytes(Ether(**STATIONS) / IPv6(src="2001:db8::1", dst="2001:db8::2") / segment)


def counted(frames, gap_ns=1000, at_a_time=1000):
    totals = CaptureTotals()
    dissector = Dissector(totals)
    times = [START + number * gap_ns for number in range(len(frames))]
    for first in range(0, len(frames), at_a_time):
        part = slice(first, first + at_a_time)
        dissector.dissect(block(frames[part], first=first + 1, time_ns=times[part]))
    assert totals.segments == len(frames)
    return totals.duplicates


def doubled(frames, apart):
    """Each of `apart` frames, then each of them again, and so on."""
    parts = (frames[first : first + apart] for first in range(0, len(frames), apart))
    return [frame for part in parts for frame in (*part, *part)]


@pytest.mark.parametrize("apart", [1, 2, 60])
@pytest.mark.parametrize("at_a_time", [1, 7, 1000])
def test_each_copy_counts_once_however_blocks_are_cut(apart, at_a_time):
    frames = doubled([v4(1 + 50 * number, 100 + number) for number in range(120)], apart)
    assert counted(frames, at_a_time=at_a_time) == 120


@pytest.mark.parametrize("kinds", [("interpreted",), ("", "interpreted"), ("interpreted", "")])
def test_a_run_that_is_left_goes_on_with_whatever_kernels_there_are(kinds):
    frames = doubled([v4(1 + 50 * number, 100 + number) for number in range(120)], 60)
    kept = None
    for number, first in enumerate(range(0, len(frames), 30)):
        with kernels(kinds[number % len(kinds)]):
            dissector = pickle.loads(kept) if kept else Dissector(CaptureTotals())
            times = [START + index * 1000 for index in range(first, first + 30)]
            dissector.dissect(block(frames[first : first + 30], first=first + 1, time_ns=times))
            kept = pickle.dumps(dissector)
    assert dissector.totals.duplicates == 120


def test_a_copy_that_a_router_forwarded_is_one():
    assert counted([v4(1, 7, ttl=64), v4(1, 7, ttl=63), v4(1, 7, ttl=62)]) == 2


def test_a_retransmission_is_a_packet_of_its_own():
    assert counted([v4(1, 7), v4(1, 8)]) == 0


def test_repeated_acks_are_packets_of_their_own():
    assert counted([v4(1, number, b"") for number in range(7, 20)]) == 0
    assert counted([v4(1, 0, b"")] * 5) == 0
    assert counted([v6(1, b"")] * 5) == 0


def test_without_an_identification_payload_that_comes_again_at_once_is_a_copy():
    frames = doubled([v6(1 + 50 * number) for number in range(20)], 1)
    assert counted(frames, gap_ns=MS) == 20
    assert counted(frames, gap_ns=20 * MS) == 0


def test_identifications_that_begin_anew_make_no_copies():
    frames = [v4(1 + 50 * number, number % 3) for number in range(300)]
    assert counted(frames) == 0
