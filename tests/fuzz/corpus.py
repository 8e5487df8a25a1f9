"""Seeds for the fuzzers, from the recorded samples."""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kwsniff.config import Config
from tests.damage.mutants import packets, write
from tests.fuzz.targets import LINKS
from tests.messages import Frame, listened
from tests.samples import names, sample

EACH = 400
"""Seeds of one kind at most."""
LONGEST = 4000
"""Bytes of a frame that makes a seed."""


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
    elif target == "frames":
        for message, is_request in _frames():
            yield struct.pack(">H", len(message) if is_request else 0) + message
    else:
        yield from _bodies(target)


def _scripts() -> Iterator[bytes]:
    """Segments of a connection, one a frame: some frames alone, others as they followed each other."""
    run: list[bytes] = []
    for data, is_request in _frames():
        message = data[:255]
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
    for data, is_request in _frames():
        message = data[4:]
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


def _frames() -> Iterator[Frame]:
    """The first frames of each sample."""
    config = Config(kernels="never", block_packets=200)
    for name in names():
        for listener in listened(sample(name).paths[:1], config):
            found = [frame for frame in listener.frames if len(frame.data) < LONGEST]
            if len(found) >= EACH // 10:
                break
        yield from found[: EACH // 10]
