"""The link between the two hosts: loses, delays, reorders, copies and forges packets, and captures them.

    link.py CLIENT_FD BROKER_FD FOLDER LINK

A process of its own, which ends with its standard input. A packet crosses two hops: from its sender's device
to the middle, and on to its receiver. Each hop has its own random numbers, from the seed. What passes each of
the three stations is written to `FOLDER`/client.pcap, middle.pcap and broker.pcap. What a host's stack sends
or is handed is in that host's capture, without exception; nothing is lost but by a hop.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import select
import struct
import sys
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import BinaryIO

VNET = 10
"""Bytes of a virtio_net_hdr."""
NEEDS_CHECKSUM, GSO_NONE = 1, 0
PLAIN = bytes(VNET)
PCAP_HEADER = struct.pack("<IHHIIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 101)
FIN, SYN, RST, PSH, ACK, CWR = 1, 2, 4, 8, 16, 128
STATIONS = ("client", "middle", "broker")
HOLE_BEHIND = (300_000, 1_800_000)
"""Bytes of a direction before a stubborn hole opens in it, drawn: late ones find the sender's window open."""


@dataclass(frozen=True)
class Hop:
    """What a packet meets on one half of its way; shares are of 1, times are seconds."""

    loss: float = 0.0
    burst: float = 1.0
    """How many packets in a row are lost, on average."""
    duplicate: float = 0.0
    duplicate_after: float = 0.0
    delay: float = 0.0
    jitter: float = 0.0
    """Up to so much more delay, for each packet by itself: they overtake each other."""
    reorder: float = 0.0
    """A share of packets that come `reorder_after` later than the others."""
    reorder_after: float = 0.004
    blackout: float = 0.0
    """For so long of each `blackout_every` nothing passes."""
    blackout_every: float = 0.6
    hole: float = 0.0
    """For so long the first segment behind some bytes of each direction is lost again and again."""


@dataclass(frozen=True)
class Link:
    """Both hops, and what happens in the middle between them."""

    seed: int = 1
    first: Hop = field(default_factory=Hop)
    second: Hop = field(default_factory=Hop)
    mtu: tuple[tuple[float, int], ...] = ()
    """From so many seconds on no larger packet passes the middle; its sender is told (RFC 1191)."""
    split: bool = False
    """Segments of an offloading sender are cut to wire size as its network card would."""
    forge: str = ""
    """What a stranger sends to both hosts now and then: see `Flows.forged`."""
    forge_share: float = 0.02

    @property
    def plain(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Link:
        values = json.loads(text)
        return cls(**{**values, "first": Hop(**values["first"]), "second": Hop(**values["second"])})


class Passing:
    """One hop in one direction: when, and how often, a packet arrives."""

    def __init__(self, hop: Hop, seed: str) -> None:
        self.hop = hop
        self.rng = random.Random(seed)
        self.start = time.monotonic()
        self.last = 0.0
        self._losing = False
        self._seen: dict[bytes, int] = {}
        self._due: dict[bytes, int] = {}
        self._holes: dict[bytes, tuple[int, float]] = {}

    def arrivals(self, now: float, packet: bytes) -> list[float]:
        hop, rng = self.hop, self.rng
        if self._is_lost(now, packet):
            return []
        due = now + hop.delay
        if hop.jitter:
            due += rng.random() * hop.jitter
        elif rng.random() < hop.reorder:
            due += hop.reorder_after
        else:
            due = self.last = max(due, self.last)
        if rng.random() < hop.duplicate:
            return [due, due + rng.random() * hop.duplicate_after]
        return [due]

    def _is_lost(self, now: float, packet: bytes) -> bool:
        hop = self.hop
        if hop.blackout and (now - self.start) % hop.blackout_every > hop.blackout_every - hop.blackout:
            return True
        if hop.hole and self._in_hole(now, packet):
            return True
        if hop.burst == 1.0:
            return self.rng.random() < hop.loss
        # Gilbert's model: losing goes on for `burst` packets on average.
        if self.rng.random() < (1 / hop.burst if self._losing else hop.loss / hop.burst):
            self._losing = not self._losing
        return self._losing

    def _in_hole(self, now: float, packet: bytes) -> bool:
        tcp = Tcp.read(packet)
        if tcp is None or not tcp.length:
            return False
        flow = packet[12:20] + packet[20:24]
        seen = self._seen[flow] = self._seen.get(flow, 0) + tcp.length
        if flow not in self._holes:
            if seen < self._due.setdefault(flow, self.rng.randint(*HOLE_BEHIND)):
                return False
            self._holes[flow] = (tcp.seq, now + self.hop.hole)
        place, until = self._holes[flow]
        return now < until and (place - tcp.seq) % (1 << 32) < tcp.length


@dataclass
class Tcp:
    """What the link reads of an IPv4 packet with TCP."""

    begin: int
    """Of the TCP header in the packet."""
    data: int
    seq: int
    ack: int
    flags: int
    window: int
    length: int

    @classmethod
    def read(cls, packet: bytes) -> Tcp | None:
        begin = (packet[0] & 15) * 4
        if packet[9] != 6:
            return None
        seq, ack, offset, flags, window = struct.unpack_from(">IIBBH", packet, begin + 4)
        data = begin + (offset >> 4) * 4
        return cls(begin, data, seq, ack, flags, window, len(packet) - data)


class Flows:
    """What a stranger who watches the middle knows of each direction, and what he sends with it."""

    def __init__(self, seed: int, kind: str, share: float) -> None:
        self.rng = random.Random(f"forge-{seed}")
        self.kind, self.share = kind, share
        self.next: dict[bytes, int] = {}

    def forged(self, packet: bytes) -> bytes | None:
        """Now and then a packet of the same direction that its receiver has to refuse.

        reset: an RST in the window but not at its beginning (RFC 5961, 3), or outside it. syn: a SYN in an
        open connection (RFC 5961, 4). old: other bytes at a place that was acknowledged. beyond: bytes and a
        FIN behind the window. unsent: bytes whose ACK is of what was never sent (RFC 5961, 5). stale: the
        right place, but an old timestamp (RFC 7323, 5).
        """
        tcp = Tcp.read(packet)
        if tcp is None or tcp.flags & (SYN | RST) or not tcp.length or self.rng.random() >= self.share:
            return None
        far = tcp.seq + tcp.length
        message = _message(self.rng)
        if self.kind == "reset":
            place = self.rng.choice(
                [far + 20_000 + self.rng.randrange(1000), far + (1 << 30), tcp.seq - 100_000]
            )
            return _packet(packet, tcp, place, tcp.ack, RST, b"")
        if self.kind == "syn":
            return _packet(packet, tcp, self.rng.getrandbits(32), 0, SYN, b"", options=False)
        if self.kind == "old":
            return _packet(packet, tcp, tcp.seq - 3_000_000 + self.rng.randrange(1000), tcp.ack, ACK, message)
        if self.kind == "beyond":
            flags = self.rng.choice([ACK, ACK | FIN])
            return _packet(packet, tcp, far + (1 << 28), tcp.ack, flags, message)
        if self.kind == "unsent":
            return _packet(packet, tcp, far, tcp.ack + (1 << 28), ACK, message)
        return _packet(packet, tcp, far, tcp.ack, ACK, message, age=1 << 20)


def _message(rng: random.Random) -> bytes:
    """A Metadata request that nobody sent."""
    frame = struct.pack(">hhih6si", 3, 0, rng.randrange(100), 6, b"forger", 0)
    return struct.pack(">i", len(frame)) + frame


def _packet(
    model: bytes, tcp: Tcp, seq: int, ack: int, flags: int, data: bytes, *, options: bool = True, age: int = 0
) -> bytes:
    """A packet with the addresses, ports and options of `model`; `age` is taken off its timestamp."""
    more = bytearray(model[tcp.begin + 20 : tcp.data]) if options else bytearray()
    if age and more[:4] == b"\x01\x01\x08\x0a":
        more[4:8] = struct.pack(">I", (int.from_bytes(more[4:8], "big") - age) % (1 << 32))
    head = model[tcp.begin : tcp.begin + 4]
    head += struct.pack(">IIBB", seq % (1 << 32), ack % (1 << 32), (20 + len(more)) << 2, flags)
    return checked(
        model[: tcp.begin] + head + model[tcp.begin + 14 : tcp.begin + 16] + bytes(4) + more + data
    )


def checked(packet: bytes) -> bytes:
    """With its length and both checksums filled in."""
    begin = (packet[0] & 15) * 4
    head = packet[:2] + struct.pack(">H", len(packet)) + packet[4:10] + bytes(2) + packet[12:begin]
    head = head[:10] + _sum(head) + head[12:]
    tcp = packet[begin : begin + 16] + bytes(2) + packet[begin + 18 :]
    pseudo = packet[12:20] + struct.pack(">HH", 6, len(tcp))
    return head + tcp[:16] + _sum(pseudo + tcp) + tcp[18:]


def _sum(data: bytes) -> bytes:
    """The Internet checksum (RFC 1071): one's complement of the sum modulo 65535."""
    total = int.from_bytes(data + b"\0" * (len(data) % 2), "big") % 0xFFFF
    return struct.pack(">H", 0xFFFF - total)


def split(header: bytes, packet: bytes) -> list[bytes]:
    """Packets of wire size, as a network card cuts them."""
    flags, kind, _, size = struct.unpack_from("<BBHH", header)
    if kind == GSO_NONE:
        return [checked(packet) if flags & NEEDS_CHECKSUM else packet]
    tcp = Tcp.read(packet)
    assert tcp is not None
    made = []
    for number, at in enumerate(range(0, tcp.length, size)):
        piece = packet[tcp.data + at : tcp.data + at + size]
        last = at + size >= tcp.length
        kept = tcp.flags & ~(0 if last else FIN | PSH) & ~(CWR if number else 0)
        name = struct.pack(">H", (int.from_bytes(packet[4:6], "big") + number) % (1 << 16))
        head = bytearray(packet[: tcp.data])
        head[4:6] = name
        struct.pack_into(">I", head, tcp.begin + 4, (tcp.seq + at) % (1 << 32))
        head[tcp.begin + 13] = kept
        made.append(checked(bytes(head) + piece))
    return made


def too_big(packet: bytes, mtu: int) -> bytes:
    """What a router tells the sender: fragmentation needed and DF set (RFC 792, RFC 1191)."""
    quoted = packet[: (packet[0] & 15) * 4 + 8]
    icmp = struct.pack(">BBHHH", 3, 4, 0, 0, mtu) + quoted
    icmp = icmp[:2] + _sum(icmp) + icmp[4:]
    head = struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(icmp), 0, 0, 64, 1, 0, packet[16:20], packet[12:16])
    return head[:10] + _sum(head) + head[12:] + icmp


class Wire:
    """The running link."""

    def __init__(self, fds: tuple[int, int], folder: Path, link: Link) -> None:
        self.fds, self.link = fds, link
        self.files: list[BinaryIO] = [(folder / f"{name}.pcap").open("wb") for name in STATIONS]
        for file in self.files:
            file.write(PCAP_HEADER)
        self.flows = Flows(link.seed, link.forge, link.forge_share)
        self.hops = [
            [
                Passing(hop, f"{link.seed}-{side}-{number}")
                for number, hop in enumerate((link.first, link.second))
            ]
            for side in (0, 1)
        ]
        self.start = time.monotonic()
        self.under_way: list[tuple[float, int, int, int, bytes, bytes]] = []
        self.count = 0
        self.refused = 0

    def run(self, until: BinaryIO) -> None:
        """Carry packets until `until` ends."""
        poll = select.poll()
        for fd in (*self.fds, until.fileno()):
            poll.register(fd, select.POLLIN)
        while True:
            due = self.under_way[0][0] - time.monotonic() if self.under_way else 1.0
            for fd, _ in poll.poll(max(0.0, due * 1000)):
                if fd not in self.fds:
                    return self.close()
                self.take(fd)
            self.deliver()

    def close(self) -> None:
        for file in self.files:
            file.close()
        print(json.dumps({"packets": self.count, "refused": self.refused}), flush=True)

    def take(self, fd: int) -> None:
        """What a host sent: it passes the station at its sender."""
        side = self.fds.index(fd)
        for _ in range(64):
            try:
                data = os.read(fd, VNET + 65536)
            except BlockingIOError:
                return
            header, packet = data[:VNET], data[VNET:]
            if packet[0] >> 4 != 4:
                continue
            self.write(2 * side, packet)
            pieces = (
                [(PLAIN, piece) for piece in split(header, packet)] if self.link.split else [(header, packet)]
            )
            for header, packet in pieces:
                self.send(side, 0, header, packet)

    def send(self, side: int, hop: int, header: bytes, packet: bytes) -> None:
        for due in self.hops[side][hop].arrivals(time.monotonic(), packet):
            self.count += 1
            heapq.heappush(self.under_way, (due, self.count, side, hop, header, packet))

    def deliver(self) -> None:
        """All that is due: the first hop ends in the middle, the second at the receiver."""
        now = time.monotonic()
        while self.under_way and self.under_way[0][0] <= now:
            _, _, side, hop, header, packet = heapq.heappop(self.under_way)
            if hop == 0:
                self.middle(side, header, packet)
            else:
                self.hand(side, header, packet)

    def middle(self, side: int, header: bytes, packet: bytes) -> None:
        self.write(1, packet)
        mtu = self._mtu()
        _, kind, headers, size = struct.unpack_from("<BBHH", header)
        if (len(packet) if kind == GSO_NONE else headers + size) > mtu:
            self.hand(1 - side, PLAIN, too_big(packet, mtu))
            return
        self.send(side, 1, header, packet)
        if self.link.forge and (forged := self.flows.forged(packet)):
            self.write(1, forged)
            self.send(side, 1, PLAIN, forged)

    def _mtu(self) -> int:
        since = time.monotonic() - self.start
        return min((mtu for after, mtu in self.link.mtu if since >= after), default=1 << 16)

    def hand(self, side: int, header: bytes, packet: bytes) -> None:
        """Give a packet to the host at the far end of a direction."""
        self.write(2 - 2 * side, packet)
        try:
            os.write(self.fds[1 - side], header + packet)
        except OSError:
            self.refused += 1

    def write(self, station: int, packet: bytes) -> None:
        seconds, fraction = divmod(time.time_ns(), 1_000_000_000)
        length = len(packet)
        self.files[station].write(struct.pack("<IIII", seconds, fraction, length, length) + packet)


def main() -> None:
    client, broker, folder, link = sys.argv[1:]
    wire = Wire((int(client), int(broker)), Path(folder), Link.read(link))
    print("ready", flush=True)
    wire.run(sys.stdin.buffer)


if __name__ == "__main__":
    main()
