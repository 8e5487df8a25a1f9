"""Events and calls as rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from kwsniff.api.inputs import Selection, Source, rows
from kwsniff.capture.memory import ETHERNET
from kwsniff.config import Config
from kwsniff.events import CALL
from kwsniff.table import EVENTS

if TYPE_CHECKING:
    import pandas as pd

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
        paths: a capture file, a directory of them, ``-`` for standard input, or events that were stored as
            Parquet; a list of such; the bytes of a capture file; a binary file that is open; or packets:
            scapy's, or pairs of seconds since 1970 and bytes, as `linktype` says.
        where: an expression that rows have to meet, as of ``--where`` (``kwsniff schema --where``).
        columns: only these columns, in this order (``kwsniff schema``); what nobody asks for is not decoded.
        since, until: bounds of the time, the second exclusive: ISO 8601, or a time of day.
        tz: the zone of times that name none.
        full: also decode whole bodies, as JSON in the columns ``request`` and ``response``.
        records: show keys and values of records in these bodies.
        ports: ports of brokers; Kafka on other ports is found by its content.
        jobs: processes; None: as many as there are cores if the input is large.
        linktype: of packets that are bytes: a LINKTYPE_ value (https://www.tcpdump.org/linktypes.html).
        config: any other field of `kwsniff.Config`.

    Yields:
        Batches of the schema `kwsniff.table.EVENTS`, or of its columns that were asked for.

    Raises:
        kwsniff.capture.error.CaptureError: an input cannot be read; the text is one line.
        kwsniff.where.WhereError: `where`, `since` or `until` is wrong.
        TypeError, ValueError: there is no such option or column.

    How much of what was seen?

        >>> import collections
        >>> import kwsniff
        >>> found = collections.Counter()
        >>> for batch in kwsniff.events("captures/librdkafka-groups.pcapng", columns=["event"]):
        ...     found.update(batch["event"].to_pylist())
        >>> dict(found)
        {'call': 338, 'connection': 25}
    """
    chosen = Config(full=full or records, records=records, ports=tuple(ports), **_plain(config))
    asked = Selection(where, columns, since, until, tz, jobs, linktype)
    found = rows(paths, asked, chosen)
    if columns is None:
        return found
    names = list(columns)
    return (batch.select(names) for batch in found)


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

    All rows are in memory: ask for the `columns` you need, or take `kwsniff.events`, batch by batch.

    Args:
        paths: a capture file, a directory of them, ``-`` for standard input, or events that were stored as
            Parquet; a list of such; the bytes of a capture file; a binary file that is open; or packets:
            scapy's, or pairs of seconds since 1970 and bytes, as `linktype` says.
        where: an expression that calls have to meet, such as ``api == "Fetch" and latency > 100ms``
            (``kwsniff schema --where`` has the language).
        columns: only these columns, in this order; what nobody asks for is not decoded.
        since, until: bounds of the time, the second exclusive: ISO 8601, or a time of day.
        tz: the zone of times that name none.
        full: also decode whole bodies, as JSON in the columns ``request`` and ``response``.
        records: show keys and values of records in these bodies.
        ports: ports of brokers; Kafka on other ports is found by its content.
        jobs: processes; None: as many as there are cores if the input is large.
        linktype: of packets that are bytes: a LINKTYPE_ value (https://www.tcpdump.org/linktypes.html).
        config: any other field of `kwsniff.Config`, such as ``max_memory``.

    Raises:
        kwsniff.capture.error.CaptureError: an input cannot be read; the text is one line.
        kwsniff.where.WhereError: `where`, `since` or `until` is wrong.
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
    chosen = Config(full=full or records, records=records, ports=tuple(ports), **_plain(config))
    names = EVENTS.names if columns is None else list(columns)
    asked = Selection(where, columns, since, until, tz, jobs, linktype)
    schema = pa.schema([EVENTS.field(name) for name in names if name in EVENTS.names])
    found = rows(paths, asked, chosen)
    batches = [batch.filter(pc.equal(batch["event"], CALL)).select(names) for batch in found]
    frame: pd.DataFrame = pa.Table.from_batches(batches, schema).to_pandas(types_mapper=_arrow())
    return frame


def _arrow() -> Any:
    import pandas as pd

    return pd.ArrowDtype


def _plain(config: dict[str, Any]) -> dict[str, Any]:
    """Fields of Config. Raises TypeError for others, with what was meant."""
    known = Config.__dataclass_fields__
    for name in config:
        if name not in known:
            from kwsniff.similar import suggestion

            raise TypeError(f"there is no option {name!r}{suggestion(name, known)}")
    return config
