"""Bytes without a protocol, and frames that have only the outside of one: what content must not prove."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from exchanges.stage import CLIENT, SERVER, made

Spoken = Iterator[tuple[bool, bytes]]


def framed(payload: bytes) -> bytes:
    """Put the length in front, as Kafka does and many others do."""
    return struct.pack(">I", len(payload)) + payload


def turns(number: int, count: int = 6) -> Iterator[tuple[bool, int, random.Random]]:
    """Who speaks, how many bytes, and a source of chance that is the same in each recording."""
    chance = random.Random(number)
    for turn in range(count):
        yield turn % 2 == 0, chance.choice((4, 12, 40, 200, 1400, 6000)), chance


@made("zeros")
def zeros(number: int) -> Spoken:
    for speaker, size, _ in turns(number):
        yield speaker, bytes(size)


@made("ones")
def ones(number: int) -> Spoken:
    for speaker, size, _ in turns(number):
        yield speaker, b"\xff" * size


@made("random")
def anything(number: int) -> Spoken:
    for speaker, size, chance in turns(number, 12):
        yield speaker, chance.randbytes(size)


@made("counter")
def counter(number: int) -> Spoken:
    """32-bit numbers that count up: lengths, keys and ids all look small."""
    value = number
    for speaker, size, _ in turns(number, 10):
        yield speaker, b"".join(struct.pack(">I", value + step) for step in range(size // 4))
        value += size // 4


@made("shorts")
def shorts(number: int) -> Spoken:
    for speaker, size, chance in turns(number, 10):
        yield speaker, b"".join(struct.pack(">h", chance.randrange(0, 20)) for _ in range(size // 2))


@made("sparse")
def sparse(number: int) -> Spoken:
    """Mostly zeros, as tables of small numbers are."""
    for speaker, size, chance in turns(number, 10):
        yield speaker, bytes(chance.choice((0, 0, 0, 0, 0, 1, 2, 8)) for _ in range(size))


@made("framed-zeros")
def framed_zeros(number: int) -> Spoken:
    for speaker, size, _ in turns(number, 12):
        yield speaker, framed(bytes(size))


@made("framed-ones")
def framed_ones(number: int) -> Spoken:
    for speaker, size, _ in turns(number, 12):
        yield speaker, framed(b"\xff" * size)


@made("framed-random")
def framed_random(number: int) -> Spoken:
    for speaker, size, chance in turns(number, 12):
        yield speaker, framed(chance.randbytes(size))


@made("framed-ids")
def framed_ids(number: int) -> Spoken:
    """Length, an id that the answer repeats, and bytes that mean nothing."""
    chance = random.Random(number)
    for id_ in range(8):
        yield CLIENT, framed(struct.pack(">I", id_) + chance.randbytes(30))
        yield SERVER, framed(struct.pack(">I", id_) + chance.randbytes(50))


@made("framed-ids-zeros")
def framed_ids_zeros(number: int) -> Spoken:
    """Heartbeats: a key and a version of 0, an id that counts up, and zeros; the answer repeats the id."""
    for id_ in range(8):
        yield CLIENT, framed(struct.pack(">III", 0, id_ + number, 0) + bytes(number % 40))
        yield SERVER, framed(struct.pack(">I", id_ + number) + bytes(number % 9))


@made("look-alike")
def look_alike(number: int) -> Spoken:
    """Kafka's request header, matching ids, and bodies of another protocol in both directions."""
    chance = random.Random(number)
    for id_ in range(8):
        header = struct.pack(">hhih", chance.randrange(0, 40), chance.randrange(0, 4), id_, 6) + b"client"
        yield CLIENT, framed(header + b"\x93" + chance.randbytes(40))
        yield SERVER, framed(struct.pack(">i", id_) + b"\x93" + chance.randbytes(60))


@made("look-alike-sasl")
def look_alike_sasl(number: int) -> Spoken:
    """A handshake of framed texts: mechanism, challenge, answer, as several protocols have it."""
    yield CLIENT, framed(b"\0\0\0\x05PLAIN")
    yield SERVER, framed(b"\0\0\0\0")
    yield CLIENT, framed(b"\0user%d\0none" % number)
    yield SERVER, framed(b"")
    for id_ in range(4):
        yield CLIENT, framed(struct.pack(">II", 1, id_) + b"get /orders")
        yield SERVER, framed(struct.pack(">II", 1, id_) + b"{}" * 20)


@made("one-way")
def one_way(number: int) -> Spoken:
    """A stream of framed measurements that nobody answers."""
    chance = random.Random(number)
    for tick in range(40):
        yield CLIENT, framed(struct.pack(">qhhd", 1_700_000_000_000 + tick, 0, chance.randrange(4), tick / 7))


@made("one-byte-lengths")
def one_byte_lengths(number: int) -> Spoken:
    for speaker, size, chance in turns(number, 16):
        yield speaker, bytes([min(size, 255)]) + chance.randbytes(min(size, 255))
