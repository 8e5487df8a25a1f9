"""The packets of chosen calls, and of the handshakes of their connections, written as pcapng with comments.

Theory of operation: EVENTS say between which packet times a request and a response lay, and by which packet
they were complete. One pass over the segments finds the packets between; another copies them, each once, in
their order.
"""

from __future__ import annotations

import os
import struct
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from kwsniff.analysis.bytestream import SUMMARY, Code, Row, between, directions, micros
from kwsniff.capture.error import CaptureError
from kwsniff.capture.keymaterial import secret_lines
from kwsniff.capture.savefile import (
    INTERFACE,
    NANOSECONDS,
    PACKET,
    RESOLUTION,
    SECTION,
    SNAPLEN,
    block,
    options,
    secrets_blocks,
)
from kwsniff.capture.source import blocks, resolve, segments
from kwsniff.config import Config
from kwsniff.net.packets import PacketBlock
from kwsniff.net.segments import SYN, secrets_told
from kwsniff.output.text import printable

NEEDS = SUMMARY
"""Columns of the calls."""
COMMENT, APPLICATION = 1, 4
"""Codes of pcapng options: opt_comment, shb_userappl."""
MAX_CALLS = 500_000
SKEW = 10_000_000
"""Microseconds by which packets may lie out of the order of their times."""
MAX_COMMENT = 1_000


class Span(NamedTuple):
    """Where one message of a call lies, in microseconds of packet time."""

    first: int
    last: int
    packet: int
    """The packet that completes it, in the capture that the call was completed in."""
    capture: str | None
    comment: str


@dataclass(slots=True)
class Wanted:
    """What is looked for in one direction of the connections between two ends."""

    spans: list[Span] = field(default_factory=list)
    """By their first time."""
    begin: int = 0
    """Spans before it lie too far back for anything that comes."""

    def around(self, time: int) -> Iterator[Span]:
        """The spans that a time lies in."""
        while self.begin < len(self.spans) and self.spans[self.begin].last < time - SKEW:
            self.begin += 1
        for at in range(self.begin, len(self.spans)):
            if self.spans[at].first > time:
                return
            if time <= self.spans[at].last:
                yield self.spans[at]


@dataclass(slots=True)
class Chosen:
    """Packets to copy, with what is said of them, by capture and number."""

    packets: dict[str, dict[int, list[str]]] = field(default_factory=lambda: defaultdict(dict))
    key_log: bytes = b""
    """Secrets of TLS connections among them ..."""
    readable: int = 0
    """... of so many."""

    def add(self, capture: str, packet: int, comment: str = "") -> None:
        """Choose a packet; `comment` is added to what is said of it."""
        said = self.packets[capture].setdefault(packet, [])
        if comment and comment not in said:
            said.append(comment)

    def __len__(self) -> int:
        return sum(map(len, self.packets.values()))


def wanted_of(calls: Sequence[Row]) -> dict[Code, Wanted]:
    """What to look for, by direction."""
    found: dict[Code, Wanted] = defaultdict(Wanted)
    for call in calls:
        for name, code in directions(call):
            span = _span(call, name)
            if span is not None:
                insort(found[code].spans, span)
    return found


def _span(call: Row, name: str) -> Span | None:
    first, last, packet = (call[f"{name}_{part}"] for part in ("time", "end_time", "packet"))
    if first is None or packet is None:
        return None
    return Span(micros(first), micros(last or first), packet, call["capture"], _said(call, name))


def _said(call: Row, name: str) -> str:
    """The comment on the packet that completes a message."""
    api = call["api"] or f"API {call['api_key']}"
    parts = [f"kwsniff: {api} v{call['api_version']} {name} #{call['correlation_id']}"]
    if name == "request":
        parts.append(f"client {call['client_id']!r}")
        topics = [printable(topic) for topic in call["topics"] or () if topic]
        if topics:
            parts.append("topics " + ", ".join(topics[:5]) + (" ..." if len(topics) > 5 else ""))
        if call["unanswered_because"]:
            parts.append(f"unanswered: {call['unanswered_because']}")
    else:
        parts.append(call["error"] if call["error_code"] else call["status"])
        if call["latency_us"] is not None:
            parts.append(f"latency {call['latency_us'] / 1000:.3f} ms")
    return ", ".join(parts)


Place = tuple[str, int]
"""Capture and number of a packet."""
RECORD, HANDSHAKE, CLIENT_HELLO = 5, 22, 1
"""Bytes of a TLS record's header, and codes (RFC 8446, sections 5.1 and 4)."""
RANDOM = slice(RECORD + 6, RECORD + 6 + 32)
"""Of a ClientHello, behind its type, its length and a version (RFC 8446, section 4.1.2)."""


@dataclass(slots=True)
class TlsConnections:
    """Packets of TLS connections since their ClientHello, of those between two ends the last: a record can be
    read only once all before it are known."""

    config: Config
    key_log: bytes = b""
    randoms: set[bytes] = field(default_factory=set)
    """Of connections of which packets were chosen."""
    _since: dict[Code, tuple[bytes, list[Place]]] = field(default_factory=dict)
    """Client random and packets that were not chosen yet."""

    def take(self, code: Code, row: Row) -> None:
        """Note a packet that is wanted if a call comes."""
        key, payload = min(code, code[3:] + code[:3]), row["payload"] or b""
        if row["flags"] & SYN:
            self._since.pop(key, None)
        elif len(payload) >= RANDOM.stop and (payload[0], payload[RECORD]) == (HANDSHAKE, CLIENT_HELLO):
            random = payload[RANDOM]
            if self._since.get(key, (b"", []))[0] != random:  # one is sent again if the broker asks for it
                self._since[key] = random, []
        if key in self._since:
            self._since[key][1].append((row["capture"], row["packet"]))

    def choose(self, code: Code, chosen: Chosen) -> None:
        """A call was found in this direction."""
        random, packets = self._since.get(min(code, code[3:] + code[:3]), (b"", []))
        if random:
            self.randoms.add(random)
        for place in packets:
            chosen.add(*place)
        packets.clear()

    def give(self, chosen: Chosen) -> None:
        """Say which secrets are of the packets that were chosen. Raises CaptureError."""
        key_log = self.key_log
        if self.config.keylog is not None:
            try:
                key_log += Path(self.config.keylog).read_bytes()
            except OSError as error:
                raise CaptureError(f"{self.config.keylog}: {error.strerror}") from None
        own = [(random, line) for random, line in secret_lines(key_log) if random in self.randoms]
        chosen.key_log = b"".join(dict.fromkeys(line for _, line in own))
        chosen.readable = len({random for random, _ in own})


def choose(
    paths: Sequence[str], calls: Sequence[Row], config: Config | None = None, *, readable: bool = False
) -> Chosen:
    """The packets of the calls, and of the handshakes before them; `readable`: and what it takes to read
    those that are encrypted. Raises CaptureError."""
    wanted, chosen = wanted_of(calls), Chosen()
    tls = TlsConnections(config or Config()) if readable else None
    begun: dict[Code, list[tuple[str, int]]] = {}
    """Packets of the last handshake in each direction, until a call shows that it is wanted."""
    for batch in segments(paths, config):
        if tls is not None:
            tls.key_log += secrets_told(batch) or b""
        for code, at in between(batch, wanted):
            row = {name: batch[name][at].as_py() for name in _SEEN}
            before = len(chosen)
            _take(code, row, wanted, begun, chosen)
            if tls is not None:
                tls.take(code, row | {"payload": batch["payload"][at].as_py()})
                if len(chosen) > before:
                    tls.choose(code, chosen)
    if tls is not None:
        tls.give(chosen)
    return chosen


_SEEN = ("capture", "packet", "time", "flags", "length")


def _take(
    code: Code,
    row: Row,
    wanted: dict[Code, Wanted],
    begun: dict[Code, list[tuple[str, int]]],
    chosen: Chosen,
) -> None:
    both = (code, code[3:] + code[:3])
    place = (row["capture"], row["packet"])
    if row["flags"] & SYN:
        begun.setdefault(code, []).append(place)
        return
    if not row["length"]:
        # The first bare ACK behind both SYNs ends the handshake.
        if all(begun.get(each) for each in both) and len(begun[both[0]]) + len(begun[both[1]]) == 2:
            begun[code].append(place)
        return
    time = row["time"] // 1000
    for span in wanted[code].around(time):
        if row["capture"] != span.capture or row["packet"] <= span.packet:
            whole = row["packet"] == span.packet
            chosen.add(*place, span.comment if whole else "")
            for each in both:
                for capture, packet in begun.pop(each, ()):
                    chosen.add(capture, packet, "kwsniff: handshake of the connection")


# Writing


def copy(paths: Sequence[str], chosen: Chosen, stream: IO[bytes], config: Config | None = None) -> int:
    """Write the chosen packets of the captures; the number written. Raises CaptureError, OSError."""
    head = struct.pack("<IHHq", 0x1A2B3C4D, 1, 0, -1) + options((APPLICATION, b"kwsniff extract"))
    stream.write(block(SECTION, head) + secrets_blocks(chosen.key_log))
    interfaces: dict[int, int] = {}
    written = 0
    for file in resolve(paths):
        packets = chosen.packets.get(file.path)
        if packets:
            for found in blocks(file.path, config):
                written += _copy_block(found, packets, interfaces, stream)
    return written


def _copy_block(
    found: PacketBlock, packets: dict[int, list[str]], interfaces: dict[int, int], stream: IO[bytes]
) -> int:
    asked = np.fromiter(packets, np.int64, len(packets))
    rows = np.flatnonzero(np.isin(found.number, asked)).tolist()
    for at in rows:
        linktype = int(found.linktype[at])
        if linktype not in interfaces:
            interfaces[linktype] = len(interfaces)
            fields = struct.pack("<HHI", linktype, 0, SNAPLEN)
            stream.write(block(INTERFACE, fields + options((RESOLUTION, NANOSECONDS))))
        number = int(found.number[at])
        place = f"packet {number} of {os.path.basename(found.capture)}"
        said = [f"{text} ({place})" for text in packets[number]]
        stream.write(_packet(found, at, interfaces[linktype], said))
    return len(rows)


def _packet(found: PacketBlock, at: int, interface: int, comments: list[str]) -> bytes:
    offset, caplen, time = int(found.offset[at]), int(found.caplen[at]), int(found.time_ns[at])
    fields = struct.pack(
        "<IIIII", interface, time >> 32, time & 0xFFFFFFFF, caplen, int(found.origlen[at])
    )  # fmt: skip
    data = bytes(memoryview(found.data)[offset : offset + caplen]) + b"\0" * (-caplen % 4)  # type: ignore[arg-type]
    said = options(*((COMMENT, text.encode()[:MAX_COMMENT]) for text in comments)) if comments else b""
    return block(PACKET, fields + data + said)
