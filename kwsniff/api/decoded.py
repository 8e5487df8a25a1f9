"""Events and calls as rows."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.analysis.stored import NAMED, NAMING, is_stored, stored_events
from kwsniff.capture.error import CaptureError
from kwsniff.capture.memory import ETHERNET, segments_of_bytes, segments_of_file, segments_of_packets
from kwsniff.capture.source import CaptureTotals
from kwsniff.config import Config, key_log
from kwsniff.count.naming import named
from kwsniff.count.where.name import BODIES
from kwsniff.count.where.predicate import Owned, columns_in, compile_where
from kwsniff.engine.analyze import analyze
from kwsniff.output import suggestion
from kwsniff.rows.events import CALL
from kwsniff.rows.schema import EVENTS
from kwsniff.run import offline
from kwsniff.spec import compile as decoders
from kwsniff.spec.binary import DecodeError
from kwsniff.spec.compile import compile_layout
from kwsniff.spec.load import Api, Catalog, catalog, catalog_with, use

if TYPE_CHECKING:
    import pandas as pd


# Single bodies, and dissectors of one's own.


def decode_body(
    api_key: int | str,
    api_version: int,
    direction: str,
    body: bytes,
    *,
    dissectors: str | os.PathLike[str] | None = None,
) -> dict[str, Any]:
    """Decode one request or response body, without its header.

    Args:
        api_key: number of the API, or its name, as in the protocol guide of Apache Kafka.
        api_version: version of the request, and so of its response.
        direction: ``request`` or ``response``.
        body: all bytes behind the header.
        dissectors: a folder of ``.kdef`` files that are used besides the installed ones, for this body only.

    Returns:
        Fields by the names of ``dissectors/``: uuid as hyphenated hexadecimal, bytes and records as bytes,
        null as None. Tagged fields that are absent are left out, unknown ones ignored.

    Raises:
        DecodeError: the body is not what the protocol says, or `unknown_api`, `unknown_version`.
        ValueError: another direction.

    The answer to ApiVersions v0 (an error code, then key, least and greatest version of each API):

        >>> import kwsniff
        >>> body = bytes.fromhex("0000" "00000001" "0012" "0000" "0004")
        >>> kwsniff.decode_body("ApiVersions", 0, "response", body)
        {'error_code': 0, 'api_keys': [{'api_key': 18, 'min_version': 0, 'max_version': 4}]}
        >>> kwsniff.decode_body("ApiVersion", 0, "response", body)
        Traceback (most recent call last):
        ...
        kwsniff.spec.binary.DecodeError: unknown_api at ApiVersion (did you mean ApiVersions?)
    """
    if dissectors is None:
        return decoders.decode_body(_api(catalog(), api_key).key, api_version, direction, body)
    found = _api(catalog_with(Path(dissectors)), api_key)
    if api_version not in found.versions:
        raise DecodeError("unknown_version")
    return decoders.whole(_decoder(found, api_version, direction), body)


def _api(known: Catalog, api: int | str) -> Api:
    try:
        return known.api(api) if isinstance(api, int) else known.named(api)
    except KeyError:
        names = [each.name for each in known.apis.values()]
        raise DecodeError("unknown_api", f"{api}{suggestion(str(api), names)}") from None


@cache
def _decoder(api: Api, version: int, direction: str) -> Any:
    return compile_layout(api.message(direction).at(version))


def use_dissectors(folder: str | os.PathLike[str]) -> None:
    """Decode with the ``.kdef`` files of a folder besides the installed ones, in this process and those that
    it starts.

    A file for an API that is installed takes its place: copy it, and change what is different in your
    brokers. docs/dissectors.md has the notation. The environment variable ``KWSNIFF_DISSECTORS`` does the
    same, also for commands. Decoders are made from dissectors once, so it comes before anything is decoded.

    Args:
        folder: a directory with at least one ``.kdef`` file.

    Raises:
        DissectorError: a file is wrong; the message names file and line.
        RuntimeError: something was decoded before.
    """
    use(Path(folder))


PORTS = (9092, 9093, 9094)
"""As of Config."""


def events(
    paths: Source,
    *,
    where: str | None = None,
    columns: Collection[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    full: bool = False,
    records: bool = False,
    ports: tuple[int, ...] = PORTS,
    jobs: int | None = 1,
    linktype: int = ETHERNET,
    **config: Any,
) -> Iterator[pa.RecordBatch]:
    """Everything seen in captures, as Arrow batches: calls, anomalies and connections.

    Rows come in the order in which events were completed, and memory stays flat however large the input.
    Topic names that the captures give for uuids are filled in, also where they come later; rows wait for
    them, on disk if they are many. Nothing is read before the first batch is asked for.

    Args:
        paths, where, since, until, tz, full, records, ports, jobs, linktype, config: as of `kwsniff.calls`.
        columns: only these columns, in this order; what nobody asks for is not decoded.

    Yields:
        Batches of the schema `kwsniff.rows.schema.EVENTS`, or of its columns that were asked for.

    Raises:
        As `kwsniff.calls`.

    How much of what was seen?

        >>> import collections
        >>> import kwsniff
        >>> found = collections.Counter()
        >>> for batch in kwsniff.events("captures/librdkafka-groups.pcapng", columns=["event"]):
        ...     found.update(batch["event"].to_pylist())
        >>> dict(found)
        {'call': 338, 'connection': 25}
    """
    chosen = Config(full=full or records, records=records, ports=tuple(ports), **plain(config))
    asked = Selection(where, columns, since, until, tz, jobs, linktype)
    names = EVENTS.names if columns is None else list(columns)
    return (batch.select(names) for batch in rows(paths, asked, chosen))


def calls(
    paths: Source,
    *,
    where: str | None = None,
    columns: Collection[str] | None = None,
    since: str | None = None,
    until: str | None = None,
    tz: str = "UTC",
    full: bool = False,
    records: bool = False,
    ports: tuple[int, ...] = PORTS,
    jobs: int | None = 1,
    linktype: int = ETHERNET,
    **config: Any,
) -> pd.DataFrame:
    """The calls in captures as a DataFrame: one row for each request with its response.

    Columns are backed by Arrow, so integers stay integers where some are missing. Times are UTC with
    microseconds (``time``, ``request_time``, ...), what ends in ``_us`` is in microseconds. ``latency_us`` is
    from the last byte of the request to the first of the response; ``duration_us`` is the whole call, and
    ``request_transfer_us``, ``queued_us``, ``throttled_us``, ``waited_us``, ``broker_us`` and
    ``response_transfer_us`` are its parts. ``kwsniff schema`` and docs/schema.md say what every column means.

    All rows are in memory: ask for the `columns` you need, or take `kwsniff.rows.events`, batch by batch.

    Args:
        paths: a capture file, a directory of them, ``-`` for standard input, or events that were stored as
            Parquet; a list of such; the bytes of a capture file; a binary file that is open; or packets:
            scapy's, or pairs of seconds since 1970 and bytes, as `linktype` says.
        where: an expression that rows have to meet, such as ``api == "Fetch" and latency > 100ms``
            (``kwsniff schema --where`` has the language).
        columns: only these columns, in this order; what nobody asks for is not decoded.
        since, until: bounds of the time, the second exclusive: ISO 8601, or a time of day.
        tz: the zone of times that name none.
        full: also decode whole bodies, as JSON in the columns ``request`` and ``response``.
        records: show keys and values of records in these bodies.
        ports: ports of brokers; Kafka on other ports is found by its content.
        jobs: processes; None: as many as there are cores if the input is large.
        linktype: of packets that are bytes: a LINKTYPE_ value (https://www.tcpdump.org/linktypes.html).
        config: any other field of `kwsniff.Config`, such as ``max_memory``. ``keylog``: a file with secrets
            to read TLS connections with; by default what ``SSLKEYLOGFILE`` in the environment names, if it
            is there, and ``""`` for none.

    Raises:
        kwsniff.capture.error.CaptureError: an input cannot be read; the text is one line.
        kwsniff.count.where.WhereError: `where`, `since` or `until` is wrong.
        TypeError, ValueError: there is no such option or column.

    How many calls of each API did the consumers of a group make, and how many failed?

        >>> import kwsniff
        >>> calls = kwsniff.calls("captures/librdkafka-groups.pcapng", columns=["api", "error_code"],
        ...                       where="api in ('JoinGroup', 'SyncGroup', 'Heartbeat')")
        >>> calls["api"].value_counts().to_dict(), int((calls["error_code"] != 0).sum())
        ({'Heartbeat': 37, 'JoinGroup': 15, 'SyncGroup': 11}, 9)

    Packets need no file, and may be scapy's:

        >>> from scapy.all import rdpcap
        >>> packets = rdpcap("captures/midstream.pcap")
        >>> len(kwsniff.calls(packets)) == len(kwsniff.calls("captures/midstream.pcap"))
        True
    """
    chosen = Config(full=full or records, records=records, ports=tuple(ports), **plain(config))
    names = EVENTS.names if columns is None else list(columns)
    asked = Selection(where, columns, since, until, tz, jobs, linktype)
    schema = pa.schema([EVENTS.field(name) for name in names if name in EVENTS.names])
    found = rows(paths, asked, chosen)
    batches = [batch.select(names).filter(pc.equal(batch["event"], CALL)) for batch in found]
    return as_frame(pa.Table.from_batches(batches, schema))


def as_frame(table: pa.Table) -> pd.DataFrame:
    """A table as a DataFrame whose columns are backed by Arrow."""
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas(types_mapper=pd.ArrowDtype)
    return frame


def plain(config: dict[str, Any]) -> dict[str, Any]:
    """Fields of Config, with the key log that SSLKEYLOGFILE names if none was given.

    Raises:
        TypeError: there is no such field; with what was meant.
        CaptureError: the key log cannot be read.
    """
    known = Config.__dataclass_fields__
    for name in config:
        if name not in known:
            raise TypeError(f"there is no option {name!r}{suggestion(name, known)}")
    try:
        return {**config, "keylog": key_log(config.get("keylog"))}
    except OSError as error:
        raise CaptureError(f"{error.filename}: {error.strerror}") from None


# What Python programs hand over to be read, and the events of it that were asked for.

PathName = str | os.PathLike[str]
Source = PathName | bytes | bytearray | memoryview | IO[bytes] | Iterable[Any]
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
