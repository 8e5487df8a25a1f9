"""Captures of other protocols, and what is done to them: another port, no beginning, one direction alone."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from tests.damage.mutants import Packet

CAPTURES = Path(__file__).parent / "data" / "foreign" / "captures"
ETHERNET, PROTOCOL, TCP = 14, 9, 6
SYN, SYN_ACK, FLAGS, DATA_OFFSET = 0x02, 0x12, 13, 12
Mutation = Callable[[list[Packet]], list[Packet]]


def tcp_at(packet: Packet) -> int | None:
    """Where the TCP header begins, in a frame of Ethernet and IPv4 or IPv6 as tcpdump records loopback."""
    kind = packet.data[12:14]
    if kind == b"\x08\0" and packet.data[ETHERNET + PROTOCOL] == TCP:
        return ETHERNET + (packet.data[ETHERNET] & 15) * 4
    if kind == b"\x86\xdd" and packet.data[ETHERNET + 6] == TCP:
        return ETHERNET + 40
    return None


def segments(whole: list[Packet]) -> Iterator[tuple[Packet, int, int, int, int]]:
    """Of each TCP packet: itself, where the header begins, source port, destination port, flags."""
    for packet in whole:
        if (at := tcp_at(packet)) is not None:
            source, target = struct.unpack_from(">HH", packet.data, at)
            yield packet, at, source, target, packet.data[at + FLAGS] & SYN_ACK


def carries_data(packet: Packet, at: int) -> bool:
    """Whether something follows the TCP header, which begins at `at`."""
    return len(packet.data) > at + (packet.data[at + DATA_OFFSET] >> 4) * 4


def server_port(whole: list[Packet]) -> int:
    """Where the first SYN goes."""
    return next(target for _, _, _, target, flags in segments(whole) if flags == SYN)


def unchanged(whole: list[Packet]) -> list[Packet]:
    return whole


def moved(port: int) -> Mutation:
    """The server on another port; to be done while the handshakes are there."""

    def mutate(whole: list[Packet]) -> list[Packet]:
        recorded = server_port(whole)
        return [_with_ports(packet, recorded, port) for packet in whole]

    return mutate


def _with_ports(packet: Packet, recorded: int, port: int) -> Packet:
    at = tcp_at(packet)
    if at is None:
        return packet
    data = bytearray(packet.data)
    for place in (at, at + 2):
        if int.from_bytes(data[place : place + 2]) == recorded:
            data[place : place + 2] = port.to_bytes(2)
    return replace(packet, data=bytes(data))


def beheaded(whole: list[Packet]) -> list[Packet]:
    """Joined in the middle: no handshake, and no first packet with data in either direction."""
    seen: set[tuple[int, int]] = set()
    kept = []
    for packet, at, source, target, flags in segments(whole):
        opens = carries_data(packet, at) and (source, target) not in seen
        if opens:
            seen.add((source, target))
        if not opens and not flags & SYN:
            kept.append(packet)
    return kept


def one_way(whole: list[Packet]) -> list[Packet]:
    """What the clients send alone."""
    port = server_port(whole)
    return [packet for packet, _, _, target, _ in segments(whole) if target == port]
