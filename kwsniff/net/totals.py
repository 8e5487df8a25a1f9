"""What is counted while packets are read: the ground of the capture-trust paragraph."""

from __future__ import annotations

from dataclasses import dataclass, fields


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
