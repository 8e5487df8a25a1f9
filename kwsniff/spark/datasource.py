"""Spark data sources: `spark.read.format("kwsniff").load("captures/*.pcapng")` after `register(spark)`.

`kwsniff` gives the EVENTS of `kwsniff.rows.schema`, `kwsniff_segments` its SEGMENTS, `kwsniff_packets` the
PACKETS. Topic names are those the messages themselves give; the names known
from elsewhere in the input are joined by `kwsniff pipeline`.

Theory of operation. A partition is a *part* of the input, read by one task: a file, or a range of one. Each
part is decoded by itself, as if it were all there is. With the option `together` all files are one part, and
the rows those of `kwsniff decode`. Options say which rows and columns are wanted: a filter that Spark pushes
into a Python source stays with the DataFrame, and is applied to what else is made of it (Spark 4.3).
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession, datasource
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from kwsniff.capture.place import is_remote, local
from kwsniff.capture.source import CaptureTotals, blocks, resolve, segments
from kwsniff.config import MIB, Config, bytes_of, key_log, ports_of
from kwsniff.count.where.predicate import Predicate, columns_in, compile_where
from kwsniff.engine.analyze import analyze
from kwsniff.net.address import text
from kwsniff.net.dissect import Dissected, Dissector
from kwsniff.net.packets import Integers
from kwsniff.net.segments import SEGMENTS
from kwsniff.rows.arrays import column, repeated
from kwsniff.rows.schema import EVENTS, TIMESTAMP, documented
from kwsniff.run.part import SplitReader
from kwsniff.run.plan import Split, pieces
from kwsniff.spark.streamsource import BATCH_BYTES, QUIET, Following, FollowReader

PACKETS = pa.schema(
    [
        documented("capture", pa.string(), "capture file"),
        documented("packet", pa.int64(), "number of the packet in its file, from 1"),
        documented("time", TIMESTAMP, "when it was captured"),
        documented("link_type", pa.int32(), "LINKTYPE_ value of its link layer"),
        documented("length", pa.int64(), "bytes on the wire, link layer and all"),
        documented("captured", pa.int64(), "bytes captured; fewer if cut by snaplen"),
        # null in what is no TCP segment, as far as the capture shows
        documented("src_ip", pa.string(), "source address, inside of any tunnel"),
        documented("src_port", pa.int32(), "TCP source port"),
        documented("dst_ip", pa.string(), "destination address"),
        documented("dst_port", pa.int32(), "TCP destination port"),
        documented("seq", pa.int64(), "TCP sequence number"),
        documented("ack", pa.int64(), "TCP acknowledgement number"),
        documented(
            "flags",
            pa.int32(),
            "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16; 256: window of 0, 512: captured twice",
        ),
        documented("payload_bytes", pa.int64(), "TCP payload on the wire"),
    ]
)

T = TypeVar("T")

DEFAULT_TASKS = 2
"""Tasks of a stream, which share its connections."""


def register(spark: SparkSession) -> None:
    """Make the formats `kwsniff`, `kwsniff_segments` and `kwsniff_packets` known to `spark`, also over Spark
    Connect."""
    for source in (EventsSource, SegmentsSource, PacketsSource):
        spark.dataSource.register(source)


@dataclass
class InputPart(datasource.InputPartition):
    """A part of the input: several files, one, or a range of one."""

    paths: list[str]
    split: Split | None = None

    def segments(self, config: Config) -> Iterator[pa.RecordBatch]:
        """Its SEGMENTS batches. Raises CaptureError."""
        if self.split is None:
            return segments(self.paths, config)
        return SplitReader([self.split], 0, config).segments()


def parts(options: Any) -> list[InputPart]:
    """The parts of the input. Raises CaptureError, ValueError."""
    files = [file.path for file in resolve(_paths(options))]
    if _flag(options, "together"):
        return [InputPart(files)]
    size = options.get("split_size")
    if size is None:
        return [InputPart([file]) for file in files]
    config, size = _config(options), _whole(size, "split_size") * MIB
    cut = [split for file in files for split in pieces(file, config, size)]
    return [InputPart([split.path], split if split.end is not None else None) for split in cut]


class Source(datasource.DataSource):
    """A format that is read from captures."""

    FORMAT: ClassVar[str]
    COLUMNS: ClassVar[pa.Schema]
    READER: ClassVar[type[PartsReader]]

    @classmethod
    def name(cls) -> str:
        return cls.FORMAT

    def schema(self) -> StructType:
        names = [name.strip() for name in self.options.get("columns", "").split(",") if name.strip()]
        fields = [self.COLUMNS.field(name) for name in _known(names, self.COLUMNS) or self.COLUMNS.names]
        return from_arrow_schema(pa.schema(fields))

    def reader(self, schema: StructType) -> datasource.DataSourceReader:
        return self.READER(self.wanted(schema), dict(self.options))

    def wanted(self, given: StructType) -> pa.Schema:
        """The columns that Spark was told to expect: those of the source, or of `.schema(...)`."""
        _known([field.name for field in given.fields], self.COLUMNS)
        return to_arrow_schema(given, timezone="UTC")


class PartsReader(datasource.DataSourceReader):
    """A task for each part."""

    def __init__(self, schema: pa.Schema, options: dict[str, str]) -> None:
        self._schema, self._options = schema, options
        self._parts = parts(options)  # here, so that a wrong option is told before any task runs

    def partitions(self) -> Sequence[datasource.InputPartition]:
        return self._parts

    def read(self, partition: datasource.InputPartition) -> Iterator[Any]:
        assert isinstance(partition, InputPart)
        for batch in self._batches(partition):
            yield batch.select(self._schema.names).cast(self._schema)

    def _batches(self, part: InputPart) -> Iterator[pa.RecordBatch]:
        raise NotImplementedError


class EventsReader(PartsReader):
    """The events of each part."""

    def __init__(self, schema: pa.Schema, options: dict[str, str]) -> None:
        super().__init__(schema, options)
        self._config = _config(options)
        self._test()

    def _test(self) -> Predicate | None:
        """Says which rows are wanted."""
        given = [self._options.get(name) for name in ("where", "since", "until")]
        if not any(given):
            return None
        return compile_where(given[0], since=given[1], until=given[2])

    def _batches(self, part: InputPart) -> Iterator[pa.RecordBatch]:
        test = self._test()
        needed = columns_in(self._options["where"]) if self._options.get("where") else frozenset()
        # Other columns need not be made.
        config = replace(self._config, columns=frozenset(self._schema.names) | needed | {"time"})
        for batch in analyze(part.segments(config), config):
            yield batch if test is None else batch.filter(test(batch))


class SegmentsReader(PartsReader):
    """The segments in capture order."""

    def _batches(self, part: InputPart) -> Iterator[pa.RecordBatch]:
        yield from filter(len, part.segments(Config()))


class PacketsReader(PartsReader):
    """The packets of each file."""

    def __init__(self, schema: pa.Schema, options: dict[str, str]) -> None:
        super().__init__(schema, {"path": options.get("path", ""), "paths": options.get("paths", "")})

    def _batches(self, part: InputPart) -> Iterator[pa.RecordBatch]:
        yield from packets(part.paths[0])


class EventsSource(Source):
    """Events of captures.

    Options: `path` (a file, a directory, a pattern or a URL; several separated by commas, or as a list given
    to `load`), `port` (`9092,19092-19094`), `full` (true adds the bodies), `records` (true shows records in
    them), `columns` (these columns only), `where`, `since` and `until` (these rows, as for `kwsniff decode`),
    `together` (true: all files are one part), `split_size` (large files are read in parts of so many MiB),
    `max_memory` (`512M`).

    As a stream it follows directories that are rotated (`path`) and needs a directory of its own for what it
    keeps (`state`); further options: `partitions` (number of tasks, 2), `quiet` (seconds after which the
    newest file is finished, 60), `batch_bytes` (stored bytes of files in a batch, 1 GiB).
    """

    FORMAT, COLUMNS, READER = "kwsniff", EVENTS, EventsReader

    def streamReader(self, schema: StructType) -> datasource.DataSourceStreamReader:  # noqa: N802
        return FollowReader(_following(self.options), self.wanted(schema))


class SegmentsSource(Source):
    """TCP segments of captures. Options: `path`, `columns`, `together` (true: fragments of IP datagrams may
    go on from file to file), `split_size`."""

    # Spark has no binary views.
    COLUMNS = pa.schema(
        [pa.field("payload", pa.binary()) if field.name == "payload" else field for field in SEGMENTS]
    )
    FORMAT, READER = "kwsniff_segments", SegmentsReader


class PacketsSource(Source):
    """Packets of captures, one task a file. Options: `path`, `columns`."""

    FORMAT, COLUMNS, READER = "kwsniff_packets", PACKETS, PacketsReader


def _given(options: Any) -> list[str]:
    """The paths as they were given: `load` passes a list as JSON."""
    several: list[str] = json.loads(options.get("paths") or "[]")
    return several or [part.strip() for part in options.get("path", "").split(",") if part.strip()]


def _paths(options: Any) -> list[str]:
    given = _given(options)
    if not given:
        raise ValueError("kwsniff: nothing to read; name captures: load('captures/')")
    found = {
        each: [] if is_remote(each) else sorted(glob.glob(local(each), recursive=True)) for each in given
    }
    return [path for each in given for path in found[each] or [each]]


def _following(options: Any) -> Following:
    if not options.get("state"):
        raise ValueError("kwsniff as a stream needs the option 'state': a directory for what it keeps")
    return Following(
        _given(options),
        options["state"],
        _config(options),
        max(int(options.get("partitions", DEFAULT_TASKS)), 1),
        float(options.get("quiet", QUIET)),
        int(options.get("batch_bytes", BATCH_BYTES)),
    )


def _config(options: Any) -> Config:
    given = Config()
    return Config.within(
        _parsed(options, "max_memory", bytes_of, given.max_memory),
        ports=_parsed(options, "port", ports_of, given.ports),
        full=_flag(options, "full") or _flag(options, "records"),
        records=_flag(options, "records"),
        keylog=_key_log(options),
    )


def _key_log(options: Any) -> str | None:
    try:
        return key_log(options.get("keylog"))
    except OSError as error:
        raise ValueError(f"the option 'keylog': {error.filename}: {error.strerror}") from None


def _flag(options: Any, name: str) -> bool:
    return bool(options.get(name, "false").lower() == "true")


def _parsed(options: Any, name: str, parse: Callable[[str], T], default: T) -> T:
    if not (text := options.get(name, "")):
        return default
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"kwsniff: option {name}: {error}") from None


def _known(names: list[str], schema: pa.Schema) -> list[str]:
    """The same. Raises ValueError for a column that there is not."""
    unknown = [name for name in names if name not in schema.names]
    if unknown:
        raise ValueError(f"kwsniff has no column {unknown[0]!r}; there are {', '.join(schema.names)}")
    return names


def _whole(text: str, option: str) -> int:
    if not text.strip().isdecimal() or int(text) < 1:
        raise ValueError(f"kwsniff: option {option}: {text!r} is no whole number of at least 1")
    return int(text)


# All packets of a capture as a table: what stands below segments and events, for those who look into it.


def packets(path: str) -> Iterator[pa.RecordBatch]:
    """Batches of PACKETS, a row for each packet of one capture file, in its order.

    A datagram that came in fragments is a segment in the row of the fragment that completed it. Raises
    CaptureError.
    """
    dissector = Dissector(CaptureTotals())
    for block in blocks(path):
        if len(block):
            yield _rows(dissector.dissect(block))


def _rows(dissected: Dissected) -> pa.RecordBatch:
    block, found = dissected.block, dissected.segments
    place = np.full(len(block), -1, np.int64)
    place[found.row] = np.arange(len(found))
    missing = place < 0
    columns = {
        "capture": repeated(block.capture, len(block)),
        "packet": pa.array(block.number),
        "time": pa.array(block.time_ns // 1000).cast(TIMESTAMP),
        "link_type": pa.array(block.linktype, pa.int32()),
        "length": pa.array(block.origlen),
        "captured": pa.array(block.caplen),
        "src_ip": _addresses(found.src_hi, found.src_lo, place),
        "dst_ip": _addresses(found.dst_hi, found.dst_lo, place),
    }
    numbers = {name: getattr(found, name) for name in ("src_port", "dst_port", "seq", "ack", "flags")}
    for name, values in (*numbers.items(), ("payload_bytes", found.length)):
        columns[name] = column(np.append(values, 0)[place], PACKETS.field(name).type, missing)
    return pa.RecordBatch.from_arrays([columns[field.name] for field in PACKETS], schema=PACKETS)


def _addresses(hi: Integers, lo: Integers, place: Integers) -> pa.Array:
    """Each address written once, then shared."""
    both, index = np.unique(np.stack([hi, lo], axis=1), axis=0, return_inverse=True)
    names = pa.array([text(*pair) for pair in both.tolist()], pa.string())
    index = np.append(index.reshape(-1), 0)
    return names.take(pa.array(index[place], mask=place < 0))
