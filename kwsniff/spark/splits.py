"""Captures to staged events on Spark.

Theory of operation. Usually in *splits*, each read by one task, as `kwsniff.run` describes, in three jobs:
`_index` finds where large files can be cut (a task for each split); `decode` decodes the splits (a task
each), which write their events into files, and their summaries, dealt out by connection; `join` takes the
summaries one after the other, since the state behind a split is needed for the next one: a task for each
share of the connections. What is to be put right in the files after that `kwsniff.spark.finish` does. Between
the jobs lie files, so nothing is computed twice and a task that fails is simply run again.

What a cut costs does not depend on how much lies between two: connections are met in their middle, and what
waited there has to be told by joining. So a file is cut only where a core's share of the input is so large
that decoding it apart saves more; tasks share the rows of one split when they finish them anyway.

With secrets of TLS connections all input is one split, since what is known of such a connection is not put
together where two meet. Where splits cannot be read apart (also because decoding came upon secrets), every
task reads all of the input and follows a share of the connections (`decode_shares`): reading and dissecting
are repeated by every task, decoding, which costs more, is divided.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from kwsniff.capture.place import Place
from kwsniff.capture.source import CaptureFile, CaptureTotals, resolve, segments
from kwsniff.config import MIB, Config
from kwsniff.engine.analyze import keyed
from kwsniff.rows.prefetch import prefetched
from kwsniff.run.dealt import Steadiness, dealt, even
from kwsniff.run.join import limits_of, within
from kwsniff.run.part import ORDER_BITS, PartEngine, SplitNotes, SplitReader, independent
from kwsniff.run.plan import SPLIT_BYTES, Split, followed, joined, pieces, places, together
from kwsniff.spark.files import Writing
from kwsniff.spark.joining import Correction, JoinedShare, Joining, RunOfSplits
from kwsniff.spark.learnt import First, Namings, calls_of_sessions, earliest
from kwsniff.spark.staged import STAGED, Staged, StagedFile, placed, positioned
from kwsniff.spark.tasks import context_of, kept, run

if TYPE_CHECKING:
    from kwsniff.spark.tasks import Spark

LEAST_SPLIT = 512 * MIB
"""With smaller splits, what a cut costs would be more than decoding on another core saves."""
MOST_SHARES = 16
"""Tasks that join, at most: the summary of a split, and what joining says of it, lie in so many files."""
MOST_SPLITS = 1 << 15
"""A position has room for the numbers of so many."""
PACKED, UNPACKED = (".gz", ".zst", ".lz4", ".xz"), 4
"""Names of compressed files, and how many times as much is in them, about."""
ROLLED = 2 << 20
"""Bytes after which a split's rows go on in another file, for another task to finish."""
FIND, DECODE, JOIN = "find where to cut", "decode splits", "join splits"
Wanted = tuple[str, int, int | None, int]
"""A stretch of a file, as `followed` is asked for it."""


def split_bytes(total: int, cores: int) -> int:
    """Size of splits: one for each core, within limits."""
    wanted = min(max(total // cores, LEAST_SPLIT), SPLIT_BYTES)
    return max(wanted, -(-total // (MOST_SPLITS // 2)))


def make_plan(spark: Spark, paths: Sequence[str], config: Config, size: int | None) -> list[Split]:
    """The splits of the captures at `paths`; `size` is that of a split in bytes. With secrets of TLS
    connections, as far as the beginnings of files show, it is one. Raises CaptureError."""
    # Of compressed files the size of what is in them counts, about: that is what a core has to do.
    files = [
        replace(file, size=(file.size or 0) * UNPACKED) if file.path.endswith(PACKED) else file
        for file in resolve(paths)
    ]
    if config.keylog is not None or any(file.secrets for file in files):
        return [Split(files[0].path, more=tuple(file.path for file in files[1:]))]
    total = sum(file.size or 0 for file in files)
    size = size or split_bytes(total, context_of(spark).defaultParallelism)
    return joined(files, _index(spark, files, config, size), size)


def _index(spark: Spark, files: Sequence[CaptureFile], config: Config, size: int) -> list[list[Split]]:
    """The pieces of each file. Large files are looked into: a task for each piece finds out where it begins,
    and a task for each file follows it whole where that proved nothing."""
    ranges = {file.path: _ranges(file, size) for file in files}
    wanted = [each for some in ranges.values() for each in some]
    found = iter(run(spark, FIND, wanted, lambda each: followed(*each, config)))
    parts = {
        path: together(path, list(islice(found, len(some))), some[0][-1]) if some else [Split(path)]
        for path, some in ranges.items()
    }
    odd = [path for path, splits in parts.items() if splits is None]
    parts.update(zip(odd, run(spark, FIND, odd, lambda path: pieces(path, config, size)), strict=True))
    return [parts[file.path] or [] for file in files]


def _ranges(file: CaptureFile, size: int) -> list[Wanted]:
    """The pieces that a file is to have, if there are several."""
    total = 0 if file.path.endswith(PACKED) else file.size or 0
    begins = [0, *places(total, size)]
    ends = [*begins[1:], None]
    return [(file.path, *each, total) for each in zip(begins, ends, strict=True)] if begins[1:] else []


@dataclass(slots=True)
class Account:
    """What a run in splits came to: for the manifest."""

    splits: int
    summary_bytes: int = 0
    """Size of all summaries ..."""
    shuffled_bytes: int = 0
    """... and with what joining told: what went from task to task but for events."""
    again: int = 0
    """Pairs of endpoints that were decoded again in a split."""
    splits_again: int = 0
    """Splits that were read again for them."""
    whole: int = 0
    """Splits that were decoded again as a whole."""


@dataclass(slots=True)
class Decoded:
    """What a task made of a split."""

    notes: SplitNotes
    files: list[Staged]
    in_sessions: bool
    """Rows are of fetch sessions."""
    namings: Namings
    summaries: list[str]
    """Where the shares of its summary lie (`kwsniff.run.dealt`) ..."""
    bytes: int
    """... and their size."""
    steadiness: Steadiness
    limited: bool
    most: tuple[int, ...]


class SplitRun:
    """One run over `splits`, with the files between its jobs in `place`."""

    def __init__(self, spark: Spark, splits: Sequence[Split], config: Config, place: Place, run: int) -> None:
        """`run` puts the positions behind those of runs with a lower number."""
        self._spark = spark
        self._of = RunOfSplits(list(splits), config, place, run, secrets.randbits(62))
        self._cores = context_of(spark).defaultParallelism
        self._shares = min(self._cores, MOST_SHARES) if len(splits) > 1 else 1
        self._decoded: list[Decoded] = []
        self.names: First | None = None
        """What all rows name, once the splits are joined; None: they have to be read for it."""
        self.sessions = False
        """Rows are of fetch sessions, of what is believed or not."""
        self.totals = CaptureTotals()
        self.account = Account(len(splits))
        self.files: list[Staged] = []
        """The events of all splits, as each knows them."""
        self.corrections: dict[int, list[Correction]] = {}
        """For each split what is to be put right in its events, once the splits are joined."""

    def decode(self) -> bool:
        """Decode all splits; False if they cannot be read apart, see `kwsniff.run.part.independent`."""
        splits = self._of.splits
        # A thread reads, for a core that has no split of its own.
        work = partial(_decoded, self._of, self._shares, ROLLED, ahead=len(splits) < self._cores)
        self._decoded = run(self._spark, DECODE, range(len(splits)), work)
        for each in self._decoded:
            self.totals.merge(each.notes.totals)
        self.files = [file for each in self._decoded for file in each.files]
        self.sessions = any(each.in_sessions for each in self._decoded)
        self.account.summary_bytes = sum(each.bytes for each in self._decoded)
        return independent(splits, [each.notes for each in self._decoded])

    def join(self) -> None:
        """Put the splits together."""
        shared = self._shares > 1 and even([each.steadiness for each in self._decoded])
        found = self._join(shared)
        if shared and not self._fitted(found):
            found = self._join(False)
        self.names = self._named(found)
        self.sessions = self.sessions or any(each.sessions for each in found)
        self.corrections = {
            number: [each.corrections[number] for each in found] for number in range(len(self._decoded))
        }
        account = self.account
        account.again = sum(each.again for each in found)
        account.whole = sum(each.whole for each in found)
        account.splits_again = len({number for each in found for number in each.splits_again})
        account.shuffled_bytes = account.summary_bytes + sum(each.bytes for each in found)

    def _join(self, shared: bool) -> list[JoinedShare]:
        """By a task for each share of the connections, or by a single one."""
        urls = [each.summaries for each in self._decoded]
        shares = [[[each[share]] for each in urls] for share in range(self._shares)] if shared else [urls]
        joining = Joining(self._of, shared, [each.namings.numbers() for each in self._decoded])
        return run(self._spark, JOIN, shares, joining.join)

    def _named(self, shares: list[JoinedShare]) -> First | None:
        """What the rows name that are believed, those of joining among them."""
        found = [naming for each in shares for naming in each.namings.without(()) or ()]
        for number, split in enumerate(self._decoded):
            doubted = [each.doubted[number] for each in shares]
            if None in doubted:
                continue
            own = split.namings.without({number for each in doubted for number in each or ()})
            if own is None:
                return None
            found += own
        return earliest(found)

    def _fitted(self, shares: list[JoinedShare]) -> bool:
        """Whether no limit over all connections was reached, with what all shares held at each cut."""
        if any(each.limited for each in shares) or any(each.limited for each in self._decoded):
            return False
        limits = limits_of(self._of.config)
        for cut, part in enumerate(self._decoded[1:]):
            held = map(sum, zip(*(each.held[cut] for each in shares), strict=True))
            if not within(held, part.most, limits):
                return False
        return True


# Tasks


def _decoded(of: RunOfSplits, shares: int, rolled: int, number: int, *, ahead: bool) -> Decoded:
    """Decode one split into files of about `rolled` bytes, and so many shares of a summary. Raises
    CaptureError, OSError."""
    reader = SplitReader(of.splits, number, of.config)
    engine = PartEngine(of.config, of.seed, number << ORDER_BITS, first=number == 0)
    steadiness, namings = Steadiness(), Namings()
    columns = prefetched(reader.columns()) if ahead else reader.columns()
    with closing(columns), StagedSplit(of.place, number, rolled) as staged:
        for emitted in engine.part(steadiness.watch(columns)):
            rows = placed(emitted, of.number)
            namings.add(rows)
            staged.add(rows)
    summary = engine.summary()
    written = [kept(of.place / "summaries", each) for each in dealt(summary, shares)]
    return Decoded(
        reader.emitted, staged.files, staged.in_sessions, namings, [url for url, _ in written],
        sum(size for _, size in written), steadiness, summary.limited, summary.most,
    )  # fmt: skip


class StagedSplit(Writing):
    """Rows (STAGED) of one split in files of about `size` bytes each, so that several tasks can finish them,
    and the calls of fetch sessions among them beside each. Raises OSError."""

    def __init__(self, place: Place, split: int, size: int) -> None:
        self._place, self._split, self._size = place, split, size
        self._last: int | None = None
        """Position of the last row."""
        self._first: int | None = None
        """Position from which rows go into the open file."""
        self.files: list[Staged] = []
        """What was written, once the block is over."""
        self.in_sessions = False
        """There are calls of fetch sessions."""
        self._begin()

    def _begin(self) -> None:
        name = f"{self._split:06}.arrow"
        self._rows = StagedFile(self._place / "events" / name, STAGED)
        self._sessions = StagedFile(self._place / "sessions" / name, STAGED)

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows that come after those before."""
        if not rows.num_rows:
            return
        first = rows["position"][0].as_py()
        # Rows of one position stay together.
        if self._rows.written >= self._size and self._last is not None and first > self._last:
            self.finish(first)
            self._begin()
            self._first = first
        self._last = rows["position"][-1].as_py()
        self._rows.add(rows)
        if (calls := calls_of_sessions(rows)) is not None:
            self._sessions.add(calls)
            self.in_sessions = True

    def finish(self, next_first: int | None = None) -> None:
        for each in (self._rows, self._sessions):
            each.finish()
        file, sessions = self._rows.emitted(self._split), self._sessions.emitted().path
        self.files.append(replace(file, sessions=sessions, first=self._first, end=next_first))

    def abandon(self) -> None:
        for each in (self._rows, self._sessions):
            each.abandon()


# Tasks that read all of the input


def decode_shares(
    spark: Spark, paths: Sequence[str], config: Config, place: Place, number: int, shares: int
) -> tuple[list[Staged], CaptureTotals]:
    """Decode by so many tasks that share the connections, into files in `place`, each in order by itself;
    `number` puts positions behind those of runs with a lower one. Raises what Spark raises."""

    def work(share: int) -> tuple[Staged, CaptureTotals]:
        totals = CaptureTotals()
        with StagedFile(place / f"{share:06}.arrow") as file:
            for parts in keyed(segments(paths, config, totals), config, (share, shares)):
                for batch, keys in parts:
                    file.add(positioned(batch, keys, number))
        return file.emitted(), totals

    found = run(spark, "decode shares of the connections", range(shares), work)
    return [file for file, _ in found], found[0][1]  # they all read the same packets
