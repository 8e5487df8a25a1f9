"""The same captures through tshark: packet numbers, times, addresses, sequence numbers and lengths agree.

tshark numbers, times and dissects on its own, so it is the judge of what the columns should hold.
"""

from __future__ import annotations

import shutil
import subprocess

import pytest
from files import START, frame, frames, ng_enhanced, ng_interface, ng_obsolete, ng_section, pcap, pcapng
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import IP, TCP, UDP, fragment
from scapy.layers.inet6 import IPv6, IPv6ExtHdrFragment, IPv6ExtHdrHopByHop, fragment6
from scapy.layers.l2 import GRE, LLC, SNAP, Dot1Q, Dot3, Ether
from scapy.layers.ppp import PPP, PPPoE
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from kwsniff.capture.source import segments
from kwsniff.net.address import text

pytestmark = [
    pytest.mark.tshark,
    pytest.mark.skipif(shutil.which("tshark") is None, reason="tshark is not installed"),
]

FIELDS = ["frame.number", "frame.time_epoch", "tcp.srcport", "tcp.seq_raw", "tcp.ack_raw", "tcp.len"]


def seen_by_tshark(path, fields):
    """The last occurrence of each field, which is that of the innermost header."""
    wanted = [part for field in fields for part in ("-e", field)]
    command = ["tshark", "-n", "-r", path, "-Y", "tcp", "-T", "fields", "-E", "occurrence=l", *wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [tuple(line.split("\t")) for line in done.stdout.splitlines()]


def seen_here(path):
    rows = [row for batch in segments([path]) for row in batch.to_pylist()]
    assert [row["detail"] for row in rows if row["anomaly"]] == []
    return [
        (
            str(row["packet"]),
            f"{row['time'] // 10**9}.{row['time'] % 10**9:09d}",
            str(row["src_port"]),
            str(row["seq"]),
            str(row["ack"]),
            str(row["length"]),
            text(row["src_hi"], row["src_lo"]),
        )
        for row in rows
    ]


MACS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
VENDORS = {"src": "00:1b:21:00:00:01", "dst": "00:50:56:00:00:02"}
"""Of known vendors: by them tshark tells Ethernet below MPLS labels."""
OUTER = IP(src="192.0.2.1", dst="192.0.2.2", id=77)
SEGMENT = TCP(sport=40000, dport=9092, seq=4_000_000_000, ack=6, flags="PA") / Raw(bytes(3000))
INNER = IP(src="10.0.0.1", dst="10.0.0.2", id=7) / SEGMENT
SHORT = IP(src="10.0.0.1", dst="10.0.0.2", id=7) / TCP(sport=40000, dport=9092, seq=9, flags="A")
INNER6 = IPv6(src="2001:db8::1", dst="2001:db8::2")
UNUSUAL = [
    Ether(**MACS) / INNER,
    Ether(**MACS) / Dot1Q(vlan=5) / Dot1Q(vlan=6) / INNER,
    *(Ether(**MACS) / piece for piece in fragment(INNER.copy(), fragsize=1000)),
    *(Ether(**MACS) / piece for piece in fragment6(INNER6 / IPv6ExtHdrFragment(id=9) / SEGMENT, 1000)),
    Ether(**MACS) / INNER6 / IPv6ExtHdrHopByHop() / SEGMENT,
    Ether(**MACS) / OUTER / UDP(dport=4789) / VXLAN(vni=7) / Ether(**MACS) / INNER,
    Ether(**MACS) / OUTER / GRE() / INNER,
    Ether(**MACS) / OUTER / INNER,
    Ether(**MACS, type=0x8847) / MPLS(label=20, s=0) / MPLS(label=21, s=1) / INNER,
    Ether(**MACS, type=0x8847) / MPLS(label=20, s=1) / INNER6 / SEGMENT,
    Ether(**MACS, type=0x8848) / MPLS(label=20, s=1) / INNER,
    Ether(**MACS, type=0x8847) / MPLS(label=20, s=1) / Raw(bytes(4)) / Ether(**VENDORS) / INNER,
    Ether(**MACS, type=0x8847) / MPLS(label=20, s=1) / Ether(**VENDORS) / INNER,
    Ether(**MACS) / OUTER / GRE(proto=0x8847) / MPLS(label=20, s=1) / INNER,
    Ether(**MACS) / OUTER / UDP(sport=50000, dport=6635) / MPLS(label=20, s=1) / INNER,
    Ether(**MACS) / PPPoE(sessionid=1) / PPP(proto=0x21) / INNER,
    Dot3(**MACS) / LLC(dsap=0xAA, ssap=0xAA, ctrl=3) / SNAP(OUI=0, code=0x800) / SHORT,
    Ether(**MACS) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(flags="S", seq=5),
    Ether(bytes(Ether(**MACS) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(flags="A")) + bytes(6)),
]
PLAIN = frames(200)
NANOSECONDS = [(START + 123_456_789 + index, frame(index, b"x" * index)) for index in range(30)]
CAPTURES = {
    "pcap": pcap(PLAIN),
    "big-endian pcap": pcap(PLAIN, ">"),
    "nanosecond pcap": pcap(NANOSECONDS, magic=0xA1B23C4D),
    "modified pcap": pcap(PLAIN, magic=0xA1B2CD34),
    "pcapng": pcapng(PLAIN),
    "sections of both byte orders": pcapng(PLAIN[:50], ">") + pcapng(PLAIN[50:]),
    "obsolete blocks": ng_section() + ng_interface() + b"".join(map(ng_obsolete, PLAIN)),
    "powers of two": ng_section()
    + ng_interface(options=[(9, b"\x94")])
    + b"".join(ng_enhanced(each, ticks=(each[0] << 20) // 10**9) for each in PLAIN),
    "time offset": ng_section()
    + ng_interface(options=[(14, (3600).to_bytes(8, "little"))])
    + b"".join(map(ng_enhanced, PLAIN)),
    "unusual packets": pcap([(START + index * 1000, bytes(each)) for index, each in enumerate(UNUSUAL)]),
}


@pytest.mark.parametrize("kind", CAPTURES)
def test_tshark_sees_the_same_segments(tmp_path, kind):
    path = tmp_path / "test.cap"
    path.write_bytes(CAPTURES[kind])
    theirs = seen_by_tshark(str(path), FIELDS)
    ours = seen_here(str(path))
    assert [row[:6] for row in ours] == theirs
    assert len(ours) > 10 or kind == "unusual packets"


@pytest.mark.parametrize("kind", ["pcapng", "pcap", "nsecpcap", "modpcap"])
@pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap is not installed")
def test_what_editcap_writes_is_read(tmp_path, kind):
    source, path = tmp_path / "source.pcap", tmp_path / "test.cap"
    source.write_bytes(pcap(NANOSECONDS, magic=0xA1B23C4D))
    subprocess.run(["editcap", "-F", kind, source, path], check=True, capture_output=True)
    theirs = seen_by_tshark(str(path), [*FIELDS, "ip.src"])
    assert seen_here(str(path)) == theirs
    assert len(theirs) == len(NANOSECONDS)


@pytest.mark.skipif(shutil.which("editcap") is None, reason="editcap is not installed")
def test_packets_cut_by_editcap_keep_their_lengths(tmp_path):
    source, path = tmp_path / "source.pcap", tmp_path / "test.cap"
    source.write_bytes(pcap(PLAIN))
    subprocess.run(["editcap", "-s", "60", source, path], check=True, capture_output=True)
    assert seen_here(str(path)) == seen_here(str(source))
