"""The two Arrow tables of the pipeline: SEGMENTS, what `analyze` takes, and EVENTS, what it yields.

Types are those that Spark, pandas and DuckDB all hold without a cast: signed integers, microsecond
timestamps in UTC. Each column says in its metadata what it holds. The columns of EVENTS are declared in
`kwsniff.schema`.
"""

from __future__ import annotations

import pyarrow as pa

from kwsniff.schema import COLUMNS, PARTITION, TEXTS, TIMESTAMP, arrow_field

__all__ = ["EVENTS", "PARTITION", "SEGMENTS", "TEXTS", "TIMESTAMP", "documented"]


def documented(name: str, kind: pa.DataType, doc: str) -> pa.Field:
    """A column that says what it holds."""
    return pa.field(name, kind, nullable=True, metadata={"doc": doc})


SEGMENTS = pa.schema(
    [
        documented("capture", pa.string(), "capture file; the same in all rows of a batch"),
        documented("packet", pa.int64(), "number of the packet in its file, from 1"),
        documented("time", pa.int64(), "nanoseconds since 1970 UTC"),
        documented("src_hi", pa.int64(), "upper half of the source address as IPv6; IPv4 is ::ffff:a.b.c.d"),
        documented("src_lo", pa.int64(), "lower half"),
        documented("dst_hi", pa.int64(), "upper half of the destination address"),
        documented("dst_lo", pa.int64(), "lower half"),
        documented("src_port", pa.int32(), "TCP source port"),
        documented("dst_port", pa.int32(), "TCP destination port"),
        documented("seq", pa.int64(), "TCP sequence number of the first payload byte, or of the SYN"),
        documented("ack", pa.int64(), "TCP acknowledgement number"),
        documented(
            "flags",
            pa.int32(),
            "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16; 256: window of 0, 512: captured twice",
        ),
        documented("tsval", pa.int64(), "TCP timestamp of the sender (RFC 7323), -1 if there is none"),
        documented(
            "length", pa.int64(), "payload bytes on the wire; `payload` holds fewer if cut by snaplen"
        ),
        documented("payload", pa.binary_view(), "payload bytes captured"),
        documented("anomaly", pa.string(), "set in a row that is no segment but reports on a packet"),
        documented("detail", pa.string(), "of the anomaly"),
    ]
)

EVENTS = pa.schema([arrow_field(column) for column in COLUMNS])
