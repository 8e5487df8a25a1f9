"""Texts as numbers: the same bytes have the same number, others another; compacting; what is text at all."""

from __future__ import annotations

import random

import pytest
from body_machine import Machine

from kwsniff.engine import texts
from kwsniff.engine.tables import Stopped
from kwsniff.native import octets


def number(machine: Machine, data: bytes, kind: int = 0) -> int:
    return machine.call(texts.text, b"x" + data, 1, len(data), kind)


def test_the_same_bytes_have_the_same_number_and_others_another() -> None:
    machine, rng = Machine(), random.Random(1)
    known: dict[tuple[bytes, int], int] = {}
    for _ in range(3000):
        data = rng.choice((rng.randbytes(2), rng.randbytes(20), b"name%d" % rng.randrange(99)))
        kind = rng.randrange(2)
        found = number(machine, data, kind)
        assert found == known.setdefault((data, kind), len(known))
    assert machine.row("store").texts == len(known)


def test_a_full_table_says_so_and_keeps_what_it_has() -> None:
    machine = Machine()
    first = number(machine, b"first")
    for size in (5, 50, 500):
        before = machine.row("store").texts
        data = b"y" * size
        with pytest.raises(Stopped):
            texts.text(machine.t, data, 0, size, 0)
        assert machine.row("store").texts == before
        number(machine, data)
    assert number(machine, b"first") == first


def test_compacting_keeps_what_is_marked_under_the_number_it_tells() -> None:
    machine, rng = Machine(), random.Random(2)
    names = [b"name %d" % at * rng.randrange(1, 9) for at in range(200)]
    numbers = [number(machine, name) for name in names]
    texts.unmark(machine.t)
    kept = rng.sample(range(200), 60)
    for at in kept:
        texts.mark(machine.t, numbers[at])
    texts.mark(machine.t, -1)
    texts.compact(machine.t)
    assert machine.row("store").texts == 60
    assert machine.row("store").text_bytes == sum(len(names[at]) for at in kept)
    for at in range(200):
        moved = texts.moved(machine.t, numbers[at])
        if at in kept:
            assert number(machine, names[at]) == moved
        else:
            assert moved == -1
    assert machine.row("store").texts == 60


VALID = ["", "abc", "ß€𝄞", "\0", "a" * 100 + "é", "\ud7ff\ue000\U0010ffff"]
INVALID = ["80", "c0af", "c1bf", "e08080", "eda080", "f08080af", "f4908080", "f5", "61c3", "e282", "f09f98"]
INVALID += ["ff", "c328"]


@pytest.mark.parametrize("text", VALID)
def test_text_is_utf_8(text: str) -> None:
    data = text.encode()
    assert octets.not_text(b"\xff" + data + b"\xff", 1, 1 + len(data)) == -1


@pytest.mark.parametrize("text", INVALID)
def test_bytes_that_are_no_text_are_refused_where_python_refuses_them(text: str) -> None:
    for before in (b"", b"abcdefgh", "äöü".encode()):
        data = before + bytes.fromhex(text)
        with pytest.raises(UnicodeDecodeError) as refused:
            data.decode()
        assert octets.not_text(data + b"\x80\x80\x80", 0, len(data)) == refused.value.start
        assert octets.text_by_python(data, 0, len(data)) == refused.value.start


def test_random_bytes_are_text_if_python_says_so() -> None:
    rng = random.Random(3)
    pool = [b"a", b"\xc3\xa9", b"\xe2\x82\xac", b"\xf0\x9f\x98\x80"]
    bad = [b"\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe0\x80"]
    for _ in range(3000):
        data = b"".join(rng.choice(pool if rng.random() < 0.9 else bad) for _ in range(rng.randrange(14)))
        data = data[: rng.randrange(len(data) + 1)]
        assert octets.not_text(data, 0, len(data)) == octets.text_by_python(data, 0, len(data))


def test_the_hash_is_keyed_and_spreads_names_that_differ_little() -> None:
    names = [b"topic-%05d" % at for at in range(4096)]
    for key in (0, 1, 0x0123456789ABCDEF):
        hashes = {octets.hash_of(name, 0, len(name), 0, key) & 0xFFFF for name in names}
        # 4096 balls in 65536 boxes fill 3969 on average.
        assert 3900 < len(hashes) < 4040
    one = octets.hash_of(b"name", 0, 4, 0, 1)
    assert one != octets.hash_of(b"name", 0, 4, 0, 2)
    assert one != octets.hash_of(b"name", 0, 4, 1, 1)
    assert one != octets.hash_of(b"name", 0, 4, 0, 1 << 32 | 1)


def test_what_python_does_instead_of_kernels_is_the_same() -> None:
    rng = random.Random(5)
    for _ in range(300):
        data = rng.randbytes(60)
        at, pos, size = rng.randrange(20), rng.randrange(20), rng.randrange(40)
        other = bytearray(data)
        if rng.random() < 0.5:
            other[pos : pos + size] = data[at : at + size]
        other = other[:60]
        same = bytes(other[pos : pos + size]) == data[at : at + size]
        assert octets.same_bytes(data, at, bytes(other), pos, size) == same
        assert octets.same_by_python(data, at, bytes(other), pos, size) == same
        target = bytearray(other)
        octets.copy_bytes(data, at, size, target, pos)
        assert bytes(target[pos : pos + size]) == data[at : at + size]
