"""What Python programs hand over to be read, and the events of it that were asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import IO, Any, cast

import pyarrow as pa

from kwsniff.analysis.callrows import NAMED, NAMING
from kwsniff.analysis.stored import is_stored, stored_events
from kwsniff.capture.memory import ETHERNET, segments_of_bytes, segments_of_file, segments_of_packets
from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config
from kwsniff.count.naming import named
from kwsniff.count.where.name import BODIES
from kwsniff.count.where.predicate import Owned, columns_in, compile_where
from kwsniff.engine.analyze import analyze
from kwsniff.output import suggestion
from kwsniff.rows.schema import EVENTS
from kwsniff.run import offline

Path = str | os.PathLike[str]
Source = Path | bytes | bytearray | memoryview | IO[bytes] | Iterable[Any]
"""A capture file, a directory of captures or of stored events, `-` for standard input; the bytes of a capture
file; a binary file that is open; a list of paths; or packets (scapy's, or pairs of seconds and bytes)."""

TOLD = frozenset(("event", "time", "code", "detail", "packet", "capture", "status"))
"""Columns that everything needs."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which events, and what of them."""

    where: str | None = None
    columns: Collection[str] | None = None
    since: str | None = None
    until: str | None = None
    tz: str = "UTC"
    jobs: int | None = 1
    linktype: int = ETHERNET
    owned: bool = False
    """Connections of the calls that `where` chooses are chosen, too."""

    def needed(self) -> frozenset[str] | None:
        """Columns to be decoded, None for all. Raises ValueError for one that there is not."""
        if self.columns is None:
            return None
        if isinstance(self.columns, str):
            raise TypeError("columns is a list of names, not one text")
        for name in self.columns:
            if name not in EVENTS.names:
                raise ValueError(f"there is no column {name!r}{suggestion(name, EVENTS.names)}")
        needed = frozenset(self.columns) | TOLD
        if self.where is not None:
            needed |= columns_in(self.where)
        return needed | (NAMING if needed & NAMED else frozenset())


def rows(
    source: Source,
    asked: Selection,
    config: Config,
    totals: CaptureTotals | None = None,
    see: Callable[[pa.RecordBatch], None] | None = None,
) -> Iterator[pa.RecordBatch]:
    """The EVENTS batches that were asked for, with all columns, and with topic names. `see` is given
    each batch first, whole.

    Raises:
        CaptureError: an input cannot be read; the text is one line.
        WhereError, ValueError, TypeError: what was asked for is wrong.
    """
    predicate = compile_where(asked.where, since=asked.since, until=asked.until, tz=asked.tz)
    needed = asked.needed()
    looked = columns_in(asked.where) if asked.where is not None else frozenset()
    full = config.full or bool((looked | (needed or frozenset())) & BODIES)
    config = replace(config, full=full) if needed is None else replace(config, full=full, columns=needed)
    found = named(_events(source, config, asked, totals if totals is not None else CaptureTotals()))
    found = found if see is None else _seen(found, see)
    if asked.where is None and asked.since is None and asked.until is None:
        return found
    if not asked.owned or asked.where is None:
        return (batch.filter(predicate(batch)) for batch in found)
    own = Owned()
    return (batch.filter(own(batch, predicate(batch))) for batch in found)


def _seen(
    batches: Iterator[pa.RecordBatch], see: Callable[[pa.RecordBatch], None]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        see(batch)
        yield batch


def _events(
    source: Source, config: Config, asked: Selection, totals: CaptureTotals
) -> Iterator[pa.RecordBatch]:
    if isinstance(source, bytes | bytearray | memoryview):
        return analyze(segments_of_bytes(bytes(source), config, totals), config)
    if (paths := paths_of(source)) is not None:
        return _of_paths(paths, config, asked.jobs, totals)
    if hasattr(source, "read"):
        return analyze(segments_of_file(cast("IO[bytes]", source), config, totals), config)
    if isinstance(source, Iterable):
        return analyze(segments_of_packets(source, config, totals, linktype=asked.linktype), config)
    raise TypeError(f"{type(source).__name__} is neither a path, nor bytes, an open file, or packets")


def paths_of(source: Source) -> list[str] | None:
    """The paths that a source is, None if it is something else."""
    if isinstance(source, str | os.PathLike):
        return [os.fspath(source)]
    if not isinstance(source, Sequence) or isinstance(source, bytes | bytearray | memoryview) or not source:
        return None
    paths = [os.fspath(each) for each in source if isinstance(each, str | os.PathLike)]
    return paths if len(paths) == len(source) else None


def _of_paths(
    paths: list[str], config: Config, jobs: int | None, totals: CaptureTotals
) -> Iterator[pa.RecordBatch]:
    stored = [path for path in paths if path != "-" and is_stored(path)]
    captures = [path for path in paths if path not in stored]
    columns = config.columns | TOLD if config.columns is not None else None
    parts = [stored_events(path, columns) for path in stored]
    if captures:
        parts.append(offline.events(captures, config, totals=totals, jobs=jobs))
    return chain.from_iterable(parts)
