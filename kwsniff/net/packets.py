"""Packets as columns: what every capture reader hands over and every dissector works on."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Mask = NDArray[np.bool_]


class Note(NamedTuple):
    """Something odd about a packet or a place in a file; becomes a SEGMENTS row with `anomaly` set."""

    packet: int
    """Number of the packet in its file, from 1."""
    code: str
    """One of `kwsniff.rows.events.ANOMALIES`."""
    detail: str
    time_ns: int | None = None


@dataclass(slots=True)
class PacketBlock:
    """Consecutive packets of one capture that share one buffer.

    Invariant, which all gathering relies on: ``0 <= offset`` and ``offset + caplen <= len(data)``.
    """

    capture: str
    """Name of the capture file or interface."""
    data: Bytes
    """The buffer. Nobody writes to it once the block exists: Arrow arrays point into it."""
    offset: Integers
    """Where each packet starts in `data`."""
    caplen: Integers
    """Bytes captured."""
    origlen: Integers
    """Bytes on the wire."""
    time_ns: Integers
    """Nanoseconds since 1970 UTC."""
    number: Integers
    """Number of the packet in its file, from 1, as Wireshark counts."""
    linktype: Integers
    """LINKTYPE_ value (https://www.tcpdump.org/linktypes.html) of each packet."""
    notes: list[Note] = field(default_factory=list)
    """What the reader of the file noticed; may name a packet that is in no block."""
    place: int | None = None
    """Where `data` begins in the capture, as it is once decompressed; None if it is in no file."""
    secrets: bytes = b""
    """A TLS key log that the capture holds in front of these packets."""

    def __len__(self) -> int:
        return len(self.offset)


def gather(data: Bytes, layout: np.dtype[Any], at: Integers) -> NDArray[Any]:
    """Copy the header that `layout` describes from every offset in `at`; the result has one row a packet.

    Every ``at + layout.itemsize`` must be within `data`. Gathering opaque items and naming their fields
    afterwards is four times as fast as gathering a structured dtype.
    """
    size = layout.itemsize
    if not len(at):
        return np.empty(0, layout)
    windows = np.ndarray((len(data) - size + 1,), np.dtype(f"V{size}"), data, 0, (1,))
    return windows[at].view(layout)


def number(column: NDArray[Any]) -> Integers:
    """A column of any integer type and byte order as int64."""
    return column.astype(np.int64)


# What is counted while packets are read: the ground of the capture-trust paragraph.


@dataclass(slots=True)
class CaptureTotals:
    """Counts over all packets of a run; those of several processes can be merged."""

    files: int = 0
    packets: int = 0
    bytes: int = 0
    """On the wire, link layer and all."""
    segments: int = 0
    """TCP segments, those without payload too."""
    non_ip: int = 0
    non_tcp: int = 0
    """IP packets that carry something else than TCP."""
    fragments: int = 0
    """IP fragments, each counted, also those that became a whole packet."""
    fragments_lost: int = 0
    """Datagrams of which a fragment was missing."""
    malformed: int = 0
    headers_cut: int = 0
    """Packets of which the capture (by its snaplen) holds less than the headers."""
    payloads_cut: int = 0
    """TCP segments of which the capture holds only part of the payload."""
    unknown_link: int = 0
    cut_short: int = 0
    """Files that end inside a packet."""
    damaged: int = 0
    """Places in files where bytes had to be skipped."""
    skipped_bytes: int = 0
    """Bytes skipped there."""
    dropped: int = 0
    """Packets that kernel or interface dropped, as far as the files say."""
    duplicates: int = 0
    """TCP segments that were captured again just before, as on both sides of a bridge; where input is read
    in splits, not those whose first copy lies in the split before."""
    own_dropped: int = 0
    """Packets of a live session that were given up because decoding did not keep up."""
    first_time_ns: int | None = None
    last_time_ns: int | None = None

    def see_times(self, first: int, last: int) -> None:
        """Widen the time span (nanoseconds since 1970 UTC)."""
        if self.first_time_ns is None or first < self.first_time_ns:
            self.first_time_ns = first
        if self.last_time_ns is None or last > self.last_time_ns:
            self.last_time_ns = last

    def become(self, other: CaptureTotals) -> None:
        """Take the counts of another one instead of its own."""
        for each in fields(self):
            setattr(self, each.name, getattr(other, each.name))

    def merge(self, other: CaptureTotals) -> None:
        """Add the counts of another part of the same run."""
        for each in fields(self):
            if not each.name.endswith("_time_ns"):
                setattr(self, each.name, getattr(self, each.name) + getattr(other, each.name))
        if other.first_time_ns is not None and other.last_time_ns is not None:
            self.see_times(other.first_time_ns, other.last_time_ns)
