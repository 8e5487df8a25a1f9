"""Captures to staged events on Spark in splits: each byte of the input is read by one task.

Theory of operation. What `kwsniff.parts` describes, in three jobs: `_index` finds where large files can be
cut (a task for each part); `decode` decodes the splits (a task each), which write their events into files of
their own, and their summaries, dealt out by connection; `join` takes the summaries one after the other, since
the state behind a split is needed for the next one: a task for each share of the connections. `corrections`
then are what has to be put right in the files, or added to them (`kwsniff.spark.finish`).

Between the jobs lie files, so nothing is computed twice and a task that fails is simply run again.
"""

from __future__ import annotations

import json
import pickle
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa

from kwsniff.capture.source import CaptureFile, resolve
from kwsniff.config import MIB, Config
from kwsniff.lake.place import Place
from kwsniff.net.packets import CaptureTotals
from kwsniff.parts.dealt import Steadiness, dealt, even
from kwsniff.parts.join import limits_of, within
from kwsniff.parts.part import ORDER_BITS, PartEngine, PartSummary
from kwsniff.parts.plan import SPLIT_BYTES, Split, joined, pieces, places
from kwsniff.parts.reading import SplitNotes, SplitReader, independent
from kwsniff.parts.stretch import Stretch, followed, together
from kwsniff.spark.carrying import calls_of_sessions
from kwsniff.spark.control import EMITTED, KeptInput, Piece, Work, batched, context_of, numbers, tasks
from kwsniff.spark.joining import Count, Joining, placed
from kwsniff.spark.naming import First, Namings, earliest
from kwsniff.spark.packing import packed_object
from kwsniff.spark.staged import STAGED, Staged, StagedFile

if TYPE_CHECKING:
    from kwsniff.spark.control import Spark

LEAST_SPLIT = 32 * MIB
"""Smaller splits would have more edges than they gain."""
MOST_SHARES = 16
"""Tasks that join, at most: what a group of splits is told lies in so many files."""
MOST_SPLITS = 1 << 15
"""A position has room for the numbers of so many."""
Wanted = tuple[str, int, int | None, int]
"""A stretch of a file, as `followed` is asked for it."""


def split_bytes(total: int, cores: int) -> int:
    """Size of splits: one for each core, within limits."""
    wanted = min(max(total // cores, LEAST_SPLIT), SPLIT_BYTES)
    return max(wanted, -(-total // (MOST_SPLITS // 2)))


def make_plan(spark: Spark, paths: Sequence[str], config: Config, size: int | None) -> list[Split]:
    """The splits of the captures at `paths`; `size` is that of a split in bytes. Raises CaptureError."""
    files = resolve(paths)
    total = sum(file.size or 0 for file in files)
    size = size or split_bytes(total, context_of(spark).defaultParallelism)
    return joined(files, _index(spark, files, config, size), size)


def _index(spark: Spark, files: Sequence[CaptureFile], config: Config, size: int) -> list[list[Split]]:
    """The pieces of each file. Large files are looked into: a task for each piece finds out where it begins,
    and a task for each file follows it whole where that proved nothing."""
    ranges = {file.path: _ranges(file, size) for file in files}
    wanted = [each for some in ranges.values() for each in some]
    found = iter(_pickled(spark, len(wanted), lambda number: followed(*wanted[number], config)))
    parts = {path: _proven(path, list(islice(found, len(some))), some) for path, some in ranges.items()}
    odd = [path for path, splits in parts.items() if splits is None]
    parts.update(zip(odd, _pickled(spark, len(odd), lambda at: pieces(odd[at], config, size)), strict=True))
    return [parts[file.path] or [] for file in files]


def _ranges(file: CaptureFile, size: int) -> list[Wanted]:
    """The pieces that a file is to have, if there are several."""
    total = file.size or 0
    begins = [0, *places(total, size)]
    ends = [*begins[1:], None]
    return [(file.path, *each, total) for each in zip(begins, ends, strict=True)] if begins[1:] else []


def _proven(path: str, found: list[Stretch | None], ranges: Sequence[Wanted]) -> list[Split] | None:
    return together(path, found, ranges[0][-1]) if ranges else [Split(path)]


def _pickled(spark: Spark, count: int, find: Callable[[int], Any]) -> list[Any]:
    """What tasks find out for each number."""
    if not count:
        return []

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            yield from batched([{"kind": EMITTED, "split": number, "data": pickle.dumps(find(number))}])

    return [
        pickle.loads(each)
        for each in tasks(spark, "find where to cut", count, work).sort_by("split")["data"].to_pylist()
    ]


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


@dataclass(frozen=True, slots=True)
class Summaries:
    """The shares of a split's summary (`kwsniff.parts.dealt`), and what is of all connections at once."""

    urls: list[str]
    bytes: int
    steady: bool
    began: int
    clock: int
    limited: bool
    most: tuple[int, ...]

    @property
    def steadiness(self) -> Steadiness:
        return Steadiness(self.steady, self.began, self.clock)


class SplitRun:
    """One run over `splits`, with the files between its jobs in `place`."""

    def __init__(self, spark: Spark, splits: Sequence[Split], config: Config, place: Place, run: int) -> None:
        """`run` puts the positions behind those of runs with a lower number."""
        self._spark, self._splits, self._config = spark, list(splits), config
        self._place, self._run = place, run
        self._seed = secrets.randbits(62)
        cores = context_of(spark).defaultParallelism
        self._shares = min(cores, MOST_SHARES) if len(self._splits) > 1 else 1
        self._summaries: list[Summaries] = []
        self._namings: list[Namings] = []
        """What each split named, as it knows it."""
        self.names: First | None = None
        """What all rows name, once the splits are joined; None: they have to be read for it."""
        self.sessions = False
        """Rows are of fetch sessions, of what is believed or not."""
        self.totals = CaptureTotals()
        self.account = Account(len(splits))
        self.files: list[Staged] = []
        """The events of each split, as it knows them."""

    def decode(self) -> bool:
        """Decode all splits; False if they cannot be read apart, see `reading.independent`."""
        work = _decoding(self._splits, self._config, self._place, self._run, self._seed, self._shares)
        details = tasks(self._spark, "decode splits", len(self._splits), work)["detail"].to_pylist()
        said = sorted(map(json.loads, details), key=lambda each: each["file"]["split"])
        emitted = [SplitNotes.of(each["told"]) for each in said]
        for each in emitted:
            self.totals.merge(each.totals)
        self.files = [Staged(**each["file"]) for each in said]
        self._summaries = [Summaries(**each["summaries"]) for each in said]
        self._namings = [Namings.of(each["names"]) for each in said]
        self.sessions = any(each["in_sessions"] for each in said)
        self.account.summary_bytes = sum(each.bytes for each in self._summaries)
        return independent(self._splits, emitted)

    def join(self, group_of: Sequence[int]) -> None:
        """Put the splits together. What comes of a split is for the group that `group_of` has for it."""
        shared = self._shares > 1 and even([each.steadiness for each in self._summaries])
        counts = self._join(list(group_of), shared)
        if shared and not self._fitted(counts):
            counts = self._join(list(group_of), False)
        self.names = self._named(counts)
        self.sessions = self.sessions or any(each.sessions for each in counts)
        account = self.account
        account.again = sum(each.again for each in counts)
        account.whole = sum(each.whole for each in counts)
        account.splits_again = len({number for each in counts for number in each.splits_again})
        account.shuffled_bytes = account.summary_bytes + sum(each.shuffled_bytes for each in counts)

    def _join(self, group_of: list[int], shared: bool) -> list[Count]:
        """By a task for each share of the connections, or by a single one."""
        urls = [each.urls for each in self._summaries]
        shares = [[[each[share]] for each in urls] for share in range(self._shares)] if shared else [urls]
        self._joined = KeptInput(self._spark, self._place / "joined")
        namers = [each.numbers() for each in self._namings]
        work = _joining(self._splits, shares, self._config, self._seed, self._run, group_of, namers)
        self._joined.write("join splits", len(shares), work)
        return [Count(**json.loads(each)) for each in self._joined.details()]

    def _named(self, counts: list[Count]) -> First | None:
        """What the rows name that are believed, those of joining among them."""
        found = [naming for each in counts for naming in Namings.of(each.names).without(()) or ()]
        for number, namings in enumerate(self._namings):
            doubted = [each.doubted[number] for each in counts]
            if None in doubted:
                continue
            own = namings.without({number for each in doubted for number in each or ()})
            if own is None:
                return None
            found += own
        return earliest(found)

    def _fitted(self, counts: list[Count]) -> bool:
        """Whether no limit over all connections was reached, with what all shares held at each cut."""
        if any(each.limited for each in counts) or any(each.limited for each in self._summaries):
            return False
        limits = limits_of(self._config)
        for cut, part in enumerate(self._summaries[1:]):
            held = map(sum, zip(*(each.held[cut] for each in counts), strict=True))
            if not within(held, part.most, limits):
                return False
        return True

    def corrections(self, groups: int) -> list[list[Piece]]:
        """Where JOINED and EVENTS for each of so many groups lie; their `key` is the number of the split."""
        return [self._joined.pieces(group) for group in range(groups)]


# Tasks


def _decoding(splits: list[Split], config: Config, place: Place, run: int, seed: int, shares: int) -> Work:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in numbers(batches):
            reader, steadiness = SplitReader(splits, number, config), Steadiness()
            engine = PartEngine(config, seed, number << ORDER_BITS, first=number == 0)
            namings = Namings()
            file, sessions = (
                StagedFile(place / kind / f"{number:06}.arrow", STAGED) for kind in ("events", "sessions")
            )
            with file, sessions:
                for emitted in engine.part(steadiness.watch(reader.columns())):
                    rows = placed(emitted, run)
                    namings.add(rows)
                    file.add(rows)
                    if (calls := calls_of_sessions(rows)) is not None:
                        sessions.add(calls)
            own = sessions.emitted()
            written = replace(file.emitted(number), sessions=own.path)
            summaries = _kept(engine.summary(), steadiness, shares, place / "summaries", number)
            said = {
                "told": reader.emitted.plain(), "file": asdict(written), "in_sessions": own.rows,
                "summaries": asdict(summaries), "names": namings.plain(),
            }  # fmt: skip
            yield from batched([{"kind": EMITTED, "split": number, "detail": json.dumps(said)}])

    return work


def _kept(summary: PartSummary, steadiness: Steadiness, shares: int, place: Place, number: int) -> Summaries:
    """Write the shares of a summary."""
    urls, size = [], 0
    for share, each in enumerate(dealt(summary, shares)):
        data = packed_object(each)
        file = place / f"{number:06}-{share:02}-{uuid4().hex[:12]}"
        file.replace(data)
        urls.append(file.url)
        size += len(data)
    times = steadiness.steady, steadiness.began, steadiness.clock
    return Summaries(urls, size, *times, summary.limited, summary.most)


def _joining(
    splits: list[Split], shares: list[list[list[str]]], config: Config, seed: int, run: int,
    group_of: list[int], namers: list[set[int]],
) -> Work:  # fmt: skip
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for share in numbers(batches):
            shared = len(shares) > 1
            joining = Joining(splits, shares[share], config, seed, run, shared=shared, namers=namers)
            yield from batched(joining.rows(group_of))

    return work
