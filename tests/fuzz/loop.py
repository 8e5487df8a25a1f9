"""A fuzzer of compiled kernels: `python -m tests.fuzz.fuzz TARGET SECONDS` for the targets of `FAST`.

libFuzzer sees into Python, not into code that numba made, and each of its looks at NumPy costs more than a
case. Here checked kernels count their own blocks (see `kwsniff.engine.build`): an input that makes one run
more often than any before, by powers of two, is kept and changed further, and goes through the slow target of
the same name.

An input that breaks the invariant is left in `out/fuzz` as `TARGET-crash-...`; one that ends the process, or
takes more than `LONGEST` seconds of a processor, as `TARGET-at-hand`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from hashlib import sha1
from pathlib import Path

import numpy as np

LONGEST = 15
LENGTH = 20_000
BUCKETS = np.array([0] + [1 << min(count.bit_length() - 1, 7) for count in range(1, 256)], np.uint8)
"""How often a block ran, as one of eight bits."""
NUMBERS = (0, 1, 2, 4, 5, 7, 8, 16, 127, 128, 255, 256, 1000, 32767, 65535, 1 << 20, 2**31 - 1, 2**32 - 1)
Target = Callable[[bytes], None]
Change = Callable[[random.Random, bytes, bytes], bytes]


def changed(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """An input with some bytes changed, or some of another one in it."""
    made = bytearray(data)
    for _ in range(1 << chance.randrange(5)):
        at = chance.randrange(len(made) + 1)
        size = min(1 << chance.randrange(9), len(made) - at)
        act = chance.randrange(8)
        if act == 0 and at < len(made):
            made[at] ^= 1 << chance.randrange(8)
        elif act == 1 and at < len(made):
            made[at] = chance.randrange(256)
        elif act == 2:
            width = chance.choice((1, 2, 4))
            made[at : at + width] = (chance.choice(NUMBERS) % (1 << 8 * width)).to_bytes(width)
        elif act == 3:
            del made[at : at + size]
        elif act == 4:
            made[at:at] = made[at : at + size]
        elif act == 5 and other:
            start = chance.randrange(len(other))
            made[at:at] = other[start : start + (1 << chance.randrange(9))]
        elif act == 6 and other:
            start = chance.randrange(len(other))
            made[at : at + size] = other[start : start + size]
        elif act == 7 and at + 4 <= len(made):
            number = int.from_bytes(made[at : at + 4]) + chance.choice((-1, 1)) * chance.choice(NUMBERS)
            made[at : at + 4] = (number % (1 << 32)).to_bytes(4)
    return bytes(made[:LENGTH])


def changed_acts(chance: random.Random, data: bytes, other: bytes) -> bytes:
    """A script (see `targets.script`) with acts left out, repeated, in another place or of another one."""
    if chance.random() < 0.3:
        return changed(chance, data, other)
    acts, others = acts_of(data), acts_of(other)
    for _ in range(1 << chance.randrange(4)):
        at = chance.randrange(len(acts) + 1)
        act = chance.randrange(8)
        if act == 0 and acts:
            del acts[min(at, len(acts) - 1)]
        elif act == 1 and acts:
            acts.insert(at, chance.choice(acts))
        elif act == 2 and acts:
            acts.insert(at, acts.pop(chance.randrange(len(acts))))
        elif act == 3 and others:
            start = chance.randrange(len(others))
            acts[at:at] = others[start : start + 1 + chance.randrange(4)]
        elif at < len(acts):
            head, piece = acts[at]
            if act == 4:
                head = bytes([head[0] ^ 1 << chance.randrange(8), head[1]])
            elif act == 5:
                head = bytes(
                    [head[0] | 2, 128 + chance.choice((-20, -8, -1, 0, 1, 8, -len(piece) // 2, 100))]
                )
            elif act == 6:  # one segment as two
                cut = chance.randrange(len(piece) + 1)
                acts.insert(at + 1, (head, piece[cut:]))
                piece = piece[:cut]
            else:
                piece = changed(chance, piece, chance.choice(others)[1] if others else b"")[:255]
            acts[at] = head, piece
    first = data[:1] if chance.random() < 0.9 else bytes([chance.randrange(8)])
    return (first + b"".join(bytes([a[0], len(piece), a[1]]) + piece for a, piece in acts))[:LENGTH]


def acts_of(data: bytes) -> list[tuple[bytes, bytes]]:
    """The acts of a script: how, and the bytes that are sent."""
    found, pos = [], 1
    while pos + 4 <= len(data):
        size = data[pos + 1]
        found.append((bytes([data[pos], data[pos + 2] & 255]), data[pos + 3 : pos + 3 + size]))
        pos += 3 + size
    return found


class Fuzzer:
    """The inputs that were kept, and what they reached."""

    def __init__(self, name: str, out: Path, fast: Target, slow: Target, change: Change) -> None:
        from kwsniff.native.code import covered

        self._name, self._out = name, out
        self._fast, self._slow, self._change = fast, slow, change
        self._blocks = covered()
        self._seen = np.zeros(len(self._blocks), np.uint8)
        self._kept: list[bytes] = []
        self._path = out / f"{name}-at-hand"
        self._at_hand = self._path.open("w+b", buffering=0)
        self.runs = self.crashes = 0

    def take(self, data: bytes, *, known: bool = False) -> None:
        """Run one input; keep it if it reaches what none did. One that was kept before is `known`."""
        os.pwrite(self._at_hand.fileno(), len(data).to_bytes(4) + data, 0)
        self._blocks[:] = 0
        signal.setitimer(signal.ITIMER_PROF, LONGEST)
        self.runs += 1
        try:
            self._fast(data)
            reached = BUCKETS[self._blocks]
            if (reached & ~self._seen).any():
                self._seen |= reached
                self._kept.append(data)
                if not known:
                    path = self._out / self._name / sha1(data, usedforsecurity=False).hexdigest()
                    path.write_bytes(data)
                    self._slow(data)
        except Exception as error:
            self.crashes += 1
            path = self._out / f"{self._name}-crash-{sha1(data, usedforsecurity=False).hexdigest()}"
            path.write_bytes(data)
            print(f"{path}: {type(error).__name__}: {str(error)[:500]}", flush=True)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def go_on(self, chance: random.Random) -> None:
        """Take a changed input; those that were kept late are chosen more often."""
        place = int(len(self._kept) * chance.random() ** 0.5)
        self.take(self._change(chance, self._kept[place], chance.choice(self._kept)))

    def end(self) -> None:
        """The last input did not end the process."""
        self._at_hand.close()
        self._path.unlink()

    def __str__(self) -> str:
        blocks = int((self._seen > 0).sum())
        return f"{self.runs} runs, {len(self._kept)} inputs kept, {blocks} of {len(self._seen)} blocks"


MOST_CRASHES = 20


def fuzz(name: str, seconds: float, out: Path, seed: int | None = None) -> int:
    """Fuzz one target for so long; how many inputs broke its invariant."""
    from tests.fuzz.corpus import seeds
    from tests.fuzz.targets import FAST, TARGETS

    (out / name).mkdir(parents=True, exist_ok=True)
    known = [each.read_bytes() for each in sorted((out / name).iterdir())]
    fuzzer = Fuzzer(
        name, out, FAST[name], TARGETS[name], changed if name in ("frames", "link") else changed_acts
    )
    start = time.monotonic()
    for data in known:
        fuzzer.take(data, known=True)
    for data in seeds(name):
        fuzzer.take(data)
    chance = random.Random(seed)
    begun, runs, told = time.monotonic(), fuzzer.runs, 0.0
    while time.monotonic() - start < seconds and fuzzer.crashes < MOST_CRASHES:
        fuzzer.go_on(chance)
        if time.monotonic() - told > 60:
            told = time.monotonic()
            print(
                f"{name}: {fuzzer}, {(fuzzer.runs - runs) / (told - begun + 1e-9):.0f} a second", flush=True
            )
    rate = (fuzzer.runs - runs) / (time.monotonic() - begun)
    print(f"{name}: {fuzzer}, {rate:.0f} a second, {fuzzer.crashes} broke the invariant", flush=True)
    fuzzer.end()
    return fuzzer.crashes


if __name__ == "__main__":
    sys.exit(1 if fuzz(sys.argv[1], float(sys.argv[2]), Path("out/fuzz")) else 0)
