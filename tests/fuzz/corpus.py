"""Seeds for the fuzzers, from the recorded samples."""

from __future__ import annotations

import random
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kwsniff.capture.source import segments
from kwsniff.config import Config
from tests.damage.mutants import packets, write
from tests.fuzz.targets import LINKS
from tests.playbook import ACK, SYN
from tests.samples import names, sample

EACH = 400
"""Seeds of one kind at most."""
LONGEST = 4000
"""Bytes of a frame that is a seed."""
Direction = tuple[int, int, int, int]


def seeds(target: str) -> Iterator[bytes]:
    """Inputs of a target that are all right."""
    if target in ("pcap", "pcapng"):
        yield from _files(target)
    elif target == "link":
        for name in names():
            kind, whole = packets(sample(name).paths[0])
            if kind in LINKS:
                yield from (bytes([LINKS.index(kind)]) + packet.data for packet in whole[:30])
    elif target in ("stream", "kernels"):
        yield from _scripts()
    elif target == "tls":
        chance = random.Random(target)
        yield from (bytes([which]) + chance.randbytes(4 * (which % 7) + 4) for which in range(24))
    elif target == "frames":
        for frame, is_request in _frames():
            yield struct.pack(">H", len(frame) if is_request else 0) + frame
    else:
        yield from _bodies(target)


def _scripts() -> Iterator[bytes]:
    """Segments of a connection, one a frame: some frames alone, others as they followed each other."""
    run: list[bytes] = []
    for frame, is_request in _frames():
        message = frame[:255]
        act = bytes([0 if is_request else 1, len(message), 128]) + message
        run.append(act)
        yield b"\1" + act
        if len(run) == 12:
            yield b"\1" + b"".join(run)
            run.clear()


def _files(kind: str) -> Iterator[bytes]:
    for name in names():
        if kind == "pcapng":
            for path in sample(name).paths:
                if path.endswith(".pcapng"):
                    yield Path(path).read_bytes()[:20_000]
        else:
            link, whole = packets(sample(name).paths[0])
            with tempfile.TemporaryDirectory() as folder:
                yield write(Path(folder) / "seed.pcap", link, whole[:40]).read_bytes()


def _bodies(target: str) -> Iterator[bytes]:
    from kwsniff.spec.load import catalog

    keys = sorted(catalog().apis)
    for frame, is_request in _frames():
        message = frame[4:]
        if target == "dissector" and is_request and len(message) > 10:
            key, version = struct.unpack_from(">hh", message)
            if key in catalog().apis:
                name = struct.unpack_from(">h", message, 8)[0]
                chosen = version - catalog().apis[key].min_version
                yield bytes([keys.index(key), chosen, 0]) + message[10 + max(name, 0) :]
        elif target in ("records", "codec"):
            at = message.find(b"\x02", 16)
            while 0 < at < len(message):
                start = at - 16
                length = int.from_bytes(message[start + 8 : start + 12])
                if 49 <= length <= len(message) - start - 12:
                    batch = message[start : start + 12 + length]
                    yield batch if target == "records" else batch[22:23] + batch[61:]
                    break
                at = message.find(b"\x02", at + 1)


def _frames() -> Iterator[tuple[bytes, bool]]:
    """Frames of the samples, some of each, and whether the end that began the connection sent them: what
    comes in order, cut by the lengths."""
    for name in names():
        asking: set[Direction] = set()
        streams: dict[Direction, tuple[int, bytearray]] = {}
        for batch in segments(sample(name).paths[:1], Config()):
            for row in batch.to_pylist():
                direction = (row["src_lo"], row["src_port"], row["dst_lo"], row["dst_port"])
                if row["flags"] & (SYN | ACK) == SYN:
                    asking.add(direction)
                expected, data = streams.get(direction, (row["seq"], bytearray()))
                if row["payload"] and row["seq"] == expected:
                    data += row["payload"]
                    streams[direction] = (expected + len(row["payload"])) % 2**32, data
        emitted = [
            (frame, each in asking) for each, (_, data) in streams.items() for frame in _cut(bytes(data))
        ]
        yield from emitted[: EACH // 10]


def _cut(data: bytes) -> Iterator[bytes]:
    """Frames with their lengths, the long ones left out."""
    pos = 0
    while pos + 4 <= len(data):
        end = pos + 4 + int.from_bytes(data[pos : pos + 4])
        if 8 <= end - pos < LONGEST and end <= len(data):
            yield data[pos:end]
        pos = end
