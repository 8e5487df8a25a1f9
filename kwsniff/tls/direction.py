"""One direction of a TLS connection: its epoch and sequence number, and the search for both.

A record before which nothing was lost has the next sequence number of the current epoch, and `Session.take`
opens it with nothing else looked at. Where records were lost, could not be opened, or keys change, `search`
tries what is possible, the likeliest first, until a tag fits. It never goes back before the last record that
was opened, so none is opened twice. What it may try is bounded by credit, which grows with the bytes taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kwsniff.tls.epochs import CLEAR, Candidate, Negotiation, candidates
from kwsniff.tls.keylog import KeyLog
from kwsniff.tls.protection import Opened, Record, Sealed
from kwsniff.tls.suites import BLOCK_BYTES, HEADER_BYTES, TLS_1_0, overhead

LEAST_RECORD = 22
"""Bytes of the smallest record with a byte of content: header, tag of 8 bytes, nonce of TLS 1.2."""
FEW = 4
"""Sequence numbers around the likeliest ones that are tried in each epoch before all others."""
MAX_TRIES = 16_384
"""Sequence numbers that are tried on one record in one epoch."""
TRY_COST = 4096
"""What a try costs besides the bytes of the record, in bytes."""
CREDIT = 16 << 20
"""Bytes that a direction may spend on tries at first."""
MAX_CREDIT = 64 << 20
CREDIT_PER_BYTE = 64
GUESSED_RECORDS = 8
"""Records of a direction without any hello for which the secrets of all connections are tried."""
GUESS_CREDIT = 4 << 20
GUESSED_SEQUENCES = 256
"""Sequence numbers that are tried then, if credit is left."""
USUAL_RECORD = 1024
USUAL_OVERHEAD = 17

Epoch = tuple[Negotiation, int]


@dataclass(slots=True)
class Direction:
    """Counts are those of records if they do not say otherwise."""

    open: Callable[[Record, int], Opened] | None = None
    """Opens the next record, if nothing is unsure about it."""
    decrypt: Callable[[Any, Any, Any], bytes] | None = None
    """With `iv` all that `open` consists of in TLS 1.3."""
    iv: int = 0
    negotiation: Negotiation | None = None
    stage: int = CLEAR
    changed: bool = False
    """A ChangeCipherSpec was seen in the clear."""
    sequence: int = 0
    """The next record's if none was lost since the last one that was opened."""
    failed: int = 0
    """Seen since the last one that was opened, or since the epoch began, and not opened."""
    missed: int = 0
    """At most lost in that time."""
    expected: int = 0
    """Probably lost in that time."""
    sampled: int = 0
    """Bytes of some records of application data, with their headers."""
    samples: int = 0
    """How many records those are."""
    messages: bytearray = field(default_factory=bytearray)
    """The beginning of a handshake message."""
    skip: int = 0
    """Bytes of a handshake message that is too long to be kept and still to come."""
    chain: bytearray = field(default_factory=lambda: bytearray(BLOCK_BYTES))
    """TLS 1.0: the last block of the last record."""
    credit: int = CREDIT
    losses: int = 0
    """Since the last record that was opened."""
    settled: int = 0
    """What `sequence` was when a search ended; those opened since gave no credit yet."""
    version: int = -1
    """Of the key log when candidates were made; -1 to make them anew."""
    made: list[tuple[Negotiation, int, list[Candidate]]] = field(default_factory=list)

    def __getstate__(self) -> dict[str, Any]:
        """Everything but keys, which are made anew."""
        state = {name: getattr(self, name) for name in self.__slots__}
        return {**state, "open": None, "decrypt": None, "iv": 0, "version": -1, "made": []}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)

    def begin(self, negotiation: Negotiation, stage: int) -> None:
        """The next record is the first one of an epoch."""
        self.negotiation, self.stage = negotiation, stage
        self.open = None
        self.sequence = self.failed = self.missed = self.expected = self.settled = 0

    def lose(self, count: int) -> None:
        """So many bytes of the stream are missing before the next record."""
        self.missed += count // LEAST_RECORD + 1
        self.expected += round(count / self.mean_record())
        if self.sequence - self.failed > self.settled:
            self.losses = 0
        # Who has no keys can claim losses at no cost, but opens nothing between them.
        self.credit += min(count * CREDIT_PER_BYTE, MAX_CREDIT) >> self.losses
        self.losses += 1
        self.open = None
        self.messages.clear()
        self.skip = 0

    def hurry(self) -> None:
        """Nothing is unsure about the next record: it is protected like the one that was just opened."""
        protection = self.made[0][2][0].protection
        self.open = protection.open
        self.decrypt, self.iv = (
            (protection.decrypt, protection.iv) if isinstance(protection, Sealed) else (None, 0)
        )

    def sample(self, record: Record) -> None:
        self.sampled += len(record)
        self.samples += 1

    def mean_record(self) -> float:
        """Bytes of a record with its header."""
        return max(self.sampled / self.samples, LEAST_RECORD) if self.samples else USUAL_RECORD

    def overhead(self, negotiation: Negotiation | None) -> int:
        """Bytes of a record's body that are no plaintext."""
        suite = negotiation.suite if negotiation else None
        return overhead(negotiation.version, suite) if negotiation and suite else USUAL_OVERHEAD

    def fail(self, record: Record) -> None:
        """A record could not be opened; it counted for its sender."""
        self.open = None
        self.sequence += 1
        self.failed += 1
        negotiation = self.negotiation
        if negotiation and negotiation.version <= TLS_1_0 and (suite := negotiation.suite):
            end = len(record) - (suite.mac_bytes if negotiation.encrypt_then_mac else 0)
            if end >= HEADER_BYTES + BLOCK_BYTES:
                self.chain[:] = record[end - BLOCK_BYTES : end]

    def search(
        self, record: Record, epochs: list[Epoch], keys: KeyLog, client: bool | None
    ) -> tuple[Opened, Candidate | None]:
        """Open a record in one of several epochs, of which the first is the likeliest.

        Returns what it holds and with which keys it was opened, and goes on from there; or None twice.
        """
        known = [(epoch, found) for epoch in epochs if (found := self._candidates(epoch, keys, client))]
        opened_since = self.sequence - self.failed - self.settled
        earned = len(record) * CREDIT_PER_BYTE + (opened_since + 1) * TRY_COST
        self.credit, self.settled = min(self.credit + earned, MAX_CREDIT), self.sequence - self.failed
        for window in (self._near, self._far):
            for epoch, found in known:
                for sequence in window(epoch):
                    for candidate in found:
                        opened = candidate.protection.open(record, sequence)
                        if opened is not None:
                            self._settle(epoch, candidate, sequence)
                            return opened, candidate
                    self.credit -= (TRY_COST + len(record)) * len(found)
                    if self.credit < 0:
                        return None, None
        return None, None

    def has_keys(self, epoch: Epoch, keys: KeyLog, client: bool | None) -> bool:
        return bool(self._candidates(epoch, keys, client))

    def _candidates(self, epoch: Epoch, keys: KeyLog, client: bool | None) -> list[Candidate]:
        negotiation, stage = epoch
        if negotiation.joined and not negotiation.client_random and self.failed >= GUESSED_RECORDS:
            return []
        if self.version != keys.version:
            self.version, self.made = keys.version, []
        for of, at, found in self.made:
            if of is negotiation and at == stage:
                return found
        found = candidates(negotiation, stage, client, keys, self.chain)
        self.made.append((negotiation, stage, found))
        return found

    def _bounds(self, epoch: Epoch) -> tuple[int, int, int]:
        """The first, the likeliest and the last sequence number that a record may have in an epoch."""
        if epoch[0] is self.negotiation and epoch[1] == self.stage:
            likely = self.sequence + self.expected
            return self.sequence - self.failed, likely, self.sequence + self.missed + FEW
        guessed = GUESSED_SEQUENCES if epoch[0].joined else 0
        return 0, self.failed + self.expected, self.failed + self.missed + guessed + FEW

    def _near(self, epoch: Epoch) -> Iterator[int]:
        low, likely, high = self._bounds(epoch)
        first = likely - self.expected  # nothing was lost
        near = (first, low, likely, *_around(low, likely, high, FEW))
        return iter(dict.fromkeys(number for number in near if number <= high))

    def _far(self, epoch: Epoch) -> Iterator[int]:
        """Few large records may have been lost as well as the usual ones: both are tried in turns."""
        low, likely, high = self._bounds(epoch)
        few = iter(range(likely - self.expected, high + 1))
        for number in _around(low, likely, high, MAX_TRIES):
            yield number
            yield next(few, number)

    def _settle(self, epoch: Epoch, candidate: Candidate, sequence: int) -> None:
        negotiation, stage = epoch
        if negotiation is not self.negotiation or stage != self.stage:
            self.begin(negotiation, stage)
        self.made = [(negotiation, stage, [candidate])]
        self.sequence = self.settled = sequence + 1
        self.failed = self.missed = self.expected = self.losses = 0
        negotiation.client_random = candidate.client_random
        negotiation.cipher = candidate.cipher


def _around(low: int, middle: int, high: int, count: int) -> Iterator[int]:
    """Up to `count` numbers from `low` to `high`, those next to `middle` first."""
    above, below = range(middle, high + 1), range(middle - 1, low - 1, -1)
    one, other = iter(above), iter(below)
    while count > 0:
        found = [number for number in (next(one, None), next(other, None)) if number is not None]
        if not found:
            return
        yield from found[:count]
        count -= len(found)
