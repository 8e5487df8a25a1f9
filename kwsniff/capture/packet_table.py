"""All packets of a capture as a table: what stands below segments and events, for those who look into it."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from kwsniff.capture.source import CaptureTotals, blocks
from kwsniff.config import Config
from kwsniff.net.address import text
from kwsniff.net.dissect import Dissected, Dissector
from kwsniff.net.packets import Integers
from kwsniff.rows.arrays import column, repeated
from kwsniff.rows.schema import TIMESTAMP, documented

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


def packets(path: str | os.PathLike[str], config: Config | None = None) -> Iterator[pa.RecordBatch]:
    """Batches of PACKETS, a row for each packet of one capture file, in its order.

    A datagram that came in fragments is a segment in the row of the fragment that completed it. Raises
    CaptureError.
    """
    dissector = Dissector(CaptureTotals())
    for block in blocks(path, config):
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
