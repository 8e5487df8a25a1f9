"""IPv4, IPv6 and TCP headers: lengths that lie, padding, options, extension headers."""

from __future__ import annotations

import struct

import pytest
from netblock import (
    ETHERNET4,
    ETHERNET6,
    PAYLOAD,
    ROW4,
    ROW6,
    SEGMENT,
    TCP_HEADER,
    Row,
    dissect,
    ipv4,
    ipv6,
)


def tcp(offset=5, options=b"", payload=PAYLOAD):
    return TCP_HEADER[:12] + bytes([offset << 4]) + TCP_HEADER[13:] + options + payload


def test_ethernet_padding_is_no_payload():
    frame = ETHERNET4 + ipv4(TCP_HEADER)
    assert dissect([frame + bytes(60 - len(frame))])[0] == [ROW4._replace(length=0, payload=b"")]


def test_ipv4_options_are_stepped_over():
    assert dissect([ETHERNET4 + ipv4(SEGMENT, options=bytes(40))])[0] == [ROW4]


def test_tcp_options_are_stepped_over():
    assert dissect([ETHERNET4 + ipv4(tcp(15, bytes(40)))])[0] == [ROW4]


def test_a_total_length_of_zero_means_the_rest_of_the_frame():
    payload = bytes(range(256)) * 300
    frame = ETHERNET4 + ipv4(tcp(payload=payload), length=0)
    assert dissect([frame])[0] == [ROW4._replace(length=len(payload), payload=payload)]
    cut = dissect([frame[:1000]], origlen=[len(frame)])[0]
    assert cut == [ROW4._replace(length=len(payload), payload=payload[: 1000 - 54])]


def test_an_ipv6_payload_length_of_zero_means_the_rest_of_the_frame():
    assert dissect([ETHERNET6 + ipv6(SEGMENT, length=0)])[0] == [ROW6]


def test_the_length_on_the_wire_is_that_of_the_ip_header_even_if_the_frame_holds_less():
    frame = ETHERNET4 + ipv4(SEGMENT, length=40 + 1000)
    assert dissect([frame])[0] == [ROW4._replace(length=1000)]


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(b"\x35" + ipv4(SEGMENT)[1:], id="version 3"),
        pytest.param(b"\x44" + ipv4(SEGMENT)[1:], id="header of 16 bytes"),
        pytest.param(ipv4(SEGMENT, length=19), id="total length below that of the header"),
        pytest.param(ipv4(tcp(4)), id="TCP header of 16 bytes"),
        pytest.param(ipv4(tcp(15)), id="TCP header longer than its packet"),
        pytest.param(ipv4(SEGMENT, length=30), id="packet that ends inside the TCP header"),
    ],
)
def test_headers_that_contradict_their_length_are_malformed(packet):
    good = ETHERNET4 + ipv4(SEGMENT)
    rows, notes, totals = dissect([good, ETHERNET4 + packet, good])
    assert rows == [ROW4, ROW4._replace(packet=3)]
    assert notes == [(2, "packet_malformed")]
    assert totals.malformed == 1


def test_only_the_first_hundred_malformed_packets_are_noted_and_the_rest_is_counted():
    from netblock import block

    from kwsniff.net.dissect import Dissector
    from kwsniff.net.packets import CaptureTotals

    totals = CaptureTotals()
    dissector = Dissector(totals)
    notes = []
    for first in (1, 91, 181):
        notes += dissector.dissect(block([ETHERNET4 + ipv4(tcp(4))] * 90, first=first)).notes
    assert [note.packet for note in notes] == list(range(1, 101))
    assert totals.malformed == 270
    (summary,) = dissector.end_file(270)
    assert (summary.packet, summary.code, summary.detail) == (
        270,
        "packet_malformed",
        "170 more in this file",
    )


EXTENSIONS = {
    "hop by hop": [(0, bytes(7))],
    "long destination options": [(60, b"\x02" + bytes(22))],
    "routing": [(43, bytes(7))],
    "authentication": [(51, b"\x04" + bytes(22))],
    "atomic fragment": [(44, bytes(7))],
    "all": [(0, bytes(7)), (60, bytes(7)), (43, bytes(7)), (51, b"\x04" + bytes(22)), (60, bytes(7))],
}


def with_extensions(headers, payload, last=6):
    chain = b""
    following = [kind for kind, _ in headers[1:]] + [last]
    for (_, body), after in zip(headers, following, strict=True):
        chain += bytes([after]) + body
    return ipv6(chain + payload, protocol=headers[0][0])


@pytest.mark.parametrize("kind", EXTENSIONS)
def test_ipv6_extension_headers_are_stepped_over(kind):
    frame = ETHERNET6 + with_extensions(EXTENSIONS[kind], SEGMENT)
    assert dissect([frame])[:2] == ([ROW6], [])


def test_an_ipv4_authentication_header_is_stepped_over():
    header = bytes([6, 4]) + bytes(22)
    assert dissect([ETHERNET4 + ipv4(header + SEGMENT, protocol=51)])[0] == [ROW4]


def test_an_endless_chain_of_extension_headers_is_malformed():
    frame = ETHERNET6 + with_extensions([(0, bytes(7))] * 40, SEGMENT)
    assert dissect([frame])[:2] == ([], [(1, "packet_malformed")])


@pytest.mark.parametrize("protocol", [1, 17, 50, 58, 59, 132])
def test_other_protocols_are_counted(protocol):
    rows, notes, totals = dissect([ETHERNET4 + ipv4(bytes(40), protocol=protocol)])
    assert (rows, notes, totals.non_tcp) == ([], [], 1)


def test_columns_take_the_extreme_values_of_their_fields():
    header = struct.pack(">HHIIBBHHH", 65535, 65535, 2**32 - 1, 2**32 - 1, 0x5F, 0xFF, 0, 0, 0)
    packet = ipv4(header, src="ffffffff", dst="00000000")
    assert dissect([ETHERNET4 + packet])[0] == [
        Row(1, "255.255.255.255", 65535, "0.0.0.0", 65535, 2**32 - 1, 2**32 - 1, 0xFF, 0, b"")
    ]
