"""TCP headers for whole columns of packets (RFC 9293, 3.1)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kwsniff.net.columns import ZERO_WINDOW
from kwsniff.net.ip import Datagrams, Refused, refuse
from kwsniff.net.layer import Layer
from kwsniff.net.packets import Bytes, Integers, number

PROTOCOL = 6

_TCP = np.dtype(
    [
        ("src_port", ">u2"),
        ("dst_port", ">u2"),
        ("seq", ">u4"),
        ("ack", ">u4"),
        ("offset", "u1"),
        ("flags", "u1"),
    ]
)
"""As far as it matters here, so that a capture cut behind it still counts."""


WINDOW = 14
"""Where the receive window stands in the header."""


@dataclass(slots=True)
class Segments:
    """TCP segments as columns; `row` tells which packet of the block each one came in."""

    row: Integers
    src_hi: Integers
    src_lo: Integers
    dst_hi: Integers
    dst_lo: Integers
    src_port: Integers
    dst_port: Integers
    seq: Integers
    ack: Integers
    flags: Integers
    length: Integers
    """Payload bytes on the wire."""
    start: Integers
    """Offset of the payload in the block's buffer."""
    captured: Integers
    """Payload bytes captured."""
    ident: Integers
    """Identification of the IP packet, 0 where it has none (IPv6)."""

    def __len__(self) -> int:
        return len(self.row)


def segments(data: Bytes, datagrams: Datagrams) -> tuple[Segments, Refused]:
    """Dissect the TCP headers of `datagrams`."""
    layer, refused = refuse(datagrams.layer, _TCP.itemsize)
    if len(layer) < len(datagrams):
        datagrams = datagrams.pick(datagrams.layer.holds(_TCP.itemsize))
    header = layer.read(data, _TCP)
    size = number(header["offset"] >> 4) * 4
    bad = (size < 20) | layer.lacks(size)
    if bad.any():
        refused.malformed = np.concatenate([refused.malformed, layer.row[bad]])
        datagrams, layer, header, size = datagrams.pick(~bad), layer.pick(~bad), header[~bad], size[~bad]
    start = layer.at + size
    found = Segments(
        layer.row,
        datagrams.src_hi,
        datagrams.src_lo,
        datagrams.dst_hi,
        datagrams.dst_lo,
        number(header["src_port"]),
        number(header["dst_port"]),
        number(header["seq"]),
        number(header["ack"]),
        number(header["flags"]) | _closed(data, layer),
        layer.wire - start,
        start,
        np.maximum(layer.end - start, 0),
        datagrams.ident,
    )
    return found, refused


def _closed(data: Bytes, layer: Layer) -> Integers:
    """ZERO_WINDOW for each header that announces a window of 0, as far as it was captured."""
    there = layer.holds(WINDOW + 2)
    at = np.where(there, layer.at + WINDOW, 0)
    shut = there & (data[at] == 0) & (data[at + 1] == 0) if len(layer) else there
    return np.where(shut, ZERO_WINDOW, 0)
