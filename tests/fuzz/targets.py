"""What is fuzzed: one function of bytes for each layer.

Invariant at the top of each: it returns, or raises the one error its layer may raise; nothing else, within
the time and memory that the fuzzer is given (`-timeout`, `-rss_limit_mb`).
"""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from kwsniff.capture.error import CaptureError
from kwsniff.capture.source import segments
from kwsniff.config import Config
from kwsniff.engine.analyze import analyze
from kwsniff.net.dissect import Dissector
from kwsniff.net.packets import CaptureTotals, PacketBlock
from kwsniff.rows.events import ANOMALIES
from kwsniff.spec.batches import batches, records
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.codecs import Allowance, decompress
from kwsniff.spec.compile import data_decoder
from kwsniff.spec.load import catalog
from tests.fuzz.bench import Bench, differing
from tests.oracle.facts import decoder
from tests.oracle.records import summarize
from tests.playbook import ACK, BROKER, CLIENT, SYN, Play, Segment, run
from tests.samples import CAPTURES, Row, sample
from tests.tls.wrapped import batches as cut_into
from tests.tls.wrapped import end_of

CONFIG = Config(max_decompressed_bytes=1 << 20, kernels="never")
"""Kernels are interpreted, so that the fuzzer sees which of their branches an input takes."""
SHOWN = replace(CONFIG, full=True, records=True)
LINKS = (0, 1, 12, 101, 108, 113, 276, 9, 228, 229, 50, 51, 105, 119, 127, 204, 274)
SCRATCH = Path(tempfile.mkdtemp(prefix="kwsniff-fuzz-"))


def capture(data: bytes) -> None:
    """A whole file: events, or CaptureError."""
    path = SCRATCH / "capture"
    path.write_bytes(data)
    with contextlib.suppress(CaptureError):
        for batch in analyze(segments([path], CONFIG), CONFIG):
            assert set(batch["code"].drop_null().to_pylist()) <= set(ANOMALIES)


def link(data: bytes) -> None:
    """One packet of every link layer: rows, never an error."""
    if not data:
        return
    frame = data[1:]
    one = np.array([len(frame)], np.int64)
    block = PacketBlock(
        "fuzz", np.frombuffer(frame + bytes(64), np.uint8), np.zeros(1, np.int64), one, one,
        np.zeros(1, np.int64), np.ones(1, np.int64), np.array([LINKS[data[0] % len(LINKS)]], np.int64),
    )  # fmt: skip
    dissector = Dissector(CaptureTotals())
    dissector.dissect(block)
    dissector.end()


TIGHT = replace(
    CONFIG, max_outstanding=3, max_outstanding_total=3, max_buffered_bytes=2000, max_connection_bytes=1000,
    max_reorder_bytes=600, detect_bytes=400, max_elements=8,
)  # fmt: skip


def config_of(data: bytes) -> Config:
    """The second bit of the first byte says whether limits are near."""
    return TIGHT if data and data[0] & 2 else CONFIG


def script(data: bytes) -> list[Segment]:
    """Segments of one connection, in any order, doubled, overlapping, cut. The first byte says whether its
    handshake was seen (1), and whether its port is one that nobody named (4)."""
    script = Play(CONFIG)
    chosen = data[0] if data else 0
    if chosen & 4:
        script.ports = (50_000, 5555)
    if chosen & 1:
        script.send(CLIENT, b"", SYN)
        script.send(BROKER, b"", SYN | ACK)
        script.send(CLIENT, b"", ACK)
    pos = 1
    while pos + 4 <= len(data) and len(script.segments) < 40:
        act, size, jump = data[pos], data[pos + 1], data[pos + 2] - 128
        piece = data[pos + 3 : pos + 3 + size]
        pos += 3 + size
        side = act & 1
        seq = script.next_seq[side] + jump if act & 2 else None
        script.send(side, piece, ACK | (act >> 4 & 7), len(piece) + (act & 8), seq)
        script.clock += (act >> 7) * 10**9
    return script.segments


def stream(data: bytes) -> None:
    """However segments are batched: the same events, of the codes that are documented."""
    given, config = script(data), config_of(data)
    rows = run(given, config)
    assert {row["code"] for row in rows if row["event"] == "anomaly"} <= set(ANOMALIES)
    for cuts in ([len(given) // 2], range(len(given))):
        assert sorted(map(repr, run(given, config, cuts))) == sorted(map(repr, rows))


def kernels(data: bytes) -> None:
    """Compiled or not: the same events."""
    given, config = script(data), config_of(data)
    middle = [len(given) // 2]
    for cuts in ([], middle):
        exact = run(given, replace(config, kernels="never"), cuts)
        assert list(map(repr, run(given, replace(config, kernels="always"), cuts))) == list(map(repr, exact))


def two_streams(data: bytes) -> Play:
    """Both directions of a connection, each as one stream of bytes on a Kafka port."""
    cut = int.from_bytes(data[:2])
    made = Play(SHOWN)
    made.send(CLIENT, b"", SYN)
    made.send(BROKER, b"", SYN | ACK)
    made.send(CLIENT, data[2 : 2 + cut])
    made.send(BROKER, data[2 + cut :])
    return made


def frames(data: bytes) -> None:
    """Whatever two streams hold: events, of the codes that are documented."""
    rows = run(two_streams(data).segments, SHOWN)
    assert {row["code"] for row in rows if row["event"] == "anomaly"} <= set(ANOMALIES)


@cache
def bench(config: Config, small: bool) -> Bench:
    """Checked kernels that take a case in a fraction of a millisecond."""
    return Bench(config, small=small)


def same_told(given: list[Segment], config: Config) -> None:
    """However segments are batched, and however small tables are, kernels tell the same."""
    whole = bench(config, False).run(given)
    chance = random.Random(len(given) and given[-1].seq)
    often = chance.choice((0.1, 0.5, 1))
    parts = bench(config, True).run(given, [at for at in range(1, len(given)) if chance.random() < often])
    assert whole is None or parts is None or parts == whole, differing(whole, parts)


def fast_stream(data: bytes) -> None:
    """As `stream`, before events are made of what kernels tell."""
    same_told(script(data), config_of(data))


def fast_frames(data: bytes) -> None:
    """As `frames`, in the same way."""
    same_told(two_streams(data).segments, SHOWN)


def dissector(data: bytes) -> None:
    """Every API, version and direction, both projections: fields, or DecodeError with a known code."""
    apis = catalog().apis
    if len(data) < 3:
        return
    keys = sorted(apis)
    key = keys[data[0] % len(keys)]
    api = apis[key]
    version = api.min_version + data[1] % (api.max_version - api.min_version + 1)
    body = data[3:]
    for projection in ("facts", "full"):
        try:
            decoder(key, version, "response" if data[2] & 1 else "request", projection)(body, 0, len(body))
        except DecodeError as error:
            assert error.code in ANOMALIES, error
    messages = sorted(catalog().data_messages(), key=lambda message: message.name)
    message = messages[data[0] % len(messages)]
    with contextlib.suppress(DecodeError):
        data_decoder(message.name, message.versions.first)(body, 0, len(body))


def record_data(data: bytes) -> None:
    """Record batches and message sets, with whatever they wrap, in every codec."""
    summarize(data, 0, len(data))
    for batch in batches(data, 0, len(data), CONFIG):
        if batch.partial or batch.problem is not None:
            continue
        try:
            for _ in records(data, batch, CONFIG, Allowance(1 << 20, 1000)):
                pass
        except DecodeError as error:
            assert error.code in ANOMALIES, error


def codec(data: bytes) -> None:
    """Each codec alone: no more than the cap comes out."""
    if not data:
        return
    try:
        assert len(decompress(data[0] % 6, data[1:], 1 << 18, 1000, legacy=bool(data[0] & 64))) <= max(
            1 << 18, len(data)
        )
    except DecodeError as error:
        assert error.code in ANOMALIES, error


ENCRYPTED = ("tls-kcat", "tls-key-update")


@cache
def all_keys() -> Path:
    """Their key logs in one."""
    path = SCRATCH / "keys"
    path.write_bytes(b"".join((CAPTURES / sample(name).note["keys"]).read_bytes() for name in ENCRYPTED))
    return path


@cache
def encrypted_connections(name: str) -> list[list[Row]]:
    """Segments of each TLS connection of a sample that carries something."""
    found: dict[frozenset[object], list[Row]] = {}
    for batch in segments(sample(name).paths, CONFIG):
        for row in batch.to_pylist():
            found.setdefault(frozenset((end_of(row, "src"), end_of(row, "dst"))), []).append(row)
    return [rows for rows in found.values() if any(row["payload"][:1] == b"\x16" for row in rows)]


def edited(data: bytes) -> list[Row]:
    """A recorded connection, which the first byte chooses; each four that follow lose, double, swap, change
    or cut a segment."""
    choices = [rows for name in ENCRYPTED for rows in encrypted_connections(name)]
    rows = list(choices[(data[0] if data else 0) % len(choices)])
    for at in range(1, min(len(data), 160) - 3, 4):
        place, act, position, value = data[at] % len(rows), *data[at + 1 : at + 4]
        row, payload = rows[place], bytearray(rows[place]["payload"])
        if act % 5 == 0 and len(rows) > 1:
            del rows[place]
        elif act % 5 == 1:
            rows.insert(min(place + value, len(rows)), row)
        elif act % 5 == 2:
            rows.insert(value % len(rows), rows.pop(place))
        elif payload and act % 5 == 3:
            payload[position * (act + 1) % len(payload)] ^= value
            rows[place] = {**row, "payload": bytes(payload)}
        else:
            rows[place] = {**row, "payload": bytes(payload[:position])}
    return rows


def tls(data: bytes) -> None:
    """A TLS connection with its keys and without: however segments are batched, and compiled or not, the same
    events."""
    rows = edited(data)
    for config in (replace(CONFIG, keylog=str(all_keys())), CONFIG):
        exact = [row for batch in analyze(cut_into(rows, 1000), config) for row in batch.to_pylist()]
        assert {row["code"] for row in exact if row["event"] == "anomaly"} <= set(ANOMALIES)
        for size, kernels in ((1, "never"), (7, "auto"), (1000, "auto")):
            given = analyze(cut_into(rows, size), replace(config, kernels=kernels))
            assert [row for batch in given for row in batch.to_pylist()] == exact


TARGETS: dict[str, Callable[[bytes], None]] = {
    "pcap": capture, "pcapng": capture, "link": link, "stream": stream, "kernels": kernels, "frames": frames,
    "dissector": dissector, "records": record_data, "codec": codec, "tls": tls,
}  # fmt: skip
FAST: dict[str, Callable[[bytes], None]] = {
    "stream": fast_stream, "kernels": fast_stream, "frames": fast_frames, "link": link,
}  # fmt: skip
"""Targets of checked kernels in this process: thousands of cases a second instead of some."""
