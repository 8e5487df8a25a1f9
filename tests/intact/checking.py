"""Made segmentations given to kwsniff: what it tells of each beside what went over it.

The truth is what it tells of the same frames, each a segment of its own, and, for numbers of packets, the
independent reading. Events depend only on their own connection, so many
cases are given at once, each of a client of its own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from struct import pack
from typing import Any

import pyarrow as pa

from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from kwsniff.net.segments import SEGMENTS
from tests.intact.conversations import Conversation, conversations
from tests.intact.packets import ACK, SYN, Packet
from tests.intact.reading import Reading, read
from tests.intact.segmenting import BROKER, CLIENT, MILLISECOND, START, STYLES, Captured, Case

PATIENCE = 10
MAPPED = 0xFFFF00000000
CLIENTS, BROKER_HOST, CLIENT_PORT = 0x0A000000, 0xC0A80001, 40_000
COLUMNS = (
    *(
        "event",
        "client_ip",
        "broker_ip",
        "api_key",
        "api_version",
        "correlation_id",
        "status",
        "request_bytes",
    ),
    *("response_bytes", "error_code", "record_count", "request_packet", "response_packet", "code", "detail"),
    *("closed_by", "skipped_bytes", "client_missing_bytes", "broker_missing_bytes", "resynchronisations"),
)
COMPARED = (
    *("api_key", "api_version", "correlation_id", "status", "request_bytes", "response_bytes"),
    *("error_code", "record_count"),
)
TRUE_OF_QUEUES = frozenset(("response_before_request", "clocks_differ", "correlation_id_reused"))
"""What a capture in the wrong order does show."""
Row = dict[str, Any]


@dataclass
class Expected:
    """What is to be told of a conversation, however it is cut."""

    calls: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    codes: set[str] = field(default_factory=set)
    """Anomalies of its messages."""


@dataclass
class Verdict:
    """What is wrong with what was told of a case; empty if nothing is."""

    case: Case
    wrong: Counter[str] = field(default_factory=Counter)
    """By kind: calls `not told` and `invented`, anomaly codes, and so on."""
    details: list[str] = field(default_factory=list)

    def add(self, kind: str, *details: object) -> None:
        self.wrong[kind] += 1
        if len(self.details) < 20:
            self.details.append(" ".join(map(str, (kind, *details))))

    def __str__(self) -> str:
        case = self.case
        lines = [f"({case.style!r}, {case.seed}): {', '.join(case.conversations)}; {dict(self.wrong)}"]
        return "\n    ".join(lines + self.details)


def batches(cases: Sequence[Case], size: int = 20_000) -> Iterator[pa.RecordBatch]:
    """SEGMENTS of cases, by time; the client of each has the address of its place."""
    found = ((packet, at, case) for at, case in enumerate(cases) for packet in case.packets)
    rows = sorted(found, key=lambda row: row[0].time)
    for start in range(0, len(rows), size):
        yield _batch(rows[start : start + size], start + 1)


def _batch(rows: Sequence[tuple[Captured, int, Case]], first: int) -> pa.RecordBatch:
    hosts = [(MAPPED | CLIENTS + at, MAPPED | BROKER_HOST)[:: -1 if one.side else 1] for one, at, _ in rows]
    ports = [(CLIENT_PORT, case.port)[:: -1 if one.side else 1] for one, _, case in rows]
    packets = [one for one, _, _ in rows]
    columns: dict[str, list[Any]] = {
        "capture": ["made"] * len(rows), "packet": list(range(first, first + len(rows))),
        "time": [one.time for one in packets],
        "src_hi": [0] * len(rows), "src_lo": [source for source, _ in hosts],
        "dst_hi": [0] * len(rows), "dst_lo": [target for _, target in hosts],
        "src_port": [source for source, _ in ports], "dst_port": [target for _, target in ports],
        "seq": [one.seq for one in packets], "ack": [one.ack for one in packets],
        "flags": [one.flags for one in packets], "length": [len(one.data) for one in packets],
        "tsval": [-1] * len(rows),
        "payload": [one.data for one in packets], "anomaly": [None] * len(rows), "detail": [None] * len(rows),
    }  # fmt: skip
    return pa.RecordBatch.from_pydict(columns, schema=SEGMENTS)


def told(cases: Sequence[Case], **choices: Any) -> dict[str, list[Row]]:
    """Events by client, as kwsniff tells them."""
    config = Config(ports=(STYLES["plain"].port,), **choices)
    found: dict[str, list[Row]] = {}
    for events in analyze(batches(cases), config):
        for row in events.select(COLUMNS).to_pylist():
            client = row["client_ip"] if row["client_ip"] != address(BROKER_HOST) else row["broker_ip"]
            found.setdefault(client, []).append(row)
    return found


def address(value: int) -> str:
    return ".".join(str(byte) for byte in pack(">I", value & 0xFFFFFFFF))


def plainly(conversation: Conversation) -> Case:
    """A conversation with a segment for each frame, however long, one after the other."""
    packets = [Captured(START, CLIENT, 99, 0, SYN, b""), Captured(START, BROKER, 199, 100, SYN | ACK, b"")]
    sent, frame = [0, 0], [0, 0]
    clock = START
    while any(frame[k] < len(conversation.needs[k]) for k in (CLIENT, BROKER)):
        for k in (CLIENT, BROKER):
            if frame[k] == len(conversation.needs[k]) or conversation.needs[k][frame[k]][1] > sent[1 - k]:
                continue
            end, start = conversation.needs[k][frame[k]][0], sent[k]
            clock += MILLISECOND
            seq, ack = (100, 200) if k == CLIENT else (200, 100)
            data = conversation.streams[k][start:end]
            packets.append(Captured(clock, k, seq + start, ack + sent[1 - k], ACK, data))
            sent[k] = end
            frame[k] += 1
    return Case(-1, "plain", [conversation.name], ["none"], packets)


@cache
def expected() -> dict[str, Expected]:
    """What is to be told of all conversations, by name."""
    names = list(conversations())
    rows = told([plainly(one) for one in conversations().values()])
    found = {name: Expected() for name in names}
    for at, name in enumerate(names):
        for row in rows[address(CLIENTS + at)]:
            if row["event"] == "call":
                found[name].calls[_compared(row)] += 1
            elif row["event"] == "anomaly":
                found[name].codes.add(row["code"])
    return found


def _compared(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in COMPARED)


def check(cases: Sequence[Case], **choices: Any) -> list[Verdict]:
    """What is told of cases, beside what is to be told. Long ones are told alone, each in a process that
    is ended if it takes more than `PATIENCE` seconds."""
    alone = [case for case in cases if any(name.startswith("large") for name in case.conversations)]
    together = [case for case in cases if not any(name.startswith("large") for name in case.conversations)]
    expected()
    return [_guarded(case, choices) for case in alone] + _checked(together, choices)


def _guarded(case: Case, choices: dict[str, Any]) -> Verdict:
    context = get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=lambda: sender.send(_checked([case], choices)), daemon=True)
    child.start()
    try:
        if receiver.poll(PATIENCE):
            verdict: Verdict = receiver.recv()[0]
            return verdict
    finally:
        child.kill()
        child.join()
    verdict = Verdict(case)
    verdict.add("never ends", f"within {PATIENCE} s")
    return verdict


def _checked(cases: Sequence[Case], choices: dict[str, Any]) -> list[Verdict]:
    rows = told(cases, **choices)
    numbers = _numbers(cases)
    return [judge(case, rows.get(address(CLIENTS + at), []), numbers[at]) for at, case in enumerate(cases)]


def _numbers(cases: Sequence[Case]) -> list[list[int]]:
    """For each case the numbers of its packets in the capture."""
    found = sorted((packet.time, at) for at, case in enumerate(cases) for packet in case.packets)
    numbers: list[list[int]] = [[] for _ in cases]
    for number, (_, at) in enumerate(found, 1):
        numbers[at].append(number)
    return numbers


def judge(case: Case, rows: Iterable[Row], numbers: Sequence[int]) -> Verdict:
    """What is wrong with the events of a case."""
    verdict = Verdict(case)
    calls: Counter[tuple[Any, ...]] = Counter()
    allowed = TRUE_OF_QUEUES if STYLES[case.style].queues else frozenset()
    ends, codes = [], set(allowed)
    there: Counter[tuple[Any, ...]] = Counter()
    for name in case.conversations:
        there += expected()[name].calls
        codes |= expected()[name].codes
    rows = list(rows)
    for row in rows:
        if row["event"] == "call":
            calls[_compared(row)] += 1
        elif row["event"] == "connection":
            ends.append(row)
        elif row["code"] not in codes:
            verdict.add(row["code"], row["detail"])
    for call in (there - calls).elements():
        verdict.add("not told", call)
    for call in (calls - there).elements():
        verdict.add("invented", call)
    _judge_ends(verdict, ends)
    if not verdict.wrong:
        _judge_packets(verdict, rows, numbers)
    return verdict


def _judge_ends(verdict: Verdict, ends: Sequence[Row]) -> None:
    """A connection is told once, without a byte missing, and nobody ended it who didn't."""
    case = verdict.case
    if len(ends) != len(case.conversations):
        verdict.add("connections", len(ends), "of", len(case.conversations))
    for row in ends:
        if row["broker_ip"] != address(BROKER_HOST):
            verdict.add("turned round")
        for name in ("skipped_bytes", "client_missing_bytes", "broker_missing_bytes", "resynchronisations"):
            if row[name]:
                verdict.add(name, row[name])
    if set(case.closings) == {"none"} and not case.forgotten and any(row["closed_by"] for row in ends):
        verdict.add("closed_by", [row["closed_by"] for row in ends])


def _judge_packets(verdict: Verdict, rows: Iterable[Row], numbers: Sequence[int]) -> None:
    """The packets that completed requests and responses, beside the independent reading."""
    there = Counter(
        (call.api_key, call.version, call.correlation_id, call.last_packet, call.response_packet)
        for one in readings(verdict.case, numbers)
        for call in one.calls
    )
    names = ("api_key", "api_version", "correlation_id", "request_packet", "response_packet")
    calls = Counter(tuple(row[name] for name in names) for row in rows if row["event"] == "call")
    for call in (there - calls).elements():
        verdict.add("packets", call, "not told")
    for call in (calls - there).elements():
        verdict.add("packets", call, "told")


def readings(case: Case, numbers: Iterable[int] | None = None) -> list[Reading]:
    """The independent reading of a case."""
    return read(
        Packet(
            number, one.time, end_of(case, one.side), end_of(case, 1 - one.side), one.seq, one.ack, one.flags,
            one.data, len(one.data),
        )
        for number, one in zip(numbers or range(1, len(case.packets) + 1), case.packets, strict=True)
    )  # fmt: skip


def requests_and_responses(found: Iterable[Reading]) -> Counter[tuple[int | None, ...]]:
    """Calls of readings, as API, version, correlation id and both sizes."""
    return Counter(
        (call.api_key, call.version, call.correlation_id, call.size, call.response_size)
        for one in found
        for call in one.calls
    )


def end_of(case: Case, side: int) -> tuple[bytes, int]:
    return (b"\x0a\0\0\0", CLIENT_PORT) if side == CLIENT else (b"\xc0\xa8\0\x01", case.port)


def written(path: Path, case: Case) -> None:
    """A case as a pcap file: Ethernet, IPv4 and TCP, with an identification for each packet sent."""
    with path.open("wb") as file:
        file.write(pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 262_144, 1))
        idents: dict[tuple[int, ...], int] = {}
        for number, one in enumerate(case.packets, 1):
            ident = number if not one.flags & 512 else idents.get((one.side, one.seq, one.ack), number)
            idents[one.side, one.seq, one.ack] = ident
            frame = _frame(case, one, ident & 0xFFFF)
            file.write(pack("<IIII", one.time // 10**9, one.time % 10**9, len(frame), len(frame)) + frame)


def _frame(case: Case, one: Captured, ident: int) -> bytes:
    """The packet of a segment, with checksums (RFC 791, RFC 9293)."""
    source, target = end_of(case, one.side), end_of(case, 1 - one.side)
    window = 0 if one.flags & 256 else 0xFFFF
    size = len(one.data)
    tcp = pack(">HHIIBBH", source[1], target[1], one.seq, one.ack, 0x50, one.flags & 0x3F, window)
    check = _checksum(source[0] + target[0] + pack(">HH", 6, 20 + size) + tcp + pack(">HH", 0, 0) + one.data)
    ip = pack(">BBHHHBB", 0x45, 0, 40 + size, ident, 0, 64, 6)
    ip += pack(">H", _checksum(ip + b"\0\0" + source[0] + target[0])) + source[0] + target[0]
    return bytes(12) + b"\x08\0" + ip + tcp + pack(">HH", check, 0) + one.data


def _checksum(data: bytes) -> int:
    total = int.from_bytes(data + bytes(len(data) % 2)) % 0xFFFF
    return 0xFFFF - total
